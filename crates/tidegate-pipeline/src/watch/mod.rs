// SPDX-License-Identifier: Apache-2.0

//! Watchable composites. Their answers are numbered, so that a reader knows what it has not seen. Crossings of
//! thresholds are reported.
//!
//! Nothing is computed without readers: a composite without thresholds is read on request. While a reader waits,
//! it is read every 5 ms.

mod backlog;
mod filter;
mod follow;
pub mod json;
mod refresh;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use backlog::{Backlog, Ended, Unread, backlog};
pub use filter::{Filter, MAX_LABELS};
pub use follow::{Follow, WatchEvent};
use parking_lot::{Mutex, MutexGuard};
pub use refresh::refresh;
use tidegate_engine::{
    Answer, Attributes, Composite, Declaration, Freshness, Hysteresis, Threshold, UnixNanos,
};
use tokio::sync::{Notify, Semaphore, broadcast, watch};

use crate::component::{unix_now, wall_now};

/// The interval between reads of a composite while a reader waits.
const TICK: Duration = Duration::from_millis(5);

/// The interval for changes through time alone, such as the end of a sub-window or of a lease.
const BY_TIME: Duration = Duration::from_millis(50);

/// The divisor of the time that may go into reads for those who wait.
const SHARE: u32 = 10;

/// The most crossings that a watcher may lag by before it misses some.
const CROSSINGS: usize = 256;

/// A composite with numbered answers.
pub struct Watched {
    composite: Arc<Composite>,
    thresholds: Vec<Threshold>,
    seen: Mutex<LastRead>,
    /// The newest number.
    newest: watch::Sender<u64>,
    crossings: broadcast::Sender<Arc<Crossing>>,
    /// Wakes the reader task when the number of waiting readers changes.
    interest: Notify,
    /// The permit to compute the expression. Queries that meet a computation use the last value.
    turn: Arc<Semaphore>,
    /// Whether readers find it by its name.
    is_listed: watch::Sender<bool>,
}

/// The state of the last read. Its lock is held while numbers and crossings are sent, so both leave in order.
#[derive(Default)]
struct LastRead {
    groups: HashMap<Attributes, LastAnswer>,
    version: u64,
    looks: u64,
    snapshot: CompositeSnapshot,
    /// Whether declared thresholds wait: nothing receives their crossings.
    holds_crossings: bool,
}

/// The answers of a composite at the last read.
#[derive(Clone, Default)]
pub struct CompositeSnapshot {
    /// One answer per group.
    pub answers: Arc<[GroupAnswer]>,
    /// The newest number among them, or the number of the last removal of a group.
    pub seq: u64,
}

struct LastAnswer {
    value: ComparableValue,
    seq: u64,
    crossed: Vec<Hysteresis>,
    look: u64,
}

/// The part of an answer that is compared with the previous one. The age changes without news, so it is omitted.
#[derive(PartialEq)]
struct ComparableValue {
    /// The bits of the numbers, so that NaN equals NaN.
    numbers: [Option<u64>; 7],
    quantiles: Vec<u64>,
    state: Freshness,
    sources: (usize, usize),
    error: Option<Arc<str>>,
}

impl ComparableValue {
    fn of(answer: &Answer) -> Self {
        Self {
            numbers: [
                answer.value,
                answer.min,
                answer.avg,
                answer.max,
                answer.last,
                Some(answer.count),
                Some(answer.sum),
            ]
            .map(|number| number.map(f64::to_bits)),
            quantiles: answer.quantiles.iter().map(|one| one.value.to_bits()).collect(),
            state: answer.state,
            sources: (answer.sources_expected, answer.sources_reporting),
            error: answer.error.clone(),
        }
    }
}

/// The answer of one group, with its sequence number.
#[derive(Clone, Debug)]
pub struct GroupAnswer {
    /// The composite's answer for the group.
    pub answer: Answer,
    /// The number of the group's last change. Numbers grow with every change of the composite.
    pub seq: u64,
}

/// A crossing of a declared threshold, or the return from it.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The composite.
    pub declaration: Declaration,
    /// The threshold.
    pub threshold: Threshold,
    /// Whether the threshold is crossed now, or cleared.
    pub is_crossed: bool,
    /// The group at the time of the crossing.
    pub group: GroupAnswer,
    /// The time of the crossing.
    pub at: UnixNanos,
}

impl Watched {
    /// A composite with thresholds.
    pub fn new(composite: Arc<Composite>, thresholds: Vec<Threshold>) -> Self {
        // Numbers of a previous run are smaller, if a composite changes less than a million times a second.
        let first = wall_now() / 1_000;
        Self {
            composite,
            thresholds,
            seen: Mutex::default(),
            newest: watch::Sender::new(first),
            crossings: broadcast::Sender::new(CROSSINGS),
            interest: Notify::new(),
            turn: Arc::new(Semaphore::new(1)),
            is_listed: watch::Sender::new(true),
        }
    }

    /// The composite itself.
    pub fn composite(&self) -> &Arc<Composite> {
        &self.composite
    }

    /// The declaration of the composite.
    pub fn declaration(&self) -> &Declaration {
        self.composite.declaration()
    }

    /// The declared thresholds.
    pub fn thresholds(&self) -> &[Threshold] {
        &self.thresholds
    }

    /// Sets whether declared thresholds wait. A crossing meanwhile is sent at the first read after it, if it still holds.
    pub fn hold_crossings(&self, holds_crossings: bool) {
        self.seen().holds_crossings = holds_crossings;
    }

    /// Notes whether readers find it by its name. If not, [`Follow::next`] returns the end to its watchers.
    pub fn set_listed(&self, is_listed: bool) {
        self.is_listed.send_replace(is_listed);
    }

    /// Waits until a reload has replaced or removed the composite.
    async fn unlisted(&self) {
        // An error means that the sender is gone, but it lives as long as `self`.
        let _ = self.is_listed.subscribe().wait_for(|is_listed| !is_listed).await;
    }

    /// The newest number.
    pub fn seq(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Reads one answer per group, or a single `absent` answer without groups. An expression returns its last
    /// computed value: call [`Watched::refresh`] first.
    pub fn read(&self, now: UnixNanos) -> CompositeSnapshot {
        let mut seen = self.seen();
        let seen = &mut *seen;
        seen.version = self.composite.version();
        seen.looks += 1;
        let look = seen.looks;
        let thresholds: &[Threshold] = if seen.holds_crossings {
            &[]
        } else {
            &self.thresholds
        };
        let (before, mut seq) = (self.seq(), self.seq());
        let mut answers = Vec::new();
        let mut crossings = Vec::new();
        for answer in self.composite.answers(now) {
            let value = ComparableValue::of(&answer);
            let group = seen
                .groups
                .entry(answer.attributes.clone())
                .or_insert_with(|| LastAnswer {
                    value: ComparableValue::of(&answer),
                    seq: 0,
                    crossed: vec![Hysteresis::default(); self.thresholds.len()],
                    look,
                });
            group.look = look;
            if group.seq == 0 || group.value != value {
                seq += 1;
                (group.seq, group.value) = (seq, value);
            }
            let one = GroupAnswer {
                answer,
                seq: group.seq,
            };
            for (threshold, hysteresis) in thresholds.iter().zip(&mut group.crossed) {
                if hysteresis.update(threshold, one.answer.value, now) {
                    crossings.push(Arc::new(Crossing {
                        declaration: self.declaration().clone(),
                        threshold: threshold.clone(),
                        is_crossed: hysteresis.is_crossed(),
                        group: one.clone(),
                        at: now,
                    }));
                }
            }
            answers.push(one);
        }
        let groups = seen.groups.len();
        seen.groups.retain(|_, group| group.look == look);
        seq += u64::from(seen.groups.len() < groups);
        // Sent while `seen` is locked, so that numbers and crossings leave in order.
        for crossing in crossings {
            // There may be no listener.
            let _ = self.crossings.send(crossing);
        }
        if seq != before {
            self.newest.send_replace(seq);
        }
        seen.snapshot = CompositeSnapshot {
            answers: answers.into(),
            seq,
        };
        seen.snapshot.clone()
    }

    /// The answers of the last read.
    fn snapshot(&self) -> CompositeSnapshot {
        self.seen().snapshot.clone()
    }

    /// A receiver of crossings of the declared thresholds, from now on.
    pub fn crossings(&self) -> broadcast::Receiver<Arc<Crossing>> {
        self.crossings.subscribe()
    }

    /// Creates a watcher of changes.
    pub fn follow(self: &Arc<Self>) -> Follow {
        let follow = Follow::new(self.clone(), self.newest.subscribe(), self.crossings());
        self.interest.notify_one();
        follow
    }

    /// Reads the composite for waiting readers, forever. Each composite has one such task.
    pub async fn keep_looking(&self) {
        let mut last = Instant::now();
        loop {
            if self.thresholds.is_empty() && self.newest.receiver_count() == 0 {
                self.interest.notified().await;
                continue;
            }
            let begun = Instant::now();
            let has_changed = self.seen().version != self.composite.version();
            if has_changed || begun.duration_since(last) >= BY_TIME {
                self.refresh().await;
                self.read(unix_now());
                last = begun;
            }
            tokio::time::sleep(TICK.max(begun.elapsed() * SHARE)).await;
        }
    }

    fn seen(&self) -> MutexGuard<'_, LastRead> {
        self.seen.lock()
    }
}
