// SPDX-License-Identifier: Apache-2.0

//! A session of an engine that has the messages in memory. Its task reads the store and carries out calls.

use std::collections::HashMap;
use std::future::{Future, pending, ready};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, watch};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{MissedTickBehavior, interval};

use super::SharedStore;
use crate::{
    CallId, ClusterStore, MessageStore, ReadScope, StoreCall, StoreError, StoreEvent, StoreQuestions,
    StoreReply, StoreSession, StoredMessage,
};

/// The most calls that wait, the most that are carried out at a time, and the most events that wait in a session.
const QUEUE_LENGTH: usize = 256;

/// The most messages that are read while the store is locked.
const BATCH: usize = 64;

/// The interval of [`StoreEvent::Current`].
const CURRENT_INTERVAL: Duration = Duration::from_secs(1);

/// What the sessions of an engine need of it.
pub trait SessionBackend: Send + Sync + 'static {
    /// The store to read; `None`: the engine has none, and reads fail.
    fn store(&self) -> Option<&SharedStore>;

    /// Carries out a call that is not a read.
    fn call(self: Arc<Self>, call: StoreCall) -> impl Future<Output = Result<StoreReply, StoreError>> + Send;

    /// Whether the store has all that other stores have.
    fn is_complete(&self) -> bool {
        true
    }

    /// Changes with each new connection to other stores; `None`: the engine has no connections.
    fn connections(&self) -> Option<watch::Receiver<u64>> {
        None
    }

    /// The questions for its newest messages; `None`: other stores have some of them.
    fn questions(&self) -> Option<&StoreQuestions> {
        None
    }

    /// The message as its reader gets it.
    fn received(&self, stored: StoredMessage) -> StoredMessage {
        stored
    }
}

/// Opens a session. It ends when the sender of `lifetime` is dropped, or when the session is. Must be called within a
/// tokio runtime.
pub fn open_session<B: SessionBackend>(backend: Arc<B>, mut lifetime: watch::Receiver<()>) -> StoreSession {
    let (to_calls, calls) = mpsc::channel(QUEUE_LENGTH);
    let (to_events, events) = mpsc::channel(QUEUE_LENGTH);
    let store = SessionStore {
        calls: to_calls,
        events: to_events.downgrade(),
    };
    let session = Session {
        changes: backend.store().map(SharedStore::changes),
        connections: backend.connections(),
        questions: backend.questions().map(StoreQuestions::asked),
        backend,
        events: to_events,
        running: JoinSet::new(),
        call_ids: HashMap::new(),
        follow: None,
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = session.run(calls) => {}
            () = async { while lifetime.changed().await.is_ok() {} } => {}
        }
    });
    StoreSession {
        store: Box::new(store),
        events,
    }
}

struct SessionStore {
    calls: mpsc::Sender<(CallId, StoreCall)>,
    /// The session's task has the sender, so the channel ends with it.
    events: mpsc::WeakSender<StoreEvent>,
}

impl ClusterStore for SessionStore {
    fn start(&mut self, id: CallId, call: StoreCall) {
        if self.calls.try_send((id, call)).is_err()
            && let Some(events) = self.events.upgrade()
        {
            // The answer waits for room, and the machine does not. Each machine limits its calls without an answer, and so
            // these tasks.
            tokio::spawn(async move {
                let error = StoreError::Unavailable("too many calls wait".to_owned());
                let _ = events.send(StoreEvent::Done(id, Err(error))).await;
            });
        }
    }
}

/// A read of everything.
struct Follow {
    id: CallId,
    /// The sequence of the last message that it gave.
    sequence: u64,
    /// The last sequence of the store at the last question; `None`: the reader knows that it has all until there.
    goal: Option<u64>,
    /// The last question that was asked before the goal; 0: none.
    question: u64,
}

/// The next thing to do.
enum SessionStep {
    Call(CallId, StoreCall),
    Answer(Result<(Id, Result<StoreReply, StoreError>), JoinError>),
    Read,
    Question,
    Connected,
}

/// The session has ended.
struct SessionEnd;

impl<T> From<mpsc::error::SendError<T>> for SessionEnd {
    fn from(_: mpsc::error::SendError<T>) -> Self {
        Self
    }
}

struct Session<B> {
    backend: Arc<B>,
    changes: Option<watch::Receiver<()>>,
    connections: Option<watch::Receiver<u64>>,
    questions: Option<watch::Receiver<u64>>,
    events: mpsc::Sender<StoreEvent>,
    running: JoinSet<Result<StoreReply, StoreError>>,
    /// The calls of the running tasks.
    call_ids: HashMap<Id, CallId>,
    follow: Option<Follow>,
}

impl<B: SessionBackend> Session<B> {
    async fn run(mut self, mut calls: mpsc::Receiver<(CallId, StoreCall)>) -> Result<(), SessionEnd> {
        self.events.send(StoreEvent::Connected).await?;
        let mut tick = interval(CURRENT_INTERVAL);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let has_more = self.has_more();
            let step = tokio::select! {
                call = calls.recv(), if self.running.len() < QUEUE_LENGTH => {
                    let (id, call) = call.ok_or(SessionEnd)?;
                    SessionStep::Call(id, call)
                }
                Some(answer) = self.running.join_next_with_id() => SessionStep::Answer(answer),
                () = ready(()), if has_more => SessionStep::Read,
                () = changed(&mut self.changes), if self.follow.is_some() && !has_more => SessionStep::Read,
                () = changed(&mut self.connections) => SessionStep::Connected,
                () = changed(&mut self.questions) => SessionStep::Question,
                _ = tick.tick() => SessionStep::Question,
            };
            match step {
                SessionStep::Call(id, call) => self.begin(id, call).await?,
                SessionStep::Answer(answer) => {
                    // It may be an answer of the new connection.
                    if take_change(&mut self.connections) {
                        self.events.send(StoreEvent::Connected).await?;
                    }
                    self.answer(answer).await?;
                }
                SessionStep::Read => self.read().await?,
                SessionStep::Question => self.set_goal().await?,
                SessionStep::Connected => self.events.send(StoreEvent::Connected).await?,
            }
        }
    }

    async fn begin(&mut self, id: CallId, call: StoreCall) -> Result<(), SessionEnd> {
        let StoreCall::ReadAll(scope) = call else {
            let backend = self.backend.clone();
            let task = self.running.spawn(async move { backend.call(call).await });
            self.call_ids.insert(task.id(), id);
            return Ok(());
        };
        let Some(store) = self.backend.store() else {
            let error = StoreError::Unavailable("this engine sends only: it has no store".to_owned());
            return Ok(self.events.send(StoreEvent::Done(id, Err(error))).await?);
        };
        if scope == ReadScope::Everything {
            self.follow = Some(Follow {
                id,
                sequence: 0,
                question: asked(self.questions.as_ref()),
                goal: Some(store.read(MessageStore::sequence)),
            });
            return self.read().await;
        }
        let messages: Vec<_> = store.read(|store| store.messages(scope).cloned().collect());
        self.give(id, messages).await?;
        Ok(self
            .events
            .send(StoreEvent::Done(id, Ok(StoreReply::ReadEnd)))
            .await?)
    }

    /// Gives the result of a call. A call that panics has failed: without an answer, its machine would wait forever.
    async fn answer(
        &mut self,
        answer: Result<(Id, Result<StoreReply, StoreError>), JoinError>,
    ) -> Result<(), SessionEnd> {
        let (task, result) = answer.unwrap_or_else(|error| {
            let panicked = StoreError::Unavailable("the call has panicked".to_owned());
            (error.id(), Err(panicked))
        });
        if let Some(id) = self.call_ids.remove(&task) {
            self.events.send(StoreEvent::Done(id, result)).await?;
        }
        Ok(())
    }

    fn has_more(&self) -> bool {
        let (Some(follow), Some(store)) = (&self.follow, self.backend.store()) else {
            return false;
        };
        store.read(|store| store.after(follow.sequence).next().is_some())
    }

    /// Gives some messages of the read of everything.
    async fn read(&mut self) -> Result<(), SessionEnd> {
        let (Some(follow), Some(store)) = (&mut self.follow, self.backend.store()) else {
            return Ok(());
        };
        let messages: Vec<_> =
            store.read(|store| store.after(follow.sequence).take(BATCH).cloned().collect());
        if let Some(last) = messages.last() {
            follow.sequence = last.sequence;
        }
        let id = follow.id;
        self.give(id, messages).await?;
        self.report_goal().await
    }

    async fn give(&self, id: CallId, messages: Vec<StoredMessage>) -> Result<(), SessionEnd> {
        for stored in messages {
            let stored = self.backend.received(stored);
            self.events.send(StoreEvent::Read(id, stored)).await?;
        }
        Ok(())
    }

    /// Sets a new goal. An older one that is not reached says nothing of the present.
    async fn set_goal(&mut self) -> Result<(), SessionEnd> {
        if let (Some(follow), Some(store)) = (&mut self.follow, self.backend.store()) {
            follow.question = asked(self.questions.as_ref());
            follow.goal = Some(store.read(MessageStore::sequence));
        }
        self.report_goal().await
    }

    /// Says once that the goal is reached.
    async fn report_goal(&mut self) -> Result<(), SessionEnd> {
        let (Some(follow), Some(store)) = (&mut self.follow, self.backend.store()) else {
            return Ok(());
        };
        let Some(goal) = follow.goal else {
            return Ok(());
        };
        let next = store.read(|store| store.after(follow.sequence).next().map(|stored| stored.sequence));
        if next.is_some_and(|next| next <= goal) || !self.backend.is_complete() {
            return Ok(());
        }
        follow.goal = None;
        let said = Instant::now();
        // A new message of a subject takes the place of one before the goal, and lies behind it.
        let rest: Vec<StoredMessage> = store.read(|store| store.after(follow.sequence).cloned().collect());
        if let Some(last) = rest.last() {
            follow.sequence = last.sequence;
        }
        let (id, question) = (follow.id, follow.question);
        self.give(id, rest).await?;
        // A slow state machine takes the rest late.
        self.events
            .send(StoreEvent::Current(id, Duration::ZERO, said))
            .await?;
        if question > 0 {
            let confirmed = StoreEvent::Confirmed(id, Duration::ZERO, question);
            self.events.send(confirmed).await?;
        }
        Ok(())
    }
}

/// The number of the newest question. A goal that is read later may include newer messages.
fn asked(questions: Option<&watch::Receiver<u64>>) -> u64 {
    questions.map_or(0, |questions| *questions.borrow())
}

/// Whether the value has changed since the last call. It does not wait.
fn take_change<T>(changes: &mut Option<watch::Receiver<T>>) -> bool {
    changes.as_mut().is_some_and(|changes| {
        let has_changed = changes.has_changed().unwrap_or(false);
        if has_changed {
            changes.mark_unchanged();
        }
        has_changed
    })
}

/// Returns when the value has changed since the last call.
async fn changed<T>(changes: &mut Option<watch::Receiver<T>>) {
    let has_changed = match changes {
        Some(changes) => changes.changed().await.is_ok(),
        None => false,
    };
    // The session ends with the engine, and so with its senders.
    if !has_changed {
        pending::<()>().await;
    }
}
