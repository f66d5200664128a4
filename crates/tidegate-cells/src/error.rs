// SPDX-License-Identifier: Apache-2.0

//! The errors of stores, families and directories.

use std::io;
use std::path::{Path, PathBuf};

/// The reason why a store or family was not made, or a directory not read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The system refused.
    #[error("cannot {operation} {path}: {source}")]
    Io {
        /// The attempted operation, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The default directory belongs to another user, who could read and remove the files there.
    #[error("{path} belongs to another user: set TIDEGATE_CELLS_DIR to a directory of your own")]
    Foreign {
        /// The directory above it.
        path: PathBuf,
    },
    /// No memory or disk is left for the file, or it is as large as it may get.
    #[error("no room for `{name}`: {why}")]
    NoRoom {
        /// The family.
        name: String,
        /// The exhausted resource.
        why: String,
    },
    /// The family's specification can't be stored.
    #[error("`{name}`: {why}")]
    Spec {
        /// The family.
        name: String,
        /// The error in it.
        why: SpecError,
    },
    /// A family of this name exists with another instrument, another unit or other labels.
    #[error("`{name}` already exists as {existing} with labels {labels:?}")]
    Conflict {
        /// The family.
        name: String,
        /// The instrument it has.
        existing: &'static str,
        /// The labels it has.
        labels: Vec<String>,
    },
    /// A handle of one instrument was asked of a series of another.
    #[error("the series belongs to a {actual}")]
    Instrument {
        /// The instrument of the series.
        actual: &'static str,
    },
    /// The resource attributes are too many or too long.
    #[error("the resource attributes do not fit: set fewer or shorter ones")]
    Resource,
}

impl Error {
    pub(crate) fn io(operation: &'static str, path: &Path, source: impl Into<io::Error>) -> Self {
        Error::Io {
            operation,
            path: path.to_owned(),
            source: source.into(),
        }
    }
}

/// An error in a specification.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum SpecError {
    /// The name is empty or too long.
    #[error("the name is empty or longer than 1,024 bytes")]
    Name,
    /// The help or unit is too long.
    #[error("the help is longer than 8,192 bytes, or the unit than 1,024")]
    Text,
    /// Too many labels, or a label name that is missing, too long or repeated.
    #[error("more than 64 labels, a duplicate label, or a label whose name is empty or too long")]
    Labels,
    /// The bounds are not ascending finite numbers, or too many.
    #[error("the bounds are not finite and ascending, or more than 1,024")]
    Bounds,
    /// A scale that exponential histograms do not have.
    #[error("scale {0} is not within -10 and 20")]
    Scale(i8),
}
