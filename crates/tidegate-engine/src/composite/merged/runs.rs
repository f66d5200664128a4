// SPDX-License-Identifier: Apache-2.0

//! The runs of producers, and which of them report.

use std::collections::{BTreeMap, BTreeSet};

use super::ProducerRun;
use crate::lease::RunLiveness;
use crate::{ProducerId, UnixNanos};

/// The known runs.
#[derive(Debug, Default)]
pub(super) struct Runs {
    runs: BTreeMap<ProducerRun, RunLiveness>,
    /// Producers that are expected even if none of their runs is known.
    expected: BTreeSet<ProducerId>,
}

/// The producers that are expected and those that report.
#[derive(Debug)]
pub(super) struct ProducerCensus {
    pub(super) expected: usize,
    pub(super) reporting: BTreeSet<ProducerId>,
}

impl Runs {
    pub(super) fn expect(&mut self, producers: BTreeSet<ProducerId>) {
        self.expected = producers;
    }

    /// Notes that a lease began. `false`: there are too many runs.
    pub(super) fn beat(&mut self, run: ProducerRun, begun: UnixNanos, max_runs: usize) -> bool {
        let Some(life) = self.known(run, max_runs) else {
            return false;
        };
        life.touch(begun);
        true
    }

    pub(super) fn end(&mut self, run: ProducerRun, now: UnixNanos, max_runs: usize) {
        if let Some(life) = self.known(run, max_runs) {
            life.end(now);
        }
    }

    fn known(&mut self, run: ProducerRun, max_runs: usize) -> Option<&mut RunLiveness> {
        if self.runs.len() >= max_runs && !self.runs.contains_key(&run) {
            return None;
        }
        Some(self.runs.entry(run).or_default())
    }

    pub(super) fn census(&self, now: UnixNanos, lease_ns: u64) -> ProducerCensus {
        let alive = self.runs.iter().filter(|(_, life)| life.is_alive(now, lease_ns));
        let reporting = alive.map(|(run, _)| run.producer).collect();
        let known = self.runs.iter().filter(|(_, life)| !life.is_ended);
        let known = known.map(|(run, _)| &run.producer);
        let expected: BTreeSet<_> = known.chain(&self.expected).collect();
        ProducerCensus {
            expected: expected.len(),
            reporting,
        }
    }

    /// The runs that have not ended, of producers that do not report.
    pub(super) fn missing(&self, now: UnixNanos, lease_ns: u64) -> BTreeSet<ProducerRun> {
        let reporting = self.census(now, lease_ns).reporting;
        let runs = self.runs.iter().filter(|(_, life)| !life.is_ended);
        runs.map(|(run, _)| *run)
            .filter(|run| !reporting.contains(&run.producer))
            .collect()
    }

    /// Forgets the runs without a heartbeat in the last `memory_ns`.
    pub(super) fn expire(&mut self, now: UnixNanos, memory_ns: u64) {
        self.runs
            .retain(|_, life| now.saturating_sub(life.touched) <= memory_ns);
    }
}
