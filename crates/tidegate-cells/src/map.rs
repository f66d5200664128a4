//! Memory as arrays of 64-bit atomics, and the hook into `fork`: the only `unsafe` of the crate.
//!
//! A [`Region`] is mapped once and keeps its address. What is mapped there can be replaced in place
//! ([`Region::replace`]): a child of `fork` puts its own file under the addresses that it inherited, and every
//! [`Slot`] stays valid. All access is atomic, so neither other threads nor other processes can race.
//!
//! Touching a page beyond the end of a mapped file raises SIGBUS. No handler is installed: the writer reserves
//! every byte before it maps it and never truncates, and only the owner of the file and root can.

#![allow(unsafe_code)]

use std::fs::File;
use std::io;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

use rustix::mm::{Advice, MapFlags, ProtFlags};

/// The memory under a region.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Backing<'a> {
    /// A shared mapping of the file, from that offset on. The file has the bytes.
    File(&'a File, u64),
    /// Private memory, zero.
    Anonymous,
}

/// A mapping, at a fixed address as long as this lives.
#[derive(Debug)]
pub(crate) struct Region {
    start: NonNull<AtomicU64>,
    words: usize,
}

// SAFETY: the mapping belongs to this value alone, and is accessed through atomics only.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

impl Region {
    /// Maps `bytes`, a multiple of the page size.
    pub(crate) fn new(backing: Backing<'_>, bytes: usize) -> io::Result<Arc<Self>> {
        // SAFETY: no fixed address is asked for, so no existing memory is touched.
        let start = unsafe { map(ptr::null_mut(), bytes, backing, MapFlags::empty()) }?;
        let words = bytes / 8;
        Ok(Arc::new(Region { start, words }))
    }

    /// A page that reads as zero in every child of `fork`.
    pub(crate) fn wiped_on_fork(bytes: usize) -> io::Result<Arc<Self>> {
        let region = Self::new(Backing::Anonymous, bytes)?;
        // SAFETY: the range is this region's, and the advice takes effect in children only, where all its
        // users expect zeros.
        unsafe { rustix::mm::madvise(region.start.as_ptr().cast(), bytes, Advice::LinuxWipeOnFork) }?;
        Ok(region)
    }

    /// Replaces the memory under the same addresses in one step: no access faults meanwhile.
    pub(crate) fn replace(&self, backing: Backing<'_>) -> io::Result<()> {
        let bytes = self.words * 8;
        // SAFETY: the range is exactly the one that this region owns. Slots into it see other values after
        // this, as they may see at any time: all access is atomic, and no value is relied upon.
        unsafe { map(self.start.as_ptr().cast(), bytes, backing, MapFlags::FIXED) }?;
        Ok(())
    }

    /// `len` words from `start` on, if the region has them.
    pub(crate) fn slot(self: &Arc<Self>, start: usize, len: usize) -> Option<Slot> {
        let end = start.checked_add(len)?;
        if end > self.words {
            return None;
        }
        // SAFETY: within the region, as was just checked.
        let words = unsafe { self.start.add(start) };
        Some(Slot {
            words,
            len,
            _region: self.clone(),
        })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping that `new` made, and nothing borrows it: slots hold an `Arc`.
        // Were it refused, it would only stay mapped.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.words * 8) };
    }
}

/// # Safety
/// With [`MapFlags::FIXED`], `at` and `bytes` must be a mapping that the caller owns.
unsafe fn map(
    at: *mut std::ffi::c_void,
    bytes: usize,
    backing: Backing<'_>,
    fixed: MapFlags,
) -> io::Result<NonNull<AtomicU64>> {
    let mapped = match backing {
        // SAFETY: the caller's promise.
        Backing::File(file, offset) => unsafe {
            rustix::mm::mmap(at, bytes, READ_WRITE, MapFlags::SHARED | fixed, file, offset)
        },
        // SAFETY: the caller's promise.
        Backing::Anonymous => unsafe {
            rustix::mm::mmap_anonymous(at, bytes, READ_WRITE, MapFlags::PRIVATE | fixed)
        },
    }?;
    NonNull::new(mapped.cast()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}

/// Some words of a region, which it keeps mapped.
#[derive(Clone, Debug)]
pub(crate) struct Slot {
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
    pub(crate) fn first(mut self, len: usize) -> Slot {
        self.len = self.len.min(len);
        self
    }

    /// The words.
    #[inline]
    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: regions start on a page, so aligned; the words are inside (`Region::slot`) and stay mapped as
        // long as `_region`; everybody accesses them through atomics.
        unsafe { std::slice::from_raw_parts(self.words.as_ptr(), self.len) }
    }
}

/// Pointers to the words of a value and to its guard, and one reference count for the mappings. So a handle that is
/// found, cloned and dropped with each use costs no more than that count.
#[derive(Debug)]
pub(crate) struct Pinned<T> {
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

// SAFETY: atomics only, in memory that the `Arc` keeps; what else it keeps is Send and Sync itself.
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
    pub(crate) fn new(value: Slot, guard: Slot, more: T) -> Option<Self> {
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
    pub(crate) fn value(&self) -> &[AtomicU64] {
        // SAFETY: as of `Slot::words` of the slot they come from, which `kept` has.
        unsafe { std::slice::from_raw_parts(self.value.as_ptr(), self.len) }
    }

    /// The word that guards them.
    #[inline]
    pub(crate) fn guard(&self) -> &AtomicU64 {
        // SAFETY: the first word of the slot that `kept` has, which has one (`Pinned::new`).
        unsafe { self.guard.as_ref() }
    }

    /// The data kept with the mappings.
    #[inline]
    pub(crate) fn more(&self) -> &T {
        &self.kept.more
    }
}

/// Has `fork` call `prepare` before, and one of the others after it, for the rest of the process' life.
pub(crate) fn at_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> io::Result<()> {
    // SAFETY: functions without arguments that live as long as this code is mapped; the C library drops them
    // when the object that contains it is unloaded.
    match unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) } {
        0 => Ok(()),
        code => Err(io::Error::from_raw_os_error(code)),
    }
}
