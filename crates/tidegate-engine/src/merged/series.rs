// SPDX-License-Identifier: Apache-2.0

//! One series: the reports of all runs, the compacted totals, and the merged value.

mod bytes;
mod folding;
mod levels;

use std::cmp::Ordering;
use std::ops::Range;
use std::sync::Arc;

use self::bytes::bytes_beside;
use super::item::{Head, Run, bounds, items, same_bounds};
use super::report::{ReportKind, RunReport};
use super::retained::{CompactedTotal, bytes_of, earlier};
use super::total::MergedValue;
use super::{MergedReading, ProducerId};
use crate::budget::identity_bytes;
use crate::{Key, Series, UnixNanos, Value};

/// Where the report of a run belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunIndex {
    /// It replaces the one at this index.
    Known(usize),
    /// It is new and comes to this index.
    New(usize),
    /// The compacted total of its producer contains the run.
    Compacted,
}

/// What is known of the run of a new report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RunFlags {
    /// A leader has folded it.
    pub(super) is_folded: bool,
    /// The levels of the run are hidden.
    pub(super) is_hidden: bool,
}

/// The consequences of a report.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Effect {
    pub(super) is_changed: bool,
    /// Number of runs that no longer count, because the series has another kind now.
    pub(super) excluded: usize,
}

#[derive(Debug)]
pub(super) struct MergedSeries {
    pub(super) key: Key,
    pub(super) identity: Arc<Series>,
    /// The smallest start of all runs; 0 = unknown. Totals of runs stay, so that of a total never moves forward.
    pub(super) start: UnixNanos,
    /// The newest time.
    pub(super) time: UnixNanos,
    head: Option<Head>,
    /// By producer and start. Boxes are small: a new run moves all that follow.
    #[expect(clippy::vec_box, reason = "thousands of runs would move for a new one")]
    pub(super) runs: Vec<Box<Run>>,
    /// By producer.
    pub(super) compacted: Vec<(ProducerId, CompactedTotal)>,
    merged: MergedValue,
    /// The bounds that all equal ones share.
    bounds: Option<Arc<[f64]>>,
    /// Bytes of the identity and of the shared bounds.
    fixed: usize,
    /// Bytes that the values of runs have allocated.
    values: usize,
    /// Bytes of the compacted totals.
    retained: usize,
    /// Bytes of the largest value, which a reader may take for the merged one.
    largest: usize,
}

impl MergedSeries {
    pub(super) fn new(key: Key, identity: Arc<Series>) -> Self {
        Self {
            fixed: identity_bytes(&identity),
            key,
            identity,
            start: 0,
            time: 0,
            head: None,
            runs: Vec::new(),
            compacted: Vec::new(),
            merged: MergedValue::default(),
            bounds: None,
            values: 0,
            retained: 0,
            largest: 0,
        }
    }

    pub(super) fn kind(&self) -> Option<ReportKind> {
        self.head.as_ref().map(|head| head.kind)
    }

    /// Whether the bounds of a histogram are not those that are shown.
    pub(super) fn has_other_bounds(&self, value: &Value) -> bool {
        let shown = self.head.as_ref().and_then(|head| head.bounds.as_ref());
        shown
            .zip(bounds(value))
            .is_some_and(|(shown, bounds)| !same_bounds(shown, bounds))
    }

    /// Where a report belongs. `guess` is the index of another report of the same producer in another series: producers
    /// report the same series, so that it is mostly right.
    pub(super) fn index_of(&self, report: &RunReport, guess: usize) -> RunIndex {
        let key = report.order_key();
        let guess = guess.min(self.runs.len());
        let (before, rest) = self.runs.split_at_checked(guess).unwrap_or_default();
        let is_after = before.last().is_none_or(|run| run.report.order_key() < key);
        let found = match rest.first().map(|run| run.report.order_key().cmp(&key)) {
            Some(Ordering::Equal) => Ok(guess),
            Some(Ordering::Greater) | None if is_after => Err(guess),
            _ => self.runs.binary_search_by(|run| run.report.order_key().cmp(&key)),
        };
        match found {
            Ok(at) => RunIndex::Known(at),
            Err(_) if report.mode.is_retained() && self.has_compacted(report.producer, report.start) => {
                RunIndex::Compacted
            }
            Err(at) => RunIndex::New(at),
        }
    }

    fn has_compacted(&self, producer: ProducerId, start: UnixNanos) -> bool {
        self.compacted_of(producer)
            .is_some_and(|total| total.contains(start))
    }

    pub(super) fn compacted_of(&self, producer: ProducerId) -> Option<&CompactedTotal> {
        let at = self
            .compacted
            .binary_search_by_key(&producer, |(id, _)| *id)
            .ok()?;
        self.compacted.get(at).map(|(_, total)| total)
    }

    pub(super) fn runs_of(&self, producer: ProducerId) -> Range<usize> {
        let first = self.runs.partition_point(|run| run.report.producer < producer);
        let rest = self.runs.get(first..).unwrap_or_default();
        first..first + rest.partition_point(|run| run.report.producer == producer)
    }

    /// The number of runs of a producer, one of which is at this index or would be.
    pub(super) fn runs_beside(&self, at: usize, producer: ProducerId) -> usize {
        let (before, rest) = self.runs.split_at_checked(at).unwrap_or_default();
        let before = before
            .iter()
            .rev()
            .take_while(|run| run.report.producer == producer);
        let rest = rest.iter().take_while(|run| run.report.producer == producer);
        before.count() + rest.count()
    }

    /// Whether anything of a producer is left.
    pub(super) fn has(&self, producer: ProducerId) -> bool {
        !self.runs_of(producer).is_empty() || self.compacted_of(producer).is_some()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty() && self.compacted.is_empty()
    }

    /// Takes the report of a run in.
    pub(super) fn take(&mut self, place: RunIndex, mut report: RunReport, flags: RunFlags) -> Effect {
        self.share_bounds(&mut report.value);
        match place {
            RunIndex::Known(at) => self.replace(at, report, flags.is_folded),
            RunIndex::New(at) => self.insert(at, report, flags),
            RunIndex::Compacted => Effect::default(),
        }
    }

    fn replace(&mut self, at: usize, report: RunReport, is_folded: bool) -> Effect {
        let new_bytes = self.bytes_of(&report.value);
        let Some(run) = self.runs.get_mut(at) else {
            return Effect::default();
        };
        let folds = is_folded && !run.is_folded;
        run.is_folded |= is_folded;
        if !report.supersedes(&run.report) {
            return Effect {
                is_changed: folds,
                excluded: 0,
            };
        }
        let old = std::mem::replace(&mut run.report, report);
        self.values = self.values + new_bytes - self.bytes_of(&old.value);
        self.account_for(at, Some(&old))
    }

    fn insert(&mut self, at: usize, report: RunReport, flags: RunFlags) -> Effect {
        self.values += self.bytes_of(&report.value);
        let RunFlags { is_folded, is_hidden } = flags;
        self.runs.insert(
            at,
            Box::new(Run {
                report,
                is_folded,
                is_hidden,
            }),
        );
        self.account_for(at, None)
    }

    /// Brings head, times and the merged value up to date with the new report of a run.
    fn account_for(&mut self, at: usize, old: Option<&RunReport>) -> Effect {
        let Some(run) = self.runs.get(at) else {
            return Effect::default();
        };
        if run.is_hidden {
            return Effect {
                is_changed: true,
                excluded: 0,
            };
        }
        let fell = old.is_some_and(|old| old.time == self.time && run.report.time < old.time);
        let (item, report) = (run.item(), &run.report);
        self.start = earlier(self.start, report.start);
        self.time = self.time.max(report.time);
        self.largest = self.largest.max(bytes_of(item.value));
        let head = Head::of(&item);
        let leads = self.head.as_ref().is_none_or(|known| head.rank <= known.rank);
        let fits = self.head.as_ref().is_some_and(|known| head.fits(known));
        let old_kind = old.map(RunReport::kind);
        let kind = self.kind();
        if leads && !fits {
            self.merged.discard();
        } else if kind == Some(head.kind) && old_kind.is_none_or(|old| old == head.kind) {
            self.merged
                .replace(head.kind, old.map(|old| &old.value), item.value);
        } else if kind == Some(head.kind) || kind == old_kind {
            self.merged.discard();
        }
        let is_other_kind = kind.is_some_and(|kind| kind != head.kind);
        let excluded = if leads && is_other_kind {
            let others = self
                .runs
                .iter()
                .filter(|run| !run.is_hidden && run.report.kind() != head.kind);
            others.count()
        } else {
            0
        };
        if leads {
            self.head = Some(head);
        }
        if fell {
            // Another run may have the newest time now.
            self.recompute();
        }
        Effect {
            is_changed: true,
            excluded,
        }
    }

    fn share_bounds(&mut self, value: &mut Value) {
        let Value::Histogram(histogram) = value else {
            return;
        };
        match &self.bounds {
            Some(shared) if same_bounds(shared, &histogram.bounds) => histogram.bounds = shared.clone(),
            Some(_) => {}
            None => {
                self.fixed += size_of_val(&*histogram.bounds);
                self.bounds = Some(histogram.bounds.clone());
            }
        }
    }

    fn remove(&mut self, which: impl Fn(&Run) -> bool) {
        let before = self.runs.len();
        let shared = self.bounds.as_ref();
        for run in self.runs.extract_if(.., |run| which(run)) {
            self.values -= bytes_beside(shared, &run.report.value);
        }
        if self.runs.len() < before {
            self.recompute();
        }
    }

    /// Recomputes head and times from all runs that count. A reader computes the value.
    fn recompute(&mut self) {
        let compacted = self.compacted.iter().map(|(_, total)| total.start);
        let mut start = compacted.fold(0, earlier);
        let (mut time, mut largest) = (0, 0);
        let mut head: Option<Head> = None;
        items(&self.runs, &self.compacted, &mut |item| {
            (start, time) = (earlier(start, item.start), item.time.max(time));
            largest = bytes_of(item.value).max(largest);
            if head.as_ref().is_none_or(|head| item.head_rank() < head.rank) {
                head = Some(Head::of(&item));
            }
        });
        (self.start, self.time, self.head, self.largest) = (start, time, head, largest);
        self.merged.discard();
    }

    /// Computes the value as far as it is due.
    pub(super) fn compute(&mut self) {
        let (runs, compacted) = (&self.runs, &self.compacted);
        self.merged
            .compute(self.head.as_ref(), |take| items(runs, compacted, take));
    }

    /// The series as a reader sees it, once it is settled.
    pub(super) fn reading(&self) -> Option<MergedReading<'_>> {
        Some(MergedReading {
            key: self.key,
            series: &self.identity,
            start: self.start,
            time: self.time,
            value: self.merged.value()?,
        })
    }
}
