// SPDX-License-Identifier: Apache-2.0

//! A producer of ring files of any version, byte-compatible with NIXL's: for simulation, tests and benches.
//!
//! NIXL publishes `write_pos` after every event. Here [`Writer::push`] stages and [`Writer::flush`]
//! publishes, so a block of events costs one release store; flush after each push to do as NIXL does.

use std::fs::{File, OpenOptions};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;

use tidegate_shm::Mapping;

use crate::error::Error;
use crate::kind::{Category, KINDS, NameKey, NixlKind, UNKNOWN, slot_name};
use crate::layout::{
    EXPECTED_VERSION_OFFSET, Geometry, Layout, MAX_CAPACITY, NAME_SIZE, Reject, VERSION_OFFSET,
};

/// One event to be written.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Event {
    /// NIXL's event type; a type that is not in the table is written as such, or by the name `unknown_event` where the
    /// layout has names.
    pub kind: u16,
    /// Value in the unit of the kind.
    pub value: u64,
    /// Microseconds since the epoch; written in version 1 only.
    pub timestamp_us: u64,
}

/// An open ring to write to. Like NIXL's, it leaves its file behind.
#[derive(Debug)]
pub struct Writer {
    path: PathBuf,
    file: File,
    ring: Geometry,
    mapping: Mapping,
    /// Next slot to fill; published by `flush`.
    write_pos: u64,
    /// `read_pos` when last looked at; it only grows, so it is looked at again only when the ring seems full.
    read_pos: u64,
    dropped: u64,
    /// By kind, what layouts with names write.
    names: [(NameKey, Category); SLOT_NAMES],
}

/// The known kinds and [`UNKNOWN`].
const SLOT_NAMES: usize = UNKNOWN as usize + 1;

impl Writer {
    /// Creates the ring at `path`, or restarts it in place if it exists: same inode, header reset, old slot bytes left
    /// in place.
    ///
    /// # Errors
    /// [`Error::Io`], or [`Error::Rejected`] for a capacity that is not a power of two or too large.
    pub fn create(path: impl AsRef<Path>, layout: Layout, capacity: u64) -> Result<Self, Error> {
        let path = path.as_ref();
        check_capacity(path, capacity)?;
        let mut options = OpenOptions::new();
        // As NIXL: neither truncated nor exclusive.
        options
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .mode(0o644);
        let file = options.open(path).map_err(|e| Error::io("create", path, e))?;
        let ring = Geometry { layout, capacity };
        let mapping = format(path, &file, ring)?;
        Ok(Writer {
            path: path.to_owned(),
            file,
            ring,
            mapping,
            write_pos: 0,
            read_pos: 0,
            dropped: 0,
            names: std::array::from_fn(|kind| {
                let row = &KINDS[kind];
                (slot_name(row.string_name().as_bytes()), row.category)
            }),
        })
    }

    /// Starts again in place, as a NIXL agent does whose process restarts, with any layout and capacity.
    ///
    /// # Errors
    /// As [`create`](Self::create).
    pub fn restart(&mut self, layout: Layout, capacity: u64) -> Result<(), Error> {
        check_capacity(&self.path, capacity)?;
        self.ring = Geometry { layout, capacity };
        self.mapping = format(&self.path, &self.file, self.ring)?;
        (self.write_pos, self.read_pos, self.dropped) = (0, 0, 0);
        Ok(())
    }

    /// Stages an event. False if the ring is full: the event is dropped, as NIXL drops the newest.
    #[inline]
    pub fn push(&mut self, event: Event) -> bool {
        let Some(offset) = self.claim() else {
            return false;
        };
        let Event { kind, value, .. } = event;
        match self.ring.layout {
            Layout::V1 | Layout::V2a => {
                let kind = usize::from(kind.min(UNKNOWN));
                let (name, category) = self.names[kind];
                self.write_named(offset, &name, category, event);
            }
            Layout::V2b => {
                let category = NixlKind::by_id(kind).map_or(Category::Custom, |row| row.category);
                self.write_typed(offset, category as u32, u32::from(kind), value);
            }
            Layout::V3 | Layout::V4 | Layout::V5 => {
                self.write_typed(offset, u32::from(kind), 0, value);
            }
        }
        true
    }

    /// Stages an event under a name of its own (its first 31 bytes), for versions 1 and 2a; `kind`
    /// is not used. Other layouts have no names: there it becomes an unknown type.
    pub fn push_named(&mut self, name: &str, category: Category, event: Event) -> bool {
        if !self.ring.layout.has_names() {
            return self.push(Event {
                kind: UNKNOWN,
                ..event
            });
        }
        let Some(offset) = self.claim() else {
            return false;
        };
        let mut name = slot_name(name.as_bytes());
        name[NAME_SIZE - 1] = 0;
        self.write_named(offset, &name, category, event);
        true
    }

    /// Publishes what was staged.
    pub fn flush(&mut self) {
        let at = self.ring.layout.fields().write_pos;
        self.mapping.store_u64(at, self.write_pos, Ordering::Release);
    }

    /// Stages and publishes as many of `events` as fit, in one block; returns how many.
    pub fn push_all(&mut self, events: &[Event]) -> usize {
        let pushed = events.iter().filter(|event| self.push(**event)).count();
        self.flush();
        pushed
    }

    /// Events that found the ring full since it was made or restarted.
    pub fn dropped(&self) -> u64 {
        self.dropped
    }

    /// Events staged or published and not yet consumed.
    pub fn unread(&mut self) -> u64 {
        self.load_read_pos();
        self.ring.distance(self.read_pos, self.write_pos)
    }

    /// Layout and capacity.
    pub fn geometry(&self) -> Geometry {
        self.ring
    }

    /// Where the ring is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Byte offset of the next free slot, whose event the caller then writes.
    fn claim(&mut self) -> Option<usize> {
        let next = self.ring.advance(self.write_pos, 1);
        if next == self.read_pos {
            self.load_read_pos();
            if next == self.read_pos {
                self.dropped += 1;
                return None;
            }
        }
        let offset = self.ring.offset(self.write_pos);
        self.write_pos = next;
        Some(offset as usize) // within the mapping, so within the address space
    }

    fn load_read_pos(&mut self) {
        let at = self.ring.layout.fields().read_pos;
        self.read_pos = self.mapping.load_u64(at, Ordering::Acquire);
    }

    /// A 16-byte slot.
    #[inline]
    fn write_typed(&mut self, offset: usize, first: u32, second: u32, value: u64) {
        let words = u128::from(first) | u128::from(second) << 32 | u128::from(value) << 64;
        self.mapping.write(offset, &words.to_le_bytes());
    }

    /// A version-1 slot, or the same without its timestamp: a version-2a slot.
    fn write_named(&mut self, offset: usize, name: &NameKey, category: Category, event: Event) {
        let at = match self.ring.layout {
            Layout::V1 => {
                self.mapping.write(offset, &event.timestamp_us.to_le_bytes());
                offset + 8
            }
            _ => offset,
        };
        self.mapping.write(at, &(category as i32).to_le_bytes());
        self.mapping.write(at + 4, name);
        self.mapping.write(at + 36, &[0; 4]);
        self.mapping.write(at + 40, &event.value.to_le_bytes());
    }
}

fn check_capacity(path: &Path, capacity: u64) -> Result<(), Error> {
    if !capacity.is_power_of_two() {
        return Err(Error::rejected(path, Reject::BadCapacity { capacity }));
    }
    if capacity > MAX_CAPACITY {
        return Err(Error::rejected(path, Reject::TooLarge { capacity }));
    }
    Ok(())
}

/// Gives the file its size and constructs the header in place, the version last.
fn format(path: &Path, file: &File, ring: Geometry) -> Result<Mapping, Error> {
    let size = ring.layout.file_size(ring.capacity);
    rustix::fs::ftruncate(file, size).map_err(|e| Error::io("resize", path, e))?;
    let mapping = Mapping::new(file, size as usize, true).map_err(|e| Error::io("map", path, e))?;
    let at = ring.layout.fields();
    mapping.store_i32(VERSION_OFFSET, 0, Ordering::Release);
    mapping.store_u64(at.write_pos, 0, Ordering::Relaxed);
    mapping.store_u64(at.read_pos, 0, Ordering::Relaxed);
    mapping.store_u64(at.capacity, ring.capacity, Ordering::Relaxed);
    mapping.store_u64(at.mask, ring.capacity - 1, Ordering::Relaxed);
    let version = ring.layout.version();
    mapping.store_i32(VERSION_OFFSET, version, Ordering::Release);
    mapping.store_i32(EXPECTED_VERSION_OFFSET, version, Ordering::Relaxed);
    Ok(mapping)
}

#[cfg(test)]
mod tests;
