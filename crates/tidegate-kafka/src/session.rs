// SPDX-License-Identifier: Apache-2.0

//! The session of a state machine: it carries out the calls and gives the events.

use std::collections::HashMap;
use std::sync::Arc;

use tidegate_cluster::{
    CallId, ClusterStore, ReadScope, RunName, StoreCall, StoreError, StoreEvent, StoreMessage, StoreReply,
    StoreSession, Subject,
};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::task::{Id, JoinError, JoinSet};

use crate::client::{Client, NewRecord};
use crate::read::ReadTask;
use crate::records::{ComparedRecord, RecordRequest};
use crate::shared::{EngineState, Link};

/// The most calls that wait.
const WAITING_CALLS: usize = 256;

/// The most events that wait. Each may have a message.
const WAITING_EVENTS: usize = 32;

/// The most calls that are carried out at a time.
const MAX_CALLS: usize = 256;

/// The most pages that a purge removes at a time.
const PURGED_TOGETHER: usize = 64;

/// Opens a session.
pub(crate) fn open(shared: Arc<EngineState>, link: Link, runtime: &Handle) -> StoreSession {
    let (calls, waiting) = mpsc::channel(WAITING_CALLS);
    let (sender, events) = mpsc::channel(WAITING_EVENTS);
    let session = Session {
        shared,
        link,
        events: sender.clone(),
    };
    runtime.spawn(session.run(waiting));
    let store = Box::new(CallQueue {
        calls,
        events: sender.downgrade(),
        runtime: runtime.clone(),
    });
    StoreSession { store, events }
}

/// The calls of a state machine.
struct CallQueue {
    calls: mpsc::Sender<(CallId, StoreCall)>,
    /// Weak: the channel of events ends with the engine.
    events: mpsc::WeakSender<StoreEvent>,
    runtime: Handle,
}

impl ClusterStore for CallQueue {
    fn start(&mut self, id: CallId, call: StoreCall) {
        // A machine with so many open calls gets an error for this one, and for each other call its answer.
        if let Err(mpsc::error::TrySendError::Full(_)) = self.calls.try_send((id, call))
            && let Some(events) = self.events.upgrade()
        {
            let error = StoreError::Unavailable("too many calls wait".to_owned());
            self.runtime.spawn(async move {
                // The machine may be gone.
                let _ = events.send(StoreEvent::Done(id, Err(error))).await;
            });
        }
    }
}

struct Session {
    shared: Arc<EngineState>,
    link: Link,
    events: mpsc::Sender<StoreEvent>,
}

impl Session {
    /// Runs until the machine or the engine is gone.
    async fn run(mut self, mut calls: mpsc::Receiver<(CallId, StoreCall)>) {
        // The connections of which the state machine knows: no answer of one comes before `Connected`.
        let (known, receiver) = watch::channel(None);
        let known_link = Link(receiver);
        let mut tasks = JoinSet::new();
        // The calls of the running tasks.
        let mut call_ids: HashMap<Id, CallId> = HashMap::new();
        self.link.0.mark_changed();
        loop {
            tokio::select! {
                // A call that comes after a change must not begin on the earlier connection.
                biased;
                changed = self.link.0.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    let client = self.link.0.borrow_and_update().clone();
                    if !pass_on(client, &known, &self.events).await {
                        return;
                    }
                }
                Some(ended) = tasks.join_next_with_id() => {
                    let task = ended.as_ref().map_or_else(JoinError::id, |(task, ())| *task);
                    let id = call_ids.remove(&task);
                    // A call that panics has failed: without an answer, its machine would wait forever.
                    if let (Err(_), Some(id)) = (ended, id) {
                        let panicked = StoreError::Unavailable("the call has panicked".to_owned());
                        if self.events.send(StoreEvent::Done(id, Err(panicked))).await.is_err() {
                            return;
                        }
                    }
                }
                call = calls.recv(), if tasks.len() < MAX_CALLS => {
                    let Some((id, call)) = call else { return };
                    let running = RunningCall {
                        shared: self.shared.clone(),
                        id,
                        events: self.events.clone(),
                    };
                    let task = tasks.spawn(running.run(known_link.clone(), call));
                    call_ids.insert(task.id(), id);
                }
            }
        }
    }
}

/// Tells the machine of a new connection, and then the calls. `false`: the machine is gone.
async fn pass_on<T>(
    connection: Option<T>,
    known: &watch::Sender<Option<T>>,
    events: &mpsc::Sender<StoreEvent>,
) -> bool {
    // The machine may take its time for the event. Meanwhile, calls wait: the earlier connection is lost.
    known.send_replace(None);
    if connection.is_some() && events.send(StoreEvent::Connected).await.is_err() {
        return false;
    }
    known.send_replace(connection);
    true
}

/// A call, until its answer.
struct RunningCall {
    shared: Arc<EngineState>,
    id: CallId,
    events: mpsc::Sender<StoreEvent>,
}

impl RunningCall {
    async fn run(self, mut link: Link, call: StoreCall) {
        let result = match link.client().await {
            Some(client) => self.carry_out(&client, &mut link, call).await,
            None => Err(self.shared.outage()),
        };
        // The machine may be gone.
        let _ = self.events.send(StoreEvent::Done(self.id, result)).await;
    }

    async fn carry_out(
        &self,
        client: &Arc<Client>,
        link: &mut Link,
        call: StoreCall,
    ) -> Result<StoreReply, StoreError> {
        match call {
            StoreCall::Publish(message) => self.publish(client, message).await,
            StoreCall::ReadAll(scope) => self.read(client, link, scope).await,
            StoreCall::CompareAndSet(message, expected) => {
                let term = None;
                self.compare(ComparedRecord {
                    message,
                    expected,
                    term,
                })
                .await
            }
            StoreCall::Lease(request) => {
                self.compare(ComparedRecord {
                    message: request.message,
                    expected: request.expected,
                    term: Some(request.term),
                })
                .await
            }
            StoreCall::Purge(run, through) => self.purge(client, &run, through).await,
        }
    }

    /// The call stays on its connection, also if that is lost meanwhile. The library keeps the record up to its time-out. If
    /// the call failed before, the machine would publish the page again on the new connection, and the old record could come
    /// after it. So the page waits, for the time-out of a request at most. After `Connected`, the machine publishes each page
    /// once more, so it does not rely on the answer of the earlier connection.
    async fn publish(&self, client: &Client, message: StoreMessage) -> Result<StoreReply, StoreError> {
        let bytes = message.body.len();
        let record = NewRecord {
            partition: self.partition(&message.subject)?,
            key: message.subject,
            headers: message.headers,
            body: Some(message.body),
        };
        let appended = client
            .append(record)
            .await
            .map_err(|error| self.shared.failed(error))?;
        self.shared.note_sent(bytes);
        Ok(StoreReply::Stored(appended.sequence()))
    }

    async fn read(
        &self,
        client: &Arc<Client>,
        link: &mut Link,
        scope: ReadScope,
    ) -> Result<StoreReply, StoreError> {
        let read = ReadTask {
            shared: self.shared.clone(),
            id: self.id,
            scope,
            events: self.events.clone(),
        };
        read.run(client, link).await
    }

    async fn compare(&self, record: ComparedRecord) -> Result<StoreReply, StoreError> {
        let partition = self.partition(&record.message.subject)?;
        let task = if partition == self.shared.layout.claims() {
            &self.shared.claims
        } else {
            &self.shared.retained
        };
        let (answer, result) = oneshot::channel();
        let ended = || StoreError::Unavailable("the engine has ended the call".to_owned());
        let request = RecordRequest::Compare(record, answer);
        task.send(request).await.map_err(|_| ended())?;
        result.await.map_err(|_| ended())?
    }

    /// Removes the pages that reads of this engine have given. A page that came later stays.
    async fn purge(&self, client: &Client, run: &RunName, through: u64) -> Result<StoreReply, StoreError> {
        let pages = self.shared.index.lock().pages(run, through);
        for pages in pages.chunks(PURGED_TOGETHER) {
            let removals: Result<Vec<_>, _> = pages.iter().map(|page| self.removal(page)).collect();
            let removed = client.append_all(removals?).await;
            removed.map_err(|error| self.shared.failed(error))?;
            let mut index = self.shared.index.lock();
            pages.iter().for_each(|page| index.forget(page, through));
        }
        Ok(StoreReply::Purged)
    }

    fn removal(&self, page: &Subject) -> Result<NewRecord, StoreError> {
        let key = page.text(&self.shared.layout.cluster);
        Ok(NewRecord {
            partition: self.partition(&key)?,
            key,
            headers: Vec::new(),
            body: None,
        })
    }

    fn partition(&self, subject: &str) -> Result<i32, StoreError> {
        let partition = self.shared.layout.partition(subject);
        partition
            .ok_or_else(|| StoreError::Unavailable(format!("`{subject}` is not a subject of the cluster")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn calls_do_not_use_the_earlier_connection_of_a_slow_machine() {
        let (known, calls) = watch::channel(Some(1));
        let (sender, mut events) = mpsc::channel(1);
        // The machine is busy: `Connected` has no room yet.
        sender.send(StoreEvent::Connected).await.unwrap();
        let passing = tokio::spawn(async move { pass_on(Some(2), &known, &sender).await });
        tokio::task::yield_now().await;
        assert_eq!(*calls.borrow(), None, "the earlier connection is lost");
        assert_eq!(events.recv().await, Some(StoreEvent::Connected));
        assert_eq!(events.recv().await, Some(StoreEvent::Connected));
        assert!(passing.await.unwrap());
    }

    #[tokio::test]
    async fn the_machine_learns_of_a_connection_before_its_calls() {
        let (known, calls) = watch::channel(None);
        let (sender, mut events) = mpsc::channel(1);
        assert!(pass_on(Some(1), &known, &sender).await);
        assert_eq!(*calls.borrow(), Some(1));
        assert_eq!(events.recv().await, Some(StoreEvent::Connected));
        assert!(pass_on(None, &known, &sender).await);
        assert_eq!(*calls.borrow(), None);
        assert!(events.try_recv().is_err(), "a loss is not a new connection");
        drop(events);
        assert!(!pass_on(Some(2), &known, &sender).await);
    }
}
