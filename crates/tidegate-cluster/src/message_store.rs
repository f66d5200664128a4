// SPDX-License-Identifier: Apache-2.0

//! A store in memory: the last message of each subject. It does no I/O and has no clock.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_engine::UnixNanos;

use crate::{
    LeaseRequest, PageLimits, ReadScope, RunName, StoreError, StoreMessage, StoredMessage, Subject, nanos,
};

/// The limits of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MessageStoreLimits {
    /// The most bytes of all messages (default: 256 MiB).
    pub max_bytes: usize,
    /// The most bytes of a body (default: 1 MiB).
    pub max_body_bytes: usize,
}

impl Default for MessageStoreLimits {
    fn default() -> Self {
        Self {
            max_bytes: 256 << 20,
            max_body_bytes: PageLimits::default().max_body_bytes,
        }
    }
}

/// Keeps the last message of each subject.
#[derive(Debug, Default)]
pub struct MessageStore {
    limits: MessageStoreLimits,
    by_subject: BTreeMap<Arc<str>, StoredMessage>,
    by_sequence: BTreeMap<u64, Arc<str>>,
    /// When the records of leases end.
    leases: BTreeMap<Arc<str>, UnixNanos>,
    sequence: u64,
    bytes: usize,
}

impl MessageStore {
    /// An empty store.
    pub fn new(limits: MessageStoreLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Stores a message, and gives its sequence.
    ///
    /// # Errors
    /// The body is too large, or the store is full.
    pub fn put(&mut self, message: StoreMessage, time: UnixNanos) -> Result<u64, StoreError> {
        self.put_until(message, time, None)
    }

    /// Stores a message that the store forgets at `end`; `None`: it stays.
    ///
    /// # Errors
    /// The body is too large, or the store is full.
    pub fn put_until(
        &mut self,
        message: StoreMessage,
        time: UnixNanos,
        end: Option<UnixNanos>,
    ) -> Result<u64, StoreError> {
        if message.body.len() > self.limits.max_body_bytes {
            return Err(StoreError::TooLarge);
        }
        let replaced = self
            .get(&message.subject)
            .map_or(0, |old| old.message.memory_bytes());
        let bytes = self.bytes - replaced + message.memory_bytes();
        if bytes > self.limits.max_bytes {
            let most = self.limits.max_bytes;
            let error = format!("the store is full: its limit is {most} bytes. Raise it");
            return Err(StoreError::Unavailable(error));
        }
        self.remove(&message.subject);
        self.bytes = bytes;
        self.sequence += 1;
        let sequence = self.sequence;
        let subject: Arc<str> = message.subject.as_str().into();
        self.by_sequence.insert(sequence, subject.clone());
        self.leases.extend(end.map(|end| (subject.clone(), end)));
        let stored = StoredMessage {
            message,
            sequence,
            time,
        };
        self.by_subject.insert(subject, stored);
        Ok(sequence)
    }

    /// Stores a record if the last message of its subject has the sequence `expected`; 0: there is none.
    ///
    /// # Errors
    /// It has another sequence, or [`MessageStore::put`] refuses the record.
    pub fn compare_and_put(
        &mut self,
        message: StoreMessage,
        expected: u64,
        time: UnixNanos,
    ) -> Result<u64, StoreError> {
        self.compare(&message.subject, expected)?;
        self.put(message, time)
    }

    /// Takes or extends a lease. Call [`MessageStore::expire`] before.
    ///
    /// # Errors
    /// As [`MessageStore::compare_and_put`].
    pub fn lease(&mut self, request: LeaseRequest, now: UnixNanos) -> Result<u64, StoreError> {
        self.compare(&request.message.subject, request.expected)?;
        let end = now.saturating_add(nanos(request.term));
        self.put_until(request.message, now, Some(end))
    }

    /// Refuses if the message of a subject has another sequence.
    pub(crate) fn compare(&self, subject: &str, expected: u64) -> Result<(), StoreError> {
        let current = self.get(subject);
        if current.map_or(0, |current| current.sequence) == expected {
            return Ok(());
        }
        Err(StoreError::Conflict(current.cloned().map(Box::new)))
    }

    /// Removes the records of leases that have ended, and gives their subjects.
    pub fn expire(&mut self, now: UnixNanos) -> Vec<Arc<str>> {
        let is_over = |(subject, end): (&Arc<str>, &UnixNanos)| (*end <= now).then(|| subject.clone());
        let over: Vec<_> = self.leases.iter().filter_map(is_over).collect();
        over.iter().for_each(|subject| self.remove(subject));
        over
    }

    /// Removes the pages of a run up to a sequence.
    pub fn purge(&mut self, run: &RunName, through: u64) {
        let pages = self.pages_of(run).filter(|stored| stored.sequence <= through);
        let subjects: Vec<_> = pages.map(|stored| stored.message.subject.clone()).collect();
        subjects.iter().for_each(|subject| self.remove(subject));
    }

    /// Removes the message of a subject.
    pub fn remove(&mut self, subject: &str) {
        self.leases.remove(subject);
        if let Some(stored) = self.by_subject.remove(subject) {
            self.by_sequence.remove(&stored.sequence);
            self.bytes -= stored.message.memory_bytes();
        }
    }

    /// The pages of a run.
    pub fn pages_of(&self, run: &RunName) -> impl Iterator<Item = &StoredMessage> {
        self.by_subject.values().filter(move |stored| {
            let subject = Subject::parse_any(&stored.message.subject);
            matches!(&subject, Some(Subject::Page { run: of, .. }) if of == run)
        })
    }

    /// The message of a subject.
    pub fn get(&self, subject: &str) -> Option<&StoredMessage> {
        self.by_subject.get(subject)
    }

    /// When the lease of a subject ends; `None`: the subject has none.
    pub fn lease_end(&self, subject: &str) -> Option<UnixNanos> {
        self.leases.get(subject).copied()
    }

    /// The messages of a scope.
    pub fn messages(&self, scope: ReadScope) -> impl Iterator<Item = &StoredMessage> {
        self.by_subject.values().filter(move |stored| match scope {
            ReadScope::Everything => true,
            ReadScope::Retained => {
                let subject = Subject::parse_any(&stored.message.subject);
                matches!(subject, Some(Subject::Retained { .. }))
            }
        })
    }

    /// The messages with a higher sequence, in the order of their sequences.
    pub fn after(&self, sequence: u64) -> impl Iterator<Item = &StoredMessage> {
        let later = self.by_sequence.range(sequence.saturating_add(1)..);
        later.filter_map(|(_, subject)| self.by_subject.get(subject))
    }

    /// The highest sequence that it has given.
    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    /// The bytes of all messages.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bytes::Bytes;

    use super::*;
    use crate::ProducerName;
    use crate::store::OVERHEAD_BYTES;

    fn message(subject: &str, bytes: usize) -> StoreMessage {
        StoreMessage {
            subject: subject.to_owned(),
            headers: vec![("tg-v".to_owned(), "1".to_owned())],
            body: Bytes::from(vec![0; bytes]),
        }
    }

    fn sequences(store: &MessageStore) -> Vec<u64> {
        store.after(0).map(|stored| stored.sequence).collect()
    }

    #[test]
    fn a_later_message_replaces_that_of_its_subject() {
        let mut store = MessageStore::default();
        for (subject, sequence) in [("a", 1), ("b", 2), ("a", 3)] {
            assert_eq!(store.put(message(subject, 8), 5), Ok(sequence));
        }
        assert_eq!(sequences(&store), [2, 3]);
        assert_eq!(store.after(2).count(), 1);
        store.remove("a");
        store.remove("b");
        assert_eq!((store.bytes(), store.sequence()), (0, 3));
    }

    #[test]
    fn a_record_is_stored_if_its_predecessor_is_the_expected_one() {
        let mut store = MessageStore::default();
        assert_eq!(
            store.compare_and_put(message("k", 1), 7, 0),
            Err(StoreError::Conflict(None))
        );
        assert_eq!(store.compare_and_put(message("k", 1), 0, 0), Ok(1));
        let current = store.get("k").cloned().map(Box::new);
        assert_eq!(
            store.compare_and_put(message("k", 2), 0, 0),
            Err(StoreError::Conflict(current))
        );
        assert_eq!(store.compare_and_put(message("k", 2), 1, 0), Ok(2));
    }

    #[test]
    fn a_lease_that_is_not_extended_ends() {
        let mut store = MessageStore::default();
        let request = |expected| LeaseRequest {
            message: message("l", 1),
            expected,
            term: Duration::from_nanos(10),
        };
        assert_eq!(store.lease(request(0), 0), Ok(1));
        assert_eq!(store.lease(request(1), 6), Ok(2));
        assert!(store.expire(10).is_empty());
        assert_eq!(store.lease_end("l"), Some(16));
        assert_eq!(store.expire(16), [Arc::<str>::from("l")]);
        assert_eq!(store.get("l"), None);
        assert_eq!(store.lease(request(0), 20), Ok(3));
    }

    #[test]
    fn a_purge_removes_the_pages_of_one_run_up_to_a_sequence() {
        let mut store = MessageStore::default();
        let run = |epoch| RunName {
            producer: ProducerName::new("p").unwrap(),
            epoch,
        };
        for (epoch, page) in [(1, 0), (1, 1), (2, 0), (1, 2)] {
            let subject = Subject::Page {
                partition: 0,
                run: run(epoch),
                page,
            };
            store.put(message(&subject.text("any"), 1), 0).unwrap();
        }
        store.purge(&run(1), 2);
        assert_eq!(sequences(&store), [3, 4]);
    }

    #[test]
    fn a_store_without_room_refuses_and_keeps_what_it_has() {
        let limits = MessageStoreLimits {
            max_bytes: 2 * (OVERHEAD_BYTES + 100),
            max_body_bytes: 300,
        };
        let mut store = MessageStore::new(limits);
        assert_eq!(store.put(message("a", 301), 0), Err(StoreError::TooLarge));
        assert_eq!(store.put(message("a", 80), 0), Ok(1));
        assert_eq!(store.put(message("b", 80), 0), Ok(2));
        let refused = store.put(message("c", 0), 0);
        assert!(matches!(refused, Err(StoreError::Unavailable(text)) if text.contains("1224 bytes")));
        assert_eq!(store.put(message("b", 90), 0), Ok(3));
        assert_eq!(sequences(&store), [1, 3]);
    }
}
