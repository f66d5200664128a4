// SPDX-License-Identifier: Apache-2.0

//! The sender of a producer: it publishes the values of a table as pages.
//!
//! Pages do not queue. A page that has changed waits until it can go, and then goes with its newest values. So an
//! unavailable store costs freshness, and no memory.

mod bucket;
mod carry;
mod claim;
mod pages;
mod slot;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::Bytes;
pub use slot::SentItem;

use tidegate_engine::{UnixNanos, clock};

use self::bucket::TokenBucket;
use self::claim::EpochClaim;
use self::pages::{PageIndex, PageTable};
use self::slot::ItemOutcome;
use crate::partitions::PartitionCheck;
use crate::{
    CallId, PageHeaders, PageKind, PartitionMismatch, ProducerName, RunName, StoreCall, StoreError,
    StoreMessage, StoreReply, Subject, nanos,
};

/// The options of a sender.
#[derive(Clone, Debug)]
pub struct SenderConfig {
    /// The name of the cluster.
    pub cluster: String,
    /// The name of the producer.
    pub producer: ProducerName,
    /// The number of partitions of the cluster.
    pub partitions: u16,
    /// A hash of the rules.
    pub rules: u64,
    /// The time between two heartbeats. Call [`PageSender::update`] as often.
    pub interval: Duration,
    /// The time after which all pages are sent again.
    pub refresh: Duration,
    /// The most bytes of bodies that are sent per second.
    pub max_bytes_per_second: u64,
    /// The most series of a run, with those that have expired.
    pub max_series: usize,
    /// The most bytes of a body.
    pub max_body_bytes: usize,
    /// The most pages that are on their way at a time.
    pub max_in_flight: usize,
    /// A random number.
    pub nonce: u32,
}

/// Counts of a sender since its start, and its present state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SenderStats {
    /// Pages that the store has.
    pub stored: u64,
    /// Pages that the store did not take. They were sent again.
    pub failed: u64,
    /// Bytes of bodies that were sent.
    pub bytes: u64,
    /// Pages that waited longer than an interval.
    pub late: u64,
    /// Series that had no place because of `max_series`, in all updates.
    pub refused: u64,
    /// Levels and windows of series that have a total, in all updates.
    pub invalid: u64,
    /// Totals of streams that were smaller than older ones with the same start.
    pub fallen: u64,
    /// Series that are too large for a body.
    pub too_large: u64,
    /// Runs that were begun because series had no place, or because a stream had many starts.
    pub runs: u64,
    /// Series that have a place now, with those that have expired.
    pub series: usize,
    /// Totals that contain an earlier life of their series.
    pub carried: usize,
    /// Pages that wait now.
    pub waiting: usize,
    /// The time for which the oldest of them has waited, in nanoseconds.
    pub oldest_wait_ns: u64,
}

/// A call that has no answer yet.
#[derive(Debug)]
enum SentCall {
    Beat,
    Page(PageIndex),
    Bye,
    /// A goodbye before the present connection. The store may have lost pages before it, so another one follows these.
    EarlyBye,
}

/// Publishes the series of a producer.
#[derive(Debug)]
pub struct PageSender {
    config: SenderConfig,
    ids: CallId,
    partitions: PartitionCheck,
    claim: Option<EpochClaim>,
    /// The run; 0 before the first claim.
    epoch: UnixNanos,
    sequence: u64,
    table: PageTable,
    /// Calls of the present run.
    calls: BTreeMap<CallId, SentCall>,
    bucket: TokenBucket,
    next_beat: UnixNanos,
    next_refresh: UnixNanos,
    /// No page goes before this time: the store has refused one.
    retry_at: UnixNanos,
    /// When the next run may begin to make room.
    next_run: UnixNanos,
    /// Ended runs whose goodbye is not stored yet.
    byes: VecDeque<UnixNanos>,
    is_stopping: bool,
    stats: SenderStats,
}

impl PageSender {
    /// A sender that has no run yet.
    pub fn new(config: SenderConfig) -> Self {
        Self {
            table: PageTable::new(config.partitions, config.max_series),
            bucket: TokenBucket::new(config.max_bytes_per_second),
            partitions: PartitionCheck::new(&config.cluster, config.partitions),
            config,
            ids: CallId::default(),
            claim: Some(EpochClaim::new(0)),
            epoch: 0,
            sequence: 0,
            calls: BTreeMap::new(),
            next_beat: 0,
            next_refresh: 0,
            retry_at: 0,
            next_run: 0,
            byes: VecDeque::new(),
            is_stopping: false,
            stats: SenderStats::default(),
        }
    }

    /// Bounds the memory of streams, which no table bounds.
    pub fn set_max_stream_bytes(&mut self, bytes: usize) {
        self.table.streams.max_bytes = bytes;
    }

    /// Takes all values that there are now, and streams that were reported since the last update. Series that are not among
    /// them have expired; streams have if they are silent for 2 min.
    pub fn update(&mut self, items: impl IntoIterator<Item = SentItem>, now: UnixNanos) {
        let wall = clock::wall(now);
        let mut lacks_room = false;
        self.table.begin_round();
        for item in items {
            match self.table.take(item, wall, now) {
                ItemOutcome::Taken => {}
                ItemOutcome::Fallen => self.stats.fallen += 1,
                ItemOutcome::Invalid => self.stats.invalid += 1,
                ItemOutcome::Full => {
                    self.stats.refused += 1;
                    lacks_room = true;
                }
            }
        }
        self.table.end_round(now);
        let may_begin = self.epoch > 0 && self.claim.is_none() && now >= self.next_run && !self.is_stopping;
        let is_due = (lacks_room && self.table.has_expired(now)) || self.table.has_many_ended(now);
        if may_begin && is_due {
            self.claim = Some(EpochClaim::new(self.epoch));
        }
    }

    /// The call that is due. Call it until there is none, after each update and answer, and at least once per interval.
    pub fn poll(&mut self, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        if let Some(call) = self.partitions.poll(&mut self.ids, now) {
            return Some(call);
        }
        if !self.partitions.is_agreed() {
            return None;
        }
        if let Some(claim) = &mut self.claim {
            let subject = Subject::Producer(self.config.producer.clone()).text(&self.config.cluster);
            let times = (now, clock::wall(now));
            let call = claim.poll(&mut self.ids, &subject, self.config.nonce, times);
            if call.is_some() {
                return call;
            }
        }
        if self.epoch == 0 || self.is_finished() {
            return None;
        }
        self.refresh_if_due(now);
        self.beat(now)
            .or_else(|| self.send_page(now))
            .or_else(|| self.say_bye(now))
    }

    /// Takes the answer to a call.
    pub fn answer(&mut self, id: CallId, result: Result<StoreReply, StoreError>, now: UnixNanos) {
        let retry_at = now.saturating_add(nanos(self.config.interval));
        if self.partitions.answer(id, &result, retry_at) {
            return;
        }
        let epoch = self
            .claim
            .as_mut()
            .and_then(|claim| claim.answer(id, &result, retry_at));
        if let Some(epoch) = epoch {
            return self.begin_run(epoch, now);
        }
        let Some(call) = self.calls.remove(&id) else {
            return;
        };
        match (call, result) {
            (SentCall::Page(page), Err(StoreError::TooLarge)) => self.split(page, now),
            (SentCall::Page(page), result) => {
                self.table.note_result(page, result.is_ok(), now);
                self.count(result.is_ok(), retry_at);
            }
            (SentCall::Beat, result) => self.count(result.is_ok(), 0),
            (SentCall::Bye, Ok(_)) => {
                self.byes.pop_front();
            }
            (SentCall::EarlyBye, Ok(_)) => {}
            (SentCall::Bye | SentCall::EarlyBye, Err(_)) => self.count(false, retry_at),
        }
    }

    fn count(&mut self, is_stored: bool, retry_at: UnixNanos) {
        if is_stored {
            self.stats.stored += 1;
        } else {
            self.stats.failed += 1;
            self.retry_at = self.retry_at.max(retry_at);
        }
    }

    /// Notes that the connection to the store is new. The store may have lost messages: all pages go again.
    pub fn reconnected(&mut self, now: UnixNanos) {
        (self.next_refresh, self.next_beat, self.retry_at) = (now, now, now);
        let byes = self.calls.values_mut();
        byes.filter(|call| matches!(call, SentCall::Bye))
            .for_each(|call| *call = SentCall::EarlyBye);
        self.partitions.ask_again(now);
    }

    /// Ends the run: its last pages go, and then its goodbye.
    pub fn stop(&mut self) {
        if !self.is_stopping && self.epoch > 0 {
            self.byes.push_back(self.epoch);
        }
        if self.epoch > 0 {
            self.claim = None;
        }
        self.is_stopping = true;
    }

    /// Whether a stopped sender has nothing left to send.
    pub fn is_finished(&self) -> bool {
        let has_begun = self.epoch > 0 || self.table.len() == 0;
        self.is_stopping && self.byes.is_empty() && has_begun
    }

    /// The difference to the cluster, if its number of partitions is another one. The sender sends nothing then.
    pub fn mismatch(&self) -> Option<PartitionMismatch> {
        self.partitions.mismatch()
    }

    /// The name of the producer.
    pub fn producer(&self) -> &ProducerName {
        &self.config.producer
    }

    /// The present run; `None` before the first one.
    pub fn run(&self) -> Option<RunName> {
        (self.epoch > 0).then(|| self.run_of(self.epoch))
    }

    /// The counts.
    pub fn stats(&self, now: UnixNanos) -> SenderStats {
        let (waiting, since) = self.table.waiting();
        SenderStats {
            series: self.table.len(),
            carried: self.table.carried(),
            waiting,
            oldest_wait_ns: since.map_or(0, |since| now.saturating_sub(since)),
            ..self.stats
        }
    }

    /// Whether the store has all pages as they are.
    #[cfg(test)]
    pub(crate) fn is_settled(&self) -> bool {
        self.epoch > 0 && self.table.is_settled()
    }

    fn begin_run(&mut self, epoch: UnixNanos, now: UnixNanos) {
        self.claim = None;
        if self.epoch > 0 {
            // Readers know the end of the old run only after all pages of the new one.
            self.byes.push_back(self.epoch);
            self.table.begin_run(now);
            self.stats.runs += 1;
        } else if self.is_stopping {
            self.byes.push_back(epoch);
        }
        self.calls.clear();
        self.table.mark_all(now);
        (self.epoch, self.sequence) = (epoch, epoch);
        self.next_beat = now;
        self.next_refresh = now.saturating_add(nanos(self.config.refresh));
        self.next_run = self.next_refresh;
    }

    /// A sender that waits for the answer to its last goodbye has nothing to say again.
    fn refresh_if_due(&mut self, now: UnixNanos) {
        let is_leaving = self.is_stopping && self.calls.values().any(|call| matches!(call, SentCall::Bye));
        if now >= self.next_refresh && !is_leaving {
            self.table.mark_all(now);
            self.next_refresh = now.saturating_add(nanos(self.config.refresh));
        }
    }

    /// Page 0 has no series. It goes in each interval, also if the pages have used up their bytes.
    fn beat(&mut self, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        let is_asked = self.calls.values().any(|call| matches!(call, SentCall::Beat));
        if is_asked || now < self.next_beat || self.is_stopping {
            return None;
        }
        self.next_beat = now.saturating_add(nanos(self.config.interval));
        Some(self.publish(SentCall::Beat, self.epoch, PageKind::Page, (0, 0), Bytes::new()))
    }

    fn send_page(&mut self, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        loop {
            let may_send = self.calls.len() < self.config.max_in_flight.max(1) && now >= self.retry_at;
            if !may_send || !(self.bucket.is_open(now) || self.is_stopping) {
                return None;
            }
            let page = self.table.next_page()?;
            let (partition, body) = self.table.write(page, &self.config.producer)?;
            if body.len() > self.config.max_body_bytes {
                self.split(page, now);
                continue;
            }
            let waited = self
                .table
                .note_sent(page)
                .map_or(0, |since| now.saturating_sub(since));
            self.stats.late += u64::from(waited > nanos(self.config.interval));
            self.bucket.take(body.len());
            let number = u32::try_from(page).unwrap_or(u32::MAX).saturating_add(1);
            let place = (partition, number);
            return Some(self.publish(SentCall::Page(page), self.epoch, PageKind::Page, place, body));
        }
    }

    fn split(&mut self, page: PageIndex, now: UnixNanos) {
        if !self.table.split(page, now) {
            self.stats.too_large += 1;
        }
    }

    fn say_bye(&mut self, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        let epoch = *self.byes.front()?;
        if !self.calls.is_empty() || !self.table.is_settled() || now < self.retry_at {
            return None;
        }
        Some(self.publish(SentCall::Bye, epoch, PageKind::Bye, (0, 0), Bytes::new()))
    }

    fn publish(
        &mut self,
        call: SentCall,
        epoch: UnixNanos,
        kind: PageKind,
        (partition, page): (u16, u32),
        body: Bytes,
    ) -> (CallId, StoreCall) {
        self.sequence += 1;
        self.stats.bytes += body.len() as u64;
        let run = self.run_of(epoch);
        let headers = PageHeaders {
            kind,
            sequence: self.sequence,
            epoch,
            rules: self.config.rules,
            interval: self.config.interval,
        };
        let message = StoreMessage {
            subject: Subject::Page { partition, run, page }.text(&self.config.cluster),
            headers: headers.write(),
            body,
        };
        let id = self.ids.advance();
        self.calls.insert(id, call);
        (id, StoreCall::Publish(message))
    }

    fn run_of(&self, epoch: UnixNanos) -> RunName {
        RunName {
            producer: self.config.producer.clone(),
            epoch,
        }
    }
}
