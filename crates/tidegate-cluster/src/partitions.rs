// SPDX-License-Identifier: Apache-2.0

//! All gateways of a cluster have the same number of partitions. A record has it, and the first producer writes the record.

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::{CallId, StoreCall, StoreError, StoreMessage, StoreReply, Subject};

/// A gateway with another number of partitions than its cluster. It takes no part in the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "`partitions` is {own}, but the cluster has {found}: set `partitions: {found}`, or choose another `name` for a new cluster"
)]
pub struct PartitionMismatch {
    own: u16,
    found: u16,
}

impl PartitionMismatch {
    /// Compares the own number with a record. A record without a number is replaced by the next producer.
    pub(crate) fn of(own: u16, record: &Bytes) -> Option<Self> {
        let found = number(record).filter(|found| *found != own)?;
        Some(Self { own, found })
    }
}

/// A record with another number than one that a replica has read before. No gateway of the cluster writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the number of partitions in the store changed from {own} to {found}: the replica refuses this and keeps {own}. \
     Look for a foreign writer, and give write access to the store to the gateways of the cluster only"
)]
pub struct RefusedPartitions {
    own: u16,
    found: u16,
}

/// What a replica has read of the number of partitions.
#[derive(Debug, Default)]
pub(crate) struct ReadPartitions {
    /// Whether the record has had the own number.
    is_agreed: bool,
    mismatch: Option<PartitionMismatch>,
    refused: Option<RefusedPartitions>,
}

impl ReadPartitions {
    /// Takes a record. `false`: it contradicts an earlier one, and is refused.
    pub(crate) fn take(&mut self, own: u16, record: &Bytes) -> bool {
        let mismatch = PartitionMismatch::of(own, record);
        if self.is_agreed {
            self.refused = mismatch.map(|PartitionMismatch { own, found }| RefusedPartitions { own, found });
            return self.refused.is_none();
        }
        self.is_agreed = number(record) == Some(own);
        self.mismatch = mismatch;
        true
    }

    pub(crate) fn mismatch(&self) -> Option<PartitionMismatch> {
        self.mismatch
    }

    pub(crate) fn refused(&self) -> Option<RefusedPartitions> {
        self.refused
    }
}

fn number(record: &Bytes) -> Option<u16> {
    std::str::from_utf8(record).ok()?.parse().ok()
}

/// Compares the number of a producer with that of the cluster, and writes it if there is none.
#[derive(Debug)]
pub(crate) struct PartitionCheck {
    subject: String,
    own: u16,
    /// The sequence of a record without a number; 0: the store has none.
    sequence: u64,
    asked: Option<CallId>,
    /// When to ask next; `None`: the numbers are equal.
    next: Option<UnixNanos>,
    /// Whether the last answer was that they are equal.
    is_agreed: bool,
    mismatch: Option<PartitionMismatch>,
}

impl PartitionCheck {
    pub(crate) fn new(cluster: &str, own: u16) -> Self {
        Self {
            subject: Subject::Partitions.text(cluster),
            own,
            sequence: 0,
            asked: None,
            next: Some(0),
            is_agreed: false,
            mismatch: None,
        }
    }

    pub(crate) fn is_agreed(&self) -> bool {
        self.is_agreed
    }

    pub(crate) fn mismatch(&self) -> Option<PartitionMismatch> {
        self.mismatch
    }

    /// The store may have lost the record. The answer to an earlier call says nothing about it any more.
    pub(crate) fn ask_again(&mut self, now: UnixNanos) {
        (self.asked, self.next) = (None, Some(now));
    }

    /// The call that is due.
    pub(crate) fn poll(&mut self, ids: &mut CallId, now: UnixNanos) -> Option<(CallId, StoreCall)> {
        if self.asked.is_some() || self.next.is_none_or(|next| now < next) {
            return None;
        }
        let id = ids.advance();
        self.asked = Some(id);
        let message = StoreMessage {
            subject: self.subject.clone(),
            headers: Vec::new(),
            body: self.own.to_string().into(),
        };
        Some((id, StoreCall::CompareAndSet(message, self.sequence)))
    }

    /// Takes the answer to a call. `false`: the call is not one of this check.
    pub(crate) fn answer(
        &mut self,
        id: CallId,
        result: &Result<StoreReply, StoreError>,
        retry_at: UnixNanos,
    ) -> bool {
        if self.asked.take_if(|asked| *asked == id).is_none() {
            return false;
        }
        match result {
            Ok(_) => self.agree(),
            Err(StoreError::Conflict(Some(current))) => {
                self.compare(&current.message.body, current.sequence, retry_at);
            }
            Err(StoreError::Conflict(None)) => (self.sequence, self.next) = (0, Some(retry_at)),
            Err(_) => self.next = Some(retry_at),
        }
        true
    }

    /// Compares the own number with the record of the store. A producer that has agreed with the cluster before replaces a
    /// record that contradicts it, and goes on.
    fn compare(&mut self, record: &Bytes, sequence: u64, retry_at: UnixNanos) {
        if number(record) == Some(self.own) {
            return self.agree();
        }
        if !self.is_agreed {
            self.mismatch = PartitionMismatch::of(self.own, record);
        }
        self.sequence = if self.mismatch.is_some() { 0 } else { sequence };
        self.next = Some(retry_at);
    }

    fn agree(&mut self) {
        (self.is_agreed, self.next, self.mismatch) = (true, None, None);
        self.sequence = 0;
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;
    use crate::testing::{Broker, sender_config};
    use crate::{
        ClusterLeader, ClusterStore as _, LeaderConfig, PageReader, PageSender, ProducerName, ReaderConfig,
        SenderConfig, StoreEvent, StoredMessage,
    };

    const SECOND: u64 = 1_000_000_000;
    const NOW: u64 = 1_000 * SECOND;

    fn sender(name: &str, partitions: u16) -> PageSender {
        PageSender::new(SenderConfig {
            partitions,
            ..sender_config("c", ProducerName::new(name).unwrap())
        })
    }

    /// Carries out all calls of a sender at a time.
    fn carry_out(sender: &mut PageSender, broker: &mut Broker, now: u64) {
        broker.advance(now);
        while let Some((id, call)) = sender.poll(now) {
            broker.client(1).start(id, call);
            for (_, event) in broker.due() {
                if let StoreEvent::Done(id, result) = event {
                    sender.answer(id, result, now);
                }
            }
        }
    }

    fn record(body: &'static str) -> StoreMessage {
        StoreMessage {
            subject: "tg.c.k.partitions".to_owned(),
            headers: Vec::new(),
            body: body.into(),
        }
    }

    fn stored(broker: &Broker) -> Option<Bytes> {
        let mut messages = broker.messages();
        let found = messages.find(|stored| stored.message.subject == "tg.c.k.partitions");
        found.map(|stored| stored.message.body.clone())
    }

    #[test]
    fn the_first_producer_sets_the_number_and_another_one_is_refused() {
        let mut broker = Broker::new("c", 1);
        let (mut first, mut same, mut other) = (sender("a", 4), sender("b", 4), sender("d", 8));
        for sender in [&mut first, &mut same, &mut other] {
            carry_out(sender, &mut broker, NOW);
        }
        assert_eq!(stored(&broker), Some("4".into()));
        assert!(first.run().is_some() && same.run().is_some());
        assert_eq!((other.run(), first.mismatch()), (None, None));
        let error = other.mismatch().unwrap().to_string();
        assert!(
            error.starts_with("`partitions` is 8, but the cluster has 4: set `partitions: 4`"),
            "{error}"
        );
        let pages = broker
            .messages()
            .filter(|stored| stored.message.subject.contains(".d."));
        assert_eq!(pages.count(), 0, "it sends nothing");
    }

    #[test]
    fn a_store_without_a_number_or_with_no_valid_one_gets_it() {
        for body in ["", "many"] {
            let mut broker = Broker::new("c", 1);
            broker.put(record(body));
            let mut sender = sender("a", 4);
            carry_out(&mut sender, &mut broker, NOW);
            carry_out(&mut sender, &mut broker, NOW + SECOND);
            assert_eq!(stored(&broker), Some("4".into()));
            assert!(sender.run().is_some());
            // The store loses it.
            broker.forget_subjects(|subject| *subject == Subject::Partitions);
            sender.reconnected(NOW + 2 * SECOND);
            carry_out(&mut sender, &mut broker, NOW + 2 * SECOND);
            assert_eq!(stored(&broker), Some("4".into()));
        }
    }

    #[test]
    fn a_refused_producer_begins_when_the_cluster_has_its_number() {
        let mut broker = Broker::new("c", 1);
        broker.put(record("2"));
        let mut sender = sender("a", 4);
        carry_out(&mut sender, &mut broker, NOW);
        assert!(sender.mismatch().is_some());
        broker.put(record("4"));
        carry_out(&mut sender, &mut broker, NOW + SECOND);
        assert!(sender.mismatch().is_none() && sender.run().is_some());
    }

    #[test]
    fn a_producer_that_has_agreed_replaces_a_forged_number() {
        let mut broker = Broker::new("c", 1);
        let mut sender = sender("a", 4);
        carry_out(&mut sender, &mut broker, NOW);
        broker.put(record("2"));
        sender.reconnected(NOW + SECOND);
        carry_out(&mut sender, &mut broker, NOW + SECOND);
        assert_eq!(sender.mismatch(), None);
        carry_out(&mut sender, &mut broker, NOW + 3 * SECOND);
        assert_eq!(stored(&broker), Some("4".into()));
        assert!(sender.mismatch().is_none() && sender.run().is_some());
    }

    #[test]
    fn a_replica_refuses_and_counts_a_number_that_contradicts_an_earlier_one() {
        let config = ReaderConfig {
            partitions: 4,
            ..ReaderConfig::new("c")
        };
        let mut reader = PageReader::new(config, Vec::new(), &std::sync::Arc::default()).unwrap();
        let (id, _) = reader.poll().unwrap();
        let mut read = |body, sequence| {
            let stored = StoredMessage {
                message: record(body),
                sequence,
                time: NOW,
            };
            reader.event(StoreEvent::Read(id, stored), NOW);
            reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), NOW);
            let is_ready = reader.is_ready(NOW) && reader.mismatch().is_none();
            (
                is_ready,
                reader.stats().refused_partitions,
                reader.refused_partitions(),
            )
        };
        assert_eq!(read("4", 1), (true, 0, None));
        let refused = RefusedPartitions { own: 4, found: 2 };
        assert_eq!(read("2", 2), (true, 1, Some(refused)));
        assert_eq!(read("65535", 3).1, 2);
        // A record without a number says nothing, and a producer replaces it.
        assert_eq!(read("many", 4), (true, 2, None));
        assert_eq!(read("2", 5), (true, 3, Some(refused)));
        assert_eq!(read("4", 6), (true, 3, None));
    }

    #[test]
    fn a_replica_with_another_number_is_not_ready_and_does_not_lead() {
        for (body, is_equal) in [("4", true), ("2", false)] {
            let config = ReaderConfig {
                partitions: 4,
                ..ReaderConfig::new("c")
            };
            let mut reader = PageReader::new(config, Vec::new(), &std::sync::Arc::default()).unwrap();
            let (id, _) = reader.poll().unwrap();
            let message = record(body);
            let stored = StoredMessage {
                message,
                sequence: 1,
                time: NOW,
            };
            reader.event(StoreEvent::Read(id, stored), NOW);
            reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), NOW);
            assert_eq!(reader.is_ready(NOW), is_equal);
            assert_eq!(reader.mismatch().is_none(), is_equal);
            let mut leader = ClusterLeader::new(LeaderConfig::new("c", "a"));
            assert_eq!(leader.poll(&mut reader, NOW).is_some(), is_equal);
        }
    }
}
