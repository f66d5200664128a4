// SPDX-License-Identifier: Apache-2.0

//! What the tasks of an engine share: its store, its links, and the calls that need them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_cluster::local::{SessionBackend, SharedStore};
use tidegate_cluster::{
    EngineStatus, RefusedMessages, RunName, StoreCall, StoreError, StoreMessage, StoreReply, StoredMessage,
};
use tidegate_engine::clock;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;

use crate::config::DirectConfig;
use crate::copies::{copy_order, new_copy, order, packed, stored_order, unpacked};
use crate::limits::MAX_CALL_MESSAGES;
use crate::link::{Link, result_of};
use crate::replica::{Decision, Replica, foreign, unavailable};
use crate::wire::{DecideRequest, MessageCopy, PublishCode};

/// A call waits this long for a first connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(3);

/// The sessions of a replica ask at least once a second what it lacks. A longer pause means that the process was suspended.
const SUSPENSION: Duration = Duration::from_millis(2_500);

/// A decision waits this long until the other replicas have its record.
const COPY_WAIT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct EngineState {
    pub(crate) cluster: String,
    pub(crate) config: DirectConfig,
    /// The store of this process; `None`: it only sends.
    pub(crate) replica: Option<Replica>,
    /// The known replicas; `None`: they are not known yet.
    pub(crate) links: Mutex<Option<Vec<Arc<Link>>>>,
    /// The number of connections that were made.
    pub(crate) connections: watch::Sender<u64>,
    /// Changes when a link changes.
    pub(crate) changed: watch::Sender<()>,
    pub(crate) sent_bytes: AtomicU64,
    pub(crate) received_bytes: AtomicU64,
    refused: Mutex<RefusedMessages>,
    started: Instant,
    suspension: Mutex<Suspension>,
}

/// Finds out that the process was suspended.
#[derive(Debug)]
struct Suspension {
    asked: Instant,
    /// The end of the last suspension.
    end: Option<Instant>,
}

impl Suspension {
    /// The end of the last suspension, if there was one.
    fn last_end(&mut self, now: Instant) -> Option<Instant> {
        if now.duration_since(self.asked) > SUSPENSION {
            self.end = Some(now);
        }
        self.asked = now;
        self.end
    }
}

/// The replica that decides.
enum Decider {
    Own,
    Other(Arc<Link>),
}

impl EngineState {
    pub(crate) fn new(cluster: &str, config: DirectConfig, replica: Option<Replica>) -> Self {
        Self {
            cluster: cluster.to_owned(),
            config,
            replica,
            links: Mutex::new(None),
            connections: watch::Sender::new(0),
            changed: watch::Sender::new(()),
            sent_bytes: AtomicU64::new(0),
            received_bytes: AtomicU64::new(0),
            refused: Mutex::default(),
            started: Instant::now(),
            suspension: Mutex::new(Suspension {
                asked: Instant::now(),
                end: None,
            }),
        }
    }

    fn links(&self) -> Vec<Arc<Link>> {
        self.links.lock().clone().unwrap_or_default()
    }

    fn connected(&self) -> Vec<Arc<Link>> {
        let mut links = self.links();
        links.retain(|link| link.is_connected());
        links
    }

    pub(crate) fn status(&self) -> EngineStatus {
        let links = self.links();
        let is_synced = self.replica.as_ref().is_some_and(Replica::is_synced);
        EngineStatus {
            is_connected: is_synced || links.iter().any(|link| link.is_connected()),
            connections: *self.connections.borrow(),
            sent_bytes: self.sent_bytes.load(Relaxed),
            received_bytes: self.received_bytes.load(Relaxed),
            refused: *self.refused.lock(),
            last_error: links.iter().find_map(|link| link.error()),
        }
    }

    /// Notes what the own store has done with a message of another replica.
    pub(crate) fn note_fetched(&self, code: PublishCode) {
        let mut refused = self.refused.lock();
        match code {
            PublishCode::Stored => {}
            PublishCode::NoRoom => refused.full += 1,
            PublishCode::TooLarge => refused.too_large += 1,
            PublishCode::Invalid | PublishCode::Unspecified => refused.invalid += 1,
        }
    }

    /// Whether this replica has read all that its peers have. After `sync_timeout`, those that it can't reach do not count.
    pub(crate) fn has_read_peers(&self, sync_timeout: Duration) -> bool {
        let is_late = self.started.elapsed() >= sync_timeout;
        match &*self.links.lock() {
            Some(links) if !links.is_empty() => links.iter().all(|link| link.is_settled(is_late)),
            _ => is_late,
        }
    }

    /// Whether this replica has all that its peers had when this process was last resumed. Before that, it does not know
    /// what it lacks.
    fn has_compared(&self) -> bool {
        let resumed = self.suspension.lock().last_end(Instant::now());
        let links = self.connected();
        resumed.is_none_or(|resumed| links.iter().all(|link| link.has_compared(resumed)))
    }

    /// Waits for a value, while there is none, until a call need not wait any longer.
    async fn soon<T>(&self, value: impl Fn() -> Option<T>) -> Option<T> {
        let mut changes = self.changed.subscribe();
        let found = async {
            loop {
                if let Some(found) = value() {
                    return Some(found);
                }
                changes.changed().await.ok()?;
            }
        };
        timeout(CONNECTION_WAIT, found).await.ok().flatten()
    }

    /// Stores a page here, and sends it to all replicas that are connected. It is stored when one of them has it.
    async fn publish(&self, message: StoreMessage) -> Result<StoreReply, StoreError> {
        if message.body.len() > self.config.max_body_bytes {
            return Err(StoreError::TooLarge);
        }
        let message = packed(message);
        let reply = StoreReply::Stored(order(&message).unwrap_or(0));
        let copy = new_copy(&message);
        if let Some(replica) = &self.replica {
            let result = result_of(replica.publish(&copy));
            self.connected()
                .iter()
                .for_each(|link| link.send(copy.clone(), None));
            return result.map(|()| reply);
        }
        let links = self.soon(|| Some(self.connected()).filter(|links| !links.is_empty()));
        let links = links.await.unwrap_or_default();
        let mut results = send_to(&links, &copy);
        let mut error = unavailable("no replica is connected");
        while let Some(result) = results.recv().await {
            match result {
                Ok(()) => return Ok(reply),
                Err(refused) => error = refused,
            }
        }
        Err(error)
    }

    /// The synced replica with the smallest name, of those that are reachable.
    fn decider(&self) -> Option<Decider> {
        let own = self.replica.as_ref().filter(|own| own.is_synced());
        let others = self.links().into_iter();
        let other = others
            .filter_map(|link| Some((link.decider_name()?, link)))
            .min_by(|(a, _), (b, _)| a.cmp(b));
        match (own, other) {
            (Some(own), Some((name, link))) if name < own.name => Some(Decider::Other(link)),
            (Some(_), _) => Some(Decider::Own),
            (None, Some((_, link))) => Some(Decider::Other(link)),
            (None, None) => None,
        }
    }

    /// Decides about a record, or asks the replica that does. A request that another replica has passed on stays here.
    pub(crate) async fn decide(
        &self,
        record: StoreMessage,
        expected: u64,
        term: Option<Duration>,
        is_forwarded: bool,
    ) -> Result<Decision, StoreError> {
        let decider = if is_forwarded {
            Some(Decider::Own)
        } else {
            self.soon(|| self.decider()).await
        };
        match (decider, &self.replica) {
            (Some(Decider::Own), Some(replica)) => {
                let decision = replica.decide(record, expected, term)?;
                if let Decision::Accepted(copy) = &decision {
                    self.copy_to_all(copy).await;
                }
                Ok(decision)
            }
            (Some(Decider::Other(link)), replica) => {
                let request = DecideRequest {
                    record: Some(new_copy(&record)),
                    expected,
                    term_ns: term.map_or(0, |term| term.as_nanos() as u64),
                    is_forwarded: replica.is_some(),
                };
                let outcome = link.client.decide(request).await;
                let outcome = outcome.map_err(|status| unavailable(status.message()))?;
                Ok(match outcome.current {
                    Some(copy) if outcome.is_accepted => Decision::Accepted(copy),
                    current => Decision::Conflict(current),
                })
            }
            _ => Err(unavailable("no replica that may decide is connected")),
        }
    }

    /// Sends a record to all replicas that are connected, and waits until they have it.
    async fn copy_to_all(&self, copy: &MessageCopy) {
        let mut results = send_to(&self.connected(), copy);
        // A replica that does not get it now reads it later.
        let _ = timeout(COPY_WAIT, async { while results.recv().await.is_some() {} }).await;
    }

    async fn compare_and_set(
        &self,
        message: StoreMessage,
        expected: u64,
        term: Option<Duration>,
    ) -> Result<StoreReply, StoreError> {
        let message = packed(message);
        match &self.replica {
            Some(replica) => self.compare_both(replica, message, expected, term).await,
            None => match self.decide(message, expected, term, false).await? {
                Decision::Accepted(copy) => Ok(StoreReply::Stored(copy_order(&copy).unwrap_or(0))),
                Decision::Conflict(current) => {
                    let current = current.map(|copy| foreign(&copy, clock::now()));
                    Err(self.conflict(current))
                }
            },
        }
    }

    /// Compares with the own store by sequence, and then with that of the replica that decides by order. The caller sees
    /// sequences of the own store only: it compares them with those that it reads.
    async fn compare_both(
        &self,
        replica: &Replica,
        message: StoreMessage,
        expected: u64,
        term: Option<Duration>,
    ) -> Result<StoreReply, StoreError> {
        let subject = message.subject.clone();
        let current = replica.get(&subject);
        if current.as_ref().map_or(0, |current| current.sequence) != expected {
            return Err(self.conflict(current));
        }
        let expected = stored_order(current.as_ref());
        match self.decide(message, expected, term, false).await? {
            Decision::Accepted(copy) => {
                result_of(replica.publish(&copy))?;
                match replica.get(&subject) {
                    Some(stored) if order(&stored.message) == copy_order(&copy) => {
                        Ok(StoreReply::Stored(stored.sequence))
                    }
                    current => Err(self.conflict(current)),
                }
            }
            Decision::Conflict(Some(copy)) => {
                result_of(replica.publish(&copy))?;
                let current = replica.get(&subject);
                if stored_order(current.as_ref()) == copy_order(&copy).unwrap_or(0) {
                    return Err(self.conflict(current));
                }
                Err(unavailable("the replicas do not have the same record yet"))
            }
            // The lease has ended there, and ends here a moment later.
            Decision::Conflict(None) if term.is_some() => {
                replica.store.change(|store| store.remove(&subject));
                Err(self.conflict(None))
            }
            Decision::Conflict(None) => Err(unavailable("the replicas do not have the same record yet")),
        }
    }

    fn conflict(&self, current: Option<StoredMessage>) -> StoreError {
        StoreError::Conflict(current.map(|stored| Box::new(self.unpacked(stored))))
    }

    fn unpacked(&self, stored: StoredMessage) -> StoredMessage {
        StoredMessage {
            message: unpacked(stored.message, self.config.max_body_bytes),
            ..stored
        }
    }

    async fn purge(&self, run: &RunName, through: u64) -> Result<StoreReply, StoreError> {
        let Some(replica) = &self.replica else {
            return Err(unavailable("this engine sends only: it has no store"));
        };
        let heads = replica.purge(run, through);
        for link in self.connected() {
            for heads in heads.chunks(MAX_CALL_MESSAGES) {
                // A replica that keeps the pages gives them back. Then they are removed again.
                if let Err(status) = link.client.remove(heads.to_vec()).await {
                    tracing::debug!(address = link.address, %status, "pages are not removed");
                    break;
                }
            }
        }
        Ok(StoreReply::Purged)
    }
}

/// Sends a message over all links. The channel ends when all have answered.
fn send_to(links: &[Arc<Link>], copy: &MessageCopy) -> mpsc::Receiver<Result<(), StoreError>> {
    let (waiter, results) = mpsc::channel(links.len().max(1));
    for link in links {
        link.send(copy.clone(), Some(waiter.clone()));
    }
    results
}

impl SessionBackend for EngineState {
    fn store(&self) -> Option<&SharedStore> {
        self.replica.as_ref().map(|replica| &replica.store)
    }

    async fn call(self: Arc<Self>, call: StoreCall) -> Result<StoreReply, StoreError> {
        match call {
            StoreCall::Publish(message) => self.publish(message).await,
            StoreCall::CompareAndSet(message, expected) => {
                self.compare_and_set(message, expected, None).await
            }
            StoreCall::Lease(request) => {
                self.compare_and_set(request.message, request.expected, Some(request.term))
                    .await
            }
            StoreCall::Purge(run, through) => self.purge(&run, through).await,
            // The session reads.
            StoreCall::ReadAll(_) => Ok(StoreReply::ReadEnd),
        }
    }

    fn is_complete(&self) -> bool {
        let is_synced = |replica: &Replica| replica.is_synced() && self.has_compared();
        self.replica.as_ref().is_none_or(is_synced)
    }

    fn connections(&self) -> Option<watch::Receiver<u64>> {
        Some(self.connections.subscribe())
    }

    fn received(&self, stored: StoredMessage) -> StoredMessage {
        self.unpacked(stored)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_pause_between_two_questions_is_a_suspension() {
        let start = Instant::now();
        let mut suspension = Suspension {
            asked: start,
            end: None,
        };
        let at = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(suspension.last_end(at(1)), None);
        assert_eq!(suspension.last_end(at(2)), None);
        assert_eq!(suspension.last_end(at(6)), Some(at(6)));
        assert_eq!(suspension.last_end(at(7)), Some(at(6)));
    }
}
