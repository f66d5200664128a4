// SPDX-License-Identifier: Apache-2.0

//! The broker: a log of all operations. Its state follows from the log. If it forgets the last operations, it has the
//! state before them again.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use tidegate_engine::UnixNanos;

use super::SeededRandom;
use crate::{
    CallId, ClusterStore, LeaseRequest, MessageStore, ReadScope, RunName, StoreCall, StoreError, StoreEvent,
    StoreMessage, StoreReply, StoredMessage, Subject, nanos,
};

/// A client of the broker.
pub type ClientId = u64;

/// How often faults happen, in thousandths, and how long deliveries take.
#[derive(Clone, Copy, Debug, Default)]
pub struct BrokerFaults {
    /// A request that the broker does not get.
    pub lost_requests: u64,
    /// An answer that the client does not get. The request had its effect.
    pub lost_answers: u64,
    /// A message that a reader gets twice.
    pub repeated: u64,
    /// The longest delay of a delivery, in nanoseconds. Deliveries with different delays change their order.
    pub max_delay: u64,
}

#[derive(Clone, Debug)]
enum LogEntry {
    /// With the time, and the end of a lease.
    Put(StoreMessage, UnixNanos, Option<UnixNanos>),
    Purge(RunName, u64),
    /// The subject is gone: a lease has ended, or the broker forgot it.
    Gone(String),
}

/// A broker that keeps the last message of each subject.
#[derive(Debug)]
pub struct Broker {
    cluster: String,
    /// The faults from now on.
    pub faults: BrokerFaults,
    random: SeededRandom,
    log: Vec<LogEntry>,
    store: MessageStore,
    /// Reads of everything, with the last delivery at the last question whether the read is current.
    readers: BTreeMap<ClientId, (CallId, u64)>,
    down: BTreeSet<ClientId>,
    /// By time and number.
    deliveries: BTreeMap<(UnixNanos, u64), (ClientId, StoreEvent)>,
    number: u64,
    now: UnixNanos,
}

impl Broker {
    /// An empty broker of a cluster.
    pub fn new(cluster: &str, seed: u64) -> Self {
        Self {
            cluster: cluster.to_owned(),
            faults: BrokerFaults::default(),
            random: SeededRandom::new(seed),
            log: Vec::new(),
            store: MessageStore::default(),
            readers: BTreeMap::new(),
            down: BTreeSet::new(),
            deliveries: BTreeMap::new(),
            number: 0,
            now: 0,
        }
    }

    /// The broker as one client sees it.
    pub fn client(&mut self, client: ClientId) -> BrokerClient<'_> {
        BrokerClient { broker: self, client }
    }

    /// Sets the time. Leases that have ended go, and readers with a connection learn whether they are current.
    pub fn advance(&mut self, now: UnixNanos) {
        self.now = now;
        let over = self.store.expire(now).into_iter();
        self.log
            .extend(over.map(|subject| LogEntry::Gone(subject.to_string())));
        let readers = self.readers.iter_mut();
        let current = readers.filter_map(|(client, (id, goal))| {
            let waits = self.deliveries.iter().any(|((_, number), (to, event))| {
                let is_read = matches!(event, StoreEvent::Read(read, _) if read == id);
                number <= goal && to == client && is_read
            });
            (!waits).then(|| {
                *goal = self.number;
                (*client, *id)
            })
        });
        for (client, id) in current.collect::<Vec<_>>() {
            self.deliver(client, StoreEvent::Current(id, Duration::ZERO, Instant::now()), 0);
        }
    }

    /// The events whose time has come.
    pub fn due(&mut self) -> Vec<(ClientId, StoreEvent)> {
        let later = self.deliveries.split_off(&(self.now + 1, 0));
        std::mem::replace(&mut self.deliveries, later)
            .into_values()
            .collect()
    }

    /// Cuts a client off. Its reads break off, and its calls fail.
    pub fn disconnect(&mut self, client: ClientId) {
        self.down.insert(client);
        self.deliveries
            .retain(|_, (to, event)| *to != client || matches!(event, StoreEvent::Done(..)));
        if let Some((id, _)) = self.readers.remove(&client) {
            self.fail(client, id);
        }
    }

    /// Connects a client again.
    pub fn connect(&mut self, client: ClientId) {
        self.down.remove(&client);
    }

    /// Forgets a client, with all that is on its way to it.
    pub fn forget_client(&mut self, client: ClientId) {
        self.down.remove(&client);
        self.readers.remove(&client);
        self.deliveries.retain(|_, (to, _)| *to != client);
    }

    /// Forgets the last operations, which it had acknowledged.
    pub fn forget_tail(&mut self, operations: usize) {
        self.put_back(self.log.len().saturating_sub(operations));
    }

    /// The number of operations that it has carried out.
    pub fn operations(&self) -> usize {
        self.log.len()
    }

    /// Goes back to the state after its first operations.
    pub fn put_back(&mut self, operations: usize) {
        let log: Vec<_> = self.log.drain(..).take(operations).collect();
        self.store = MessageStore::default();
        log.into_iter().for_each(|entry| self.append(entry));
    }

    /// Forgets the last message of each subject that `which` accepts.
    pub fn forget_subjects(&mut self, which: impl Fn(&Subject) -> bool) {
        let texts = self.messages().map(|stored| &stored.message.subject);
        let subjects = texts.filter(|text| {
            let subject = Subject::parse(&self.cluster, text);
            subject.is_some_and(|subject| which(&subject))
        });
        let subjects: Vec<_> = subjects.cloned().collect();
        subjects
            .into_iter()
            .for_each(|subject| self.append(LogEntry::Gone(subject)));
    }

    /// Whether a client follows all messages and has them all.
    pub fn has_all(&self, client: ClientId) -> bool {
        let is_read = |event: &StoreEvent| matches!(event, StoreEvent::Read(..));
        let mut deliveries = self.deliveries.values();
        let has_some = deliveries.any(|(to, event)| *to == client && is_read(event));
        self.readers.contains_key(&client) && !has_some
    }

    /// The messages that it has, by subject.
    pub fn messages(&self) -> impl Iterator<Item = &StoredMessage> {
        self.store.messages(ReadScope::Everything)
    }

    /// Stores a message as if a client had sent it.
    pub fn put(&mut self, message: StoreMessage) -> u64 {
        self.put_until(message, None)
    }

    fn put_until(&mut self, message: StoreMessage, end: Option<UnixNanos>) -> u64 {
        self.append(LogEntry::Put(message, self.now, end));
        let sequence = self.store.sequence();
        let Some(stored) = self.store.after(sequence.saturating_sub(1)).next().cloned() else {
            return sequence;
        };
        let readers = self.readers.iter().map(|(client, (id, _))| (*client, *id));
        for (client, id) in readers.collect::<Vec<_>>() {
            self.deliver_read(client, id, &stored);
        }
        sequence
    }

    fn append(&mut self, entry: LogEntry) {
        match &entry {
            LogEntry::Put(message, time, end) => {
                // Simulations stay below the limits of a store.
                let _ = self.store.put_until(message.clone(), *time, *end);
            }
            LogEntry::Purge(run, through) => self.store.purge(run, *through),
            LogEntry::Gone(subject) => self.store.remove(subject),
        }
        self.log.push(entry);
    }

    fn deliver(&mut self, client: ClientId, event: StoreEvent, delay: UnixNanos) {
        self.number += 1;
        let at = (self.now + delay, self.number);
        self.deliveries.insert(at, (client, event));
    }

    fn deliver_read(&mut self, client: ClientId, id: CallId, stored: &StoredMessage) {
        let times = 1 + u64::from(self.random.happens(self.faults.repeated));
        for _ in 0..times {
            let delay = self.random.below(self.faults.max_delay);
            self.deliver(client, StoreEvent::Read(id, stored.clone()), delay);
        }
    }

    fn fail(&mut self, client: ClientId, id: CallId) {
        let error = StoreError::Unavailable("a simulated fault".to_owned());
        let delay = self.random.below(self.faults.max_delay);
        self.deliver(client, StoreEvent::Done(id, Err(error)), delay);
    }

    /// Carries out a call, unless it gets lost. Its answer may get lost too.
    fn call(
        &mut self,
        client: ClientId,
        id: CallId,
        call: impl FnOnce(&mut Self) -> Result<StoreReply, StoreError>,
    ) {
        if self.down.contains(&client) || self.random.happens(self.faults.lost_requests) {
            return self.fail(client, id);
        }
        let result = call(self);
        if self.random.happens(self.faults.lost_answers) {
            return self.fail(client, id);
        }
        let delay = self.random.below(self.faults.max_delay);
        self.deliver(client, StoreEvent::Done(id, result), delay);
    }

    fn compare_and_put(
        &mut self,
        message: StoreMessage,
        expected: u64,
        end: Option<UnixNanos>,
    ) -> Result<StoreReply, StoreError> {
        self.store.compare(&message.subject, expected)?;
        Ok(StoreReply::Stored(self.put_until(message, end)))
    }

    fn put_lease(&mut self, request: LeaseRequest) -> Result<StoreReply, StoreError> {
        let end = self.now.saturating_add(nanos(request.term));
        self.compare_and_put(request.message, request.expected, Some(end))
    }

    fn read(&mut self, client: ClientId, id: CallId, scope: ReadScope) {
        let wanted: Vec<_> = self.store.messages(scope).cloned().collect();
        match scope {
            ReadScope::Everything => {
                wanted
                    .iter()
                    .for_each(|stored| self.deliver_read(client, id, stored));
                self.readers.insert(client, (id, self.number));
            }
            ReadScope::Retained => {
                // The end of a read comes after its messages.
                for stored in wanted {
                    self.deliver(client, StoreEvent::Read(id, stored), 0);
                }
                self.deliver(client, StoreEvent::Done(id, Ok(StoreReply::ReadEnd)), 0);
            }
        }
    }
}

/// The calls of one client.
#[derive(Debug)]
pub struct BrokerClient<'a> {
    broker: &'a mut Broker,
    client: ClientId,
}

impl ClusterStore for BrokerClient<'_> {
    fn start(&mut self, id: CallId, call: StoreCall) {
        let (broker, client) = (&mut *self.broker, self.client);
        match call {
            StoreCall::ReadAll(_) if broker.down.contains(&client) => broker.fail(client, id),
            StoreCall::ReadAll(scope) => broker.read(client, id, scope),
            StoreCall::Publish(message) => {
                broker.call(client, id, |broker| Ok(StoreReply::Stored(broker.put(message))));
            }
            StoreCall::CompareAndSet(message, expected) => {
                broker.call(client, id, |broker| {
                    broker.compare_and_put(message, expected, None)
                });
            }
            StoreCall::Lease(request) => broker.call(client, id, |broker| broker.put_lease(request)),
            StoreCall::Purge(run, through) => broker.call(client, id, |broker| {
                broker.append(LogEntry::Purge(run, through));
                Ok(StoreReply::Purged)
            }),
        }
    }
}
