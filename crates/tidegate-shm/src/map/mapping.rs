// SPDX-License-Identifier: Apache-2.0

//! Mappings of files that other processes may truncate.

use std::fs::File;
use std::io;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};

use super::guard::Guard;
use super::region::Backing;
use super::{Map, READ_WRITE};

/// A guarded shared mapping of the beginning of a file. Reading it is safe whatever happens to the file:
/// after a fault everything reads as zero, writes go nowhere and [`faulted`](Self::faulted) is set.
#[derive(Debug)]
pub struct Mapping {
    /// Before the map: it ends first.
    guard: Guard,
    map: Map,
    writable: bool,
}

impl Mapping {
    /// Maps the first `len` bytes of `file`, which may be shorter than that. A mapping to read has its pages from the
    /// beginning on, so a first read does not enter the kernel either.
    ///
    /// # Errors
    /// When the system refuses, or 4096 mappings exist already.
    pub fn new(file: &File, len: usize, writable: bool) -> io::Result<Self> {
        let guard = Guard::reserve()?;
        let protection = if writable { READ_WRITE } else { libc::PROT_READ };
        let map = Map::new(Backing::File(file, 0), len, protection, !writable)?;
        guard.arm(map.start.addr().get(), len, writable)?;
        Ok(Mapping { guard, map, writable })
    }

    /// Whether the file no longer backs this mapping.
    pub fn faulted(&self) -> bool {
        self.guard.faulted()
    }

    /// The 64-bit number at that offset in bytes.
    ///
    /// # Panics
    /// If the mapping has no such field, also in the other methods that take an offset.
    #[inline]
    pub fn load_u64(&self, offset: usize, order: Ordering) -> u64 {
        self.atomic_u64(offset).load(order)
    }

    /// The 32-bit number at that offset.
    #[inline]
    pub fn load_i32(&self, offset: usize, order: Ordering) -> i32 {
        self.atomic_i32(offset).load(order)
    }

    /// Stores a 64-bit number.
    #[inline]
    pub fn store_u64(&self, offset: usize, value: u64, order: Ordering) {
        assert!(self.writable, "mapped read-only");
        self.atomic_u64(offset).store(value, order);
    }

    /// Stores a 32-bit number.
    #[inline]
    pub fn store_i32(&self, offset: usize, value: i32, order: Ordering) {
        assert!(self.writable, "mapped read-only");
        self.atomic_i32(offset).store(value, order);
    }

    /// Stores `new` if `current` is still there.
    #[inline]
    pub fn replace_u64(&self, offset: usize, current: u64, new: u64) -> bool {
        assert!(self.writable, "mapped read-only");
        let field = self.atomic_u64(offset);
        let swapped = field.compare_exchange(current, new, Ordering::AcqRel, Ordering::Relaxed);
        swapped.is_ok()
    }

    /// Plain copy into the mapping; other processes see it when a later release store says so.
    #[inline]
    pub fn write<const N: usize>(&mut self, offset: usize, bytes: &[u8; N]) {
        assert!(self.writable && offset <= self.map.bytes && N <= self.map.bytes - offset);
        // SAFETY: the range lies inside the mapping (asserted) and `bytes` is our own memory.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.map.start.add(offset).as_ptr(), N) };
    }

    /// `N` 64-bit words from the word `start` on, if there are as many.
    #[inline]
    pub fn loads<const N: usize>(&self, start: usize) -> Option<Loads<'_, N>> {
        // SAFETY: mappings start on a page, so aligned; as many whole words were mapped and stay mapped as long as
        // self; every access of this process and of the other side is atomic. They are handed out as `Loads` only,
        // whose relaxed 64-bit loads are allowed on read-only memory.
        let words = unsafe { std::slice::from_raw_parts(self.map.start.as_ptr().cast(), self.map.bytes / 8) };
        words.get(start..)?.first_chunk().map(Loads)
    }

    fn atomic_u64(&self, offset: usize) -> &AtomicU64 {
        let last = self.map.bytes.checked_sub(8);
        assert!(offset.is_multiple_of(8) && last.is_some_and(|last| offset <= last));
        // SAFETY: in bounds and aligned (asserted; mappings start on a page); valid as long as self;
        // this process accesses the field through atomics only.
        unsafe { AtomicU64::from_ptr(self.map.start.add(offset).as_ptr().cast()) }
    }

    fn atomic_i32(&self, offset: usize) -> &AtomicI32 {
        let last = self.map.bytes.checked_sub(4);
        assert!(offset.is_multiple_of(4) && last.is_some_and(|last| offset <= last));
        // SAFETY: as in `atomic_u64`.
        unsafe { AtomicI32::from_ptr(self.map.start.add(offset).as_ptr().cast()) }
    }
}

/// Words that may only be loaded.
///
/// Relaxed loads only: those are promised to work on read-only memory, acquiring ones are not. Order
/// comes from fences.
#[derive(Clone, Copy, Debug)]
pub struct Loads<'a, const N: usize>(&'a [AtomicU64; N]);

impl<const N: usize> Loads<'_, N> {
    /// The word of that index, which is less than `N`.
    #[inline]
    pub fn load(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }
}
