//! What has to be synced for what is written to survive a loss of power.

use std::fs::File;
use std::io;
use std::path::Path;

/// The files of a log that are not synced yet, and are not written to any more.
#[derive(Debug)]
pub(super) struct Unsynced {
    /// Whether anything is ever synced.
    syncs: bool,
    /// Whether a file has got its name since.
    has_names: bool,
    /// With the first number of each.
    closed: Vec<(u64, File)>,
}

impl Unsynced {
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

    /// Nobody needs that segment any more.
    pub(super) fn forget(&mut self, first: u64) {
        self.closed.retain(|(closed, _)| *closed != first);
    }

    /// What is to be synced, in this order, with the file that is written to.
    pub(super) fn take(&mut self, directory: &Path, current: Option<&File>) -> io::Result<Vec<File>> {
        let mut files = Vec::new();
        if self.has_names {
            // Without it a file may be gone after a loss of power, or have its former name, whatever was synced in it.
            files.push(File::open(directory)?);
        }
        let current = current.map(File::try_clone).transpose()?;
        self.has_names = false;
        files.extend(self.closed.drain(..).map(|(_, file)| file).chain(current));
        Ok(files)
    }
}
