//! Shared maps of a page as arrays of 64-bit atomics: the only `unsafe` of the crate.
//!
//! Touching a page beyond the end of a mapped file raises SIGBUS. No handler is installed here: the
//! writer never truncates, and a mode that lets others write is refused, so only the owner of the
//! file and root can make that happen. Read pages only of an owner whom you trust.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags};

#[derive(Debug)]
struct Map {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the map belongs to this value alone, and is only accessed through atomics.
unsafe impl Send for Map {}
// SAFETY: as above.
unsafe impl Sync for Map {}

impl Map {
    fn new(file: &File, bytes: usize, protection: ProtFlags) -> io::Result<Self> {
        // Populated, so that the first read of a slot does not enter the kernel either.
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: no fixed address is asked for, so no existing memory is touched.
        let start = unsafe { rustix::mm::mmap(ptr::null_mut(), bytes, protection, flags, file, 0) }?;
        let start = NonNull::new(start.cast()).ok_or(io::ErrorKind::AddrNotAvailable)?;
        let words = bytes / 8;
        Ok(Map { start, words })
    }

    fn words(&self) -> &[AtomicU64] {
        // SAFETY: maps start on a page, so aligned; `words` whole words were mapped and stay mapped as
        // long as self; every access of this process and of the other side is atomic. A read-only map
        // is handed out as `Loads` only, whose relaxed 64-bit loads are allowed on such memory.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.words) }
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is that of the map that `new` made, and nothing borrows it. Were it refused,
        // it would only stay mapped.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// A map to write to.
#[derive(Debug)]
pub(crate) struct WriteMap(Map);

impl WriteMap {
    /// Maps the first `bytes` of `file`, which must have them; a multiple of 8.
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        Map::new(file, bytes, ProtFlags::READ | ProtFlags::WRITE).map(WriteMap)
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        self.0.words()
    }
}

/// A read-only map.
#[derive(Debug)]
pub(crate) struct ReadMap(Map);

impl ReadMap {
    /// As [`WriteMap::new`].
    pub(crate) fn new(file: &File, bytes: usize) -> io::Result<Self> {
        Map::new(file, bytes, ProtFlags::READ).map(ReadMap)
    }

    /// `N` words from `start` on, if there are as many.
    #[inline]
    pub(crate) fn part<const N: usize>(&self, start: usize) -> Option<Loads<'_, N>> {
        let words = self.0.words().get(start..)?;
        words.first_chunk().map(Loads)
    }
}

/// Words that may only be loaded.
///
/// Relaxed loads only: those are promised to work on read-only memory, acquiring ones are not. Order
/// comes from fences.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Loads<'a, const N: usize>(&'a [AtomicU64; N]);

impl<const N: usize> Loads<'_, N> {
    #[inline]
    pub(crate) fn load(self, word: usize) -> u64 {
        self.0[word].load(Ordering::Relaxed)
    }
}
