//! Opening files that others own: without following links, blocking on pipes, or changing anything.

use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;

use rustix::fs::{FileType, OFlags, Stat};

use crate::error::Error;
use crate::layout::{Geometry, HEADER_SIZE_V5, RawHeader, Reject};

/// What identifies a file whatever its path.
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

    pub(crate) fn of_stat(stat: &Stat) -> FileId {
        FileId {
            device: stat.st_dev,
            inode: stat.st_ino,
        }
    }
}

/// What a ring file looks like without opening it as a ring: nothing is locked, mapped or moved.
#[derive(Clone, Copy, Debug)]
pub struct Inspection {
    /// The header as found.
    pub header: RawHeader,
    /// Size of the file in bytes.
    pub file_size: u64,
    /// Owner of the file.
    pub owner_uid: u32,
    /// Which file it is.
    pub id: FileId,
    /// What it is, or why it is no ring.
    pub verdict: Result<Geometry, Reject>,
}

impl Inspection {
    /// Events waiting, 0 if it is no ring.
    pub fn readable(&self) -> u64 {
        let distance = |ring: Geometry| ring.distance(self.header.read_pos, self.header.write_pos);
        self.verdict.map_or(0, distance)
    }
}

/// Looks at a ring file without touching it.
///
/// # Errors
/// When the file cannot be opened or read, or is no regular file.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    let (file, stat) = open(path, false)?;
    let header = read_header(&file).map_err(|e| Error::io("read", path, e))?;
    let file_size = size(&stat);
    Ok(Inspection {
        header,
        file_size,
        owner_uid: stat.st_uid,
        id: FileId::of_stat(&stat),
        verdict: header.validate(file_size),
    })
}

/// Opens a regular file for reading, or for reading and writing.
pub(crate) fn open(path: &Path, write: bool) -> Result<(File, Stat), Error> {
    // A link could lead our write anywhere; a pipe would block the open.
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let mut options = OpenOptions::new();
    options.read(true).write(write).custom_flags(flags.bits() as i32); // defined as int in C
    let file = options.open(path).map_err(|e| refusal(path, write, e))?;
    let stat = rustix::fs::fstat(&file).map_err(|e| Error::io("stat", path, e))?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(Error::rejected(path, Reject::NotRegular));
    }
    Ok((file, stat))
}

fn refusal(path: &Path, consume: bool, error: io::Error) -> Error {
    let is = |errno: rustix::io::Errno| error.raw_os_error() == Some(errno.raw_os_error());
    // What open says of a symbolic link, a directory to be written and a socket.
    if is(rustix::io::Errno::LOOP) || is(rustix::io::Errno::ISDIR) || is(rustix::io::Errno::NXIO) {
        return Error::rejected(path, Reject::NotRegular);
    }
    match rustix::fs::lstat(path) {
        Ok(stat) if error.kind() == ErrorKind::PermissionDenied => Error::PermissionDenied {
            path: path.to_owned(),
            owner_uid: stat.st_uid,
            our_uid: rustix::process::geteuid().as_raw(),
            consume,
        },
        _ => Error::io("open", path, error),
    }
}

pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// Reads the header fields with `pread`.
pub(crate) fn read_header(file: &File) -> io::Result<RawHeader> {
    let mut bytes = [0; HEADER_SIZE_V5];
    let found = read_at(file, &mut bytes, 0)?;
    Ok(RawHeader::parse(&bytes[..found]))
}

/// Fills `bytes` from `offset` on and returns how many there were: fewer only at the end of the file.
pub(crate) fn read_at(file: &File, bytes: &mut [u8], offset: u64) -> io::Result<usize> {
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

#[cfg(test)]
mod tests;
