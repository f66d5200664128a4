// SPDX-License-Identifier: Apache-2.0

//! What the receivers have shown of directories: the start times, and whether they have sent all counts of the dead. It stays
//! over reloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use tidegate_engine::UnixNanos;

/// The start time of a directory, as soon as one was shown. All its readers share it.
pub(super) type Start = Arc<OnceLock<UnixNanos>>;

/// Whether all processes of a directory were dead at the last look of a receiver, and the pipelines had taken all counts.
pub(super) type Finished = Arc<AtomicBool>;

/// The start times of a gateway, by the directories.
#[derive(Default)]
pub(super) struct Starts(Mutex<BTreeMap<PathBuf, ShownDirectory>>);

#[derive(Default)]
struct ShownDirectory {
    start: Start,
    /// By the receivers.
    finished: BTreeMap<Arc<str>, Finished>,
}

impl Starts {
    /// The start time of a directory.
    pub(super) fn of(&self, directory: &Path) -> Start {
        self.0
            .lock()
            .entry(directory.to_owned())
            .or_default()
            .start
            .clone()
    }

    /// Whether this receiver, before a reload, has finished a directory.
    pub(super) fn finished(&self, directory: &Path, receiver: &Arc<str>) -> Finished {
        let mut known = self.0.lock();
        let directory = known.entry(directory.to_owned()).or_default();
        directory.finished.entry(receiver.clone()).or_default().clone()
    }

    /// Forgets the directories that are gone and that nobody reads.
    pub(super) fn forget_gone(&self) {
        let is_there = |path: &PathBuf| path.try_exists().unwrap_or(true);
        self.0
            .lock()
            .retain(|path, shown| Arc::strong_count(&shown.start) > 1 || is_there(path));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_start_stays_while_its_directory_is_there_or_read() {
        let (starts, directory) = (Starts::default(), tempfile::tempdir().unwrap());
        let path = directory.path().to_owned();
        starts.of(&path).set(5).unwrap();
        starts.forget_gone();
        assert_eq!(starts.of(&path).get(), Some(&5));
        let read = starts.of(&path);
        directory.close().unwrap();
        starts.forget_gone();
        assert_eq!(starts.of(&path).get(), Some(&5));
        drop(read);
        starts.forget_gone();
        assert_eq!(starts.of(&path).get(), None);
    }
}
