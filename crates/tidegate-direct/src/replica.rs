// SPDX-License-Identifier: Apache-2.0

//! The store of a replica, and what others may do with it. It does no I/O.

use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::local::SharedStore;
use tidegate_cluster::{MessageStoreLimits, RunName, StoreError, StoreMessage, StoredMessage, Subject};
use tidegate_engine::{UnixNanos, clock};

use crate::copies::{of_copy, order, put_newer, set_order, stored_order, to_copy};
use crate::limits::{MAX_CALL_BYTES, MAX_CALL_MESSAGES};
use crate::wire::{MessageCopy, MessageHead, PublishCode};

/// The longest lease (1 min). A replica that asks for more has a fault, and must not lead for ever.
const MAX_LEASE_NS: u64 = 60_000_000_000;

/// The most removed pages that are remembered. Beyond it, a page may come back, and it is folded and removed again.
const MAX_REMOVED: usize = 16_384;

/// The store of this process.
#[derive(Debug)]
pub(crate) struct Replica {
    pub(crate) cluster: String,
    pub(crate) name: String,
    /// A random number of the process.
    pub(crate) instance: u64,
    pub(crate) store: SharedStore,
    /// Whether it has read all that its peers have.
    is_synced: AtomicBool,
    removed: Mutex<RemovedPages>,
}

/// Pages that were removed lately. A peer that could not be reached at that time still has them.
#[derive(Debug, Default)]
struct RemovedPages {
    orders: BTreeMap<String, u64>,
    oldest: VecDeque<String>,
}

impl RemovedPages {
    fn note(&mut self, head: &MessageHead) {
        let known = self.orders.insert(head.subject.clone(), head.order);
        if known.is_none() {
            self.oldest.push_back(head.subject.clone());
        }
        if self.oldest.len() > MAX_REMOVED
            && let Some(oldest) = self.oldest.pop_front()
        {
            self.orders.remove(&oldest);
        }
    }

    fn has(&self, subject: &str, order: u64) -> bool {
        self.orders.get(subject).is_some_and(|removed| order <= *removed)
    }
}

/// The answer to a compare-and-set.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Decision {
    /// The record is stored.
    Accepted(MessageCopy),
    /// There is another one, or none.
    Conflict(Option<MessageCopy>),
}

impl Replica {
    pub(crate) fn new(cluster: &str, name: &str, limits: MessageStoreLimits) -> Self {
        Self {
            cluster: cluster.to_owned(),
            name: name.to_owned(),
            instance: rand::random(),
            store: SharedStore::new(limits),
            is_synced: AtomicBool::new(false),
            removed: Mutex::default(),
        }
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.is_synced.load(Relaxed)
    }

    /// Notes that it has read all that its peers have. Its readers learn it.
    pub(crate) fn set_synced(&self) {
        if !self.is_synced.swap(true, Relaxed) {
            self.store.change(|_| ());
        }
    }

    /// Takes a copy of a message, if it is newer than that of the same subject.
    pub(crate) fn publish(&self, copy: &MessageCopy) -> PublishCode {
        if Subject::parse(&self.cluster, &copy.subject).is_none() {
            return PublishCode::Invalid;
        }
        let message = of_copy(copy);
        let Some(order) = order(&message) else {
            return PublishCode::Invalid;
        };
        if self.removed.lock().has(&message.subject, order) {
            return PublishCode::Stored;
        }
        let now = clock::now();
        let time = now.saturating_sub(copy.age_ns);
        let lease_ns = copy.lease_ns.min(MAX_LEASE_NS);
        let lease_end = (lease_ns > 0).then(|| now.saturating_add(lease_ns));
        let result = self
            .store
            .change(|store| put_newer(store, message, time, lease_end));
        match result {
            Ok(()) => PublishCode::Stored,
            Err(StoreError::TooLarge) => PublishCode::TooLarge,
            Err(_) => PublishCode::NoRoom,
        }
    }

    /// Decides about a record.
    ///
    /// # Errors
    /// The replica does not know enough, or the store refuses the record.
    pub(crate) fn decide(
        &self,
        mut record: StoreMessage,
        expected: u64,
        term: Option<Duration>,
    ) -> Result<Decision, StoreError> {
        if !self.is_synced() {
            return Err(unavailable("the replica is still reading from its peers"));
        }
        if Subject::parse(&self.cluster, &record.subject).is_none() {
            return Err(unavailable("the record is not one of this cluster"));
        }
        let now = clock::now();
        let term = term.map(|term| (term.as_nanos() as u64).min(MAX_LEASE_NS));
        let lease_end = term.map(|term| now.saturating_add(term));
        self.store.change(|store| {
            let current = store.get(&record.subject);
            let current_order = stored_order(current);
            if current_order != expected {
                let current = current.map(|stored| to_copy(stored, store.lease_end(&record.subject), now));
                return Ok(Decision::Conflict(current));
            }
            set_order(&mut record, clock::wall(now).max(current_order.saturating_add(1)));
            let subject = record.subject.clone();
            store.put_until(record, now, lease_end)?;
            let stored = store.get(&subject).map(|stored| to_copy(stored, lease_end, now));
            stored
                .map(Decision::Accepted)
                .ok_or_else(|| unavailable("the record is gone"))
        })
    }

    /// Removes the pages that are not newer than these. Nothing else is ever removed.
    pub(crate) fn remove(&self, heads: &[MessageHead]) {
        let is_page = |head: &&MessageHead| {
            let subject = Subject::parse(&self.cluster, &head.subject);
            matches!(subject, Some(Subject::Page { .. }))
        };
        let heads: Vec<_> = heads.iter().filter(is_page).cloned().collect();
        self.note_removed(&heads);
        self.store.change(|store| {
            for head in &heads {
                if stored_order(store.get(&head.subject)) <= head.order {
                    store.remove(&head.subject);
                }
            }
        });
    }

    /// Removes the pages of a run up to a sequence of this store, and gives them.
    pub(crate) fn purge(&self, run: &RunName, through: u64) -> Vec<MessageHead> {
        let heads = self.store.change(|store| {
            let pages = store.pages_of(run).filter(|stored| stored.sequence <= through);
            let heads: Vec<_> = pages.map(head).collect();
            heads.iter().for_each(|head| store.remove(&head.subject));
            heads
        });
        self.note_removed(&heads);
        heads
    }

    fn note_removed(&self, heads: &[MessageHead]) {
        let mut removed = self.removed.lock();
        heads.iter().for_each(|head| removed.note(head));
    }

    /// Whether this page was removed here.
    pub(crate) fn has_removed(&self, head: &MessageHead) -> bool {
        self.removed.lock().has(&head.subject, head.order)
    }

    /// Some of the messages after a sequence.
    pub(crate) fn list(&self, after: u64) -> Vec<MessageHead> {
        self.store
            .read(|store| store.after(after).take(MAX_CALL_MESSAGES).map(head).collect())
    }

    /// Some of the messages of these subjects.
    pub(crate) fn fetch(&self, heads: &[MessageHead]) -> Vec<MessageCopy> {
        let now = clock::now();
        let mut bytes = 0;
        self.store.read(|store| {
            let stored = heads.iter().filter_map(|head| store.get(&head.subject));
            let copies = stored.map(|stored| to_copy(stored, store.lease_end(&stored.message.subject), now));
            copies
                .take_while(|copy| {
                    let is_first = bytes == 0;
                    bytes += copy.body.len() + copy.headers.len() + copy.subject.len();
                    is_first || bytes <= MAX_CALL_BYTES
                })
                .collect()
        })
    }

    /// Whether a peer has a newer message than this store.
    pub(crate) fn lacks(&self, head: &MessageHead) -> bool {
        self.store
            .read(|store| stored_order(store.get(&head.subject)) < head.order)
            && !self.has_removed(head)
    }

    /// The message of a subject.
    pub(crate) fn get(&self, subject: &str) -> Option<StoredMessage> {
        self.store.read(|store| store.get(subject).cloned())
    }
}

pub(crate) fn unavailable(text: &str) -> StoreError {
    StoreError::Unavailable(text.to_owned())
}

fn head(stored: &StoredMessage) -> MessageHead {
    MessageHead {
        subject: stored.message.subject.clone(),
        order: stored_order(Some(stored)),
        sequence: stored.sequence,
    }
}

/// The message of a copy as a process without a store sees it: its order takes the place of the sequence.
pub(crate) fn foreign(copy: &MessageCopy, now: UnixNanos) -> StoredMessage {
    let message = of_copy(copy);
    StoredMessage {
        sequence: order(&message).unwrap_or(0),
        message,
        time: now.saturating_sub(copy.age_ns),
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::ProducerName;

    use super::*;

    fn page(number: u32, sequence: u64) -> MessageCopy {
        MessageCopy {
            subject: format!("tg.c.p.00.p.1.{number}"),
            headers: format!("tg-seq:{sequence}\n"),
            ..MessageCopy::default()
        }
    }

    fn replica() -> Replica {
        Replica::new("c", "r", MessageStoreLimits::default())
    }

    #[test]
    fn a_removed_page_does_not_come_back_from_a_peer() {
        let replica = replica();
        (1..=2).for_each(|number| assert_eq!(replica.publish(&page(number, 5)), PublishCode::Stored));
        let listed = replica.list(0);
        let run = RunName {
            producer: ProducerName::new("p").unwrap(),
            epoch: 1,
        };
        assert_eq!(replica.purge(&run, 1), listed[..1]);
        assert_eq!(replica.list(0), listed[1..]);
        assert!(!replica.lacks(&listed[0]) && replica.has_removed(&listed[0]));
        assert_eq!(replica.publish(&page(1, 5)), PublishCode::Stored);
        assert_eq!(replica.list(0), listed[1..]);
        // The run said more after it was folded.
        assert_eq!(replica.publish(&page(1, 6)), PublishCode::Stored);
        assert_eq!(replica.list(0).len(), 2);
    }

    #[test]
    fn a_peer_removes_pages_and_nothing_else() {
        let replica = replica();
        let record = |subject: &str| MessageCopy {
            subject: subject.to_owned(),
            headers: "tg-order:1\n".to_owned(),
            ..MessageCopy::default()
        };
        assert_eq!(replica.publish(&page(1, 5)), PublishCode::Stored);
        for subject in ["tg.c.r.00.p", "tg.c.k.producers.p"] {
            assert_eq!(replica.publish(&record(subject)), PublishCode::Stored);
        }
        let heads = [
            "tg.c.p.00.p.1.1",
            "tg.c.r.00.p",
            "tg.c.k.producers.p",
            "tg.other.p.00.p.1.1",
            "x",
        ];
        let heads = heads.map(|subject| MessageHead {
            subject: subject.to_owned(),
            order: u64::MAX,
            sequence: 0,
        });
        replica.remove(&heads);
        assert_eq!(replica.list(0).len(), 2);
        assert_eq!(replica.removed.lock().orders.len(), 1);
    }

    #[test]
    fn no_lease_is_longer_than_a_minute() {
        let replica = replica();
        let lease = MessageCopy {
            subject: "tg.c.k.leader".to_owned(),
            headers: "tg-order:1\n".to_owned(),
            lease_ns: u64::MAX,
            ..MessageCopy::default()
        };
        assert_eq!(replica.publish(&lease), PublishCode::Stored);
        let after = clock::now() + MAX_LEASE_NS;
        let over = replica.store.change(|store| store.expire(after));
        assert_eq!(over.len(), 1);
    }

    #[test]
    fn removed_pages_take_bounded_memory() {
        let mut removed = RemovedPages::default();
        for sequence in 0..=MAX_REMOVED as u64 {
            removed.note(&MessageHead {
                subject: sequence.to_string(),
                order: 1,
                sequence,
            });
        }
        assert_eq!(
            (removed.orders.len(), removed.oldest.len()),
            (MAX_REMOVED, MAX_REMOVED)
        );
        assert!(!removed.has("0", 1) && removed.has("1", 1));
    }

    #[test]
    fn a_replica_that_has_not_read_its_peers_decides_nothing() {
        let replica = replica();
        let record = || StoreMessage {
            subject: "tg.c.k.leader".to_owned(),
            headers: Vec::new(),
            body: "r".into(),
        };
        let early = replica.decide(record(), 0, None);
        assert!(matches!(early, Err(StoreError::Unavailable(_))));
        replica.set_synced();
        let accepted = replica.decide(record(), 0, None);
        assert!(matches!(accepted, Ok(Decision::Accepted(_))));
        let refused = replica.decide(record(), 0, None);
        assert!(matches!(refused, Ok(Decision::Conflict(Some(_)))));
    }
}
