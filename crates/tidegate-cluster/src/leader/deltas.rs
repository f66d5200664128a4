// SPDX-License-Identifier: Apache-2.0

//! Claims of deltas: each interval of deltas is exported by one replica.
//!
//! All replicas keep the totals at the newest claim. The leader claims before it exports, by compare-and-set of one record, and
//! exports the increases since the claim before. The others see the claim and let go of the same increases. So the next leader
//! goes on where the last one claimed. A leader that ends between claim and export loses one interval.
//!
//! A replica knows the totals from the moment at which it follows a claim. If it leads next, the increases from the claim to that
//! moment are lost. A replica that starts follows the newest claim at its start, however old the claim is.

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::{CallId, PageReader, StoreCall, StoreError, StoreMessage, StoreReply};

/// The result of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeltaClaim {
    /// This replica exports the interval.
    Won,
    /// Another replica has claimed it.
    Lost,
    /// The store did not answer. The next claim covers the interval too.
    Failed,
}

/// Counts of claims since the start of the replica.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeltaStats {
    /// Claims that this replica won.
    pub won: u64,
    /// Claims that another replica had made before.
    pub lost: u64,
    /// Claims that the store did not answer.
    pub failed: u64,
    /// Won claims that followed one of another replica. Each may have lost an interval.
    pub handovers: u64,
    /// Claims of other replicas that this one has followed.
    pub followed: u64,
    /// Nanoseconds from claims of other replicas to the moments at which this one followed them, for the claims that its own
    /// ones came after. Nobody exports the increases of this time.
    pub gap_ns: u64,
}

#[derive(Debug)]
pub(super) struct DeltaClaims {
    subject: String,
    /// The name of this replica, which no other process has.
    name: Bytes,
    is_wanted: bool,
    /// The call on its way.
    asked: Option<CallId>,
    /// Whether this replica has asked to follow a claim of another one, and has won none since. A call without an answer may have
    /// taken effect.
    takes_over: bool,
    /// When this replica followed the newest claim of another one, by its own clock, and when the store took that claim.
    followed: Option<(UnixNanos, UnixNanos)>,
    result: Option<DeltaClaim>,
    /// The sequence of the newest claim that this replica knows the consequences of.
    seen: u64,
    stats: DeltaStats,
}

impl DeltaClaims {
    pub(super) fn new(subject: String, name: String) -> Self {
        Self {
            subject,
            name: name.into(),
            is_wanted: false,
            asked: None,
            takes_over: false,
            followed: None,
            result: None,
            seen: 0,
            stats: DeltaStats::default(),
        }
    }

    pub(super) fn stats(&self) -> DeltaStats {
        self.stats
    }

    /// Begins a claim. An earlier one without an answer has failed. It may still take effect: then the record is of this
    /// replica, which has exported nothing for it, and the new claim covers its interval.
    pub(super) fn begin(&mut self, leads: bool) {
        self.stats.failed += u64::from(self.is_wanted);
        (self.is_wanted, self.asked) = (leads, None);
        self.result = (!leads).then_some(DeltaClaim::Failed);
    }

    /// The result of the claim; `None`: it has no answer yet.
    pub(super) fn result(&self) -> Option<DeltaClaim> {
        self.result
    }

    /// Whether another replica has made a claim since the last call that said so.
    pub(super) fn follow(&mut self, reader: &mut PageReader, now: UnixNanos) -> bool {
        let record = reader.deltas();
        let is_new = record.sequence() != self.seen;
        self.seen = record.sequence();
        let follows = is_new && record.is_of_another(&self.name);
        if follows {
            self.stats.followed += 1;
            self.followed = Some((now, record.time()));
        }
        follows
    }

    /// The call that is due.
    pub(super) fn poll(&mut self, ids: &mut CallId, reader: &mut PageReader) -> Option<(CallId, StoreCall)> {
        if !self.is_wanted || self.asked.is_some() {
            return None;
        }
        let record = reader.deltas();
        if record.sequence() != self.seen && record.is_of_another(&self.name) {
            // This replica has not followed that claim: it would export the same increases.
            self.stats.lost += 1;
            (self.is_wanted, self.result) = (false, Some(DeltaClaim::Lost));
            return None;
        }
        let expected = record.sequence();
        self.takes_over |= record.is_of_another(&self.name);
        let id = ids.advance();
        self.asked = Some(id);
        let message = StoreMessage {
            subject: self.subject.clone(),
            headers: Vec::new(),
            body: self.name.clone(),
        };
        Some((id, StoreCall::CompareAndSet(message, expected)))
    }

    /// The time between the newest claim of another replica and the moment at which this one followed it. Messages that came in
    /// the meantime tell more about the clock of the store.
    fn take_gap(&mut self, reader: &PageReader) -> u64 {
        let followed = self.followed.take().filter(|(_, claimed)| *claimed > 0);
        followed.map_or(0, |(at, claimed)| reader.store_time(at).saturating_sub(claimed))
    }

    /// Takes the answer to a call. `false`: the call is not a claim.
    pub(super) fn answer(
        &mut self,
        id: CallId,
        result: &Result<StoreReply, StoreError>,
        reader: &mut PageReader,
        now: UnixNanos,
    ) -> bool {
        if self.asked.take_if(|asked| *asked == id).is_none() {
            return false;
        }
        let result = match result {
            Ok(StoreReply::Stored(sequence)) => {
                if std::mem::take(&mut self.takes_over) {
                    self.stats.handovers += 1;
                    self.stats.gap_ns += self.take_gap(reader);
                }
                self.stats.won += 1;
                reader.deltas().set(*sequence, &self.name);
                self.seen = *sequence;
                Some(DeltaClaim::Won)
            }
            Err(StoreError::Conflict(Some(current))) => {
                // It is readable: its body is a name.
                let _ = reader.take(current, true, now);
                let is_lost = reader.deltas().is_of_another(&self.name);
                self.stats.lost += u64::from(is_lost);
                is_lost.then_some(DeltaClaim::Lost)
            }
            Err(StoreError::Conflict(None)) => {
                reader.deltas().set(0, &Bytes::new());
                None
            }
            Ok(_) | Err(_) => {
                self.stats.failed += 1;
                Some(DeltaClaim::Failed)
            }
        };
        // Without a result, the claim is made again with the sequence that the record has.
        self.is_wanted = result.is_none();
        self.result = result;
        true
    }
}
