// SPDX-License-Identifier: Apache-2.0

//! A reader of a page: it maps the page read-only, and then reads without system calls.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};
use std::time::Duration;

use tidegate_shm::{FileId, Loads, Mapping};

use crate::create;
use crate::entry::{Snapshot, state_byte};
use crate::error::{Error, FindError, ReadError};
use crate::layout::{
    self, DESCRIPTION_WORD, DIRECTORY_WORD, Geometry, HEADER_SIZE, HEADER_WORDS, SLOT_WORDS, TEXT_SIZE,
    TEXT_WORD, TEXT_WORDS, VALUE_WORDS, header, slot,
};
use crate::seqlock;
use crate::text::{Lens, Text};

/// The most times that a search without a result starts again because the directory changed meanwhile.
const SEARCHES: u32 = 8;

/// An open page. Threads may share it.
///
/// When the writer starts again, it makes another file: the entries of this one stop moving, and its
/// heart stops. So a router does, with each read or every few milliseconds:
///
/// ```no_run
/// # use std::time::Duration;
/// # use tidegate_page::Reader;
/// # fn example(reader: &mut Reader, now_ns: u64) {
/// if !reader.is_alive(now_ns, Duration::from_secs(1))
///     && !reader.is_current()
///     && let Ok(newer) = Reader::open(reader.path())
/// {
///     *reader = newer; // then find every handle again
/// }
/// # }
/// ```
///
/// `is_alive` makes no system call, `is_current` one. Handles of the old file are answered with
/// [`ReadError::Moved`] by the new reader.
///
/// The owner of the file can truncate it. A read beyond the end then finds zeros: all entries are gone, there is no
/// heartbeat, and [`Self::is_current`] is false. For this the reader installs a handler of SIGBUS, which hands all other
/// faults to the handler before it. A read before the end finds what is left there.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    id: FileId,
    map: Mapping,
    geometry: Geometry,
    boot: u64,
}

/// An entry that was found: which slot, and whose it was then.
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Handle {
    slot: u32,
    generation: u64,
    boot: u64,
}

/// An entry in the result of [`Reader::list`].
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Listed {
    /// Name of the composite.
    pub name: String,
    /// Its labels as text.
    pub labels: String,
    /// The handle for reads of it.
    pub handle: Handle,
}

impl Reader {
    /// Opens the page at `path`, never through a symbolic link.
    ///
    /// # Errors
    /// [`Error::Rejected`] if it is not a page of this version or its header does not fit its size, or
    /// [`Error::Io`].
    pub fn open(path: impl AsRef<Path>) -> Result<Self, Error> {
        let path = path.as_ref();
        let (file, metadata) = create::open(OpenOptions::new().read(true), path)?;
        let size = metadata.len();
        let mut bytes = [0; HEADER_SIZE];
        // Fewer bytes if the file is shorter: then the check of sizes says so.
        tidegate_shm::read_at(&file, &mut bytes, 0).map_err(|e| Error::io("read", path, e))?;
        let (geometry, boot) = layout::check(&bytes, size).map_err(|reject| Error::rejected(path, reject))?;
        // At most 256 MiB, and as large as the file.
        let map = Mapping::new(&file, size as usize, false).map_err(|e| Error::io("map", path, e))?;
        Ok(Reader {
            path: path.to_owned(),
            id: FileId::of(&metadata),
            map,
            geometry,
            boot,
        })
    }

    /// Looks for an entry by its name and the canonical text of its labels
    /// ([`canonical_labels`](crate::canonical_labels)). Takes time proportional to the slots in use; keep
    /// the handle.
    ///
    /// # Errors
    /// [`FindError`].
    pub fn find(&self, name: &str, labels: &str) -> Result<Handle, FindError> {
        let wanted = Text::new(name, labels).map_err(|_| FindError::NotFound)?;
        for _ in 0..SEARCHES {
            let seq = self.layout_seq();
            if let Some(found) = self.search(&wanted)? {
                return Ok(found);
            }
            fence(Ordering::Acquire);
            if self.layout_seq() == seq {
                return Err(FindError::NotFound);
            }
        }
        Err(FindError::Busy)
    }

    /// Every entry there is, but for slots that are being written all the time: for people, and for routers
    /// that do not know the labels. Allocates.
    pub fn list(&self) -> Vec<Listed> {
        (0..self.high()).filter_map(|slot| self.listed(slot)).collect()
    }

    /// The entry as it is now. Well under a microsecond, no system call, no allocation.
    ///
    /// # Errors
    /// [`ReadError`].
    #[inline]
    pub fn read(&self, handle: &Handle) -> Result<Snapshot, ReadError> {
        if handle.boot != self.boot {
            return Err(ReadError::Moved);
        }
        let words = self.slot(handle.slot).ok_or(ReadError::Moved)?;
        let copied = seqlock::read(words, |words| {
            let values: [u64; VALUE_WORDS] = std::array::from_fn(|i| words.load(DESCRIPTION_WORD + i));
            (words.load(slot::GENERATION / 8), values)
        });
        let (generation, values) = copied.ok_or(ReadError::Busy)?;
        if state_byte(values[0]) == 0 {
            return Err(ReadError::Gone);
        }
        if generation != handle.generation {
            return Err(ReadError::Moved);
        }
        Snapshot::from_words(&values)
    }

    /// When the writer last said that it lives, in ns since the epoch. `None`: it has not begun, or it
    /// has closed the page.
    #[inline]
    pub fn heartbeat(&self) -> Option<u64> {
        Some(self.header(header::HEARTBEAT_NS / 8)).filter(|ns| *ns != 0)
    }

    /// Whether the heart beat at most `within` before `now_ns`. A beat as far in the future is not a sign of
    /// life either: the clock was set back after a writer died.
    #[inline]
    pub fn is_alive(&self, now_ns: u64, within: Duration) -> bool {
        let near = |beat: u64| u128::from(now_ns.abs_diff(beat)) <= within.as_nanos();
        self.heartbeat().is_some_and(near)
    }

    /// Whether the open file is still the one at the path, and no read found it truncated. One system call.
    pub fn is_current(&self) -> bool {
        !self.map.faulted() && self.id.is_at(&self.path)
    }

    /// Changes whenever an entry gets or loses a slot.
    #[inline]
    pub fn layout_seq(&self) -> u64 {
        let seq = self.header(header::LAYOUT_SEQ / 8);
        // From here on, reads see the directory as it was at this number, or later.
        fence(Ordering::Acquire);
        seq
    }

    /// Entries in the page.
    pub fn used(&self) -> u32 {
        self.header(DIRECTORY_WORD) as u32 // the lower half
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.geometry.capacity
    }

    /// The random number that the writer drew for this file.
    pub fn boot(&self) -> u64 {
        self.boot
    }

    /// The path at which the page was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn header(&self, word: usize) -> u64 {
        let header = self.map.loads::<HEADER_WORDS>(0);
        header.map_or(0, |header| header.load(word))
    }

    fn high(&self) -> u32 {
        let high = (self.header(DIRECTORY_WORD) >> 32) as u32;
        high.min(self.geometry.capacity)
    }

    #[inline]
    fn slot(&self, slot: u32) -> Option<Loads<'_, SLOT_WORDS>> {
        self.map.loads(self.geometry.slot_word(slot))
    }

    fn handle(&self, slot: u32, generation: u64) -> Handle {
        Handle {
            slot,
            generation,
            boot: self.boot,
        }
    }

    /// Once through all slots.
    fn search(&self, wanted: &Text) -> Result<Option<Handle>, FindError> {
        let mut busy = false;
        for slot in 0..self.high() {
            let Some(words) = self.slot(slot) else { break };
            match seqlock::read(words, |words| generation_of(words, wanted)) {
                Some(Some(generation)) => return Ok(Some(self.handle(slot, generation))),
                Some(None) => {}
                None => busy = true,
            }
        }
        if busy { Err(FindError::Busy) } else { Ok(None) }
    }

    fn listed(&self, slot: u32) -> Option<Listed> {
        let (description, generation, text) = seqlock::read(self.slot(slot)?, |words| {
            let text: [u64; TEXT_WORDS] = std::array::from_fn(|i| words.load(TEXT_WORD + i));
            let description = words.load(DESCRIPTION_WORD);
            (description, words.load(slot::GENERATION / 8), text)
        })?;
        let lens = Lens::of_word(description);
        let (name, labels) = (usize::from(lens.name), usize::from(lens.labels));
        if state_byte(description) == 0 || name + labels > TEXT_SIZE {
            return None;
        }
        let bytes: Vec<u8> = text.iter().flat_map(|word| word.to_le_bytes()).collect();
        let (name, rest) = bytes.split_at_checked(name)?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Some(Listed {
            name: text(name),
            labels: text(rest.get(..labels)?),
            handle: self.handle(slot, generation),
        })
    }
}

/// The generation of a slot if it is of this text.
fn generation_of(words: Loads<'_, SLOT_WORDS>, wanted: &Text) -> Option<u64> {
    let description = words.load(DESCRIPTION_WORD);
    let same = state_byte(description) != 0
        && Lens::of_word(description) == wanted.lens
        && (0..wanted.used).all(|i| words.load(TEXT_WORD + i) == wanted.words[i]);
    same.then(|| words.load(slot::GENERATION / 8))
}

#[cfg(test)]
mod tests;
