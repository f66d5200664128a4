//! Creates the file of a page: it is locked, complete before readers can see it, and never replaces another kind of
//! file.
//!
//! A rename puts the page in place. The next writer makes a new inode, so it would not see a lock on the page's own
//! inode. Therefore the lock is on a file beside it, `PATH.lock`, which is never renamed.
//!
//! The writer removes the lock file when it closes. A process that locks a file that is no longer at that path starts
//! again: it was removed after the open. A killed writer leaves both files. The system releases its lock, and the next
//! writer replaces both.

use std::fs::{File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::io::Errno;

use crate::error::{Error, Reject};
use crate::layout::{Geometry, MAGIC, header_bytes};
use crate::map::WriteMap;

/// The most times that the lock file may vanish between open and lock, each time because a writer closed.
const LOCK_ATTEMPTS: u32 = 64;

/// The identity of a file, independent of its path: device and inode.
pub(crate) type FileId = (u64, u64);

pub(crate) fn file_id(stat: &Stat) -> FileId {
    (stat.st_dev, stat.st_ino)
}

/// The file that is at `path` now, a symbolic link counting as itself.
pub(crate) fn file_at(path: &Path) -> io::Result<FileId> {
    Ok(file_id(&rustix::fs::lstat(path)?))
}

/// Opens a regular file without following a link or blocking on a pipe.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> Result<(File, Stat), Error> {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    options.custom_flags(flags.bits() as i32); // defined as int in C
    let file = options.open(path).map_err(|e| refusal(path, e))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| Error::io("stat", path, e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::rejected(path, Reject::NotRegular));
    }
    Ok((file, stat))
}

fn refusal(path: &Path, error: io::Error) -> Error {
    // The errors of `open` for a symbolic link, a directory to be written and a socket.
    let not_regular = [Errno::LOOP, Errno::ISDIR, Errno::NXIO].map(|errno| Some(errno.raw_os_error()));
    if not_regular.contains(&error.raw_os_error()) {
        return Error::rejected(path, Reject::NotRegular);
    }
    Error::io("open", path, error)
}

/// The lock that says that a path has a writer, held as long as this lives.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    id: FileId,
    _file: File,
}

impl Lock {
    pub(crate) fn take(page: &Path) -> Result<Self, Error> {
        let path = beside(page, ".lock")?;
        for _ in 0..LOCK_ATTEMPTS {
            let mut options = OpenOptions::new();
            options
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .mode(0o600);
            let (file, stat) = open(&mut options, &path)?;
            match rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => {}
                Err(Errno::WOULDBLOCK) => break,
                Err(e) => return Err(Error::io("lock", &path, e)),
            }
            let id = file_id(&stat);
            if file_at(&path).is_ok_and(|there| there == id) {
                return Ok(Lock {
                    path,
                    id,
                    _file: file,
                });
            }
        }
        Err(Error::Locked {
            path: page.to_owned(),
            lock: path,
        })
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        // The file goes while it is still locked, and only if it is ours. A file that stays does no harm.
        if file_at(&self.path).is_ok_and(|there| there == self.id) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the page under another name and renames it into place. The caller holds the lock.
pub(crate) fn create(path: &Path, geometry: Geometry, mode: u32) -> Result<(WriteMap, FileId), Error> {
    check_replaceable(path)?;
    let unfinished = beside(path, ".new")?;
    // A file of a killed writer; no other writer uses that name while we have the lock.
    match std::fs::remove_file(&unfinished) {
        Err(e) if e.kind() != ErrorKind::NotFound => return Err(Error::io("remove", &unfinished, e)),
        _ => {}
    }
    let made = make(&unfinished, geometry, mode).and_then(|made| {
        let renamed = std::fs::rename(&unfinished, path);
        renamed.map_err(|e| Error::io("rename to", path, e))?;
        Ok(made)
    });
    if made.is_err() {
        let _ = std::fs::remove_file(&unfinished); // the first error is the one to tell
    }
    made
}

/// An existing file may be replaced if it is a page. A wrong path in a configuration must not cost a file.
fn check_replaceable(path: &Path) -> Result<(), Error> {
    let (mut file, _) = match open(OpenOptions::new().read(true), path) {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(()),
        opened => opened?,
    };
    let mut magic = [0; 8];
    match file.read_exact(&mut magic) {
        Ok(()) if magic == MAGIC.to_le_bytes() => Ok(()),
        Err(e) if e.kind() != ErrorKind::UnexpectedEof => Err(Error::io("read", path, e)),
        _ => Err(Error::rejected(path, Reject::BadMagic)),
    }
}

fn make(path: &Path, geometry: Geometry, mode: u32) -> Result<(WriteMap, FileId), Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let (mut file, stat) = open(&mut options, path)?;
    let written = fill(&mut file, geometry);
    written.map_err(|e| Error::io("write", path, e))?;
    let bytes = geometry.file_size() as usize; // at most 44 MiB
    let map = WriteMap::new(&file, bytes).map_err(|e| Error::io("map", path, e))?;
    // The exact bits: the umask has no say.
    let set = rustix::fs::fchmod(&file, Mode::from_raw_mode(mode));
    set.map_err(|e| Error::io("change the mode of", path, e))?;
    Ok((map, file_id(&stat)))
}

/// Writes every byte: memory that is only reserved by a size may turn out not to be there when the map
/// is written, which is a SIGBUS then and an error here.
fn fill(file: &mut File, geometry: Geometry) -> io::Result<()> {
    file.write_all(&header_bytes(geometry, boot()))?;
    let mut left = geometry.file_size() - u64::from(geometry.header_size);
    let zeros = [0; 16 * 1024];
    while left > 0 {
        let now = zeros.len().min(usize::try_from(left).unwrap_or(zeros.len()));
        file.write_all(zeros.get(..now).unwrap_or(&zeros))?;
        left -= now as u64;
    }
    Ok(())
}

/// Random and not 0: the keys of the standard library's hashes are drawn from the system.
fn boot() -> u64 {
    RandomState::new().hash_one(std::process::id()).max(1)
}

fn beside(path: &Path, suffix: &str) -> Result<PathBuf, Error> {
    let no_name = || Error::io("create", path, ErrorKind::InvalidInput);
    let mut name = path.file_name().ok_or_else(no_name)?.to_owned();
    name.push(suffix);
    Ok(path.with_file_name(name))
}

#[cfg(test)]
mod tests;
