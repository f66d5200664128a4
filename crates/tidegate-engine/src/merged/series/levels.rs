// SPDX-License-Identifier: Apache-2.0

//! Hides, shows and removes the levels of runs.

use std::collections::BTreeSet;

use super::super::ProducerId;
use super::MergedSeries;
use crate::UnixNanos;

impl MergedSeries {
    /// Whether a run has a level here.
    pub(in crate::merged) fn has_level(&self, producer: ProducerId, epoch: UnixNanos) -> bool {
        let runs = self.runs.get(self.runs_of(producer)).unwrap_or_default();
        let mut reports = runs.iter().map(|run| &run.report);
        reports.any(|report| report.epoch == epoch && !report.mode.is_retained())
    }

    /// Hides the levels of runs.
    pub(in crate::merged) fn hide_levels(&mut self, runs: &BTreeSet<(ProducerId, UnixNanos)>) {
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
    pub(in crate::merged) fn show_levels(&mut self, producer: ProducerId, epoch: UnixNanos) -> usize {
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
    pub(in crate::merged) fn drop_levels(&mut self, runs: &BTreeSet<(ProducerId, UnixNanos)>) {
        self.remove(|run| {
            let report = &run.report;
            !report.mode.is_retained() && runs.contains(&(report.producer, report.epoch))
        });
    }
}
