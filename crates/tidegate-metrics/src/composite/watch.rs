// SPDX-License-Identifier: Apache-2.0

//! Watching: the newest that a composite says, whenever it says something new.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::{Composite, Snapshot};

/// The state that a watcher shares with the thread that looks.
#[derive(Default)]
pub(super) struct Shared {
    newest: Mutex<Newest>,
    changed: Condvar,
}

#[derive(Default)]
struct Newest {
    snapshots: Vec<Snapshot>,
    /// Whether it is still to be taken.
    is_new: bool,
    waker: Option<Waker>,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Newest> {
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn show(&self, snapshots: &[Snapshot]) {
        let mut newest = self.lock();
        let old = &newest.snapshots;
        let is_same = old.len() == snapshots.len()
            && old
                .iter()
                .zip(snapshots)
                .all(|(old, new)| old.labels == new.labels && old.equals_except_age(new));
        if !is_same {
            newest.snapshots = snapshots.to_vec();
            newest.is_new = true;
            if let Some(waker) = newest.waker.take() {
                waker.wake();
            }
            self.changed.notify_one();
        }
    }
}

/// Waits for what a composite says next, on a thread or in any async runtime.
pub struct Watcher {
    /// Looked at as long as it is watched.
    _composite: Composite,
    shared: Arc<Shared>,
}

impl Watcher {
    pub(super) fn new(composite: Composite, shared: Arc<Shared>) -> Self {
        Self {
            _composite: composite,
            shared,
        }
    }

    /// Waits until there is something that was not taken yet, which is all groups as they are then; at most so long.
    pub fn wait(&self, at_most: Duration) -> Option<Vec<Snapshot>> {
        let until = Instant::now().checked_add(at_most);
        let mut newest = self.shared.lock();
        while !newest.is_new {
            let left = until.map_or(Duration::MAX, |until| {
                until.saturating_duration_since(Instant::now())
            });
            if left.is_zero() {
                return None;
            }
            let waited = self.shared.changed.wait_timeout(newest, left);
            newest = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        newest.is_new = false;
        Some(newest.snapshots.clone())
    }

    /// Waits until there is something that was not taken yet.
    pub fn changed(&mut self) -> Changed<'_> {
        Changed(self)
    }
}

/// The future of [`Watcher::changed`].
#[must_use = "a future does nothing until it is awaited"]
pub struct Changed<'a>(&'a mut Watcher);

impl Future for Changed<'_> {
    type Output = Vec<Snapshot>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut newest = self.0.shared.lock();
        if newest.is_new {
            newest.is_new = false;
            return Poll::Ready(newest.snapshots.clone());
        }
        newest.waker = Some(context.waker().clone());
        Poll::Pending
    }
}
