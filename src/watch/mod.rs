//! Composites that can be watched: answers are numbered, so that a reader knows what is new to it, and thresholds are
//! told when they are crossed.
//!
//! Nothing is computed while nobody looks: a composite without thresholds is read when somebody asks, and at every
//! 5 ms only while somebody waits.

mod backlog;
mod filter;
mod follow;
pub mod json;
mod refresh;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use backlog::{Backlog, Ended, Unread, backlog};
pub use filter::Filter;
pub use follow::{Follow, WatchEvent};
use parking_lot::{Mutex, MutexGuard};
pub use refresh::refresh;
use tidegate_engine::{
    Answer, Attributes, Composite, Declaration, Freshness, Hysteresis, Threshold, UnixNanos,
};
use tokio::sync::{Notify, Semaphore, broadcast, watch};

use crate::component::{unix_now, wall_now};

/// How often a composite that somebody waits for is read.
const TICK: Duration = Duration::from_millis(5);

/// Answers that change by time alone (a sub-window leaves, a lease runs out) are seen so often.
const BY_TIME: Duration = Duration::from_millis(50);

/// Of the time, one part in so many may go into reading for those who wait.
const SHARE: u32 = 10;

/// Crossings that a slow watcher may be behind by.
const CROSSINGS: usize = 256;

/// A composite, with numbered answers.
pub struct Watched {
    composite: Arc<Composite>,
    thresholds: Vec<Threshold>,
    seen: Mutex<Seen>,
    /// The newest number.
    newest: watch::Sender<u64>,
    crossings: broadcast::Sender<Arc<Crossing>>,
    /// Somebody waits, or does no longer.
    interest: Notify,
    /// Readers that wait have an expression computed one at a time; queries that meet a computation use the last value.
    turn: Arc<Semaphore>,
}

/// The state of the last read. Its lock is held while numbers and crossings are sent, so both leave in order.
#[derive(Default)]
struct Seen {
    groups: HashMap<Attributes, Group>,
    version: u64,
    looks: u64,
    snapshot: CompositeSnapshot,
}

/// The answers of a composite at the last read.
#[derive(Clone, Default)]
pub struct CompositeSnapshot {
    /// One answer per group.
    pub answers: Arc<[GroupAnswer]>,
    /// The newest number among them, or of a group that went.
    pub seq: u64,
}

struct Group {
    value: ComparableValue,
    seq: u64,
    crossed: Vec<Hysteresis>,
    look: u64,
}

/// The part of an answer that is compared with the one before. Its age is not: it changes without news.
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
    /// Grows with every change of the composite; this one is of the group's last change.
    pub seq: u64,
}

/// A value has crossed a declared threshold, or come back.
#[derive(Clone, Debug)]
pub struct Crossing {
    /// The composite.
    pub declaration: Declaration,
    /// What was crossed.
    pub threshold: Threshold,
    /// Whether it counts as crossed now, or as over.
    pub is_crossed: bool,
    /// The group, as it was then.
    pub group: GroupAnswer,
    /// When.
    pub at: UnixNanos,
}

impl Watched {
    /// A composite with thresholds.
    pub fn new(composite: Arc<Composite>, thresholds: Vec<Threshold>) -> Self {
        // Numbers of a former run are smaller, as long as a composite changes less than a million times a second.
        let first = wall_now() / 1_000;
        Self {
            composite,
            thresholds,
            seen: Mutex::default(),
            newest: watch::Sender::new(first),
            crossings: broadcast::Sender::new(CROSSINGS),
            interest: Notify::new(),
            turn: Arc::new(Semaphore::new(1)),
        }
    }

    /// The composite itself.
    pub fn composite(&self) -> &Arc<Composite> {
        &self.composite
    }

    /// What was declared.
    pub fn declaration(&self) -> &Declaration {
        self.composite.declaration()
    }

    /// The newest number given.
    pub fn seq(&self) -> u64 {
        *self.newest.borrow()
    }

    /// Reads one answer per group; a single `absent` one if there are none. An expression answers its last
    /// computed value: call [`Watched::refresh`] first.
    pub fn read(&self, now: UnixNanos) -> CompositeSnapshot {
        let mut seen = self.seen();
        let seen = &mut *seen;
        seen.version = self.composite.version();
        seen.looks += 1;
        let look = seen.looks;
        let (before, mut seq) = (self.seq(), self.seq());
        let mut answers = Vec::new();
        let mut crossings = Vec::new();
        for answer in self.composite.answers(now) {
            let value = ComparableValue::of(&answer);
            let group = seen
                .groups
                .entry(answer.attributes.clone())
                .or_insert_with(|| Group {
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
            for (threshold, hysteresis) in self.thresholds.iter().zip(&mut group.crossed) {
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
        // Told while `seen` is held: numbers and crossings leave in their order.
        for crossing in crossings {
            // Nobody need be listening.
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

    /// Crossings of the declared thresholds, from now on.
    pub fn crossings(&self) -> broadcast::Receiver<Arc<Crossing>> {
        self.crossings.subscribe()
    }

    /// Waits for changes.
    pub fn follow(self: &Arc<Self>) -> Follow {
        let follow = Follow::new(self.clone(), self.newest.subscribe(), self.crossings());
        self.interest.notify_one();
        follow
    }

    /// Looks for those who wait, for ever. One task a composite.
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

    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock()
    }
}
