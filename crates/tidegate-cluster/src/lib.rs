// SPDX-License-Identifier: Apache-2.0

//! The state machines of a cluster of gateways. Producers publish their totals as pages, replicas read all pages, and a leader
//! folds ended runs.
//!
//! [`PageSender`], [`PageReader`] and [`ClusterLeader`] do no I/O and have no clock. They give [`StoreCall`]s, and a driver
//! passes the answers and the time back in. [`ClusterStore`] is what an engine (NATS, Kafka, direct) implements. [`local`] has an
//! engine for one process. Only it has tasks and asks for the time.
//!
//! A message carries totals and not events. So a lost, repeated or late message costs freshness, and never a count.
//! Decision 0031 gives the reasons.

#![forbid(unsafe_code)]

mod engine;
mod leader;
pub mod local;
mod message_store;
mod name;
mod page;
mod partitions;
mod reader;
mod sender;
#[cfg(test)]
mod simulation;
mod store;
#[cfg(any(test, feature = "testing"))]
pub mod testing;

pub use engine::{ClusterEngine, EngineStatus, RefusedMessages, StoreQuestions, StoreSession};
pub use leader::{ClusterLeader, DeltaClaim, DeltaStats, LeaderConfig, LeaderStats};
pub use message_store::{MessageStore, MessageStoreLimits};
pub use name::{MAX_NAME_BYTES, NameError, ProducerName, RunName, Subject};
pub use page::{
    DecodedPage, MAX_PAGE_SERIES, MERGE_KEY, PRODUCER_KEY, PageError, PageHeaders, PageKind, PageLimits,
    PageReport, PageWriter, RecordDigest, RetainedSeries, WindowReport, decode_page, decode_record,
    encode_record,
};
pub use partitions::{PartitionMismatch, RefusedPartitions};
pub use reader::{
    PageReader, ProducerCounts, ProducerStatus, ReaderConfig, ReaderStats, ReplicaState, ReplicaStatus,
};
pub use sender::{PageSender, SenderConfig, SenderStats, SentItem};
pub use store::{
    CallId, ClusterStore, LeaseRequest, ReadScope, StoreCall, StoreError, StoreEvent, StoreMessage,
    StoreReply, StoredMessage,
};

/// A duration in nanoseconds, at most `u64::MAX` (584 years).
fn nanos(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
