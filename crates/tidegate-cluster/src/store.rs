// SPDX-License-Identifier: Apache-2.0

//! The store of a cluster: five calls, as values. An engine carries them out and reports the answers as events.
//!
//! The store keeps the last message of each subject. It gives each message of a read at least once, in any order. If a
//! read breaks off, the engine starts it again.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_engine::UnixNanos;

use crate::RunName;

/// A message for the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreMessage {
    /// The subject, as [`crate::Subject::text`] writes it.
    pub subject: String,
    /// Names and values of headers.
    pub headers: Vec<(String, String)>,
    /// The content.
    pub body: Bytes,
}

/// The memory of a message beside its texts, in bytes: nodes of maps and headers of allocations.
pub(crate) const OVERHEAD_BYTES: usize = 512;

impl StoreMessage {
    /// The memory that the message takes in a map by subject, in bytes.
    pub fn memory_bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        // The map has the subject once more.
        OVERHEAD_BYTES + 2 * self.subject.len() + headers.sum::<usize>() + self.body.len()
    }
}

/// A message that the store has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredMessage {
    /// The message.
    pub message: StoreMessage,
    /// Its number in the store; at least 1. Later messages have higher numbers, unless the store has lost some.
    pub sequence: u64,
    /// When the store took it, by the clock of the store.
    pub time: UnixNanos,
}

/// The number of a call. A machine never uses one twice.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

impl CallId {
    /// The next number.
    pub(crate) fn advance(&mut self) -> Self {
        self.0 += 1;
        *self
    }
}

/// The messages that a read gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ReadScope {
    /// All messages that the store has, and then all that come. The read does not end.
    Everything,
    /// The retained totals that the store has. The read ends.
    Retained,
}

/// A record that the store forgets after a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRequest {
    /// The record. Its body names the holder.
    pub message: StoreMessage,
    /// The sequence of the current record, 0 = there is none.
    pub expected: u64,
    /// The store forgets the record this long after its last write.
    pub term: Duration,
}

/// A call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreCall {
    /// Stores a page. Answer: [`StoreReply::Stored`].
    Publish(StoreMessage),
    /// Reads messages, which come as [`StoreEvent::Read`]. Answer at the end: [`StoreReply::ReadEnd`].
    ReadAll(ReadScope),
    /// Stores a record if the last message of its subject has this sequence, 0 = there is none. Answer:
    /// [`StoreReply::Stored`] or [`StoreError::Conflict`].
    CompareAndSet(StoreMessage, u64),
    /// Takes or extends a lease, by the same comparison.
    Lease(LeaseRequest),
    /// Removes the pages of a run up to this sequence; 0: none. Answer: [`StoreReply::Purged`].
    Purge(RunName, u64),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreReply {
    /// The message has this sequence.
    Stored(u64),
    /// The read has given all messages.
    ReadEnd,
    /// The pages are gone.
    Purged,
}

/// Why a call failed. A call that failed may have taken effect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum StoreError {
    /// The last message of the subject has another sequence. This is it.
    #[error("another writer has changed the record")]
    Conflict(Option<Box<StoredMessage>>),
    /// The message is larger than the store allows.
    #[error("the message is larger than the store allows: raise the limit of the store")]
    TooLarge,
    /// The store does not answer, or it has no room.
    #[error("the store is not available: {0}")]
    Unavailable(String),
}

/// An event of a call, for the state machine that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreEvent {
    /// A call has ended. Each call ends once, unless it is a read of everything with a connection.
    Done(CallId, Result<StoreReply, StoreError>),
    /// A message of a read.
    Read(CallId, StoredMessage),
    /// A read has given all that the store had at a moment in the last 1.5 s. An engine with a connection says it about once
    /// a second. It need not have given what came since: where many write, there is always something on its way.
    ///
    /// The time for which the read was behind at most: it may have missed a message that was replaced twice in this time. Zero:
    /// it has missed none of those that came while it read, for example because it reads a log.
    ///
    /// When the engine said it: the event waits while the state machine is slow, and says nothing of this time.
    Current(CallId, Duration, Instant),
    /// A read has given all that the store had when this question of [`StoreQuestions`](crate::StoreQuestions) was asked. The
    /// time is that of [`Self::Current`].
    Confirmed(CallId, Duration, u64),
    /// The connection to the store is new. The store may have lost messages. It comes before each answer that the new
    /// connection gives: a sender must not count such an answer as one of the earlier connection.
    Connected,
}

/// An engine: NATS, Kafka, or the replicas themselves.
pub trait ClusterStore {
    /// Begins a call. Its [`StoreEvent`]s come later.
    fn start(&mut self, id: CallId, call: StoreCall);
}
