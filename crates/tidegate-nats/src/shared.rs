// SPDX-License-Identifier: Apache-2.0

//! What all tasks of an engine share.

use std::fmt::Display;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::{EngineStatus, PageLimits, StoredMessage};
use tidegate_runtime::Every;

use crate::NatsConfig;
use crate::codec::NatsMessage;
use crate::store_clock::StoreClock;
use crate::stream::subject_prefix;

/// The same problem is logged this often at most.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A read that ends with its connection after less than this time may have met a message that the client can't read.
const SHORT_READ: Duration = Duration::from_secs(10);

/// So many short reads in a row are no accident.
const MAX_SHORT_READS: u32 = 3;

/// The short reads in a row that ended with their connections.
#[derive(Default)]
pub(crate) struct LostReads(AtomicU32);

impl LostReads {
    /// Notes that a read ended with its connection.
    pub(crate) fn note_lost(&self, took: Duration) {
        if took < SHORT_READ {
            self.0.fetch_add(1, Relaxed);
        } else {
            self.0.store(0, Relaxed);
        }
    }

    /// Whether there were too many. The count begins again.
    pub(crate) fn has_failed(&self) -> bool {
        let has_failed = self.0.load(Relaxed) >= MAX_SHORT_READS;
        if has_failed {
            self.0.store(0, Relaxed);
        }
        has_failed
    }
}

pub(crate) struct NatsShared {
    pub(crate) config: NatsConfig,
    pub(crate) cluster: String,
    pub(crate) clock: StoreClock,
    pub(crate) reads: LostReads,
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
            reads: LostReads::default(),
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
