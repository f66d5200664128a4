// SPDX-License-Identifier: Apache-2.0

//! System calls for files and users that the standard library does not offer.

use std::ffi::CStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd};

/// An offset or length in bytes as the system takes it.
pub(crate) fn offset(bytes: u64) -> io::Result<libc::off_t> {
    libc::off_t::try_from(bytes).map_err(|_| io::ErrorKind::FileTooLarge.into())
}

/// The most bytes that this process may give a file; `u64::MAX` without a limit.
pub(crate) fn file_size_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` has room for the answer. The call fails for unknown resources only; then no limit is known.
    unsafe { libc::getrlimit(libc::RLIMIT_FSIZE, &raw mut limit) };
    limit.rlim_cur
}

/// The most files that this process may have open now; `u64::MAX` without a limit.
pub fn open_files_limit() -> u64 {
    let mut limit = libc::rlimit {
        rlim_cur: libc::RLIM_INFINITY,
        rlim_max: libc::RLIM_INFINITY,
    };
    // SAFETY: `limit` has room for the answer. The call fails for unknown resources only; then no limit is known.
    unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    limit.rlim_cur
}

/// Gives a file memory or disk for `len` bytes from `at` on.
pub(crate) fn allocate(file: &File, at: u64, len: u64) -> io::Result<()> {
    // SAFETY: the call takes numbers, and `file` is open.
    match unsafe { libc::fallocate(file.as_raw_fd(), 0, offset(at)?, offset(len)?) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// A file in memory without a path, closed on `exec`. `name` shows in `/proc`.
///
/// # Errors
/// As of `memfd_create`.
pub fn memory_file(name: &CStr) -> io::Result<File> {
    // SAFETY: `name` ends with a zero byte.
    match unsafe { libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        // SAFETY: the descriptor is new, and nothing else owns it.
        descriptor => Ok(unsafe { File::from_raw_fd(descriptor) }),
    }
}

/// The effective user id of this process.
pub fn user_id() -> u32 {
    // SAFETY: the call takes nothing and always succeeds.
    unsafe { libc::geteuid() }
}
