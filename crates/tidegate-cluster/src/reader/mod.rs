// SPDX-License-Identifier: Apache-2.0

//! The reader of a replica: it takes all pages of all producers, in any order, and merges them.

mod broker_clock;
mod deltas;
mod pages;
mod producers;
mod records;
mod sources;
mod take;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub use producers::{ProducerCounts, ProducerStatus};
pub(crate) use records::{MissingRecord, RecordPlace, RecordProblem};
use tidegate_engine::{
    Answer, Budget, Declaration, Merged, MergedLimits, MergedWindows, UnixNanos, Unshareable,
    WindowMergeLimits,
};

use self::broker_clock::BrokerClock;
pub(crate) use self::deltas::DeltaRecord;
use self::producers::ProducerList;
use self::records::RecordList;
use crate::name::StreamProducer;
use crate::partitions::ReadPartitions;
use crate::{
    CallId, PageLimits, PartitionMismatch, ProducerName, ReadScope, RefusedPartitions, RunName, StoreCall,
    StoreEvent, nanos,
};

/// Noted pages take at most this share of the memory of merged series.
const PAGES_SHARE: usize = 8;

/// The options of a reader.
#[derive(Clone, Debug)]
pub struct ReaderConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// The number of partitions of the cluster.
    pub partitions: u16,
    /// The limits of messages.
    pub limits: PageLimits,
    /// The limits of merged series. The lease is that of runs.
    pub merged: MergedLimits,
    /// The limits of merged windows.
    pub windows: WindowMergeLimits,
    /// A replica that is behind for longer than this is not ready (default: 5 s).
    pub max_lag: Duration,
    /// The most runs whose pages are in the store, of all producers, and the most producers (default: 20,000).
    pub max_runs: usize,
    /// A producer is expected for this long after its last message or claim, unless it said goodbye (default: 15 min).
    pub expected_for: Duration,
}

impl ReaderConfig {
    /// The defaults for a cluster with this name and one partition.
    pub fn new(cluster: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            partitions: 1,
            limits: PageLimits::default(),
            merged: MergedLimits::default(),
            windows: WindowMergeLimits::default(),
            max_lag: Duration::from_secs(5),
            max_runs: 20_000,
            expected_for: Duration::from_mins(15),
        }
    }
}

/// Whether readers of a replica may trust its answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplicaState {
    /// It has not read all that the store has. It must not answer.
    CatchingUp,
    /// It knows the newest values of all producers.
    Fresh,
    /// Some producers are missing, or some of their values.
    Partial,
    /// It has not read from the store for too long. It must not answer.
    Stale,
}

/// The status of a replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplicaStatus {
    /// Its state.
    pub state: ReplicaState,
    /// The number of expected producers that report.
    pub reporting: usize,
    /// The number of producers that should report.
    pub expected: usize,
    /// The time since it last knew everything, in nanoseconds; `None`: it never did.
    pub lag_ns: Option<u64>,
}

/// Counts of messages that a reader took or refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderStats {
    /// Pages, with repeated ones.
    pub pages: u64,
    /// Records of retained totals, with repeated ones.
    pub records: u64,
    /// Messages of no producer.
    pub foreign: u64,
    /// Totals and messages that a limit refused.
    pub refused: u64,
    /// Events that were not taken because of a fault of this program.
    pub failed: u64,
    /// Windows of composites that this replica does not declare.
    pub unknown_composites: u64,
    /// Records with another number of partitions than an earlier one, with repeated ones.
    pub refused_partitions: u64,
    /// Times at which the store had lost its newest messages.
    pub losses: u64,
}

/// Merges the pages of all producers.
#[derive(Debug)]
pub struct PageReader {
    config: ReaderConfig,
    ids: CallId,
    read: Option<CallId>,
    /// Whether the present read has given all messages once.
    is_following: bool,
    /// When it first had.
    followed_at: UnixNanos,
    /// When all messages were known.
    caught_up_at: Option<UnixNanos>,
    /// When the engine said so last.
    current_at: UnixNanos,
    /// The last question of which all messages are known.
    confirmed: u64,
    merged: Merged,
    windows: BTreeMap<Arc<str>, MergedWindows>,
    producers: ProducerList,
    expected: BTreeSet<ProducerName>,
    records: RecordList,
    clock: BrokerClock,
    /// The highest sequence and its time.
    highest: (u64, UnixNanos),
    /// When the store was last seen to have lost messages.
    lost_at: Option<UnixNanos>,
    /// Whether a message was not taken since the present read began, for example because there was no room for its run.
    /// Nothing but another read brings it back.
    has_refused: bool,
    /// The same of the read before, until the present one has given all messages.
    had_refused: bool,
    /// The replica that has exported the newest deltas.
    deltas: DeltaRecord,
    partitions: ReadPartitions,
    stats: ReaderStats,
}

impl PageReader {
    /// A reader that knows nothing yet. `composites` are merged from windows, within `budget`.
    ///
    /// # Errors
    /// A composite can't be computed from the windows of several producers.
    pub fn new(
        config: ReaderConfig,
        composites: Vec<Declaration>,
        budget: &Arc<Budget>,
    ) -> Result<Self, Unshareable> {
        let mut windows = BTreeMap::new();
        for declaration in composites {
            let name = declaration.name.clone();
            windows.insert(
                name,
                MergedWindows::new(declaration, config.windows, budget.clone())?,
            );
        }
        Ok(Self {
            merged: Merged::new(config.merged),
            producers: ProducerList::new(config.max_runs),
            config,
            ids: CallId::default(),
            read: None,
            is_following: false,
            followed_at: 0,
            caught_up_at: None,
            current_at: 0,
            confirmed: 0,
            windows,
            expected: BTreeSet::new(),
            records: RecordList::default(),
            clock: BrokerClock::default(),
            highest: (0, 0),
            lost_at: None,
            has_refused: false,
            had_refused: false,
            deltas: DeltaRecord::default(),
            partitions: ReadPartitions::default(),
            stats: ReaderStats::default(),
        })
    }

    /// The call that is due: a read of everything, at the start and after a read broke off.
    pub fn poll(&mut self) -> Option<(CallId, StoreCall)> {
        if self.read.is_some() {
            return None;
        }
        let id = self.ids.advance();
        (self.read, self.is_following) = (Some(id), false);
        self.had_refused |= self.has_refused;
        self.has_refused = false;
        // The store may have lost messages: it has only what this read gives.
        self.producers.runs_mut().for_each(|run| run.through = 0);
        Some((id, StoreCall::ReadAll(ReadScope::Everything)))
    }

    /// Takes an event of its read. Messages that are not readable are counted.
    pub fn event(&mut self, event: StoreEvent, now: UnixNanos) {
        match event {
            StoreEvent::Read(id, stored) if self.read == Some(id) => {
                // `take` has counted the error.
                let _ = self.take(&stored, false, now);
            }
            StoreEvent::Current(id, delay, _) if self.read == Some(id) && self.misses_nothing(delay, now) => {
                if !self.is_following {
                    self.followed_at = now;
                }
                (self.caught_up_at, self.current_at) = (Some(now), now);
                (self.is_following, self.had_refused) = (true, false);
            }
            StoreEvent::Confirmed(id, delay, question)
                if self.read == Some(id) && self.is_following && self.misses_nothing(delay, now) =>
            {
                self.confirmed = self.confirmed.max(question);
            }
            StoreEvent::Done(id, _) if self.read == Some(id) => self.read = None,
            _ => {}
        }
    }

    /// Notes that an event was not taken, because of a fault of this program. Values of a message may be missing until the next
    /// read.
    pub fn note_failure(&mut self) {
        self.stats.failed += 1;
        self.has_refused = true;
    }

    /// Whether no producer that reports has replaced a message twice within this time.
    fn misses_nothing(&self, delay: Duration, now: UnixNanos) -> bool {
        let lease_ns = self.config.merged.lease_ns;
        let shortest = self.producers.shortest_interval(now, lease_ns);
        shortest.is_none_or(|shortest| delay <= shortest)
    }

    /// Hides levels of silent runs, and removes expired windows and producers. Call it about once a second.
    pub fn tick(&mut self, now: UnixNanos) {
        let read_to = self.caught_up_at.map_or(now, |at| at.min(now));
        let store_time = |at| self.clock.store_time(at);
        self.merged.sweep(store_time(now), store_time(read_to));
        self.windows.values_mut().for_each(|windows| windows.expire(now));
        self.producers.expire(now, nanos(self.config.expected_for));
    }

    /// Sets the producers that are expected even if they never reported. All others with a living run are expected
    /// anyway.
    pub fn expect(&mut self, producers: BTreeSet<ProducerName>) {
        let ids: BTreeSet<_> = producers.iter().map(ProducerName::id).collect();
        self.windows
            .values_mut()
            .for_each(|windows| windows.expect(ids.clone()));
        self.expected = producers;
    }

    /// The replica that has exported the newest deltas, as far as it is known.
    pub(crate) fn deltas(&mut self) -> &mut DeltaRecord {
        &mut self.deltas
    }

    /// The time of the store's clock at a time of ours.
    pub(crate) fn store_time(&self, time: UnixNanos) -> UnixNanos {
        self.clock.store_time(time)
    }

    /// The difference to the cluster, if its number of partitions is another one. The replica is never ready then.
    pub fn mismatch(&self) -> Option<PartitionMismatch> {
        self.partitions.mismatch()
    }

    /// The number of partitions in the store, if it contradicts an earlier one. The replica goes on with the earlier one.
    pub fn refused_partitions(&self) -> Option<RefusedPartitions> {
        self.partitions.refused()
    }

    /// Whether it may answer: it has read all messages and is not far behind.
    pub fn is_ready(&self, now: UnixNanos) -> bool {
        let lag = self.caught_up_at.map(|at| now.saturating_sub(at));
        self.mismatch().is_none() && lag.is_some_and(|lag| lag < nanos(self.config.max_lag))
    }

    /// When it last knew all messages of the store; `None`: it never did.
    pub fn caught_up_at(&self) -> Option<UnixNanos> {
        self.caught_up_at
    }

    /// The last question to the store of which it knows all messages; 0: none.
    pub fn confirmed(&self) -> u64 {
        self.confirmed
    }

    /// The status.
    pub fn status(&self, now: UnixNanos) -> ReplicaStatus {
        let expected = self.should_report(now);
        let reporting = expected.len() - self.silent(now).len();
        let mut runs = self
            .producers
            .by_name
            .values()
            .flat_map(|entry| entry.runs.values());
        let mut records = self.records.known.values();
        let has_gaps = self.has_refused
            || self.had_refused
            || runs.any(|run| !run.is_whole())
            || records.any(|record| record.is_unreadable);
        let state = match self.caught_up_at {
            None => ReplicaState::CatchingUp,
            Some(_) if !self.is_ready(now) => ReplicaState::Stale,
            Some(_) if reporting < expected.len() || has_gaps => ReplicaState::Partial,
            Some(_) => ReplicaState::Fresh,
        };
        ReplicaStatus {
            state,
            reporting,
            expected: expected.len(),
            lag_ns: self.caught_up_at.map(|at| now.saturating_sub(at)),
        }
    }

    /// The producers that should report and do not, by name.
    pub fn silent(&self, now: UnixNanos) -> Vec<&ProducerName> {
        let reporting = self.producers.reporting(now, self.config.merged.lease_ns);
        let expected = self.should_report(now).into_iter();
        expected.filter(|name| !reporting.contains(name)).collect()
    }

    fn should_report(&self, now: UnixNanos) -> BTreeSet<&ProducerName> {
        let memory = nanos(self.config.expected_for);
        let mut expected = self
            .producers
            .expected(now, memory, |producer| self.folded_at(producer));
        expected.extend(&self.expected);
        expected
    }

    /// Bounds the memory of the merged series and of the pages that are noted, which take at most an eighth.
    pub fn set_max_bytes(&mut self, bytes: usize) {
        let pages = self.producers.set_max_page_bytes(bytes / PAGES_SHARE);
        self.merged.set_max_bytes(bytes.saturating_sub(pages));
    }

    /// The merged series.
    pub fn merged(&mut self) -> &mut Merged {
        &mut self.merged
    }

    /// The answers of a composite; `None`: it is not declared.
    pub fn answers(&mut self, composite: &str, now: UnixNanos) -> Option<Vec<Answer>> {
        Some(self.windows.get_mut(composite)?.answers(now))
    }

    /// The status of each known producer, by name.
    pub fn producers(&self, now: UnixNanos) -> impl Iterator<Item = ProducerStatus> + '_ {
        self.producers.status(now, self.config.merged.lease_ns)
    }

    /// The producers that are expected even if they never reported.
    pub fn expected(&self) -> &BTreeSet<ProducerName> {
        &self.expected
    }

    /// The number of records of retained totals in the store.
    pub fn retained(&self) -> usize {
        let known = self.records.known.values();
        known.filter(|record| record.sequence > 0).count()
    }

    /// The counts of a producer.
    pub fn counts(&self, producer: &ProducerName) -> ProducerCounts {
        let known = self.producers.by_name.get(producer);
        known.map_or_else(ProducerCounts::default, |entry| entry.counts)
    }

    /// The counts of all messages.
    pub fn stats(&self) -> ReaderStats {
        self.stats
    }

    /// The runs that may be folded, with the highest sequences of their pages: those that said goodbye `grace_ns` ago, and
    /// those that were last alive `age_ns` ago. After a loss, a run need not be that old: only replicas may know it. If the
    /// store lacks pages of it that are known here, it may be folded when its producer has had `return_ns` to send them again,
    /// or for a lease if it said goodbye.
    pub(crate) fn over_runs(
        &self,
        now: UnixNanos,
        grace_ns: u64,
        age_ns: u64,
        return_ns: u64,
    ) -> Vec<(RunName, u64)> {
        let has_lost = self.lost_at.is_some_and(|at| now.saturating_sub(at) <= age_ns);
        let lease_ns = self.config.merged.lease_ns;
        let silence = if has_lost {
            lease_ns.saturating_add(grace_ns).min(age_ns)
        } else {
            age_ns
        };
        let read = self.read.filter(|_| self.is_following);
        let compared = now.saturating_sub(self.followed_at.max(self.lost_at.unwrap_or(0)));
        let mut over = Vec::new();
        for (producer, entry) in &self.producers.by_name {
            for (epoch, run) in &entry.runs {
                let (wait, return_ns) = if run.has_ended {
                    (grace_ns, lease_ns)
                } else {
                    (silence, return_ns)
                };
                let idle = now.saturating_sub(run.seen);
                let has_more = || read.is_some_and(|read| run.pages.has_more_than(read));
                let is_over = idle >= wait || (idle.min(compared) >= return_ns && has_more());
                if run.is_whole() && is_over {
                    let producer = producer.clone();
                    let epoch = *epoch;
                    over.push((RunName { producer, epoch }, run.through));
                }
            }
        }
        over
    }

    /// Whether a run whose pages are in the store has reported streams.
    pub(crate) fn has_streams(&self, run: &RunName) -> bool {
        let known = self.producers.by_name.get(&run.producer);
        let entry = known.and_then(|known| known.runs.get(&run.epoch));
        entry.is_some_and(|entry| entry.has_streams)
    }

    /// Makes a run part of the retained total of its producer, and its streams part of theirs.
    pub(crate) fn fold(&mut self, run: &RunName) {
        let streams = StreamProducer::all().iter().filter(|_| self.has_streams(run));
        let producers: Vec<_> = streams
            .map(|streams| streams.id)
            .chain([run.producer.id()])
            .collect();
        for producer in producers {
            self.merged.fold(producer, run.epoch, true);
        }
    }

    /// Notes that the pages of a run up to a sequence are gone.
    pub(crate) fn forget_run(&mut self, run: &RunName, through: u64) {
        self.producers.forget(run, through);
    }
}
