// SPDX-License-Identifier: Apache-2.0

//! The files that a sync must cover so that written data survives a loss of power.

use std::fs::File;
use std::io;
use std::path::Path;

/// The files of a log that are not synced yet, and are not written to any more.
#[derive(Debug)]
pub(super) struct PendingFsync {
    /// Whether anything is ever synced.
    syncs: bool,
    /// Whether a file has got its name since.
    has_names: bool,
    /// With the first number of each.
    closed: Vec<(u64, File)>,
}

impl PendingFsync {
    pub(super) fn new(syncs: bool) -> Self {
        Self {
            syncs,
            has_names: false,
            closed: Vec::new(),
        }
    }

    /// A file has got its name.
    pub(super) fn name(&mut self) {
        self.has_names = true;
    }

    /// A segment is full.
    pub(super) fn close(&mut self, first: u64, file: File) {
        if self.syncs {
            self.closed.push((first, file));
        }
    }

    /// Drops a segment that is no longer needed.
    pub(super) fn forget(&mut self, first: u64) {
        self.closed.retain(|(closed, _)| *closed != first);
    }

    /// Takes the files to sync, in order, with the file that is written to.
    pub(super) fn take(&mut self, directory: &Path, current: Option<&File>) -> io::Result<Vec<File>> {
        let mut files = Vec::new();
        if self.has_names {
            // Without it, a file may be missing or have its old name after a loss of power, even with its data synced.
            files.push(File::open(directory)?);
        }
        let current = current.map(File::try_clone).transpose()?;
        self.has_names = false;
        files.extend(self.closed.drain(..).map(|(_, file)| file).chain(current));
        Ok(files)
    }
}
