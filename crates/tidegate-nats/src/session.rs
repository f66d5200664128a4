// SPDX-License-Identifier: Apache-2.0

//! A session: it takes the calls of a state machine and carries out several at a time.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use tidegate_cluster::{CallId, ClusterStore, StoreCall, StoreError, StoreEvent, StoreReply, StoreSession};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::timeout;

use crate::engine::CurrentLink;
use crate::link::NatsLink;
use crate::read::read;
use crate::shared::NatsShared;
use crate::write::{compare_and_set, lease, publish, purge};

/// The most events that wait for a state machine. One may have a body of the largest size.
const MAX_EVENTS: usize = 32;

/// The most calls that wait in a session. Further ones fail.
const MAX_CALLS: usize = 256;

/// The most calls of a session that are carried out at a time.
const MAX_RUNNING: usize = 64;

/// A call waits this long for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(5);

/// The calling half of a session.
struct NatsStore {
    calls: mpsc::Sender<(CallId, StoreCall)>,
    events: mpsc::WeakSender<StoreEvent>,
    runtime: Handle,
}

impl ClusterStore for NatsStore {
    fn start(&mut self, id: CallId, call: StoreCall) {
        if self.calls.try_send((id, call)).is_ok() {
            return;
        }
        // If the session has ended, nobody waits for the answer.
        if let Some(events) = self.events.upgrade() {
            self.runtime.spawn(async move {
                let error = StoreError::Unavailable("too many calls wait".to_owned());
                let _ = events.send(StoreEvent::Done(id, Err(error))).await;
            });
        }
    }
}

/// What the calls of a session share.
#[derive(Clone)]
struct SessionContext {
    shared: Arc<NatsShared>,
    /// The connections of which the state machine knows.
    links: watch::Receiver<CurrentLink>,
    events: mpsc::Sender<StoreEvent>,
}

/// Opens a session, which ends with the engine or with its other half.
pub(crate) fn open_session(
    shared: Arc<NatsShared>,
    links: watch::Receiver<CurrentLink>,
    runtime: &Handle,
) -> StoreSession {
    let (calls, call_queue) = mpsc::channel(MAX_CALLS);
    let (sender, events) = mpsc::channel(MAX_EVENTS);
    let store = NatsStore {
        calls,
        events: sender.downgrade(),
        runtime: runtime.clone(),
    };
    runtime.spawn(run(shared, links, call_queue, sender));
    StoreSession {
        store: Box::new(store),
        events,
    }
}

/// The running calls are aborted at the end.
async fn run(
    shared: Arc<NatsShared>,
    mut links: watch::Receiver<CurrentLink>,
    mut calls: mpsc::Receiver<(CallId, StoreCall)>,
    events: mpsc::Sender<StoreEvent>,
) {
    let (known_links, receiver) = watch::channel(None);
    let context = SessionContext {
        shared,
        links: receiver,
        events,
    };
    let mut running = JoinSet::new();
    // The calls of the running tasks.
    let mut call_ids: HashMap<Id, CallId> = HashMap::new();
    links.mark_changed();
    loop {
        tokio::select! {
            biased;
            changed = links.changed() => {
                let link = links.borrow_and_update().clone();
                let is_over = changed.is_err() || context.events.is_closed();
                if is_over || (link.is_some() && context.events.send(StoreEvent::Connected).await.is_err()) {
                    return;
                }
                known_links.send_replace(link);
            }
            () = context.events.closed() => return,
            Some(ended) = running.join_next_with_id() => {
                let task = ended.as_ref().map_or_else(JoinError::id, |(task, ())| *task);
                let id = call_ids.remove(&task);
                // A call that panics has failed: without an answer, its machine would wait forever.
                if let (Err(_), Some(id)) = (ended, id) {
                    let panicked = StoreError::Unavailable("the call has panicked".to_owned());
                    if context.events.send(StoreEvent::Done(id, Err(panicked))).await.is_err() {
                        return;
                    }
                }
            }
            call = calls.recv(), if running.len() < MAX_RUNNING => {
                let Some((id, call)) = call else { return };
                let task = running.spawn(context.clone().carry_out(id, call));
                call_ids.insert(task.id(), id);
            }
        }
    }
}

impl SessionContext {
    async fn carry_out(mut self, id: CallId, call: StoreCall) {
        let read_scope = match call {
            StoreCall::ReadAll(scope) => Some(scope),
            _ => None,
        };
        let result = match self.link().await {
            Some(link) => {
                tokio::select! {
                    // The client connects once more by itself and may deliver the call to a store that has lost messages. Its
                    // answer must not come before `Connected`.
                    biased;
                    () = link.lost() => {
                        if let Some(scope) = read_scope {
                            self.shared.note_failed_read(scope);
                        }
                        Err(StoreError::Unavailable("the connection is lost".to_owned()))
                    }
                    result = self.perform(&link, id, call) => result,
                }
            }
            None => Err(StoreError::Unavailable(self.shared.outage())),
        };
        // Nobody waits for the answer if this fails.
        let _ = self.events.send(StoreEvent::Done(id, result)).await;
    }

    /// The connection, if there is one in time.
    async fn link(&mut self) -> CurrentLink {
        let connected = timeout(CONNECTION_WAIT, self.links.wait_for(Option::is_some)).await;
        connected.ok()?.ok()?.clone()
    }

    async fn perform(&self, link: &NatsLink, id: CallId, call: StoreCall) -> Result<StoreReply, StoreError> {
        let shared = &self.shared;
        match call {
            StoreCall::Publish(message) => publish(link, shared, &message).await,
            StoreCall::CompareAndSet(message, expected) => {
                compare_and_set(link, shared, &message, expected).await
            }
            StoreCall::Lease(request) => lease(link, shared, request).await,
            StoreCall::Purge(run, through) => purge(link, shared, &run, through).await,
            StoreCall::ReadAll(scope) => read(link, shared, &self.events, id, scope).await,
        }
    }
}
