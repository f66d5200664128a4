// SPDX-License-Identifier: Apache-2.0

//! The producers that a reader knows: their runs, and their messages that it could not read.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_engine::UnixNanos;

use super::pages::{PagePosition, ReadPage, ReadPages};
use crate::{ProducerName, RunName};

/// The most runs of a producer whose pages are in the store. One producer must not take the place of the others.
const MAX_RUNS_OF_PRODUCER: usize = 1_024;

/// The most unreadable pages of a run that are remembered. A run with more is never folded here.
const MAX_BAD_PAGES: usize = 64;

/// The most pages of all runs that are compared with the store after a loss.
const MAX_READ_PAGES: usize = 100_000;

/// Bytes of a page in these lists, with free room in the nodes of the tree (160 bytes).
pub(super) const PAGE_BYTES: usize = 160;

/// The knowledge of a reader about a run whose pages are in the store.
#[derive(Debug, Default)]
pub(super) struct RunEntry {
    /// The highest sequence of its pages that the present read has given.
    pub(super) through: u64,
    /// When its last message was sent, by our clock.
    pub(super) seen: UnixNanos,
    pub(super) has_ended: bool,
    /// Whether a value of it was refused. Only the pages have it.
    pub(super) is_refused: bool,
    /// Whether one of its pages had totals of streams.
    pub(super) has_streams: bool,
    /// The time between two heartbeats, as its last page says; `None`: no page was readable.
    pub(super) interval: Option<Duration>,
    /// The pages that were read.
    pub(super) pages: ReadPages,
    /// Pages that are not readable, with their sequences.
    bad: BTreeMap<PagePosition, u64>,
}

impl RunEntry {
    /// Whether the reader has merged everything in its pages.
    pub(super) fn is_whole(&self) -> bool {
        !self.is_refused && self.bad.is_empty()
    }

    pub(super) fn is_alive(&self, now: UnixNanos, lease_ns: u64) -> bool {
        !self.has_ended && now.saturating_sub(self.seen) <= lease_ns
    }

    /// Notes a page that is not readable. `false`: it is known.
    pub(super) fn note_bad(&mut self, position: PagePosition, sequence: u64) -> bool {
        if self.bad.get(&position) == Some(&sequence) {
            return false;
        }
        if self.bad.len() < MAX_BAD_PAGES || self.bad.contains_key(&position) {
            self.bad.insert(position, sequence);
        } else {
            self.is_refused = true;
        }
        true
    }

    /// Notes that a page is readable. An older one that was not is gone.
    pub(super) fn note_good(&mut self, position: PagePosition, sequence: u64) {
        if self.bad.get(&position).is_some_and(|bad| *bad <= sequence) {
            self.bad.remove(&position);
        }
    }
}

/// The counts of a producer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProducerCounts {
    /// Messages that are not readable.
    pub poisoned: u64,
    /// Messages that a later version has written.
    pub newer: u64,
}

/// The status of a producer, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProducerStatus {
    /// Its name.
    pub name: ProducerName,
    /// The numbers of its runs whose pages are in the store, the newest last.
    pub runs: Vec<UnixNanos>,
    /// Whether one of them reports.
    pub is_reporting: bool,
    /// The time since its last message, in nanoseconds; `None`: there is none.
    pub age_ns: Option<u64>,
    /// The counts of its messages.
    pub counts: ProducerCounts,
}

#[derive(Debug, Default)]
pub(super) struct ProducerEntry {
    pub(super) runs: BTreeMap<UnixNanos, RunEntry>,
    pub(super) counts: ProducerCounts,
    /// When it last claimed a run, by our clock.
    pub(super) claimed: Option<UnixNanos>,
    /// When the last message of a run was sent whose pages are gone, by our clock.
    forgotten: Option<UnixNanos>,
}

/// All producers. The number of runs and claims has a limit.
#[derive(Debug)]
pub(super) struct ProducerList {
    pub(super) by_name: BTreeMap<ProducerName, ProducerEntry>,
    runs: usize,
    most: usize,
    /// The number of pages that the runs note.
    pages: usize,
    most_pages: usize,
}

impl ProducerList {
    pub(super) fn new(most: usize) -> Self {
        Self {
            by_name: BTreeMap::new(),
            runs: 0,
            most,
            pages: 0,
            most_pages: MAX_READ_PAGES,
        }
    }

    /// The entry of a producer; `None`: it is new and has no place.
    pub(super) fn entry(&mut self, name: &ProducerName) -> Option<&mut ProducerEntry> {
        if !self.by_name.contains_key(name) && self.by_name.len() >= self.most {
            return None;
        }
        Some(self.by_name.entry(name.clone()).or_default())
    }

    /// The entry of a run; `None`: it is new and has no place.
    pub(super) fn run(&mut self, run: &RunName) -> Option<&mut RunEntry> {
        let known = self.by_name.get(&run.producer);
        let own = known.map_or(0, |known| known.runs.len());
        let has_room = self.runs < self.most && own < MAX_RUNS_OF_PRODUCER;
        let is_new = !known.is_some_and(|known| known.runs.contains_key(&run.epoch));
        if is_new && !has_room {
            return None;
        }
        self.runs += usize::from(is_new);
        let entry = self.by_name.entry(run.producer.clone()).or_default();
        Some(entry.runs.entry(run.epoch).or_default())
    }

    /// Bounds the bytes of noted pages. Those that are known stay. Gives the bytes that they take.
    pub(super) fn set_max_page_bytes(&mut self, bytes: usize) -> usize {
        self.most_pages = (bytes / PAGE_BYTES).min(MAX_READ_PAGES);
        self.pages * PAGE_BYTES
    }

    /// Notes a page of a known run that a read gave.
    pub(super) fn note_page(&mut self, run: &RunName, position: PagePosition, page: ReadPage) {
        let has_room = self.pages < self.most_pages;
        let known = self.by_name.get_mut(&run.producer);
        if let Some(entry) = known.and_then(|known| known.runs.get_mut(&run.epoch)) {
            let before = entry.pages.len();
            entry.pages.note(position, page, has_room);
            self.pages += entry.pages.len() - before;
        }
    }

    /// Forgets a run whose pages are gone, unless it has said more.
    pub(super) fn forget(&mut self, run: &RunName, through: u64) {
        if let Some(entry) = self.by_name.get_mut(&run.producer) {
            let known = entry.runs.get(&run.epoch);
            if let Some(over) = known.filter(|known| known.through <= through) {
                entry.forgotten = entry.forgotten.max(Some(over.seen));
                self.pages -= over.pages.len();
                entry.runs.remove(&run.epoch);
                self.runs -= 1;
            }
        }
    }

    /// Forgets producers that have nothing.
    pub(super) fn expire(&mut self, now: UnixNanos, memory_ns: u64) {
        self.by_name.retain(|_, entry| {
            let is_claimed = entry
                .claimed
                .is_some_and(|at| now.saturating_sub(at) <= memory_ns);
            !entry.runs.is_empty() || is_claimed || entry.counts != ProducerCounts::default()
        });
    }

    pub(super) fn runs_mut(&mut self) -> impl Iterator<Item = &mut RunEntry> {
        self.by_name
            .values_mut()
            .flat_map(|entry| entry.runs.values_mut())
    }

    /// The shortest interval of the runs that report.
    pub(super) fn shortest_interval(&self, now: UnixNanos, lease_ns: u64) -> Option<Duration> {
        let runs = self.by_name.values().flat_map(|entry| entry.runs.values());
        let reporting = runs.filter(|run| run.is_alive(now, lease_ns));
        reporting.filter_map(|run| run.interval).min()
    }

    /// The status of each producer.
    pub(super) fn status(&self, now: UnixNanos, lease_ns: u64) -> impl Iterator<Item = ProducerStatus> + '_ {
        self.by_name.iter().map(move |(name, entry)| {
            let runs = entry.runs.values();
            let seen = runs.clone().map(|run| run.seen).max();
            ProducerStatus {
                name: name.clone(),
                runs: entry.runs.keys().copied().collect(),
                is_reporting: runs.clone().any(|run| run.is_alive(now, lease_ns)),
                age_ns: seen.map(|seen| now.saturating_sub(seen)),
                counts: entry.counts,
            }
        })
    }

    /// The producers that report.
    pub(super) fn reporting(&self, now: UnixNanos, lease_ns: u64) -> BTreeSet<&ProducerName> {
        let is_reporting = |entry: &ProducerEntry| entry.runs.values().any(|run| run.is_alive(now, lease_ns));
        let reporting = self.by_name.iter().filter(|(_, entry)| is_reporting(entry));
        reporting.map(|(name, _)| name).collect()
    }

    /// The producers that should report: those with a run that has not ended and that was alive lately, and those that have
    /// claimed a run lately and sent nothing of it. `folded`: when the newest record of the producer was written, by our
    /// clock. The run of an earlier claim is over then.
    pub(super) fn expected(
        &self,
        now: UnixNanos,
        memory_ns: u64,
        folded: impl Fn(&ProducerName) -> Option<UnixNanos>,
    ) -> BTreeSet<&ProducerName> {
        let is_recent = |at: UnixNanos| now.saturating_sub(at) <= memory_ns;
        let is_expected = |(name, entry): &(&ProducerName, &ProducerEntry)| {
            let mut runs = entry.runs.values();
            let has_run = runs.any(|run| !run.has_ended && is_recent(run.seen));
            let over = || entry.forgotten.max(folded(name));
            let is_claimed = |at: UnixNanos| is_recent(at) && Some(at) > over();
            has_run || (entry.runs.is_empty() && entry.claimed.is_some_and(is_claimed))
        };
        let expected = self.by_name.iter().filter(is_expected);
        expected.map(|(name, _)| name).collect()
    }
}
