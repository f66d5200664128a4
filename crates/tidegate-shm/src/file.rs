// SPDX-License-Identifier: Apache-2.0

//! Files: their checks at opening, their identity, their locks and their memory.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FallocateFlags, FileType, FlockOperation, OFlags, Stat};
use rustix::io::Errno;
use rustix::process::Resource;

/// The reason why a file is not opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A directory, device, socket, pipe or symbolic link.
    #[error("not a regular file")]
    NotRegular,
    /// The system refused.
    #[error("cannot {operation} it: {source}")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The error of the system.
        source: io::Error,
    },
}

impl From<OpenError> for io::Error {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::Io { source, .. } => source,
            OpenError::NotRegular => io::Error::other(error),
        }
    }
}

/// Opens a regular file. It follows no link, which could lead a write anywhere, and a pipe does not block it.
///
/// # Errors
/// [`OpenError`].
pub fn open(options: &mut OpenOptions, path: &Path) -> Result<(File, Stat), OpenError> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    options.custom_flags(flags.bits() as i32); // defined as int in C
    let file = options.open(path).map_err(refusal)?;
    let stat = rustix::fs::fstat(&file).map_err(|errno| OpenError::Io {
        operation: "stat",
        source: errno.into(),
    })?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(OpenError::NotRegular);
    }
    Ok((file, stat))
}

fn refusal(source: io::Error) -> OpenError {
    // The errors of `open` for a symbolic link, a directory to be written and a socket.
    let not_regular = [Errno::LOOP, Errno::ISDIR, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
    if not_regular.contains(&source.raw_os_error()) {
        return OpenError::NotRegular;
    }
    OpenError::Io {
        operation: "open",
        source,
    }
}

/// The identity of a file, independent of its path.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct FileId {
    /// Device number.
    pub device: u64,
    /// Inode number.
    pub inode: u64,
}

impl FileId {
    /// The file that `path` leads to now, a symbolic link counting as itself.
    ///
    /// # Errors
    /// As of `lstat`.
    pub fn of_path(path: &Path) -> io::Result<FileId> {
        Ok(FileId::of_stat(&rustix::fs::lstat(path)?))
    }

    /// The file of that `stat`.
    pub fn of_stat(stat: &Stat) -> FileId {
        FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }

    /// Whether `path` leads to this file now.
    pub fn is_at(self, path: &Path) -> bool {
        FileId::of_path(path).is_ok_and(|there| there == self)
    }
}

/// The bytes of the file of that `stat`.
pub fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Takes the exclusive lock of a file, which lasts until the file is closed. False if another process has it.
///
/// # Errors
/// As of `flock`.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(true),
        Err(Errno::WOULDBLOCK) => Ok(false),
        Err(errno) => Err(errno.into()),
    }
}

/// Whether another process holds the lock of a file. Readers lock it as shared, so they do not see each other.
///
/// # Errors
/// As of `flock`.
pub fn is_locked(file: &File) -> io::Result<bool> {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockShared) {
        Ok(()) => {
            rustix::fs::flock(file, FlockOperation::Unlock)?;
            Ok(false)
        }
        Err(Errno::WOULDBLOCK) => Ok(true),
        Err(errno) => Err(errno.into()),
    }
}

/// Fills `bytes` from `offset` on and returns how many there were: fewer only at the end of the file.
///
/// # Errors
/// As of `pread`.
pub fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
    let mut done = 0;
    while done < bytes.len() {
        match file.read_at(&mut bytes[done..], offset + done as u64) {
            Ok(0) => break,
            Ok(count) => done += count,
            Err(e) if e.kind() == ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(done)
}

/// Reserves `len` bytes from `offset` on: missing space is an error now, and not SIGBUS later.
///
/// # Errors
/// As of `fallocate`, or of `write` on a file system that can't reserve. There, the bytes become zero.
pub fn reserve(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    if limit.is_some_and(|limit| offset + len > limit) {
        return Err(Errno::FBIG.into()); // asking would raise SIGXFSZ
    }
    loop {
        match rustix::fs::fallocate(file, FallocateFlags::empty(), offset, len) {
            Err(Errno::INTR) => {}
            Err(Errno::OPNOTSUPP) => return zeros(file, offset, len),
            done => return Ok(done?),
        }
    }
}

fn zeros(file: &File, mut offset: u64, len: u64) -> io::Result<()> {
    let zeros = [0; 16 * 1024];
    let end = offset + len;
    while offset < end {
        let now = zeros
            .len()
            .min(usize::try_from(end - offset).unwrap_or(zeros.len()));
        file.write_all_at(&zeros[..now], offset)?;
        offset += now as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
