// SPDX-License-Identifier: Apache-2.0

//! Files: their checks at opening, their identity, their locks and their memory.

use std::fs::{File, Metadata, OpenOptions, TryLockError};
use std::io::{self, ErrorKind};
use std::ops::Deref;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::map::system;

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
pub fn open(options: &mut OpenOptions, path: &Path) -> Result<(File, Metadata), OpenError> {
    options.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC);
    let file = options.open(path).map_err(refusal)?;
    let metadata = file.metadata().map_err(|source| OpenError::Io {
        operation: "stat",
        source,
    })?;
    if !metadata.is_file() {
        return Err(OpenError::NotRegular);
    }
    Ok((file, metadata))
}

/// Whether the system refuses because this process, or all together, have too many files open.
pub fn is_too_many_open(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE].map(Some);
    codes.contains(&error.raw_os_error())
}

fn refusal(source: io::Error) -> OpenError {
    // The errors of `open` for a symbolic link, a directory to be written and a socket.
    let not_regular = [libc::ELOOP, libc::EISDIR, libc::ENXIO].map(Some);
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
        Ok(FileId::of(&path.symlink_metadata()?))
    }

    /// The file of that metadata.
    pub fn of(metadata: &Metadata) -> FileId {
        FileId {
            device: metadata.dev(),
            inode: metadata.ino(),
        }
    }

    /// Whether `path` leads to this file now.
    pub fn is_at(self, path: &Path) -> bool {
        FileId::of_path(path).is_ok_and(|there| there == self)
    }
}

/// A directory that stays the same one, although its path may lead elsewhere meanwhile.
#[derive(Debug)]
pub struct PinnedDirectory {
    /// While it is open, its number leads to the directory.
    _file: File,
    id: FileId,
    path: PathBuf,
}

impl PinnedDirectory {
    /// Opens a directory. It is an error if `path` is a symbolic link and `follows_link` is false.
    ///
    /// # Errors
    /// As of `open`.
    pub fn open(path: &Path, follows_link: bool) -> io::Result<Self> {
        let follow = if follows_link { 0 } else { libc::O_NOFOLLOW };
        let flags = libc::O_PATH | libc::O_DIRECTORY | libc::O_CLOEXEC | follow;
        let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
        let id = FileId::of(&file.metadata()?);
        let by_number = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
        let is_there = std::fs::metadata(&by_number).is_ok_and(|there| FileId::of(&there) == id);
        Ok(Self {
            _file: file,
            id,
            // Without `/proc`, only the path itself leads there.
            path: if is_there { by_number } else { path.to_owned() },
        })
    }

    /// Its identity.
    pub fn id(&self) -> FileId {
        self.id
    }

    /// A path that leads to it as long as this value lives.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The path of a file in it.
    pub fn at(&self, name: impl AsRef<Path>) -> PathBuf {
        self.path.join(name)
    }
}

/// Takes the exclusive lock of a file, which lasts until the file is closed; see [`LockHolder`]. False if another process
/// has it.
///
/// # Errors
/// As of `flock`.
pub fn try_lock(file: &File) -> io::Result<bool> {
    match file.try_lock() {
        Ok(()) => Ok(true),
        Err(TryLockError::WouldBlock) => Ok(false),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// Whether another process holds the lock of a file. Readers lock it as shared, so they do not see each other.
///
/// # Errors
/// As of `flock`.
pub fn is_locked(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => file.unlock().map(|()| false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

/// A file whose lock, if it has one, ends with this value.
///
/// Closing the file is not enough, because the lock lasts as long as a copy of the descriptor is open. A child that another
/// thread starts has copies of all descriptors until it executes its program. Close the file itself where a child of `fork`
/// goes on with the lock.
#[derive(Debug)]
pub struct LockHolder {
    file: File,
    /// The process that has made it. A child of `fork` drops a copy, and the lock is its parent's.
    process: u32,
}

impl LockHolder {
    /// Owns a file and the lock that it has or will take.
    pub fn new(file: File) -> Self {
        Self {
            file,
            process: std::process::id(),
        }
    }
}

impl Deref for LockHolder {
    type Target = File;

    fn deref(&self) -> &File {
        &self.file
    }
}

impl Drop for LockHolder {
    fn drop(&mut self) {
        if self.process == std::process::id() {
            // Where it fails, for example because the file system has no locks, closing the file is all there is to do.
            let _ = self.file.unlock();
        }
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
    if offset + len > system::file_size_limit() {
        return Err(ErrorKind::FileTooLarge.into()); // asking would raise SIGXFSZ
    }
    loop {
        match system::allocate(file, offset, len) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => return zeros(file, offset, len),
            done => return done,
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
