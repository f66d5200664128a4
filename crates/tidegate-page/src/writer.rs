// SPDX-License-Identifier: Apache-2.0

//! The single writer of a page.

mod round;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use tidegate_shm::{FileId, Slot};

use crate::create::{self, Lock};
use crate::entry::Entry;
use crate::error::{Error, SetError};
use crate::layout::{
    DESCRIPTION_WORD, DIRECTORY_WORD, Geometry, MAX_CAPACITY, SLOT_WORDS, TEXT_WORD, VALUE_WORDS, header,
    slot,
};
use crate::seqlock;
use crate::text::{Lens, Text};

pub use round::{Published, Round};

/// A page being written. A drop closes it: readers find their entries gone, the heartbeat stops, and the file is
/// removed.
///
/// The page allocates nothing once every entry has its slot.
#[derive(Debug)]
pub struct Page {
    path: PathBuf,
    geometry: Geometry,
    id: FileId,
    map: Slot,
    /// By name, NUL, labels.
    index: HashMap<Box<str>, u32>,
    /// A buffer for the text of a look-up.
    key: String,
    free: BinaryHeap<Reverse<u32>>,
    /// By slot, the last round that set it.
    set_in: Vec<u64>,
    round: u64,
    high: u32,
    closed: bool,
    _lock: Lock,
}

impl Page {
    /// Creates the page at `path` for `capacity` entries, with exactly the mode bits given: 0600, with
    /// read permission for group and others added as wanted. A page that a killed writer left is
    /// replaced; its readers notice ([`Reader::is_current`](crate::Reader::is_current)).
    ///
    /// # Errors
    /// [`Error::Locked`] if the path has a writer, [`Error::Rejected`] if something other than a page is
    /// there, [`Error::Capacity`], [`Error::Mode`], or [`Error::Io`].
    pub fn create(path: impl AsRef<Path>, capacity: u32, mode: u32) -> Result<Self, Error> {
        let path = path.as_ref();
        if !(1..=MAX_CAPACITY).contains(&capacity) {
            return Err(Error::Capacity { capacity });
        }
        if mode & 0o600 != 0o600 || mode & !0o644 != 0 {
            return Err(Error::Mode { mode });
        }
        let geometry = Geometry::of_capacity(capacity);
        let lock = Lock::take(path)?;
        let (map, id) = create::create(path, geometry, mode)?;
        Ok(Page {
            path: path.to_owned(),
            geometry,
            id,
            map,
            index: HashMap::with_capacity(capacity as usize),
            key: String::new(),
            free: (0..capacity).map(Reverse).collect(),
            set_in: vec![0; capacity as usize],
            round: 0,
            high: 0,
            closed: false,
            _lock: lock,
        })
    }

    /// Sets all `entries`, frees the slots of those no longer given, and beats the heart. An entry stays
    /// in its slot as long as it is given; a slot is written only if something in it changes.
    pub fn publish<'e, I>(&mut self, now_ns: u64, entries: I) -> Published
    where
        I: IntoIterator<Item = &'e Entry<'e>>,
        I::IntoIter: Clone,
    {
        let entries = entries.into_iter();
        let mut round = self.round();
        for entry in entries.clone() {
            let _ = round.set(entry); // counted
        }
        let mut done = round.finish(now_ns);
        if done.refused_full > 0 && done.removed > 0 {
            // Slots freed only now serve the entries that were refused.
            done.refused_full = 0;
            for entry in entries {
                match self.assign_slot(entry) {
                    Some(Ok(())) => done.written += 1,
                    Some(Err(SetError::Full { .. })) => done.refused_full += 1,
                    _ => {}
                }
            }
        }
        done
    }

    /// Begins a publication entry by entry, for a caller that does not have them in one place.
    pub fn round(&mut self) -> Round<'_> {
        self.round += 1;
        Round::new(self)
    }

    /// Sets one entry outside of any round. True if its slot was written, false if the slot has it already.
    ///
    /// # Errors
    /// [`SetError`], other than `Duplicate`.
    pub fn set(&mut self, entry: &Entry<'_>) -> Result<bool, SetError> {
        let lens = entry.check()?;
        match self.slot_of(entry.name, entry.labels) {
            Some(slot) => Ok(self.update(slot, entry, lens)),
            None => self.give(entry).map(|_| true),
        }
    }

    /// Frees the slot of an entry. False if it has none.
    pub fn remove(&mut self, name: &str, labels: &str) -> bool {
        let Some(slot) = self.slot_of(name, labels) else {
            return false;
        };
        self.index.remove(self.key.as_str());
        empty(&self.map, self.geometry, slot);
        self.free.push(Reverse(slot));
        self.directory_changed();
        true
    }

    /// Says that the writer lives, at `now_ns` since the epoch. A publication does this by itself.
    pub fn beat(&mut self, now_ns: u64) {
        self.store(header::HEARTBEAT_NS / 8, now_ns);
    }

    /// Entries in the page.
    pub fn used(&self) -> usize {
        self.index.len()
    }

    /// Number of slots.
    pub fn capacity(&self) -> u32 {
        self.geometry.capacity
    }

    /// The path of the page.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Closes the page as a drop does, but reports a failed removal of the file.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn close(mut self) -> Result<(), Error> {
        self.end()
    }

    fn end(&mut self) -> Result<(), Error> {
        if std::mem::replace(&mut self.closed, true) {
            return Ok(());
        }
        for slot in self.index.values() {
            empty(&self.map, self.geometry, *slot);
        }
        self.index.clear();
        self.directory_changed();
        self.beat(0);
        // Another file at the path is not ours.
        if self.id.is_at(&self.path) {
            std::fs::remove_file(&self.path).map_err(|e| Error::io("remove", &self.path, e))?;
        }
        Ok(())
    }

    fn slot_of(&mut self, name: &str, labels: &str) -> Option<u32> {
        self.key.clear();
        self.key.push_str(name);
        self.key.push('\0');
        self.key.push_str(labels);
        self.index.get(self.key.as_str()).copied()
    }

    /// Gives a slot to an entry that has none. `None`: it has one.
    fn assign_slot(&mut self, entry: &Entry<'_>) -> Option<Result<(), SetError>> {
        if let Err(e) = entry.check() {
            return Some(Err(e));
        }
        match self.slot_of(entry.name, entry.labels) {
            Some(_) => None,
            None => Some(self.give(entry).map(drop)),
        }
    }

    /// Gives the lowest free slot to the entry whose text is in `key`.
    fn give(&mut self, entry: &Entry<'_>) -> Result<u32, SetError> {
        let text = Text::new(entry.name, entry.labels)?;
        let Some(Reverse(slot)) = self.free.pop() else {
            return Err(SetError::Full {
                capacity: self.geometry.capacity,
            });
        };
        self.index.insert(self.key.as_str().into(), slot);
        if let Some(words) = slot_words(&self.map, self.geometry, slot) {
            let values = entry.words(text.lens);
            let generation = words[slot::GENERATION / 8].load(Ordering::Relaxed);
            seqlock::write(&words[slot::LOCK / 8], || {
                words[slot::GENERATION / 8].store(generation.wrapping_add(1), Ordering::Relaxed);
                store_changed(&words[DESCRIPTION_WORD..], &values);
                store_changed(&words[TEXT_WORD..], &text.words);
            });
        }
        self.high = self.high.max(slot + 1);
        self.directory_changed();
        Ok(slot)
    }

    /// True if anything changed.
    fn update(&mut self, slot: u32, entry: &Entry<'_>, lens: Lens) -> bool {
        let Some(words) = slot_words(&self.map, self.geometry, slot) else {
            return false;
        };
        let values = entry.words(lens);
        let there = &words[DESCRIPTION_WORD..DESCRIPTION_WORD + VALUE_WORDS];
        let same = |(word, value): (&AtomicU64, &u64)| word.load(Ordering::Relaxed) == *value;
        if there.iter().zip(&values).all(same) {
            return false;
        }
        seqlock::write(&words[slot::LOCK / 8], || store_changed(there, &values));
        true
    }

    /// Frees the slots that this round has not set.
    fn sweep(&mut self, seen: usize) -> usize {
        let before = self.index.len();
        if seen == before {
            return 0;
        }
        self.index.retain(|_, slot| {
            let keep = self.set_in.get(*slot as usize) == Some(&self.round);
            if !keep {
                empty(&self.map, self.geometry, *slot);
                self.free.push(Reverse(*slot));
            }
            keep
        });
        self.directory_changed();
        before - self.index.len()
    }

    /// The sequence comes last and with release: a reader that sees it sees the slots as well.
    fn directory_changed(&mut self) {
        let used = self.index.len() as u64; // at most the capacity
        self.store(DIRECTORY_WORD, used | u64::from(self.high) << 32);
        if let Some(seq) = self.map.words().get(header::LAYOUT_SEQ / 8) {
            seq.fetch_add(1, Ordering::Release);
        }
    }

    fn store(&self, word: usize, value: u64) {
        if let Some(word) = self.map.words().get(word) {
            word.store(value, Ordering::Release);
        }
    }
}

impl Drop for Page {
    fn drop(&mut self) {
        let _ = self.end(); // drop can't return an error; `close` does
    }
}

fn slot_words(map: &Slot, geometry: Geometry, slot: u32) -> Option<&[AtomicU64; SLOT_WORDS]> {
    map.words().get(geometry.slot_word(slot)..)?.first_chunk()
}

/// Stores only words that differ, so that an unchanged line stays in the caches of readers.
fn store_changed(words: &[AtomicU64], values: &[u64]) {
    for (word, value) in words.iter().zip(values) {
        if word.load(Ordering::Relaxed) != *value {
            word.store(*value, Ordering::Relaxed);
        }
    }
}

/// The generation stays: the next entry's is another one.
fn empty(map: &Slot, geometry: Geometry, slot: u32) {
    if let Some(words) = slot_words(map, geometry, slot) {
        seqlock::write(&words[slot::LOCK / 8], || {
            store_changed(&words[DESCRIPTION_WORD..], &[0; VALUE_WORDS]);
        });
    }
}

#[cfg(test)]
mod tests;
