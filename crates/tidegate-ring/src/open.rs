// SPDX-License-Identifier: Apache-2.0

//! Opening files that others own: without following links, blocking on pipes, or changing anything.

use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tidegate_shm::{FileId, OpenError, read_at};

use crate::error::Error;
use crate::layout::{Geometry, HEADER_SIZE_V5, RawHeader, Reject};

/// The state of a file, found without opening it as a ring: nothing is locked, mapped or moved.
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
    /// The shape of the ring, or the reason why the file is not a ring.
    pub verdict: Result<Geometry, Reject>,
}

impl Inspection {
    /// Events waiting, 0 if it is not a ring.
    pub fn readable(&self) -> u64 {
        let distance = |ring: Geometry| ring.distance(self.header.read_pos, self.header.write_pos);
        self.verdict.map_or(0, distance)
    }
}

/// Looks at a ring file without touching it.
///
/// # Errors
/// When the file cannot be opened or read, or is not a regular file.
pub fn inspect(path: &Path) -> Result<Inspection, Error> {
    let (file, metadata) = open(path, false)?;
    let header = read_header(&file).map_err(|e| Error::io("read", path, e))?;
    let file_size = metadata.len();
    Ok(Inspection {
        header,
        file_size,
        owner_uid: metadata.uid(),
        id: FileId::of(&metadata),
        verdict: header.validate(file_size),
    })
}

/// Opens a regular file for reading, or for reading and writing.
pub(crate) fn open(path: &Path, write: bool) -> Result<(File, Metadata), Error> {
    let opened = tidegate_shm::open(OpenOptions::new().read(true).write(write), path);
    opened.map_err(|error| refusal(path, write, error))
}

fn refusal(path: &Path, consume: bool, error: OpenError) -> Error {
    let (operation, source) = match error {
        OpenError::NotRegular => return Error::rejected(path, Reject::NotRegular),
        OpenError::Io { operation, source } => (operation, source),
    };
    match path.symlink_metadata() {
        Ok(metadata) if source.kind() == ErrorKind::PermissionDenied => Error::PermissionDenied {
            path: path.to_owned(),
            owner_uid: metadata.uid(),
            our_uid: tidegate_shm::user_id(),
            consume,
        },
        _ => Error::io(operation, path, source),
    }
}

/// Reads the header fields with `pread`.
pub(crate) fn read_header(file: &File) -> io::Result<RawHeader> {
    let mut bytes = [0; HEADER_SIZE_V5];
    let found = read_at(file, &mut bytes, 0)?;
    Ok(RawHeader::parse(&bytes[..found]))
}

#[cfg(test)]
mod tests;
