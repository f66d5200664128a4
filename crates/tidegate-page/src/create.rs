// SPDX-License-Identifier: Apache-2.0

//! Creates the file of a page: it is locked, complete before readers can see it, and never replaces another kind of
//! file.
//!
//! A rename puts the page in place. The next writer makes a new inode, so it would not see a lock on the page's own
//! inode. Therefore the lock is on a file beside it, `PATH.lock`, which is never renamed.
//!
//! The writer removes the lock file when it closes. A process that locks a file that is no longer at that path starts
//! again: it was removed after the open. A killed writer leaves both files. The system releases its lock, and the next
//! writer replaces both.

use std::fs::{File, Metadata, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::Mode;
use tidegate_shm::{Backing, FileId, LockHolder, OpenError, Region, Slot, reserve, try_lock};

use crate::error::{Error, Reject};
use crate::layout::{Geometry, MAGIC, header_bytes};

/// The most times that the lock file may vanish between open and lock, each time because a writer closed.
const LOCK_ATTEMPTS: u32 = 64;

/// Opens a regular file without following a link or blocking on a pipe.
pub(crate) fn open(options: &mut OpenOptions, path: &Path) -> Result<(File, Metadata), Error> {
    tidegate_shm::open(options, path).map_err(|error| match error {
        OpenError::NotRegular => Error::rejected(path, Reject::NotRegular),
        OpenError::Io { operation, source } => Error::io(operation, path, source),
    })
}

/// The lock that says that a path has a writer, held as long as this lives.
#[derive(Debug)]
pub(crate) struct Lock {
    path: PathBuf,
    id: FileId,
    _file: LockHolder,
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
            let (file, metadata) = open(&mut options, &path)?;
            let file = LockHolder::new(file);
            if !try_lock(&file).map_err(|e| Error::io("lock", &path, e))? {
                break;
            }
            let id = FileId::of(&metadata);
            if id.is_at(&path) {
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
        if self.id.is_at(&self.path) {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Makes the page under another name and renames it into place. The caller holds the lock.
pub(crate) fn create(path: &Path, geometry: Geometry, mode: u32) -> Result<(Slot, FileId), Error> {
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

fn make(path: &Path, geometry: Geometry, mode: u32) -> Result<(Slot, FileId), Error> {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(0o600);
    let (file, metadata) = open(&mut options, path)?;
    let written = fill(&file, geometry);
    written.map_err(|e| Error::io("write", path, e))?;
    let map = map(&file, geometry).map_err(|e| Error::io("map", path, e))?;
    // The exact bits: the umask has no say.
    let set = rustix::fs::fchmod(&file, Mode::from_raw_mode(mode));
    set.map_err(|e| Error::io("change the mode of", path, e))?;
    Ok((map, FileId::of(&metadata)))
}

fn fill(file: &File, geometry: Geometry) -> io::Result<()> {
    reserve(file, 0, geometry.file_size())?;
    file.write_all_at(&header_bytes(geometry, boot()), 0)
}

fn map(file: &File, geometry: Geometry) -> io::Result<Slot> {
    let bytes = geometry.file_size() as usize; // at most 44 MiB
    let region = Region::new(Backing::File(file, 0), bytes)?;
    let whole = region.slot(0, bytes / 8);
    whole.ok_or_else(|| ErrorKind::InvalidInput.into())
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
