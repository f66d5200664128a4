// SPDX-License-Identifier: Apache-2.0

//! The bytes of a file: the header page, the table of segments, and the limits of a record's content. `docs/cells.md`
//! has the same as tables.

use std::fmt;

/// First bytes of every file.
pub const MAGIC: [u8; 8] = *b"TIDECELL";
/// Changes when an offset below changes, or the words of a value.
pub const VERSION: u32 = 2;
/// Bytes before the first segment.
pub const HEADER_SIZE: usize = 4096;
/// Segments are at least that long, and multiples of it: a page, since a process that lives for a moment has two. In
/// files of older builds they are multiples of 64 KiB.
pub const SEGMENT_SIZE: u64 = 4 * 1024;
/// Longest segment.
pub const MAX_SEGMENT_SIZE: u64 = 16 * 1024 * 1024;
/// The most segments that the header can list.
pub const MAX_SEGMENTS: usize = (HEADER_SIZE - header::TABLE) / 8;
/// Bytes before the payload of a record: length, checksum, kind.
pub const RECORD_HEAD: usize = 9;

/// Longest name of a family or a label, in bytes.
pub const MAX_NAME: usize = 1024;
/// Longest help text, in bytes.
pub const MAX_HELP: usize = 8 * 1024;
/// Longest value of a label, in bytes.
pub const MAX_LABEL_VALUE: usize = 4 * 1024;
/// Most labels of a family.
pub const MAX_LABELS: usize = 64;
/// Most bounds of a histogram.
pub const MAX_BOUNDS: usize = 1024;
/// Most resource attributes.
pub const MAX_ATTRIBUTES: usize = 256;
/// Longest payload of a record: that of the largest content above.
pub const MAX_PAYLOAD: usize = 2 * 1024 * 1024;

/// Byte offsets in the header.
pub mod header {
    /// `u32`, [`VERSION`](super::VERSION).
    pub const VERSION: usize = 8;
    /// `u32`, [`HEADER_SIZE`](super::HEADER_SIZE).
    pub const SIZE: usize = 12;
    /// `u32`, 0: of a process, 1: retained counts of dead processes.
    pub const ROLE: usize = 16;
    /// `u32`.
    pub const PID: usize = 20;
    /// `u64`, when the process started, in clock ticks since boot (field 22 of `/proc/PID/stat`).
    pub const START: usize = 24;
    /// `u64`, drawn at random, never 0.
    pub const EPOCH: usize = 32;
    /// `u64`, a hash of the boot's id.
    pub const BOOT: usize = 40;
    /// `u64`, when the file was made, in nanoseconds since 1970.
    pub const CREATED_NS: usize = 48;
    /// `u32`, CRC-32 of all bytes before.
    pub const CRC: usize = 56;
    /// `u64`, number of segments.
    pub const SEGMENTS: usize = 64;
    /// `u64`, bytes of records that are whole.
    pub const DESCRIPTORS: usize = 72;
    /// `u64`, of a retained file: the start time that a reader has shown for the values; 0: none.
    pub const SHOWN_NS: usize = 80;
    /// `u64`, look-ups that got the overflow series because their family has as many as it may.
    pub const REFUSED_SERIES: usize = 128;
    /// `u64`, look-ups that got the overflow series, and families that were not made, because of a lack of room.
    pub const REFUSED_ROOM: usize = 136;
    /// `u64`, uses that made no sense: a counter that falls, a value that is not a number, wrong labels.
    pub const INVALID: usize = 144;
    /// `u64`s, one a segment: its length, with its kind in the highest byte.
    pub const TABLE: usize = 512;
}

/// The role of a file.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Role {
    Process,
    Retained,
}

/// The content of a segment.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum SegmentKind {
    Descriptors,
    Values,
}

impl SegmentKind {
    pub(crate) const SHIFT: u32 = 56;

    /// An entry of the table of segments.
    pub(crate) fn entry(self, len: u64) -> u64 {
        len | (self as u64 + 1) << Self::SHIFT
    }
}

/// The process and start that wrote a file. Two files never have the same.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub struct Identity {
    /// Process id, as the process sees itself.
    pub pid: u32,
    /// When it started, in clock ticks since boot.
    pub start: u64,
    /// Drawn at random for each file, never 0.
    pub epoch: u64,
}

impl fmt::Display for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{:016x}", self.pid, self.start, self.epoch)
    }
}

/// The part of the header that never changes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Header {
    pub(crate) role: Role,
    pub(crate) identity: Identity,
    pub(crate) boot: u64,
    pub(crate) created_ns: u64,
}

/// The reason why a file is not read.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Reject {
    /// A directory, device, socket, pipe or symbolic link.
    #[error("not a regular file")]
    NotRegular,
    /// Shorter than the header.
    #[error("too short for a header")]
    TooSmall,
    /// It does not begin with [`MAGIC`].
    #[error("the magic bytes are missing")]
    BadMagic,
    /// Another version.
    #[error("unknown version {0}; version {known} is known", known = VERSION)]
    UnknownVersion(u32),
    /// The fixed part of the header has another checksum, or fields that no writer writes.
    #[error("the header is damaged")]
    BadHeader,
    /// Its name says other than its header: a copy, or renamed.
    #[error("the file name does not match the file's process")]
    OtherName,
    /// The table of segments is not one, or says more than the file has.
    #[error("the segments do not fit the file")]
    BadSegments,
    /// A record that is not one. The offset is in the stream of records.
    #[error("damaged record at {0}")]
    BadRecord(u64),
    /// More than the reader's limits allow.
    #[error("more {0} than the limit")]
    Limit(&'static str),
    /// Counts of records that went back: not written by a writer of this version.
    #[error("records have vanished")]
    Shrunk,
}

impl Header {
    /// The header page with nothing committed.
    pub(crate) fn bytes(&self) -> [u8; HEADER_SIZE] {
        let mut page = [0; HEADER_SIZE];
        let mut put = |at: usize, bytes: &[u8]| page[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, &MAGIC);
        put(header::VERSION, &VERSION.to_le_bytes());
        put(header::SIZE, &(HEADER_SIZE as u32).to_le_bytes());
        put(header::ROLE, &(self.role as u32).to_le_bytes());
        put(header::PID, &self.identity.pid.to_le_bytes());
        put(header::START, &self.identity.start.to_le_bytes());
        put(header::EPOCH, &self.identity.epoch.to_le_bytes());
        put(header::BOOT, &self.boot.to_le_bytes());
        put(header::CREATED_NS, &self.created_ns.to_le_bytes());
        let crc = crc32fast::hash(&page[..header::CRC]);
        page[header::CRC..header::CRC + 4].copy_from_slice(&crc.to_le_bytes());
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_error_for_an_unknown_version_names_the_known_one() {
        let error = Reject::UnknownVersion(9).to_string();
        assert_eq!(error, format!("unknown version 9; version {VERSION} is known"));
    }
}
