// SPDX-License-Identifier: Apache-2.0

//! The errors of opening and reading a ring or a store.

use std::io;
use std::path::{Path, PathBuf};

use crate::layout::Reject;

/// The one error of this crate. A ring that changes under an open reader is not an error but a
/// [`Poll`](crate::Poll).
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused; `NotFound` and the like are in `source`.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The operation that was attempted, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// We may not open the file in the way asked for (NIXL creates rings with mode 0644, stores 0600).
    #[error(
        "no permission to {purpose} {path}: it belongs to uid {owner_uid} and we run as uid {our_uid}; \
         run as uid {owner_uid}, or add CAP_DAC_OVERRIDE{alternative}",
        purpose = if *.consume { "consume" } else { "read" },
        alternative = if *.consume { ", or peek with `consume: false`" } else { "" }
    )]
    PermissionDenied {
        /// The file.
        path: PathBuf,
        /// The user id of its owner.
        owner_uid: u32,
        /// Our effective uid.
        our_uid: u32,
        /// Whether writing (moving `read_pos`) was asked for.
        consume: bool,
    },
    /// The file is not something we can read; it was left as it is.
    #[error("{path}: {reject}")]
    Rejected {
        /// The file.
        path: PathBuf,
        /// Why.
        reject: Reject,
    },
}

impl Error {
    /// A stable snake_case word for counters.
    pub fn reason(&self) -> &'static str {
        match self {
            Error::Io { .. } => "io",
            Error::PermissionDenied { .. } => "permission_denied",
            Error::Rejected { reject, .. } => reject.reason(),
        }
    }

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
