// SPDX-License-Identifier: Apache-2.0

//! Memory as arrays of 64-bit atomics, for files of this process.
//!
//! A [`Region`] is mapped once and keeps its address. Another mapping can replace its pages in place
//! ([`Region::replace`]): a child of `fork` puts its own file under the addresses that it inherited, and every [`Slot`]
//! stays valid. All access is atomic, so neither other threads nor other processes can race.
//!
//! Touching a page beyond the end of a mapped file raises SIGBUS. No handler is installed here: the writer
//! [reserves](crate::reserve) every byte before it maps it and never truncates, and only the owner of the file and
//! root can.

use std::fs::File;
use std::io;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use super::{Map, READ_WRITE, map};

/// The memory under a region.
#[derive(Clone, Copy, Debug)]
pub enum Backing<'a> {
    /// A shared mapping of the file, from that offset on. The file has the bytes.
    File(&'a File, u64),
    /// Private memory, zero.
    Anonymous,
}

/// Memory to read and write, at a fixed address as long as this lives.
#[derive(Debug)]
pub struct Region(Map);

impl Region {
    /// Maps `bytes`. A file must have them.
    ///
    /// # Errors
    /// As of `mmap`.
    pub fn new(backing: Backing<'_>, bytes: usize) -> io::Result<Arc<Self>> {
        let map = Map::new(backing, bytes, READ_WRITE, false)?;
        Ok(Arc::new(Region(map)))
    }

    /// Memory that reads as zero in every child of `fork`.
    ///
    /// # Errors
    /// As of `mmap` and `madvise`.
    pub fn wiped_on_fork(bytes: usize) -> io::Result<Arc<Self>> {
        let region = Self::new(Backing::Anonymous, bytes)?;
        // SAFETY: the range is this region's, and the advice takes effect in children only, where all its
        // users expect zeros.
        match unsafe { libc::madvise(region.0.start.as_ptr().cast(), bytes, libc::MADV_WIPEONFORK) } {
            0 => Ok(region),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Replaces the memory under the same addresses in one step: no access faults meanwhile.
    ///
    /// # Errors
    /// As of `mmap`.
    pub fn replace(&self, backing: Backing<'_>) -> io::Result<()> {
        let Map { start, bytes } = self.0;
        // SAFETY: the range is exactly the one that this region owns. Slots into it see other values after
        // this, as they may see at any time: all access is atomic, and no value is relied upon.
        unsafe { map(start.as_ptr().cast(), bytes, backing, READ_WRITE, libc::MAP_FIXED) }?;
        Ok(())
    }

    /// `len` words from `start` on, if the region has them.
    pub fn slot(self: &Arc<Self>, start: usize, len: usize) -> Option<Slot> {
        let end = start.checked_add(len)?;
        if end > self.0.bytes / 8 {
            return None;
        }
        // SAFETY: within the region, as was just checked.
        let words = unsafe { self.0.start.cast::<AtomicU64>().add(start) };
        Some(Slot {
            words,
            len,
            _region: self.clone(),
        })
    }
}

/// Some words of a region, which it keeps mapped.
#[derive(Clone, Debug)]
pub struct Slot {
    words: NonNull<AtomicU64>,
    len: usize,
    _region: Arc<Region>,
}

// SAFETY: atomics only, in memory that the `Arc` keeps.
unsafe impl Send for Slot {}
// SAFETY: as above.
unsafe impl Sync for Slot {}

impl Slot {
    /// At most the first `len` of them.
    pub fn first(mut self, len: usize) -> Slot {
        self.len = self.len.min(len);
        self
    }

    /// The words.
    #[inline]
    pub fn words(&self) -> &[AtomicU64] {
        // SAFETY: regions start on a page, so aligned; the words are inside (`Region::slot`) and stay mapped as
        // long as `_region`; all accesses are atomic.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

/// Pointers to the words of a value and to its guard, and one reference count for the mappings. So a handle that is
/// found, cloned and dropped with each use costs no more than that count.
#[derive(Debug)]
pub struct Pinned<T> {
    value: NonNull<AtomicU64>,
    len: usize,
    guard: NonNull<AtomicU64>,
    kept: Arc<Kept<T>>,
}

#[derive(Debug)]
struct Kept<T> {
    _value: Slot,
    _guard: Slot,
    more: T,
}

// SAFETY: atomics only, in memory that the `Arc` keeps; its other fields are Send and Sync themselves.
unsafe impl<T: Send + Sync> Send for Pinned<T> {}
// SAFETY: as above.
unsafe impl<T: Send + Sync> Sync for Pinned<T> {}

impl<T> Clone for Pinned<T> {
    #[inline]
    fn clone(&self) -> Self {
        Pinned {
            kept: self.kept.clone(),
            ..*self
        }
    }
}

impl<T> Pinned<T> {
    /// `None`: the guard has no word.
    pub fn new(value: Slot, guard: Slot, more: T) -> Option<Self> {
        Some(Pinned {
            value: value.words,
            len: value.len,
            guard: (guard.len > 0).then_some(guard.words)?,
            kept: Arc::new(Kept {
                _value: value,
                _guard: guard,
                more,
            }),
        })
    }

    /// The words.
    #[inline]
    pub fn value(&self) -> &[AtomicU64] {
        // SAFETY: as of `Slot::words` of the slot they come from, which `kept` has.
        unsafe { std::slice::from_raw_parts(self.value.as_ptr(), self.len) }
    }

    /// The word that guards them.
    #[inline]
    pub fn guard(&self) -> &AtomicU64 {
        // SAFETY: the first word of the slot that `kept` has, which has one (`Pinned::new`).
        unsafe { self.guard.as_ref() }
    }

    /// The data kept with the mappings.
    #[inline]
    pub fn more(&self) -> &T {
        &self.kept.more
    }
}
