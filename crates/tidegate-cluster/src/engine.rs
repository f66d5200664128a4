// SPDX-License-Identifier: Apache-2.0

//! An engine connects the state machines of a process to a store.

use tokio::sync::{mpsc, watch};

use crate::{ClusterStore, StoreEvent};

/// A connection of one state machine. Numbers of calls are unique within it.
///
/// The engine begins each session, and each new connection of it, with [`StoreEvent::Connected`]. It waits while the
/// channel is full, so a slow reader slows its own reads only.
pub struct StoreSession {
    /// Takes the calls of the machine.
    pub store: Box<dyn ClusterStore + Send>,
    /// Gives the answers. The channel ends when the engine stops.
    pub events: mpsc::Receiver<StoreEvent>,
}

/// The connection of an engine to its store, for people.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EngineStatus {
    /// Whether the store is connected now.
    pub is_connected: bool,
    /// Connections that were made since the start.
    pub connections: u64,
    /// Bytes of bodies that were sent, compressed.
    pub sent_bytes: u64,
    /// Bytes of bodies that were received, compressed.
    pub received_bytes: u64,
    /// Messages that the engine or its own store refused. They are missing here.
    pub refused: RefusedMessages,
    /// The newest error; `None`: there was none since the last connection.
    pub last_error: Option<String>,
}

/// Messages that an engine or its store refused since the start, by reason.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedMessages {
    /// The store is full.
    pub full: u64,
    /// The body is larger than the limit.
    pub too_large: u64,
    /// The message is not one of the cluster, or it is not readable.
    pub invalid: u64,
}

/// Questions for the newest messages of the store, which the reads of an engine answer. The answer to a question is one to
/// all earlier questions.
#[derive(Debug)]
pub struct StoreQuestions(watch::Sender<u64>);

impl StoreQuestions {
    /// Asks a question, and gives its number.
    pub fn ask(&self) -> u64 {
        let mut number = 0;
        self.0.send_modify(|asked| {
            *asked += 1;
            number = *asked;
        });
        number
    }

    /// Changes to the number of the newest question.
    pub fn asked(&self) -> watch::Receiver<u64> {
        self.0.subscribe()
    }
}

impl Default for StoreQuestions {
    fn default() -> Self {
        Self(watch::Sender::new(0))
    }
}

/// An engine of a process. It has one connection for all sessions.
pub trait ClusterEngine: Send + Sync {
    /// Opens a session. It works from the start: calls wait for the first connection, or fail with
    /// [`StoreError::Unavailable`](crate::StoreError::Unavailable) after a few seconds.
    fn open(&self) -> StoreSession;

    /// The status.
    fn status(&self) -> EngineStatus;

    /// The questions that its reads answer with [`StoreEvent::Confirmed`]. `None`: no single store knows all messages.
    fn questions(&self) -> Option<&StoreQuestions> {
        None
    }
}
