// SPDX-License-Identifier: Apache-2.0

//! Folds runs, and compacts the oldest folded ones.

use super::super::item::Run;
use super::super::retained::CompactedTotal;
use super::super::{ProducerId, RetainedTotal};
use super::MergedSeries;
use super::bytes::bytes_beside;
use crate::UnixNanos;

impl MergedSeries {
    /// Folds the runs of an epoch, or all but the newest one of an epoch that goes on. Compacts the oldest folded runs of
    /// the producer until `kept` are left. Gives the number of runs folded.
    pub(in crate::merged) fn fold(
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
    pub(in crate::merged) fn join_compacted(
        &mut self,
        producer: ProducerId,
        compacted: CompactedTotal,
    ) -> bool {
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

    /// The total of a producer that a replica publishes; `None`: none of its runs is folded.
    pub(in crate::merged) fn retained(&self, producer: ProducerId) -> Option<RetainedTotal> {
        let runs = self.runs.get(self.runs_of(producer)).unwrap_or_default();
        let folded = runs.iter().filter(|run| run.is_folded);
        let retained = RetainedTotal {
            producer,
            compacted: self.compacted_of(producer).cloned(),
            runs: folded.map(|run| run.report.clone()).collect(),
        };
        (retained.compacted.is_some() || !retained.runs.is_empty()).then_some(retained)
    }
}
