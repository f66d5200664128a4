// SPDX-License-Identifier: Apache-2.0

//! Reads one file: its records once, its values repeatedly. All of it is untrusted input.

mod records;
mod values;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tidegate_shm::{FileId, OpenError, is_locked, is_too_many_open};

use super::header::Changing;
use super::open_files::{OpenFile, Permit};
use super::{Limits, Room, weight};
use crate::layout::{HEADER_SIZE, Header, Identity, Reject, Role, SegmentKind};
use crate::record::SeriesRole;
use crate::spec::FamilySpec;
use crate::store::Refused;
use crate::value::Labels;

/// The most reads of a header that changes during the read.
const ATTEMPTS: usize = 3;

/// The most bytes of a retained file, for readers and writers. The limits of one process do not hold for the file of all that
/// were before: a reader would lose their counts.
pub(super) const MAX_RETAINED_BYTES: u64 = 4 << 30;

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Rejected(#[from] Reject),
    #[error(transparent)]
    Io(io::Error),
    /// There is none for the file of this process.
    #[error("memory is short; the gateway reads the file later")]
    NoRoom(Identity),
    /// An earlier read took long and failed, for this reason.
    #[error("{0}")]
    RejectedBefore(String),
    /// As many files are open as may be, or as the system allows.
    #[error("too many files are open; the reader reads the file later")]
    NoFile,
}

/// A file and the part that was read so far.
#[derive(Debug)]
pub(crate) struct Source {
    pub(crate) path: PathBuf,
    /// Closed when nothing of it changes any more, but for a retained file: while that is open, no other file gets its number.
    file: Option<OpenFile>,
    pub(crate) inode: u64,
    pub(crate) header: Header,
    changing: Changing,
    /// Bytes of records that are parsed.
    parsed: u64,
    /// The records after them have no room.
    is_short: bool,
    /// They would exceed the limit of one file.
    is_large: bool,
    /// The offset up to which those records were searched for ends of known series.
    looked_to: u64,
    /// The number of ends found there.
    ended: usize,
    /// The bytes kept of the records.
    weight: usize,
    /// The bytes that callers keep to show its series.
    shown: usize,
    pub(crate) resource: Vec<(String, String)>,
    pub(crate) families: Vec<Arc<FamilySpec>>,
    /// Names of their labels, which all their series share.
    label_names: Vec<Box<[Arc<str>]>>,
    /// By the word at which their value is; none overlaps another.
    pub(crate) series: BTreeMap<u64, SourceSeries>,
    pub(crate) folded: Vec<(Identity, u64)>,
    values: Vec<u8>,
    /// The values at the last call of [`Source::changed`].
    compared: Vec<u8>,
    pub(crate) alive: bool,
    /// Read after its process died: nothing changes any more.
    finished: bool,
}

#[derive(Debug)]
pub(crate) struct SourceSeries {
    pub(crate) family: u32,
    pub(crate) role: SeriesRole,
    /// Sorted by name: processes may have them in different orders.
    pub(crate) labels: Labels,
    words: usize,
    /// The index of its value in `values`.
    position: usize,
}

impl Source {
    /// Opens a file and checks its type and header. It reads no records yet. `path` is for people, and `at` leads to the file now.
    pub(in crate::reader) fn open(
        path: &Path,
        at: &Path,
        permit: Option<Arc<Permit>>,
    ) -> Result<Self, ReadError> {
        let permit = permit.ok_or(ReadError::NoFile)?;
        let (file, metadata) = tidegate_shm::open(OpenOptions::new().read(true), at)?;
        let header = Header::parse(&page(&file)?)?;
        Ok(Source {
            path: path.to_owned(),
            file: Some(OpenFile::new(file, permit)),
            inode: FileId::of(&metadata).inode,
            header,
            changing: Changing::default(),
            parsed: 0,
            is_short: false,
            is_large: false,
            looked_to: 0,
            ended: 0,
            weight: 0,
            shown: 0,
            resource: Vec::new(),
            families: Vec::new(),
            label_names: Vec::new(),
            series: BTreeMap::new(),
            folded: Vec::new(),
            values: Vec::new(),
            compared: Vec::new(),
            alive: true,
            finished: false,
        })
    }

    /// The permit of its file, while that is open.
    pub(in crate::reader) fn permit(&self) -> Option<Arc<Permit>> {
        self.file.as_ref().map(OpenFile::permit)
    }

    /// The uses that the process refused.
    pub(crate) fn refused(&self) -> Refused {
        Refused {
            series: self.changing.refused_series,
            room: self.changing.refused_room,
            invalid: self.changing.invalid,
        }
    }

    /// The start time that a reader has shown for the values, if this is a retained file that has one.
    pub(crate) fn shown_ns(&self) -> Option<u64> {
        Some(self.changing.shown_ns).filter(|shown| *shown != 0)
    }

    /// Reads the parts that may have changed. Records without room wait for a later call.
    pub(crate) fn update(&mut self, limits: &Limits, room: Room<'_>) -> Result<(), ReadError> {
        if self.finished {
            return Ok(());
        }
        // Before the values: those of a process that is dead now are its last.
        self.alive = self.header.role == Role::Process && is_locked(self.file()?)?;
        self.changing = self.read_header(limits)?;
        self.read_records(limits, room)?;
        self.read_values()?;
        self.finished = !self.alive && !self.is_short;
        if self.finished && self.header.role == Role::Process {
            self.file = None;
        }
        Ok(())
    }

    /// Its file, while it is open.
    fn file(&self) -> io::Result<&File> {
        self.file.as_deref().ok_or_else(closed)
    }

    /// Whether some of its records had no room.
    pub(crate) fn is_short(&self) -> bool {
        self.is_short
    }

    /// Whether the rest of them would take more than one file may.
    pub(crate) fn is_large(&self) -> bool {
        self.is_short && self.is_large
    }

    /// Whether none of its records has been taken in.
    pub(crate) fn is_unread(&self) -> bool {
        self.parsed == 0
    }

    /// The bytes kept of it: an estimate.
    pub(crate) fn bytes(&self) -> usize {
        let segments = size_of::<(SegmentKind, u64, u64)>() * self.changing.segments.len();
        weight::FILE + segments + self.weight + self.values.capacity() + self.compared.capacity()
    }

    fn read_header(&self, limits: &Limits) -> Result<Changing, ReadError> {
        let mut result = Err(Reject::BadSegments);
        for _ in 0..ATTEMPTS {
            let file = self.file()?;
            let page = page(file)?;
            if Header::parse(&page)? != self.header {
                return Err(Reject::BadHeader.into());
            }
            let size = file.metadata()?.size();
            let most = match self.header.role {
                Role::Process => limits.max_file_bytes,
                Role::Retained => MAX_RETAINED_BYTES,
            };
            if size > most {
                return Err(Reject::Limit("bytes").into());
            }
            // Its words may be of different moments.
            result = Changing::parse(&page, size);
            if result.is_ok() {
                break;
            }
        }
        let changing = result?;
        let same = self
            .changing
            .segments
            .iter()
            .zip(&changing.segments)
            .all(|(a, b)| a == b);
        if changing.descriptors < self.parsed
            || changing.segments.len() < self.changing.segments.len()
            || !same
        {
            return Err(Reject::Shrunk.into());
        }
        Ok(changing)
    }

    /// Bytes of records that were read, and the number of later records that end series. Two looks with the same
    /// numbers saw the same series.
    pub(crate) fn seen(&self) -> (u64, usize) {
        (self.parsed, self.ended)
    }
}

impl SourceSeries {
    /// The end of its value in `values`.
    fn end(&self) -> usize {
        self.position + self.words * 8
    }

    /// Values of its labels in the order of its family's record.
    pub(crate) fn label_values(&self, spec: &FamilySpec) -> Vec<Box<str>> {
        if self.role == SeriesRole::Overflow {
            return Vec::new();
        }
        let value = |name: &String| {
            let found = self
                .labels
                .binary_search_by(|(other, _)| (**other).cmp(name.as_str()));
            let (_, value) = self.labels.get(found.ok()?)?;
            Some(value.clone())
        };
        spec.labels.iter().filter_map(value).collect() // each is there
    }
}

impl From<io::Error> for ReadError {
    fn from(error: io::Error) -> Self {
        if is_too_many_open(&error) {
            ReadError::NoFile
        } else {
            ReadError::Io(error)
        }
    }
}

impl From<OpenError> for ReadError {
    fn from(error: OpenError) -> Self {
        match error {
            OpenError::NotRegular => Reject::NotRegular.into(),
            OpenError::Io { source, .. } => source.into(),
        }
    }
}

/// Never: all that reads a file returns before if it is closed.
fn closed() -> io::Error {
    io::Error::other("the file is closed")
}

fn page(file: &File) -> Result<[u8; HEADER_SIZE], ReadError> {
    let mut page = [0; HEADER_SIZE];
    match tidegate_shm::read_at(file, &mut page, 0)? {
        HEADER_SIZE => Ok(page),
        _ => Err(Reject::TooSmall.into()),
    }
}
