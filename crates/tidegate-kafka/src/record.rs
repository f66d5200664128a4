// SPDX-License-Identifier: Apache-2.0

//! Records of the log, and the messages that they are for the state machines.

use bytes::Bytes;
use tidegate_cluster::{ReadScope, StoreMessage, StoredMessage, Subject};

/// The header with the term of a lease, in milliseconds.
pub(crate) const TERM: &str = "tg-term";

/// The bits of a sequence that come from the offset. So many records per millisecond have sequences in their order.
const OFFSET_BITS: u32 = 20;

/// Nanoseconds of a millisecond.
const MILLI: u64 = 1_000_000;

/// The sequence of a record. Sequences of all partitions are comparable: a later record has a higher one.
pub(crate) fn sequence(millis: i64, offset: i64) -> u64 {
    let most = (1 << (63 - OFFSET_BITS)) - 1;
    let millis = u64::try_from(millis).unwrap_or(0).clamp(1, most);
    (millis << OFFSET_BITS) | (offset as u64 & ((1 << OFFSET_BITS) - 1))
}

/// Where and when a broker has appended a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Appended {
    pub(crate) offset: i64,
    /// The time that the record carries.
    pub(crate) millis: i64,
    /// The time by the clock of the broker.
    pub(crate) broker_millis: i64,
}

impl Appended {
    pub(crate) fn sequence(&self) -> u64 {
        sequence(self.millis, self.offset)
    }
}

/// A record that was read.
#[derive(Clone, Debug)]
pub(crate) struct LogRecord {
    pub(crate) offset: i64,
    pub(crate) millis: i64,
    pub(crate) key: Option<Bytes>,
    pub(crate) headers: Vec<(String, Option<Bytes>)>,
    /// `None`: the subject is gone.
    pub(crate) body: Option<Bytes>,
}

impl LogRecord {
    pub(crate) fn subject(&self) -> Option<&str> {
        std::str::from_utf8(self.key.as_ref()?).ok()
    }

    pub(crate) fn sequence(&self) -> u64 {
        sequence(self.millis, self.offset)
    }

    /// The term of a lease in milliseconds.
    pub(crate) fn term(&self) -> Option<i64> {
        let (_, value) = self.headers.iter().find(|(name, _)| name == TERM)?;
        std::str::from_utf8(value.as_ref()?).ok()?.parse().ok()
    }

    /// The message; `None`: it has no subject, or the subject is gone.
    pub(crate) fn stored(&self) -> Option<StoredMessage> {
        let text =
            |value: &Option<Bytes>| String::from_utf8_lossy(value.as_deref().unwrap_or_default()).into();
        let headers = self.headers.iter().filter(|(name, _)| name != TERM);
        let message = StoreMessage {
            subject: self.subject()?.to_owned(),
            headers: headers.map(|(name, value)| (name.clone(), text(value))).collect(),
            body: self.body.clone()?,
        };
        Some(StoredMessage {
            message,
            sequence: self.sequence(),
            time: u64::try_from(self.millis).unwrap_or(0).saturating_mul(MILLI),
        })
    }
}

/// Which partition of the topic has which subjects.
#[derive(Clone, Debug)]
pub(crate) struct TopicLayout {
    pub(crate) cluster: String,
    /// Partitions with pages. Two more have claims with leases, and retained totals.
    pub(crate) pages: u16,
}

impl TopicLayout {
    /// The number of partitions of the topic.
    pub(crate) fn partitions(&self) -> i32 {
        i32::from(self.pages) + 2
    }

    /// The partition with claims and leases.
    pub(crate) fn claims(&self) -> i32 {
        i32::from(self.pages)
    }

    fn retained(&self) -> i32 {
        i32::from(self.pages) + 1
    }

    /// The partitions that are written by compare-and-set.
    pub(crate) fn record_partitions(&self) -> [i32; 2] {
        [self.claims(), self.retained()]
    }

    /// The partition of a subject; `None`: it is not one of this cluster.
    pub(crate) fn partition(&self, subject: &str) -> Option<i32> {
        Some(match Subject::parse(&self.cluster, subject)? {
            Subject::Page { partition, .. } => i32::from(partition % self.pages),
            Subject::Retained { .. } => self.retained(),
            Subject::Producer(_) | Subject::Leader | Subject::Partitions | Subject::Deltas => self.claims(),
        })
    }

    /// The partitions that a read gives.
    pub(crate) fn scope(&self, scope: ReadScope) -> Vec<i32> {
        match scope {
            ReadScope::Everything => (0..self.partitions()).collect(),
            ReadScope::Retained => vec![self.retained()],
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::testing::stored_message;
    use tidegate_cluster::{ProducerName, RunName};

    use super::*;

    #[test]
    fn sequences_of_later_records_are_higher_in_all_partitions() {
        assert!(sequence(5, 7) < sequence(5, 8));
        assert!(sequence(5, 1 << 19) < sequence(6, 0));
        assert!(sequence(i64::MAX, i64::MAX) < u64::MAX / 2 + 1);
        assert!(sequence(-1, -1) >= 1);
    }

    #[test]
    fn each_subject_has_one_partition() {
        let layout = TopicLayout {
            cluster: "c".to_owned(),
            pages: 2,
        };
        let producer = ProducerName::new("p").unwrap();
        let run = RunName {
            producer: producer.clone(),
            epoch: 1,
        };
        let page = Subject::Page {
            partition: 3,
            run,
            page: 1,
        };
        let retained = Subject::Retained {
            partition: 1,
            producer: producer.clone(),
        };
        let subjects = [page, retained, Subject::Producer(producer), Subject::Leader];
        let places = subjects.map(|subject| layout.partition(&subject.text("c")));
        assert_eq!(places, [Some(1), Some(3), Some(2), Some(2)]);
        assert_eq!(layout.partition("tg.d.k.leader"), None);
    }

    #[test]
    fn a_message_does_not_have_the_header_of_the_engine() {
        let record = LogRecord {
            offset: 0,
            millis: 1_000,
            key: Some("tg.c.k.leader".into()),
            headers: vec![
                (TERM.to_owned(), Some("500".into())),
                ("a".to_owned(), Some("b".into())),
            ],
            body: Some("me".into()),
        };
        let stored = record.stored().unwrap();
        assert_eq!(stored.message.headers, [("a".to_owned(), "b".to_owned())]);
        assert_eq!((stored.time, record.term()), (1_000_000_000, Some(500)));
        assert_eq!(LogRecord { body: None, ..record }.stored(), None);
    }

    #[test]
    fn records_of_version_1_are_messages_with_their_headers() {
        for name in ["page", "stream", "window", "record"] {
            let expected = stored_message(name);
            let headers = expected.headers.iter();
            let record = LogRecord {
                offset: 0,
                millis: 1,
                key: Some(expected.subject.clone().into()),
                headers: headers
                    .map(|(name, value)| (name.clone(), Some(value.clone().into())))
                    .collect(),
                body: Some(expected.body.clone()),
            };
            assert_eq!(record.headers.len(), expected.headers.len());
            assert_eq!(record.stored().unwrap().message, expected);
        }
    }
}
