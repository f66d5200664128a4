// SPDX-License-Identifier: Apache-2.0

//! The connection to one replica: its task sends what waits, checks that the replica answers, and reads what it has.

use std::collections::{BTreeMap, VecDeque};
use std::convert::Infallible;
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_cluster::StoreError;
use tidegate_runtime::Every;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep;
use tonic::Status;

use crate::client::PeerClient;
use crate::copies::copy_order;
use crate::engine_state::EngineState;
use crate::limits::{MAX_CALL_BYTES, MAX_CALL_MESSAGES};
use crate::replica::{Replica, unavailable};
use crate::wire::{MessageCopy, MessageHead, PublishCode, StatusResponse};

/// The wait before the second attempt to connect. It doubles up to the longest wait.
const MIN_WAIT: Duration = Duration::from_millis(100);

/// The longest wait before an attempt to connect.
const MAX_WAIT: Duration = Duration::from_secs(5);

/// The time between two log lines about the same error.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The place for the result of a message that waits. It has room for the results of all replicas.
pub(crate) type Waiter = mpsc::Sender<Result<(), StoreError>>;

/// A replica and what waits for it.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) address: String,
    pub(crate) client: PeerClient,
    state: Mutex<LinkState>,
    wake: Notify,
    log_limit: Every,
}

#[derive(Debug, Default)]
struct LinkState {
    /// The last status; `None`: the replica is not connected.
    peer: Option<StatusResponse>,
    is_self: bool,
    /// Whether all messages that the replica had were read.
    is_read: bool,
    /// All messages that the replica had at this time are here.
    compared: Option<Instant>,
    queue: SendQueue,
    last_error: Option<String>,
}

/// Messages that wait: the newest of each subject. Only a connected replica has some.
#[derive(Debug, Default)]
struct SendQueue {
    by_subject: BTreeMap<String, Queued>,
    order: VecDeque<String>,
}

#[derive(Debug)]
struct Queued {
    copy: MessageCopy,
    waiters: Vec<Waiter>,
}

impl SendQueue {
    fn push(&mut self, copy: MessageCopy, waiter: Option<Waiter>) {
        if let Some(queued) = self.by_subject.get_mut(&copy.subject) {
            // The newer message contains all that the older one says. They may come in any order.
            if copy_order(&copy) >= copy_order(&queued.copy) {
                queued.copy = copy;
            }
            queued.waiters.extend(waiter);
            return;
        }
        let subject = copy.subject.clone();
        self.order.push_back(subject.clone());
        let waiters = waiter.into_iter().collect();
        self.by_subject.insert(subject, Queued { copy, waiters });
    }

    /// The messages of the next call.
    fn next_batch(&mut self) -> Vec<Queued> {
        let mut batch = Vec::new();
        let mut bytes = 0;
        while batch.len() < MAX_CALL_MESSAGES && bytes < MAX_CALL_BYTES {
            let Some(subject) = self.order.pop_front() else {
                break;
            };
            if let Some(queued) = self.by_subject.remove(&subject) {
                bytes += queued.copy.body.len();
                batch.push(queued);
            }
        }
        batch
    }
}

impl Link {
    pub(crate) fn new(address: String, client: PeerClient) -> Self {
        Self {
            address,
            client,
            state: Mutex::default(),
            wake: Notify::new(),
            log_limit: Every::new(LOG_INTERVAL),
        }
    }

    pub(crate) fn is_connected(&self) -> bool {
        self.state.lock().peer.is_some()
    }

    /// The name of the replica, if it is connected and may decide.
    pub(crate) fn decider_name(&self) -> Option<String> {
        let state = self.state.lock();
        let peer = state.peer.as_ref().filter(|peer| peer.is_synced)?;
        Some(peer.name.clone())
    }

    /// Whether a new replica need not wait for this one any longer.
    pub(crate) fn is_settled(&self, is_late: bool) -> bool {
        let state = self.state.lock();
        state.is_self || state.is_read || (is_late && state.peer.is_none())
    }

    /// Whether all messages are here that the replica had at that time.
    pub(crate) fn has_compared(&self, at: Instant) -> bool {
        self.state.lock().compared.is_some_and(|compared| compared >= at)
    }

    /// The last error, if the replica is not connected.
    pub(crate) fn error(&self) -> Option<String> {
        self.state.lock().last_error.clone()
    }

    /// Lets a message wait for the replica. A replica without a connection gets none: it gets all pages when it comes back.
    pub(crate) fn send(&self, copy: MessageCopy, waiter: Option<Waiter>) {
        let mut state = self.state.lock();
        if state.peer.is_some() {
            state.queue.push(copy, waiter);
            self.wake.notify_one();
        }
    }

    /// Connects again and again.
    pub(crate) async fn run(self: Arc<Self>, engine: Arc<EngineState>) {
        let mut wait = MIN_WAIT;
        loop {
            match self.connect(&engine).await {
                Ok(true) => {
                    let Err(status) = self.serve(&engine).await;
                    wait = MIN_WAIT;
                    self.disconnect(&engine, &status);
                }
                Ok(false) => wait = MAX_WAIT,
                Err(status) => self.disconnect(&engine, &status),
            }
            sleep(wait.mul_f64(rand::random_range(0.5..=1.0))).await;
            wait = (wait * 2).min(MAX_WAIT);
        }
    }

    /// `false`: the replica is this process.
    async fn connect(&self, engine: &EngineState) -> Result<bool, Status> {
        let peer = self.client.status().await?;
        let own = engine.replica.as_ref();
        let is_self = own.is_some_and(|own| own.instance == peer.instance);
        if !is_self && own.is_some_and(|own| own.name == peer.name) {
            tracing::error!(
                replica = peer.name,
                "two replicas have one name: give each its own name"
            );
        }
        {
            let mut state = self.state.lock();
            state.is_self = is_self;
            state.last_error = None;
            if !is_self {
                tracing::info!(
                    address = self.address,
                    replica = peer.name,
                    "connected to a replica"
                );
                state.peer = Some(peer);
            }
        }
        if !is_self {
            engine.connections.send_modify(|connections| *connections += 1);
        }
        engine.changed.send_replace(());
        Ok(!is_self)
    }

    fn disconnect(&self, engine: &EngineState, status: &Status) {
        let text = status.message().to_owned();
        let is_new = {
            let mut state = self.state.lock();
            state.peer = None;
            state.is_self = false;
            // Those that wait for it learn that their message is not sent.
            state.queue = SendQueue::default();
            state.last_error.replace(text.clone()).as_ref() != Some(&text)
        };
        if is_new || self.log_limit.ready().is_some() {
            tracing::warn!(address = self.address, error = text, "no connection to a replica");
        }
        engine.changed.send_replace(());
    }

    async fn serve(&self, engine: &EngineState) -> Result<Infallible, Status> {
        let ended = tokio::try_join!(self.send_queue(engine), self.beat(engine), self.pull(engine));
        ended.map(|(never, ..)| never)
    }

    async fn send_queue(&self, engine: &EngineState) -> Result<Infallible, Status> {
        loop {
            let batch = self.state.lock().queue.next_batch();
            if batch.is_empty() {
                self.wake.notified().await;
                continue;
            }
            let (copies, waiters): (Vec<_>, Vec<_>) = batch
                .into_iter()
                .map(|queued| (queued.copy, queued.waiters))
                .unzip();
            let bytes: usize = copies.iter().map(|copy| copy.body.len()).sum();
            let outcomes = self.client.publish(copies).await?;
            engine.sent_bytes.fetch_add(bytes as u64, Relaxed);
            for (outcome, waiters) in outcomes.into_iter().zip(waiters) {
                for waiter in waiters {
                    // It has room for all results, and its receiver may have enough of them.
                    let _ = waiter.try_send(result_of(outcome.code()));
                }
            }
        }
    }

    /// Checks that the replica answers.
    async fn beat(&self, engine: &EngineState) -> Result<Infallible, Status> {
        loop {
            sleep(engine.config.sync_interval).await;
            let peer = self.client.status().await?;
            let before = self.state.lock().peer.replace(peer.clone());
            // The client connects again by itself, and another process may have the address.
            if before
                .as_ref()
                .is_some_and(|before| before.instance != peer.instance)
            {
                return Err(Status::unavailable("the replica has restarted"));
            }
            if before != Some(peer) {
                engine.changed.send_replace(());
            }
        }
    }

    /// Reads what the replica has and this one lacks: all at first, and then what is still missing at the next look. Most
    /// messages arrive from their producers in the meantime.
    async fn pull(&self, engine: &EngineState) -> Result<Infallible, Status> {
        let Some(replica) = &engine.replica else {
            return pending().await;
        };
        let mut looked = Instant::now();
        let mut after = 0;
        loop {
            let heads = self.client.list(after).await?;
            let Some(last) = heads.last() else { break };
            after = last.sequence;
            self.remove_there(replica, &heads).await?;
            self.fetch(engine, replica, heads).await?;
        }
        self.state.lock().is_read = true;
        engine.changed.send_replace(());
        let mut missing = BTreeMap::new();
        loop {
            sleep(engine.config.sync_interval).await;
            let due = std::mem::take(&mut missing).into_values().collect();
            self.fetch(engine, replica, due).await?;
            self.state.lock().compared = Some(looked);
            looked = Instant::now();
            loop {
                let heads = self.client.list(after).await?;
                let Some(last) = heads.last() else { break };
                after = last.sequence;
                self.remove_there(replica, &heads).await?;
                let lacking = heads.into_iter().filter(|head| replica.lacks(head));
                missing.extend(lacking.map(|head| (head.subject.clone(), head)));
            }
        }
    }

    /// Removes pages that were removed here while the replica was out of reach.
    async fn remove_there(&self, replica: &Replica, heads: &[MessageHead]) -> Result<(), Status> {
        let removed = heads.iter().filter(|head| replica.has_removed(head));
        let removed: Vec<_> = removed.cloned().collect();
        if removed.is_empty() {
            return Ok(());
        }
        self.client.remove(removed).await
    }

    async fn fetch(
        &self,
        engine: &EngineState,
        replica: &Replica,
        mut heads: Vec<MessageHead>,
    ) -> Result<(), Status> {
        loop {
            heads.retain(|head| replica.lacks(head));
            let asked = heads.iter().take(MAX_CALL_MESSAGES).cloned().collect::<Vec<_>>();
            if asked.is_empty() {
                return Ok(());
            }
            let copies = self.client.fetch(asked.clone()).await?;
            let last = copies.last().map(|copy| copy.subject.clone());
            for copy in copies {
                engine.received_bytes.fetch_add(copy.body.len() as u64, Relaxed);
                let code = replica.publish(&copy);
                engine.note_fetched(code);
                if let Err(error) = result_of(code)
                    && self.log_limit.ready().is_some()
                {
                    tracing::warn!(subject = copy.subject, %error, "a message of a replica is not taken");
                }
            }
            // Those before the last one that came were answered: the replica has them no longer, or the store has no room.
            let answered = last.and_then(|last| asked.iter().position(|head| head.subject == last));
            heads.drain(..answered.map_or(asked.len(), |at| at + 1));
        }
    }
}

pub(crate) fn result_of(code: PublishCode) -> Result<(), StoreError> {
    match code {
        PublishCode::Stored => Ok(()),
        PublishCode::TooLarge => Err(StoreError::TooLarge),
        PublishCode::NoRoom => Err(unavailable("the store of the replica is full: raise `max_bytes`")),
        PublishCode::Invalid | PublishCode::Unspecified => {
            Err(unavailable("the replica does not know the message"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(sequence: u64) -> MessageCopy {
        MessageCopy {
            subject: "tg.c.p.00.p.1.1".to_owned(),
            headers: format!("tg-seq:{sequence}\n"),
            ..MessageCopy::default()
        }
    }

    #[test]
    fn the_newest_message_of_a_subject_waits_in_any_order_of_sends() {
        let mut queue = SendQueue::default();
        let (waiter, _results) = mpsc::channel(3);
        for sequence in [5, 7, 6] {
            queue.push(page(sequence), Some(waiter.clone()));
        }
        let batch = queue.next_batch();
        assert_eq!(batch.len(), 1);
        assert_eq!(batch[0].copy, page(7));
        // All three senders get the result.
        assert_eq!(batch[0].waiters.len(), 3);
        assert!(queue.next_batch().is_empty());
    }
}
