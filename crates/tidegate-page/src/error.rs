// SPDX-License-Identifier: Apache-2.0

//! The errors of making, opening, writing and reading a page.

use std::io;
use std::path::{Path, PathBuf};

use crate::layout::{MAX_CAPACITY, MAX_QUANTILES, TEXT_SIZE};

/// The reason why a page cannot be made or opened.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused; `NotFound` and the like are in `source`.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// Another writer has this page.
    #[error("another writer has locked {lock} of {path}: stop it, or choose another path")]
    Locked {
        /// The page.
        path: PathBuf,
        /// The lock file beside it.
        lock: PathBuf,
    },
    /// The file at the path is not a page; it is unchanged.
    #[error("{path}: {reject}")]
    Rejected {
        /// The file.
        path: PathBuf,
        /// Why.
        reject: Reject,
    },
    /// A page of that many slots is not made.
    #[error("capacity {capacity} is not within 1 and {MAX_CAPACITY}")]
    Capacity {
        /// The requested number of slots.
        capacity: u32,
    },
    /// A process that may write the file can truncate it, which would kill the writer and every reader.
    #[error("mode {mode:04o} is not 0600 with read permission for group or others added (0640, 0644)")]
    Mode {
        /// The requested mode.
        mode: u32,
    },
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Error::Io {
            operation,
            path: path.to_owned(),
            source: source.into(),
        }
    }

    pub(crate) fn rejected(path: &Path, reject: Reject) -> Self {
        Error::Rejected {
            path: path.to_owned(),
            reject,
        }
    }
}

/// The reason why a file is not a readable page.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Reject {
    /// A directory, device, socket, pipe or symbolic link.
    #[error("not a regular file")]
    NotRegular,
    /// Shorter than the header.
    #[error("{file_size} bytes are too few for a header")]
    TooSmall {
        /// Size found.
        file_size: u64,
    },
    /// It does not begin with `TIDEPAGE`.
    #[error("not a page: the magic bytes are missing")]
    BadMagic,
    /// A version other than 1.
    #[error("unknown version {version}: only version 1 is known")]
    UnknownVersion {
        /// Version found.
        version: u32,
    },
    /// Sizes that no writer of this version has.
    #[error("impossible sizes: header {header_size}, slot {slot_size}")]
    BadSizes {
        /// Size of the header found.
        header_size: u32,
        /// Size of a slot found.
        slot_size: u32,
    },
    /// No slots, or more than [`MAX_CAPACITY`].
    #[error("capacity {capacity} is not within 1 and {MAX_CAPACITY}")]
    BadCapacity {
        /// Capacity found.
        capacity: u32,
    },
    /// Header and file size do not belong together.
    #[error("{file_size} bytes do not fit capacity {capacity}")]
    SizeMismatch {
        /// Size found.
        file_size: u64,
        /// Capacity found.
        capacity: u32,
    },
}

/// The reason why an entry was refused. The page is unchanged.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SetError {
    /// Every slot is in use.
    #[error("the page is full: {capacity} entries")]
    Full {
        /// Number of slots.
        capacity: u32,
    },
    /// Name and labels do not fit; they are never cut.
    #[error("name and labels have {len} bytes; {TEXT_SIZE} fit")]
    TooLong {
        /// Bytes of both.
        len: usize,
    },
    /// More quantiles than a slot has room for.
    #[error("{count} quantiles; {MAX_QUANTILES} fit")]
    TooManyQuantiles {
        /// The number of given quantiles.
        count: usize,
    },
    /// No name, or a NUL in name or labels.
    #[error("the name is empty, or name or labels contain a NUL")]
    BadText,
    /// An entry of this name and these labels was set in this round already; the first one stays.
    #[error("duplicate entry in a round")]
    Duplicate,
}

/// The reason why there is no handle.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FindError {
    /// The page has no entry of this name and labels. Look again when [`Reader::layout_seq`](crate::Reader::layout_seq) has
    /// changed.
    #[error("the page has no entry of this name and labels")]
    NotFound,
    /// No other slot has the entry, but one slot was being written all the time. Try later.
    #[error("a slot is being written")]
    Busy,
}

/// The reason why there is no snapshot.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum ReadError {
    /// The slot was being written all the time. Try later; if the heart has stopped too, the writer
    /// died half-way.
    #[error("the slot is being written")]
    Busy,
    /// The slot was assigned to an entry again, or the handle is of another file. Find the entry again.
    #[error("the slot belongs to another entry now")]
    Moved,
    /// The entry was removed, or the page was closed.
    #[error("the entry no longer exists")]
    Gone,
    /// No writer of this version writes the content of the slot.
    #[error("the slot is malformed")]
    Malformed,
}
