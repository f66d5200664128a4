// SPDX-License-Identifier: Apache-2.0

//! A state machine of a test: it makes calls and keeps all events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tidegate_cluster::{
    CallId, ClusterEngine, LeaseRequest, ProducerName, ReadScope, RunName, StoreCall, StoreError, StoreEvent,
    StoreMessage, StoreReply, StoreSession, StoredMessage, Subject,
};
use tidegate_kafka::{KafkaConfig, KafkaEngine};

/// The longest wait for anything.
pub(crate) const PATIENCE: Duration = Duration::from_mins(2);

/// How often a condition is looked at without an event.
const RECHECK: Duration = Duration::from_millis(50);

pub(crate) type CallResult = Result<StoreReply, StoreError>;

pub(crate) struct Machine {
    session: StoreSession,
    last: u64,
    pub(crate) reads: Vec<(CallId, StoredMessage)>,
    pub(crate) current: BTreeSet<CallId>,
    pub(crate) done: BTreeMap<CallId, CallResult>,
    pub(crate) connections: usize,
    /// The last question that a read has answered.
    pub(crate) confirmed: u64,
}

impl Machine {
    pub(crate) fn new(engine: &KafkaEngine) -> Self {
        Self {
            session: engine.open(),
            last: 0,
            reads: Vec::new(),
            current: BTreeSet::new(),
            done: BTreeMap::new(),
            connections: 0,
            confirmed: 0,
        }
    }

    pub(crate) fn start(&mut self, call: StoreCall) -> CallId {
        self.last += 1;
        let id = CallId(self.last);
        self.session.store.start(id, call);
        id
    }

    /// Takes events until a condition holds.
    pub(crate) async fn until(&mut self, what: &str, mut holds: impl FnMut(&Self) -> bool) {
        let wait = async {
            while !holds(self) {
                // The condition may depend on more than events.
                let event = tokio::time::timeout(RECHECK, self.session.events.recv()).await;
                if let Ok(event) = event {
                    self.take(event.expect("the engine runs"));
                }
            }
        };
        let result = tokio::time::timeout(PATIENCE, wait).await;
        assert!(result.is_ok(), "not within {PATIENCE:?}: {what}");
    }

    fn take(&mut self, event: StoreEvent) {
        match event {
            StoreEvent::Done(id, result) => {
                assert_eq!(self.done.insert(id, result), None, "a call ends once");
            }
            StoreEvent::Read(id, stored) => self.reads.push((id, stored)),
            StoreEvent::Current(id, ..) => {
                self.current.insert(id);
            }
            StoreEvent::Confirmed(_, _, question) => self.confirmed = question,
            StoreEvent::Connected => self.connections += 1,
        }
    }

    /// Makes a call and waits for its end.
    pub(crate) async fn call(&mut self, call: StoreCall) -> CallResult {
        let id = self.start(call);
        self.until("the call ends", |machine| machine.done.contains_key(&id))
            .await;
        self.done[&id].clone()
    }

    /// The same, until the store is available.
    pub(crate) async fn insist(&mut self, call: StoreCall) -> CallResult {
        loop {
            match self.call(call.clone()).await {
                Err(StoreError::Unavailable(_)) => {}
                result => return result,
            }
        }
    }

    pub(crate) async fn stored(&mut self, call: StoreCall) -> u64 {
        match self.insist(call).await {
            Ok(StoreReply::Stored(sequence)) => sequence,
            result => panic!("{result:?}"),
        }
    }

    /// What a read of everything that begins now gives, by subject.
    pub(crate) async fn everything(&mut self) -> BTreeMap<String, StoredMessage> {
        let id = self.start(StoreCall::ReadAll(ReadScope::Everything));
        self.until("it has read everything", |machine| machine.current.contains(&id))
            .await;
        self.last_reads(id)
    }

    pub(crate) fn last_reads(&self, id: CallId) -> BTreeMap<String, StoredMessage> {
        let reads = self.reads.iter().filter(|(of, _)| *of == id);
        reads
            .map(|(_, stored)| (stored.message.subject.clone(), stored.clone()))
            .collect()
    }
}

pub(crate) fn engine(address: &str, cluster: &str) -> KafkaEngine {
    let config = KafkaConfig {
        request_timeout: Duration::from_secs(15),
        brokers: vec![address.to_owned()],
        ..KafkaConfig::default()
    };
    KafkaEngine::start(config, cluster, 1).unwrap()
}

pub(crate) fn run(epoch: u64) -> RunName {
    RunName {
        producer: ProducerName::new("node.1").unwrap(),
        epoch,
    }
}

pub(crate) fn page(cluster: &str, epoch: u64, page: u32, body: &'static [u8]) -> StoreMessage {
    let subject = Subject::Page {
        partition: 0,
        run: run(epoch),
        page,
    };
    message(cluster, &subject, body)
}

pub(crate) fn message(cluster: &str, subject: &Subject, body: &'static [u8]) -> StoreMessage {
    StoreMessage {
        subject: subject.text(cluster),
        headers: vec![("tg-v".to_owned(), "1".to_owned())],
        body: body.into(),
    }
}

pub(crate) fn lease(cluster: &str, holder: &'static str, expected: u64, term: Duration) -> StoreCall {
    StoreCall::Lease(LeaseRequest {
        message: message(cluster, &Subject::Leader, holder.as_bytes()),
        expected,
        term,
    })
}
