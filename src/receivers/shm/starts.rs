// SPDX-License-Identifier: Apache-2.0

//! What the receivers have shown of directories: the start times, the leases, and what they have sent of the dead. It stays over
//! reloads.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_engine::{Lease, UnixNanos};

use crate::component::unix_now;

/// The start time of a directory, as soon as one was shown. All its readers share it.
pub(super) type Start = Arc<OnceLock<UnixNanos>>;

/// What a receiver has said of a directory.
#[derive(Default)]
pub(super) struct SentState {
    /// See [`SentState::finished`].
    finished: AtomicU64,
    lease: Mutex<Option<Arc<Lease>>>,
}

impl SentState {
    /// The hash of the contents that the pipelines had taken at the last look, if all processes were dead then; else 0.
    pub(super) fn finished(&self) -> u64 {
        self.finished.load(Relaxed)
    }

    /// Sets this hash.
    pub(super) fn set_finished(&self, contents: u64) {
        self.finished.store(contents, Relaxed);
    }

    /// The lease for the next look. The components that know the source have that of the receiver before a reload, so it goes
    /// on. Else it is that of a directory that nobody has seen alive.
    pub(super) fn lease(&self, term: Duration) -> Arc<Lease> {
        let mut known = self.lease.lock();
        let lease = known.clone().filter(|lease| !lease.is_ended());
        let lease = lease.unwrap_or_else(|| {
            let new = new_lease(term);
            new.suspend();
            new
        });
        lease.set_term(term);
        *known = Some(lease.clone());
        lease
    }

    /// The lease of a directory that has come in the path of one that is gone.
    pub(super) fn renew_lease(&self, term: Duration) -> Arc<Lease> {
        self.lease.lock().insert(new_lease(term)).clone()
    }

    /// The directory is gone, and its source with it.
    fn end_lease(&self) {
        self.lease.lock().iter().for_each(|lease| lease.end());
    }
}

fn new_lease(term: Duration) -> Arc<Lease> {
    Arc::new(Lease::new(term, unix_now()))
}

/// The start times of a gateway, by the directories.
#[derive(Default)]
pub(super) struct Starts(Mutex<BTreeMap<PathBuf, ShownDirectory>>);

#[derive(Default)]
struct ShownDirectory {
    start: Start,
    /// By the receivers.
    sent: BTreeMap<Arc<str>, Arc<SentState>>,
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

    /// What this receiver, also before a reload, has said of a directory.
    pub(super) fn sent(&self, directory: &Path, receiver: &Arc<str>) -> Arc<SentState> {
        let mut known = self.0.lock();
        let directory = known.entry(directory.to_owned()).or_default();
        directory.sent.entry(receiver.clone()).or_default().clone()
    }

    /// Forgets the directories that are gone and that nobody reads.
    pub(super) fn forget_gone(&self) {
        let is_there = |path: &PathBuf| path.try_exists().unwrap_or(true);
        self.0.lock().retain(|path, shown| {
            let stays = Arc::strong_count(&shown.start) > 1 || is_there(path);
            if !stays {
                shown.sent.values().for_each(|sent| sent.end_lease());
            }
            stays
        });
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

    #[test]
    fn a_lease_goes_on_until_its_directory_is_gone() {
        let (starts, directory) = (Starts::default(), tempfile::tempdir().unwrap());
        let path = directory.path().to_owned();
        let [one, other] = ["a", "b"].map(Arc::<str>::from);
        let lease = |receiver, seconds| starts.sent(&path, receiver).lease(Duration::from_secs(seconds));
        let first = lease(&one, 15);
        assert!(first.is_dead() && !first.is_ended());
        first.touch(unix_now());
        let next = lease(&one, 20);
        assert!(Arc::ptr_eq(&next, &first) && next.is_alive(unix_now()));
        assert_eq!(next.term_ns(), 20_000_000_000);
        assert!(!Arc::ptr_eq(&lease(&other, 15), &first));
        directory.close().unwrap();
        starts.forget_gone();
        assert!(first.is_ended());
        assert!(!lease(&one, 15).is_ended());
    }
}
