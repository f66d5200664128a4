// SPDX-License-Identifier: Apache-2.0

//! The consumer of a ring file.
//!
//! A drain costs one `fstat`, a few loads from the mapped header and one or two `pread`s. The producer reuses no slot
//! between `read_pos` and `write_pos`, so a reader can copy the slots between them without haste; the header is looked
//! at again after the copy, and a copy made while the ring was being restarted is thrown away. `read_pos` moves only in
//! [`Reader::commit`], by compare-exchange from the value last seen, after the same checks.
//!
//! NIXL restarts a ring in place: same inode, new size, positions and version. [`position`] tells
//! a restart from ordinary progress.

mod position;
mod report;

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{Ordering, fence};

use tidegate_shm::{FileId, Mapping, read_at, try_lock};

use crate::decode::Batch;
use crate::error::Error;
use crate::kind::Names;
use crate::layout::{
    EXPECTED_VERSION_OFFSET, Geometry, HEADER_SIZE, HeaderFields, RawHeader, Reject, VERSION_OFFSET,
};
use crate::open;
use position::Position;
pub use report::{DEFAULT_MAX_EVENTS, Fill, Mode, Options, Poll, Reset, Stats};

/// Bytes of a ring file that are mapped: a page, which holds the header of every layout.
const HEADER_MAPPING: usize = 4096;

/// How many reads in a row may find an impossible header before it counts as a reset: a writer
/// that restarts in place passes through such states for some microseconds.
const SETTLE_READS: u32 = 3;

/// An open ring. It survives whatever happens to its file.
#[derive(Debug)]
pub struct Reader {
    path: PathBuf,
    file: File,
    id: FileId,
    owner_uid: u32,
    mode: Mode,
    max_events: u64,
    header: Mapping,
    position: Position,
    names: Names,
    /// Reads in a row that found an impossible header.
    unsettled: u32,
    /// A reset was reported, and no ring has been found since.
    lost: bool,
    /// Events of the last batch, and how many of them were `unknown` and `overflow`.
    pending: [u64; 3],
    stats: Stats,
}

impl Reader {
    /// Opens the ring at `path`. Events that wait in it are the first to be read.
    ///
    /// # Errors
    /// [`Error::PermissionDenied`], [`Error::Rejected`] if it is not a ring (never written to then), or [`Error::Io`].
    pub fn open(path: impl AsRef<Path>, options: Options) -> Result<Self, Error> {
        let path = path.as_ref();
        let (file, metadata) = open::open(path, options.consume)?;
        let io = |operation| move |e: io::Error| Error::io(operation, path, e);
        let found = open::read_header(&file).map_err(io("read"))?;
        let ring = found.validate(metadata.len());
        let ring = ring.map_err(|reject| Error::rejected(path, reject))?;
        // The lock makes us the one consumer of this inode. NIXL itself takes none.
        let mode = if !options.consume {
            Mode::Peek
        } else if try_lock(&file).map_err(io("lock"))? {
            Mode::Consume
        } else {
            Mode::PeekLocked
        };
        let header = map_header(&file, mode).map_err(io("map"))?;
        Ok(Reader {
            path: path.to_owned(),
            id: FileId::of(&metadata),
            owner_uid: metadata.uid(),
            mode,
            max_events: options.max_events.max(1) as u64,
            header,
            position: Position::at(ring, found.read_pos),
            names: Names::default(),
            unsettled: 0,
            lost: false,
            pending: [0; 3],
            stats: Stats::default(),
            file,
        })
    }

    /// Copies waiting events into `batch`, whose former content is dropped. Without a
    /// [`commit`](Self::commit) in between, the next read begins with the same events.
    ///
    /// # Errors
    /// [`Error::Io`] when the system fails to read the file.
    pub fn read(&mut self, batch: &mut Batch) -> Result<Poll, Error> {
        batch.clear();
        self.pending = [0; 3];
        let metadata = self.file.metadata().map_err(|e| self.io("stat", e))?;
        let header = self.load_header(metadata.len())?;
        let ring = match header.validate(metadata.len()) {
            Ok(ring) => ring,
            Err(reject) => return Ok(self.unfit(reject, header, &metadata)),
        };
        match self.reconcile(header, ring) {
            Some(reset) => Ok(reset),
            None => self.fetch(header, batch, &metadata),
        }
    }

    /// Declares the events of the last [`read`](Self::read) accepted: moves past them, and when
    /// consuming hands their slots back to the producer.
    ///
    /// False if the ring was restarted in the meantime: there is nothing to hand back then, and
    /// the next read reports it. The events count as accepted either way.
    pub fn commit(&mut self) -> bool {
        let [events, unknown, overflow] = std::mem::take(&mut self.pending);
        self.stats.events += events;
        self.stats.unknown += unknown;
        self.stats.overflow += overflow;
        let write_pos = self.write_pos_if_same_ring();
        let still_there = write_pos.is_some_and(|w| self.position.readable(w) >= events);
        self.position.accept(events);
        still_there && self.hand_back()
    }

    /// Tries to become the consumer after [`Mode::PeekLocked`]. True if it is now.
    ///
    /// # Errors
    /// [`Error::Io`] when the system fails to lock or map.
    pub fn try_consume(&mut self) -> Result<bool, Error> {
        if self.mode == Mode::PeekLocked && try_lock(&self.file).map_err(|e| self.io("lock", e))? {
            self.header = map_header(&self.file, Mode::Consume).map_err(|e| self.io("map", e))?;
            self.mode = Mode::Consume;
            self.position.header_read_pos = load(&self.header).read_pos;
        }
        Ok(self.mode == Mode::Consume)
    }

    /// Where the ring was opened.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Which file it is; compare with [`FileId::of_path`] to notice a replacement early.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// Owner of the file: the uid of the producer.
    pub fn owner_uid(&self) -> u32 {
        self.owner_uid
    }

    /// Whether `read_pos` moves, and if not, why.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// Layout and capacity last found valid.
    pub fn geometry(&self) -> Geometry {
        self.position.ring
    }

    /// Names of the kinds in the batches of this reader.
    pub fn names(&self) -> &Names {
        &self.names
    }

    /// Totals since it was opened.
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The header through the mapping, which is renewed if it had lost its file; zeros if it is lost now.
    fn load_header(&mut self, file_size: u64) -> Result<RawHeader, Error> {
        if file_size < HEADER_SIZE as u64 {
            return Ok(RawHeader::default());
        }
        if self.header.faulted() {
            self.header = map_header(&self.file, self.mode).map_err(|e| self.io("map", e))?;
        }
        let header = load(&self.header);
        Ok(if self.header.faulted() {
            RawHeader::default()
        } else {
            header
        })
    }

    /// No valid header: patience first, then one reset, then waiting.
    fn unfit(&mut self, reject: Reject, header: RawHeader, metadata: &Metadata) -> Poll {
        if self.lost {
            return match metadata.nlink() {
                0 => self.gone(),
                _ => Poll::Unreadable(reject),
            };
        }
        self.unsettled += 1;
        if self.unsettled < SETTLE_READS {
            return Poll::Settling;
        }
        self.lost = true;
        let known = self.position.ring;
        let known_size = known.layout.file_size(known.capacity);
        let reason = match metadata.len() {
            size if size < known_size => Reset::Truncated,
            _ if header.is_zero() => Reset::Zeroed,
            size if size > known_size => Reset::Grown,
            _ if matches!(reject, Reject::BadPositions { .. }) => Reset::BadPositions,
            _ => Reset::BadHeader,
        };
        self.reset(reason, self.position.unaccepted)
    }

    /// A valid header: is it the ring we knew, further along?
    fn reconcile(&mut self, header: RawHeader, ring: Geometry) -> Option<Poll> {
        self.unsettled = 0;
        let known = self.position.ring;
        if std::mem::take(&mut self.lost) {
            self.position = Position::at(ring, header.read_pos);
        }
        if ring != self.position.ring {
            let reason = if ring.layout == known.layout {
                Reset::CapacityChanged
            } else {
                Reset::VersionChanged
            };
            let lost = self.position.unaccepted;
            self.position = Position::at(ring, header.read_pos);
            return Some(self.reset(reason, lost));
        }
        let (reason, lost) = self.position.reconcile(&header, self.mode == Mode::Consume)?;
        Some(self.reset(reason, lost))
    }

    fn reset(&mut self, reason: Reset, lost: u64) -> Poll {
        self.position.unaccepted = 0;
        self.stats.resets += 1;
        self.stats.lost += lost;
        Poll::Reset { reason, lost }
    }

    /// Copies and decodes what is readable.
    fn fetch(&mut self, header: RawHeader, batch: &mut Batch, metadata: &Metadata) -> Result<Poll, Error> {
        // Slots accepted while we only peeked, or while the hand-over failed.
        self.hand_back();
        let ring = self.position.ring;
        let readable = self.position.readable(header.write_pos);
        if readable == 0 {
            return Ok(if metadata.nlink() == 0 {
                self.gone()
            } else {
                Poll::Idle
            });
        }
        let count = readable.min(self.max_events);
        if !self.copy_slots(batch, count)? {
            batch.clear();
            return Ok(Poll::Settling);
        }
        let bytes = count as usize * ring.layout.event_size(); // count <= MAX_CAPACITY
        batch.decode(ring.layout, bytes, &mut self.names);
        self.pending = [count, batch.unknown, batch.overflow];
        self.position.unaccepted = readable;
        let full = ring.distance(header.read_pos, header.write_pos) == ring.capacity - 1;
        self.stats.suspected_loss += u64::from(full);
        Ok(Poll::Events(Fill {
            readable,
            capacity: ring.capacity,
            full,
        }))
    }

    /// Brings `count` slots into the raw buffer. False if the ring changed meanwhile.
    fn copy_slots(&self, batch: &mut Batch, count: u64) -> Result<bool, Error> {
        let ring = self.position.ring;
        let first = self.position.cursor;
        let to_end = count.min(ring.capacity - first);
        let slot_size = ring.layout.event_size();
        // count <= MAX_CAPACITY, so both products fit.
        let raw = batch.raw(count as usize * slot_size);
        let (head, tail) = raw.split_at_mut(to_end as usize * slot_size);
        let read = |bytes: &mut [u8], slot| {
            let found = read_at(&self.file, bytes, ring.offset(slot));
            let found = found.map_err(|e| self.io("read", e))?;
            Ok::<bool, Error>(found == bytes.len())
        };
        if !read(head, first)? || !read(tail, 0)? {
            return Ok(false);
        }
        // The copy above must be over before the header is looked at again.
        fence(Ordering::Acquire);
        let still = self.write_pos_if_same_ring();
        Ok(still.is_some_and(|write_pos| self.position.readable(write_pos) >= count))
    }

    /// Gives the slots of accepted events to the producer. False if `read_pos` is not where we left it.
    fn hand_back(&mut self) -> bool {
        let (from, to) = (self.position.header_read_pos, self.position.cursor);
        if self.mode != Mode::Consume || from == to {
            return true;
        }
        let read_pos = self.position.ring.layout.fields().read_pos;
        let moved = self.header.replace_u64(read_pos, from, to);
        if moved {
            self.position.header_read_pos = to;
        }
        moved
    }

    /// `write_pos`, if the header still describes the ring and `read_pos` that we know.
    fn write_pos_if_same_ring(&self) -> Option<u64> {
        let ring = self.position.ring;
        let now = load(&self.header);
        let same = now.version == ring.layout.version()
            && now.capacity == ring.capacity
            && now.write_pos < ring.capacity
            && (self.mode != Mode::Consume || now.read_pos == self.position.header_read_pos)
            && !self.header.faulted();
        same.then_some(now.write_pos)
    }

    fn gone(&self) -> Poll {
        Poll::Gone(match FileId::of_path(&self.path) {
            Ok(_) => Reset::Replaced,
            Err(_) => Reset::Removed,
        })
    }

    fn io(&self, operation: &'static str, source: io::Error) -> Error {
        Error::io(operation, &self.path, source)
    }
}

/// Loads the header: the version first, as the writer stores it last.
fn load(header: &Mapping) -> RawHeader {
    let version = header.load_i32(VERSION_OFFSET, Ordering::Acquire);
    let at = HeaderFields::of_version(version);
    RawHeader {
        read_pos: header.load_u64(at.read_pos, Ordering::Acquire),
        // Acquire: makes the slots before it visible.
        write_pos: header.load_u64(at.write_pos, Ordering::Acquire),
        version,
        expected_version: header.load_i32(EXPECTED_VERSION_OFFSET, Ordering::Relaxed),
        capacity: header.load_u64(at.capacity, Ordering::Relaxed),
        mask: header.load_u64(at.mask, Ordering::Relaxed),
    }
}

fn map_header(file: &File, mode: Mode) -> io::Result<Mapping> {
    Mapping::new(file, HEADER_MAPPING, mode == Mode::Consume)
}

#[cfg(test)]
mod tests;
