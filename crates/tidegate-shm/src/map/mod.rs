// SPDX-License-Identifier: Apache-2.0

//! Mapped memory, and the hooks into signals and `fork` that keep it valid: the only `unsafe` of the crate.

#![allow(unsafe_code)]

pub(crate) mod fork;
mod guard;
pub(crate) mod mapping;
pub(crate) mod region;

use std::ffi::c_void;
use std::io;
use std::ptr::{self, NonNull};

use rustix::mm::{MapFlags, ProtFlags};

use region::Backing;

const READ_WRITE: ProtFlags = ProtFlags::READ.union(ProtFlags::WRITE);

/// A range of memory that belongs to this value alone, at a fixed address as long as this lives.
#[derive(Debug)]
struct Map {
    start: NonNull<u8>,
    bytes: usize,
}

// SAFETY: the range belongs to this value alone. The types that have one access it through atomics or `&mut self`.
unsafe impl Send for Map {}
// SAFETY: as above; their `&self` offers atomic accesses only.
unsafe impl Sync for Map {}

impl Map {
    fn new(
        backing: Backing<'_>,
        bytes: usize,
        protection: ProtFlags,
        is_populated: bool,
    ) -> io::Result<Self> {
        let populate = if is_populated {
            MapFlags::POPULATE
        } else {
            MapFlags::empty()
        };
        // SAFETY: no fixed address is asked for, so no existing memory is touched.
        let start = unsafe { map(ptr::null_mut(), bytes, backing, protection, populate) }?;
        Ok(Map { start, bytes })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping that `new` made, and nothing borrows it. Were it refused, it would
        // only stay mapped.
        let _ = unsafe { rustix::mm::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Async-signal-safe: a bare system call.
///
/// # Safety
/// With [`MapFlags::FIXED`], `at` and `bytes` must be a mapping that the caller may replace.
unsafe fn map(
    at: *mut c_void,
    bytes: usize,
    backing: Backing<'_>,
    protection: ProtFlags,
    more: MapFlags,
) -> io::Result<NonNull<u8>> {
    let mapped = match backing {
        // SAFETY: the caller's promise.
        Backing::File(file, offset) => unsafe {
            rustix::mm::mmap(at, bytes, protection, MapFlags::SHARED | more, file, offset)
        },
        // SAFETY: the caller's promise.
        Backing::Anonymous => unsafe {
            rustix::mm::mmap_anonymous(at, bytes, protection, MapFlags::PRIVATE | more)
        },
    }?;
    NonNull::new(mapped.cast()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}
