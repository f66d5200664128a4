// SPDX-License-Identifier: Apache-2.0

//! The leader: it folds ended runs, removes their pages, and puts back retained totals that the store has lost.
//!
//! Two leaders at a time do no harm: each record is written by compare-and-set, and pages go only after the records that
//! contain them are stored. So every replica may help: one that does not lead waits twice as long before it does the same.

mod deltas;
mod job;
mod lease;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use tidegate_engine::UnixNanos;

use self::deltas::DeltaClaims;
pub use self::deltas::{DeltaClaim, DeltaStats};
use self::job::{FoldJob, JobState};
use self::lease::LeaseHolder;
use crate::reader::{RecordPlace, RecordProblem};
use crate::{
    CallId, PageReader, ProducerName, ReadScope, RunName, StoreCall, StoreError, StoreEvent, StoreReply,
    Subject, nanos,
};

/// The options of a leader.
#[derive(Clone, Debug)]
pub struct LeaderConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of this process, which no other process has.
    pub holder: String,
    /// How long a lease lasts (default: 10 s).
    pub term: Duration,
    /// A run that said goodbye is folded after this time. It must be longer than the delay of any message (default: 1 min).
    pub grace: Duration,
    /// A silent run is folded after this time (default: 15 min).
    pub fold_after: Duration,
    /// A producer that lives connects again and sends its pages within this time after a loss of the store (default: 15 s). A
    /// run that does not is folded, if the store lacks pages of it that this replica knows.
    pub reconnect: Duration,
    /// The time between two reads of all records (default: 5 min).
    pub audit_interval: Duration,
    /// The time between two searches for runs to fold, and before a failed job begins again (default: 5 s).
    pub retry: Duration,
}

impl LeaderConfig {
    /// The defaults.
    pub fn new(cluster: &str, holder: &str) -> Self {
        Self {
            cluster: cluster.to_owned(),
            holder: holder.to_owned(),
            term: Duration::from_secs(10),
            grace: Duration::from_mins(1),
            fold_after: Duration::from_mins(15),
            reconnect: Duration::from_secs(15),
            audit_interval: Duration::from_mins(5),
            retry: Duration::from_secs(5),
        }
    }
}

/// Counts of a leader since its start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LeaderStats {
    /// Records that were stored.
    pub stored: u64,
    /// Records among them that the store had lost.
    pub restored: u64,
    /// Runs whose pages were removed.
    pub purged: u64,
    /// Jobs that could not go on. They begin again later.
    pub failed: u64,
    /// Records that are larger than a body may be. The pages of their runs stay.
    pub too_large: u64,
    /// Records that are not readable here. Nothing replaces them.
    pub unreadable: u64,
}

/// A read of all records.
#[derive(Debug)]
struct RecordAudit {
    id: CallId,
    /// The records that were known before it began and that it has not given yet.
    unseen: BTreeSet<RecordPlace>,
}

/// Folds ended runs and restores records, with the state of a reader.
#[derive(Debug)]
pub struct ClusterLeader {
    config: LeaderConfig,
    ids: CallId,
    lease: LeaseHolder,
    deltas: DeltaClaims,
    audit: Option<RecordAudit>,
    next_audit: UnixNanos,
    job: Option<FoldJob>,
    /// Runs that are to be folded.
    queue: VecDeque<(ProducerName, Vec<(RunName, u64)>)>,
    next_search: UnixNanos,
    /// Producers whose jobs failed, and when they may begin again.
    parked: BTreeMap<ProducerName, UnixNanos>,
    stats: LeaderStats,
}

impl ClusterLeader {
    /// A replica that does not lead yet.
    pub fn new(config: LeaderConfig) -> Self {
        let subject = Subject::Leader.text(&config.cluster);
        let deltas = Subject::Deltas.text(&config.cluster);
        Self {
            lease: LeaseHolder::new(subject, config.holder.clone(), config.term),
            deltas: DeltaClaims::new(deltas, config.holder.clone()),
            config,
            ids: CallId::default(),
            audit: None,
            next_audit: 0,
            job: None,
            queue: VecDeque::new(),
            next_search: 0,
            parked: BTreeMap::new(),
            stats: LeaderStats::default(),
        }
    }

    /// Whether this replica leads now. Exporters that push ask this.
    pub fn is_leading(&self, now: UnixNanos) -> bool {
        self.lease.is_held(now)
    }

    /// The counts.
    pub fn stats(&self) -> LeaderStats {
        self.stats
    }

    /// Begins a claim of the deltas since the newest claim. It fails if this replica does not lead, by whatever election.
    pub fn claim_deltas(&mut self, leads: bool) {
        self.deltas.begin(leads);
    }

    /// The result of the claim; `None`: it has no answer yet.
    pub fn delta_claim(&self) -> Option<DeltaClaim> {
        self.deltas.result()
    }

    /// Whether another replica has claimed deltas since the last call that said so. Its claim covers the increases that this
    /// replica has not exported.
    pub fn follow_deltas(&mut self, reader: &mut PageReader, now: UnixNanos) -> bool {
        self.deltas.follow(reader, now)
    }

    /// The counts of claims.
    pub fn delta_stats(&self) -> DeltaStats {
        self.deltas.stats()
    }

    /// Notes that the connection to the store is new: the records are read again soon.
    pub fn reconnected(&mut self, now: UnixNanos) {
        self.next_audit = self.next_audit.min(now);
    }

    /// The call that is due. Call it until there is none. A replica that is not ready has none: it pushes nothing, so it
    /// lets its lease run out, and a replica that is ready takes over.
    pub fn poll(&mut self, reader: &mut PageReader, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        if !reader.is_ready(now) {
            return None;
        }
        if let Some(call) = self.lease.poll(&mut self.ids, now) {
            return Some(call);
        }
        // Only a leader begins a claim. Another election than that of the store may have chosen it.
        if let Some(call) = self.deltas.poll(&mut self.ids, reader) {
            return Some(call);
        }
        if self.audit.is_none() && now >= self.next_audit {
            return Some(self.begin_audit(reader, now));
        }
        loop {
            if let Some(job) = &mut self.job {
                return job.poll(&mut self.ids);
            }
            let (producer, runs) = self.next_work(reader, now)?;
            self.begin_job(reader, producer, runs, now);
        }
    }

    /// Takes an event for one of its calls.
    pub fn event(&mut self, event: StoreEvent, reader: &mut PageReader, now: UnixNanos) {
        match event {
            StoreEvent::Read(id, stored) => {
                let audit = self.audit.as_mut().filter(|audit| audit.id == id);
                let Some(audit) = audit else { return };
                let subject = Subject::parse(&self.config.cluster, &stored.message.subject);
                if let Some(Subject::Retained { partition, producer }) = subject {
                    audit.unseen.remove(&(partition, producer));
                    // `take` has counted the error.
                    let _ = reader.take(&stored, true, now);
                }
            }
            StoreEvent::Done(id, result) => self.answer(id, result, reader, now),
            StoreEvent::Connected => self.reconnected(now),
            StoreEvent::Current(..) | StoreEvent::Confirmed(..) => {}
        }
    }

    fn answer(
        &mut self,
        id: CallId,
        result: Result<StoreReply, StoreError>,
        reader: &mut PageReader,
        now: UnixNanos,
    ) {
        if self.lease.answer(id, &result) || self.deltas.answer(id, &result, reader, now) {
            return;
        }
        if let Some(audit) = self.audit.take_if(|audit| audit.id == id) {
            match result {
                Ok(_) => audit
                    .unseen
                    .iter()
                    .for_each(|place| reader.note_lost_record(place)),
                Err(_) => self.next_audit = now.saturating_add(nanos(self.config.retry)),
            }
            return;
        }
        let Some(job) = &mut self.job else { return };
        match job.answer(id, result, reader, &mut self.stats, now) {
            JobState::Open => {}
            JobState::Complete => self.job = None,
            JobState::GivenUp => {
                let producer = job.producer.clone();
                self.job = None;
                self.park(producer, self.config.retry, now);
            }
        }
    }

    fn begin_audit(&mut self, reader: &PageReader, now: UnixNanos) -> (CallId, StoreCall) {
        self.next_audit = now.saturating_add(self.patience(self.config.audit_interval, now));
        let id = self.ids.advance();
        let unseen = reader.known_records();
        self.audit = Some(RecordAudit { id, unseen });
        (id, StoreCall::ReadAll(ReadScope::Retained))
    }

    /// How long this replica waits for something that the leader does: twice as long if it does not lead.
    fn patience(&self, wait: Duration, now: UnixNanos) -> u64 {
        nanos(wait).saturating_mul(if self.is_leading(now) { 1 } else { 2 })
    }

    /// The next producer with something to do, and its runs to fold.
    fn next_work(
        &mut self,
        reader: &mut PageReader,
        now: UnixNanos,
    ) -> Option<(ProducerName, Vec<(RunName, u64)>)> {
        if let Some(producer) = reader.next_changed_record() {
            return Some((producer, Vec::new()));
        }
        if self.queue.is_empty() && now >= self.next_search {
            self.next_search = now.saturating_add(nanos(self.config.retry));
            self.search(reader, now);
        }
        self.queue.pop_front()
    }

    fn search(&mut self, reader: &PageReader, now: UnixNanos) {
        let grace = self.patience(self.config.grace, now);
        let age = self.patience(self.config.fold_after, now);
        // Perhaps the leader does not know what the store lacks: a replica that does is not more patient.
        let reconnect = nanos(self.config.reconnect);
        let mut by_producer: BTreeMap<ProducerName, Vec<(RunName, u64)>> = BTreeMap::new();
        self.parked.retain(|producer, until| {
            let waits = now < *until;
            if !waits {
                by_producer.entry(producer.clone()).or_default();
            }
            waits
        });
        for (run, through) in reader.over_runs(now, grace, age, reconnect) {
            if !self.parked.contains_key(&run.producer) {
                by_producer
                    .entry(run.producer.clone())
                    .or_default()
                    .push((run, through));
            }
        }
        self.queue = by_producer.into_iter().collect();
    }

    fn begin_job(
        &mut self,
        reader: &mut PageReader,
        producer: ProducerName,
        runs: Vec<(RunName, u64)>,
        now: UnixNanos,
    ) {
        match FoldJob::begin(reader, producer.clone(), runs) {
            Ok(job) => self.job = (job.state() == JobState::Open).then_some(job),
            Err(problem) => {
                match problem {
                    RecordProblem::TooLarge => self.stats.too_large += 1,
                    RecordProblem::Unreadable => self.stats.unreadable += 1,
                }
                self.park(producer, self.config.fold_after, now);
            }
        }
    }

    fn park(&mut self, producer: ProducerName, wait: Duration, now: UnixNanos) {
        self.stats.failed += 1;
        let until = now.saturating_add(nanos(wait));
        self.parked.insert(producer, until);
    }
}
