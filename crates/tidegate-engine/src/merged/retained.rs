// SPDX-License-Identifier: Apache-2.0

//! Retained totals: the values that remain of the ended runs of a producer.
//!
//! A folded run keeps its own value, so that it may say more later. Long after, compaction adds it to one total for all
//! runs of its producer and only lists its start.

use std::cmp::Ordering;

use super::ProducerId;
use super::item::{bounds, same_bounds};
use super::report::{MergeMode, RunReport, drop_quantiles, is_total, kind, rank};
use crate::{UnixNanos, Value};

/// The most starts that a compacted total lists. A run that began before all of them counts as contained.
///
/// All replicas have the same number: the union of two lists does not depend on the order of merges.
pub const LISTED_STARTS: usize = 64;

/// The sum of compacted runs that follow each other and can be added up exactly.
#[derive(Clone, Debug, PartialEq)]
pub struct CompactedPart {
    /// The smallest start of its runs.
    pub start: UnixNanos,
    /// The newest time of its runs.
    pub time: UnixNanos,
    /// The sum.
    pub value: Value,
}

/// The sum of the compacted runs of a producer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CompactedTotal {
    /// The smallest start of all runs in it.
    pub start: UnixNanos,
    /// The starts of the newest runs in it, ascending, at most [`LISTED_STARTS`].
    pub starts: Vec<UnixNanos>,
    /// Number of runs in it.
    pub runs: u64,
    /// The sums. There is one, unless the runs differ in form or bounds.
    pub parts: Vec<CompactedPart>,
}

/// The ended runs of a producer in one series. A replica publishes it, and all replicas merge it.
#[derive(Clone, Debug, PartialEq)]
pub struct RetainedTotal {
    /// The producer.
    pub producer: ProducerId,
    /// The sum of the oldest runs.
    pub compacted: Option<CompactedTotal>,
    /// The other folded runs.
    pub runs: Vec<RunReport>,
}

impl RetainedTotal {
    /// The record as it is kept; `None`: it is not valid.
    pub(super) fn checked(mut self) -> Option<Self> {
        let producer = self.producer;
        let is_sound = |report: &RunReport| report.producer == producer && report.mode.is_retained();
        self.compacted
            .as_mut()
            .is_none_or(CompactedTotal::check)
            .then_some(())?;
        let runs = self.runs.into_iter().map(RunReport::checked);
        let runs: Vec<_> = runs.collect::<Option<_>>()?;
        runs.iter().all(is_sound).then_some(Self { runs, ..self })
    }
}

impl CompactedTotal {
    /// Whether a run with this start is in it.
    pub(super) fn contains(&self, start: UnixNanos) -> bool {
        let is_before_all = self.starts.first().is_some_and(|first| start < *first);
        (is_before_all && self.starts.len() >= LISTED_STARTS) || self.starts.binary_search(&start).is_ok()
    }

    /// Adds a run.
    pub(super) fn push(&mut self, run: RunReport) {
        self.runs = self.runs.saturating_add(1);
        self.start = earlier(self.start, run.start);
        self.list(&[run.start]);
        if let Some(last) = self.parts.last_mut()
            && add(&mut last.value, &run.value)
        {
            last.start = last.start.min(run.start);
            last.time = last.time.max(run.time);
            return;
        }
        self.parts.push(CompactedPart {
            start: run.start,
            time: run.time,
            value: run.value,
        });
    }

    /// Merges another total of the same producer into this one. The one with more runs wins. Says whether one of the
    /// two lacked a run of the other, which happens if two leaders compact without knowing the other's runs.
    pub(super) fn join(&mut self, other: Self) -> bool {
        let is_newer = self.order(&other).is_lt();
        let (newer, older) = if is_newer {
            (&other, &*self)
        } else {
            (&*self, &other)
        };
        let lacks_runs = !older.starts.iter().all(|start| newer.contains(*start));
        self.list(&other.starts);
        self.start = earlier(self.start, other.start);
        if is_newer {
            (self.runs, self.parts) = (other.runs, other.parts);
        }
        lacks_runs
    }

    fn order(&self, other: &Self) -> Ordering {
        let parts = |one: &CompactedPart, other: &CompactedPart| {
            rank(&one.value, &other.value).then((one.start, one.time).cmp(&(other.start, other.time)))
        };
        let pairs = self.parts.iter().zip(&other.parts);
        let unequal = pairs
            .map(|(one, other)| parts(one, other))
            .find(|order| order.is_ne());
        self.runs
            .cmp(&other.runs)
            .then(unequal.unwrap_or(Ordering::Equal))
            .then(self.parts.len().cmp(&other.parts.len()))
    }

    fn list(&mut self, starts: &[UnixNanos]) {
        self.starts.extend_from_slice(starts);
        self.starts.sort_unstable();
        self.starts.dedup();
        let surplus = self.starts.len().saturating_sub(LISTED_STARTS);
        self.starts.drain(..surplus);
    }

    fn check(&mut self) -> bool {
        self.list(&[]);
        self.parts
            .iter_mut()
            .for_each(|part| drop_quantiles(&mut part.value));
        let are_sound = self
            .parts
            .iter()
            .all(|part| part.start > 0 && is_total(&part.value));
        are_sound && self.start > 0 && !self.parts.is_empty() && self.runs >= self.starts.len() as u64
    }

    /// Bytes of its largest sum.
    pub(super) fn largest(&self) -> usize {
        let parts = self.parts.iter().map(|part| bytes_of(&part.value));
        parts.max().unwrap_or(0)
    }

    pub(super) fn bytes(&self) -> usize {
        let parts = self.parts.iter().map(|part| bytes_of(&part.value));
        8 * self.starts.capacity() + size_of::<CompactedPart>() * self.parts.capacity() + parts.sum::<usize>()
    }
}

/// The smaller of two starts; 0 is unknown.
pub(super) fn earlier(one: UnixNanos, other: UnixNanos) -> UnixNanos {
    if one == 0 || other == 0 {
        one.max(other)
    } else {
        one.min(other)
    }
}

/// The bytes that a value has allocated, with its bounds.
pub(super) fn bytes_of(value: &Value) -> usize {
    let bounds = bounds(value).map_or(0, |bounds| size_of_val(&**bounds));
    value.bytes() + bounds
}

/// Adds a total to another one; `false`: the sum would not be exact.
fn add(sum: &mut Value, more: &Value) -> bool {
    if kind(MergeMode::Add, sum) != kind(MergeMode::Add, more) {
        return false;
    }
    match (&mut *sum, more) {
        (Value::Histogram(sum), Value::Histogram(more)) => {
            let fits = same_bounds(&sum.bounds, &more.bounds) && sum.counts.len() == more.counts.len();
            if fits {
                sum.merge(more);
            }
            return fits;
        }
        (Value::ExponentialHistogram(sum), Value::ExponentialHistogram(more)) => sum.merge(more),
        (Value::Summary(sum), Value::Summary(more)) => sum.merge(more),
        (sum, more) => {
            let numbers = sum.number().zip(more.number());
            numbers.into_iter().for_each(|(a, b)| *sum = a.plus(b).into());
        }
    }
    true
}
