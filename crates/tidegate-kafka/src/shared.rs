// SPDX-License-Identifier: Apache-2.0

//! The state that the tasks of an engine share: the connection, the counts, the index of pages.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tidegate_cluster::{EngineStatus, StoreError, StoreQuestions};
use tidegate_runtime::Every;
use tokio::sync::{mpsc, watch};

use crate::KafkaConfig;
use crate::client::{Client, ClientError};
use crate::page_index::PageIndex;
use crate::record::TopicLayout;
use crate::records::RecordRequest;

/// A call waits this long for a connection.
const CONNECTION_WAIT: Duration = Duration::from_secs(3);

/// The same problem is logged this often at most.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// The parts of an engine that its tasks share.
pub(crate) struct EngineState {
    pub(crate) config: KafkaConfig,
    pub(crate) layout: TopicLayout,
    pub(crate) status: Mutex<EngineStatus>,
    pub(crate) questions: StoreQuestions,
    pub(crate) index: Mutex<PageIndex>,
    /// The tasks that write records: claims with leases, and retained totals.
    pub(crate) claims: mpsc::Sender<RecordRequest>,
    pub(crate) retained: mpsc::Sender<RecordRequest>,
    pub(crate) connect_log: Every,
    pub(crate) index_log: Every,
    pub(crate) skip_log: Every,
}

impl EngineState {
    pub(crate) fn new(
        config: KafkaConfig,
        layout: TopicLayout,
        claims: mpsc::Sender<RecordRequest>,
        retained: mpsc::Sender<RecordRequest>,
    ) -> Self {
        Self {
            status: Mutex::default(),
            questions: StoreQuestions::default(),
            index: Mutex::new(PageIndex::new(config.max_index_bytes.as_usize())),
            config,
            layout,
            claims,
            retained,
            connect_log: Every::new(LOG_INTERVAL),
            index_log: Every::new(LOG_INTERVAL),
            skip_log: Every::new(LOG_INTERVAL),
        }
    }

    pub(crate) fn note_sent(&self, bytes: usize) {
        self.status.lock().sent_bytes += bytes as u64;
    }

    pub(crate) fn note_received(&self, bytes: usize) {
        self.status.lock().received_bytes += bytes as u64;
    }

    /// Counts a batch that a reader skips, and logs it.
    pub(crate) fn note_skipped(&self, partition: i32, offset: i64) {
        self.status.lock().refused.invalid += 1;
        if let Some(more) = self.skip_log.ready() {
            tracing::warn!(
                cluster = self.layout.cluster,
                partition,
                offset,
                more,
                "the reader skips records of the topic that are not readable"
            );
        }
    }

    /// The error of a call without a connection.
    pub(crate) fn outage(&self) -> StoreError {
        let error = self.status.lock().last_error.clone();
        StoreError::Unavailable(match error {
            Some(error) => format!("Kafka is not connected: {error}"),
            None => "Kafka is not connected yet".to_owned(),
        })
    }

    /// The error for a state machine. People see it in the status.
    pub(crate) fn failed(&self, error: ClientError) -> StoreError {
        match error {
            ClientError::TooLarge => StoreError::TooLarge,
            error => {
                let message = error.to_string();
                self.status.lock().last_error = Some(message.clone());
                StoreError::Unavailable(message)
            }
        }
    }
}

/// The connection of an engine, as its tasks see it.
#[derive(Clone)]
pub(crate) struct Link(pub(crate) watch::Receiver<Option<Arc<Client>>>);

impl Link {
    /// The present connection. Waits a few seconds for it.
    pub(crate) async fn client(&mut self) -> Option<Arc<Client>> {
        let connected = tokio::time::timeout(CONNECTION_WAIT, self.0.wait_for(Option::is_some)).await;
        connected.ok()?.ok()?.clone()
    }

    /// The present connection, if there is one.
    pub(crate) fn present(&self) -> Option<Arc<Client>> {
        self.0.borrow().clone()
    }

    /// Ends when this connection has ended.
    pub(crate) async fn lost(&mut self, client: &Arc<Client>) {
        let is_other = |present: &Option<Arc<Client>>| {
            present
                .as_ref()
                .is_none_or(|present| !Arc::ptr_eq(present, client))
        };
        // An error means that the engine has ended.
        let _ = self.0.wait_for(is_other).await;
    }
}
