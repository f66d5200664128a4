// SPDX-License-Identifier: Apache-2.0

//! One series: the reports of all runs, the compacted totals, and the merged value.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use super::item::{Head, Run, bounds, items, same_bounds};
use super::report::{ReportKind, RunReport};
use super::retained::{CompactedTotal, bytes_of, earlier};
use super::total::MergedValue;
use super::{MergedReading, ProducerId, RetainedTotal};
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

    /// The bytes that it has allocated.
    pub(super) fn bytes(&self) -> usize {
        let lists = self.runs.capacity() * size_of::<Box<Run>>()
            + self.runs.len() * size_of::<Run>()
            + self.compacted.capacity() * size_of::<(ProducerId, CompactedTotal)>();
        self.fixed + lists + self.values + self.retained + self.shown_bytes()
    }

    /// Bytes of the merged value. They count before a reader computes it.
    fn shown_bytes(&self) -> usize {
        self.merged.bytes().max(self.largest)
    }

    /// Bytes that a value allocates.
    fn bytes_of(&self, value: &Value) -> usize {
        bytes_beside(self.bounds.as_ref(), value)
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

    /// Bytes that a report allocates beyond those of the one that it replaces.
    pub(super) fn growth(&self, place: RunIndex, report: &RunReport) -> usize {
        let new = self.bytes_of(&report.value);
        let shown = bytes_of(&report.value).saturating_sub(self.shown_bytes());
        match place {
            RunIndex::Known(at) => {
                let old = self
                    .runs
                    .get(at)
                    .map_or(0, |run| self.bytes_of(&run.report.value));
                shown + new.saturating_sub(old)
            }
            _ => {
                let list = super::growth::<Box<Run>>(self.runs.len(), self.runs.capacity());
                shown + new + list + size_of::<Run>()
            }
        }
    }

    /// Bytes that a compacted total allocates beyond those of the known one.
    pub(super) fn growth_by_compacted(&self, producer: ProducerId, compacted: &CompactedTotal) -> usize {
        let known = self.compacted_of(producer).map(CompactedTotal::bytes);
        let list = if known.is_some() {
            0
        } else {
            super::growth::<(ProducerId, CompactedTotal)>(self.compacted.len(), self.compacted.capacity())
        };
        let shown = compacted.largest().saturating_sub(self.shown_bytes());
        shown + list + compacted.bytes().saturating_sub(known.unwrap_or(0))
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

    /// Folds the runs of an epoch, or all but the newest one of an epoch that goes on. Compacts the oldest folded runs of
    /// the producer until `kept` are left. Gives the number of runs folded.
    pub(super) fn fold(
        &mut self,
        producer: ProducerId,
        epoch: UnixNanos,
        is_over: bool,
        kept: usize,
    ) -> usize {
        let range = self.runs_of(producer);
        let runs = self.runs.get_mut(range).unwrap_or_default();
        let of_epoch = |run: &Run| run.report.epoch == epoch && run.report.mode.is_retained();
        let newest = runs.iter().filter(|run| of_epoch(run));
        let newest = newest.map(|run| (run.report.sequence, run.report.start)).max();
        let mut folded = 0;
        for run in runs.iter_mut().filter(|run| of_epoch(run) && !run.is_folded) {
            run.is_folded = is_over || Some((run.report.sequence, run.report.start)) != newest;
            folded += usize::from(run.is_folded);
        }
        self.compact(producer, kept);
        folded
    }

    /// Compacts in order of start and stops at a run that is not folded. The sum keeps its bits: it begins with these runs.
    fn compact(&mut self, producer: ProducerId, kept: usize) {
        let range = self.runs_of(producer);
        let runs = self.runs.get(range.clone()).unwrap_or_default();
        let folded = runs.iter().filter(|run| run.is_folded).count();
        let first = runs.iter().take_while(|run| run.is_folded).count();
        let surplus = folded.saturating_sub(kept).min(first);
        if surplus == 0 {
            return;
        }
        let mut total = self.compacted_of(producer).cloned().unwrap_or_default();
        let shared = self.bounds.as_ref();
        for run in self.runs.drain(range.start..range.start + surplus) {
            self.values -= bytes_beside(shared, &run.report.value);
            total.push(run.report);
        }
        self.set_compacted(producer, total);
    }

    fn set_compacted(&mut self, producer: ProducerId, total: CompactedTotal) {
        match self.compacted.binary_search_by_key(&producer, |(id, _)| *id) {
            Ok(at) => {
                if let Some((_, known)) = self.compacted.get_mut(at) {
                    self.retained -= known.bytes();
                    self.retained += total.bytes();
                    *known = total;
                }
            }
            Err(at) => {
                self.retained += total.bytes();
                self.compacted.insert(at, (producer, total));
            }
        }
        self.recompute();
    }

    /// Merges the compacted total of a producer. Says whether either of the two totals lacked a run.
    pub(super) fn join_compacted(&mut self, producer: ProducerId, compacted: CompactedTotal) -> bool {
        let (mut total, is_new) = match self.compacted_of(producer) {
            Some(known) if *known == compacted => return false,
            Some(known) => (known.clone(), false),
            None => (compacted.clone(), true),
        };
        let lacks_runs = !is_new && total.join(compacted);
        self.remove(|run| {
            let report = &run.report;
            report.producer == producer && report.mode.is_retained() && total.contains(report.start)
        });
        self.set_compacted(producer, total);
        lacks_runs
    }

    /// Whether a run has a level here.
    pub(super) fn has_level(&self, producer: ProducerId, epoch: UnixNanos) -> bool {
        let runs = self.runs.get(self.runs_of(producer)).unwrap_or_default();
        let mut reports = runs.iter().map(|run| &run.report);
        reports.any(|report| report.epoch == epoch && !report.mode.is_retained())
    }

    /// Hides the levels of runs.
    pub(super) fn hide_levels(&mut self, runs: &BTreeSet<(ProducerId, UnixNanos)>) {
        let mut is_changed = false;
        for run in self.runs.iter_mut().filter(|run| !run.is_hidden) {
            let report = &run.report;
            if !report.mode.is_retained() && runs.contains(&(report.producer, report.epoch)) {
                (run.is_hidden, is_changed) = (true, true);
            }
        }
        if is_changed {
            self.recompute();
        }
    }

    /// Makes the hidden levels of a run count again. Gives the number of runs that no longer count.
    pub(super) fn show_levels(&mut self, producer: ProducerId, epoch: UnixNanos) -> usize {
        let mut excluded = 0;
        for at in self.runs_of(producer) {
            let run = self.runs.get_mut(at);
            if let Some(run) = run.filter(|run| run.is_hidden && run.report.epoch == epoch) {
                run.is_hidden = false;
                excluded += self.account_for(at, None).excluded;
            }
        }
        excluded
    }

    /// Removes the levels of runs.
    pub(super) fn drop_levels(&mut self, runs: &BTreeSet<(ProducerId, UnixNanos)>) {
        self.remove(|run| {
            let report = &run.report;
            !report.mode.is_retained() && runs.contains(&(report.producer, report.epoch))
        });
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

    /// The total of a producer that a replica publishes; `None`: none of its runs is folded.
    pub(super) fn retained(&self, producer: ProducerId) -> Option<RetainedTotal> {
        let runs = self.runs.get(self.runs_of(producer)).unwrap_or_default();
        let folded = runs.iter().filter(|run| run.is_folded);
        let retained = RetainedTotal {
            producer,
            compacted: self.compacted_of(producer).cloned(),
            runs: folded.map(|run| run.report.clone()).collect(),
        };
        (retained.compacted.is_some() || !retained.runs.is_empty()).then_some(retained)
    }

    /// The bytes that it has allocated, recounted.
    #[cfg(test)]
    pub(super) fn counted_bytes(&self) -> usize {
        let values = self.runs.iter().map(|run| self.bytes_of(&run.report.value));
        let compacted = self.compacted.iter().map(|(_, total)| total.bytes());
        let lists = self.bytes() - self.values - self.retained;
        lists + values.sum::<usize>() + compacted.sum::<usize>()
    }
}

/// Bytes that a value allocates beside the `shared` bounds.
fn bytes_beside(shared: Option<&Arc<[f64]>>, value: &Value) -> usize {
    let both = bounds(value).zip(shared);
    let is_shared = both.is_some_and(|(one, shared)| Arc::ptr_eq(one, shared));
    if is_shared { value.bytes() } else { bytes_of(value) }
}
