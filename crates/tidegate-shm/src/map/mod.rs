// SPDX-License-Identifier: Apache-2.0

//! Mapped memory, the hooks into signals and `fork` that keep it valid, and system calls that the standard library
//! lacks: the only `unsafe` of the crate.

#![allow(unsafe_code)]

pub(crate) mod fork;
mod guard;
pub(crate) mod mapping;
pub(crate) mod region;
pub(crate) mod system;

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::{self, NonNull};

use region::Backing;

const READ_WRITE: c_int = libc::PROT_READ | libc::PROT_WRITE;

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
    fn new(backing: Backing<'_>, bytes: usize, protection: c_int, is_populated: bool) -> io::Result<Self> {
        let populate = if is_populated { libc::MAP_POPULATE } else { 0 };
        // SAFETY: no fixed address is asked for, so no existing memory is touched.
        let start = unsafe { map(ptr::null_mut(), bytes, backing, protection, populate) }?;
        Ok(Map { start, bytes })
    }
}

impl Drop for Map {
    fn drop(&mut self) {
        // SAFETY: the range is that of the mapping that `new` made, and nothing borrows it. Were it refused, it would
        // only stay mapped.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.bytes) };
    }
}

/// Async-signal-safe: one system call.
///
/// # Safety
/// With `MAP_FIXED` in `more`, `at` and `bytes` must be a mapping that the caller may replace.
unsafe fn map(
    at: *mut c_void,
    bytes: usize,
    backing: Backing<'_>,
    protection: c_int,
    more: c_int,
) -> io::Result<NonNull<u8>> {
    let (kind, descriptor, offset) = match backing {
        Backing::File(file, offset) => (libc::MAP_SHARED, file.as_raw_fd(), system::offset(offset)?),
        Backing::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
    };
    // SAFETY: the caller's promise; `backing` keeps its file open during the call.
    let mapped = unsafe { libc::mmap(at, bytes, protection, kind | more, descriptor, offset) };
    if mapped == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(mapped.cast()).ok_or_else(|| io::ErrorKind::AddrNotAvailable.into())
}
