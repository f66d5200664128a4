// SPDX-License-Identifier: Apache-2.0

//! What all tasks of an engine share.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::{EngineStatus, PageLimits, ReadScope, StoreQuestions, StoredMessage};
use tidegate_runtime::Every;

use crate::NatsConfig;
use crate::codec::NatsMessage;
use crate::store_clock::StoreClock;
use crate::stream::subject_prefix;

/// The same problem is logged this often at most.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// After so many connections in a row without a read that became current, the client may not be able to read a message.
const MAX_FAILED: u32 = 3;

/// The connections in a row in which reads failed before one of them was current.
#[derive(Default)]
pub(crate) struct FailedReads(Mutex<FailedReadCount>);

#[derive(Default)]
struct FailedReadCount {
    /// The number of the last connection that counts.
    connection: u64,
    failed: u32,
    /// The highest sequence that reads of a scope have given; 0: none. Reads give messages in the order of the stream, and
    /// none goes past a message that ends its connection. So such a message lies behind it.
    given: BTreeMap<ReadScope, u64>,
}

impl FailedReads {
    /// Notes that a read failed in the connection with this number.
    fn note_failed(&self, connection: u64, scope: ReadScope) {
        let mut count = self.0.lock();
        // It may have ended before its first message.
        count.given.entry(scope).or_default();
        if count.connection != connection {
            count.connection = connection;
            count.failed += 1;
        }
    }

    /// Notes that a read has given the message with this sequence.
    pub(crate) fn note_given(&self, scope: ReadScope, sequence: u64) {
        let mut count = self.0.lock();
        let given = count.given.entry(scope).or_default();
        *given = sequence.max(*given);
    }

    /// Notes that a read is current.
    pub(crate) fn note_current(&self) {
        let mut count = self.0.lock();
        count.failed = 0;
        // The store may be put back to an earlier state.
        count.given.clear();
    }

    /// If there were too many, the highest sequence that reads of each scope have given. The count begins again.
    pub(crate) fn take_failed(&self) -> BTreeMap<ReadScope, u64> {
        let mut count = self.0.lock();
        if count.failed < MAX_FAILED {
            return BTreeMap::new();
        }
        count.failed = 0;
        std::mem::take(&mut count.given)
    }
}

pub(crate) struct NatsShared {
    pub(crate) config: NatsConfig,
    pub(crate) cluster: String,
    pub(crate) clock: StoreClock,
    pub(crate) reads: FailedReads,
    pub(crate) questions: StoreQuestions,
    status: Mutex<EngineStatus>,
    /// The first permission that the user lacks in the present connection.
    denied: Mutex<Option<String>>,
    failures: Every,
    unreadable: Every,
}

impl NatsShared {
    pub(crate) fn new(config: NatsConfig, cluster: &str) -> Self {
        Self {
            config,
            cluster: cluster.to_owned(),
            clock: StoreClock::new(),
            reads: FailedReads::default(),
            questions: StoreQuestions::default(),
            status: Mutex::default(),
            denied: Mutex::default(),
            failures: Every::new(LOG_INTERVAL),
            unreadable: Every::new(LOG_INTERVAL),
        }
    }

    pub(crate) fn status(&self) -> EngineStatus {
        self.status.lock().clone()
    }

    /// Why NATS is not connected, for the error of a call.
    pub(crate) fn outage(&self) -> String {
        let error = self.status.lock().last_error.clone();
        error.unwrap_or_else(|| "the engine has not connected to NATS yet".to_owned())
    }

    pub(crate) fn note_connected(&self, server: &str) {
        self.clock.reset();
        let mut status = self.status.lock();
        status.is_connected = true;
        status.connections += 1;
        status.last_error = None;
        tracing::info!(cluster = self.cluster, server, "connected to NATS");
    }

    pub(crate) fn note_lost(&self) {
        let mut status = self.status.lock();
        status.is_connected = false;
        let error = status
            .last_error
            .get_or_insert_with(|| "the connection to NATS is lost".to_owned());
        tracing::warn!(cluster = self.cluster, error, "the connection to NATS is lost");
    }

    pub(crate) fn note_failed(&self, error: &dyn Display) {
        let error = self.explain(error.to_string());
        if self.failures.ready().is_some() {
            tracing::warn!(cluster = self.cluster, error, "can't connect to NATS");
        }
        self.note_error(error);
    }

    /// A new connection begins. Its user may have other permissions.
    pub(crate) fn allow(&self) {
        *self.denied.lock() = None;
    }

    pub(crate) fn note_denied(&self, error: String) {
        self.denied.lock().get_or_insert(error);
    }

    /// The error, and the permissions to grant if the user lacks some.
    pub(crate) fn explain(&self, error: String) -> String {
        match &*self.denied.lock() {
            Some(denied) => format!(
                "{error}: {denied}: grant the user to publish on `{}.>` and `$JS.API.>`, and to subscribe to `_INBOX.>`",
                subject_prefix(&self.cluster)
            ),
            None => error,
        }
    }

    pub(crate) fn note_error(&self, error: String) {
        self.status.lock().last_error = Some(error);
    }

    pub(crate) fn note_sent(&self, bytes: usize) {
        self.status.lock().sent_bytes += bytes as u64;
    }

    /// Notes that a read failed in the present connection.
    pub(crate) fn note_failed_read(&self, scope: ReadScope) {
        let connection = self.status.lock().connections;
        self.reads.note_failed(connection, scope);
    }

    /// Counts and logs a message that was removed, because no client can read it.
    pub(crate) fn note_removed(&self, subject: &str, sequence: u64) {
        self.status.lock().refused.invalid += 1;
        tracing::error!(
            subject,
            sequence,
            "removed a message whose headers or subject are not valid: it kept all replicas from reading"
        );
    }

    /// Decodes a message and notes its time and its size. A message that is not readable is logged; the reader counts it.
    pub(crate) fn receive(&self, message: NatsMessage<'_>) -> StoredMessage {
        self.status.lock().received_bytes += message.payload.len() as u64;
        let (stored, result) = message.decode(PageLimits::default());
        self.clock.note(&stored);
        if let Err(error) = result
            && let Some(more) = self.unreadable.ready()
        {
            let subject = &stored.message.subject;
            let (subject, sequence) = (subject.as_str(), stored.sequence);
            tracing::warn!(subject, sequence, %error, more, "a message of the cluster is not readable");
        }
        stored
    }
}

#[cfg(test)]
mod tests {
    use tidegate_cluster::ReadScope::{Everything, Retained};

    use super::*;

    #[test]
    fn the_highest_sequence_of_each_scope_is_known_after_three_failures() {
        let reads = FailedReads::default();
        for (connection, given) in [(1, 768), (2, 3), (3, 700)] {
            assert_eq!(reads.take_failed(), BTreeMap::new());
            reads.note_given(Everything, given);
            reads.note_failed(connection, Everything);
            // Another read of the same connection, which ended before its first message.
            reads.note_failed(connection, Retained);
        }
        let expected = BTreeMap::from([(Everything, 768), (Retained, 0)]);
        assert_eq!(reads.take_failed(), expected);
        assert_eq!(reads.take_failed(), BTreeMap::new(), "the count begins again");
    }

    #[test]
    fn failures_and_sequences_before_a_current_read_do_not_count() {
        let reads = FailedReads::default();
        for connection in 1..=2 {
            reads.note_given(Everything, 9_000);
            reads.note_failed(connection, Everything);
        }
        reads.note_current();
        for connection in 3..=5 {
            assert_eq!(reads.take_failed(), BTreeMap::new());
            reads.note_given(Everything, 7);
            reads.note_failed(connection, Everything);
        }
        assert_eq!(reads.take_failed(), BTreeMap::from([(Everything, 7)]));
    }
}
