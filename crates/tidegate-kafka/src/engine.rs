// SPDX-License-Identifier: Apache-2.0

//! The engine: it connects, looks after the connection, and opens sessions.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use tidegate_cluster::{ClusterEngine, EngineStatus, StoreQuestions, StoreSession};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use crate::client::{Client, ClientError};
use crate::record::TopicLayout;
use crate::shared::{EngineState, Link};
use crate::{KafkaConfig, KafkaError, records, session};

/// The pause before the second attempt to connect. It doubles up to the longest one.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The interval at which the engine checks the connection.
const PROBE_INTERVAL: Duration = Duration::from_secs(2);

/// The most requests for records that wait.
const RECORD_QUEUE: usize = 64;

/// The engine of a process. Dropping it ends its tasks.
pub struct KafkaEngine {
    shared: Arc<EngineState>,
    link: Link,
    runtime: Handle,
    /// It has the other end of the link: without it all tasks end.
    supervisor: JoinHandle<()>,
}

impl KafkaEngine {
    /// Starts the engine of a cluster with this number of partitions, within a tokio runtime. It connects in the background.
    ///
    /// # Errors
    /// Options that are not valid or contradict each other, or no runtime.
    pub fn start(config: KafkaConfig, cluster: &str, partitions: u16) -> Result<Self, KafkaError> {
        config.validate_for(cluster, partitions)?;
        let runtime = Handle::try_current().map_err(|_| KafkaError::Runtime)?;
        let layout = TopicLayout {
            cluster: cluster.to_owned(),
            pages: partitions,
        };
        let (claims, claim_requests) = mpsc::channel(RECORD_QUEUE);
        let (retained, retained_requests) = mpsc::channel(RECORD_QUEUE);
        let (places, requests) = (layout.record_partitions(), [claim_requests, retained_requests]);
        let shared = Arc::new(EngineState::new(config, layout, claims, retained));
        let (connection, link) = watch::channel(None);
        let link = Link(link);
        for (partition, requests) in places.into_iter().zip(requests) {
            runtime.spawn(records::run(shared.clone(), partition, link.clone(), requests));
        }
        let supervisor = runtime.spawn(supervise(shared.clone(), connection));
        Ok(Self {
            shared,
            link,
            runtime,
            supervisor,
        })
    }
}

impl ClusterEngine for KafkaEngine {
    fn open(&self) -> StoreSession {
        session::open(self.shared.clone(), self.link.clone(), &self.runtime)
    }

    fn status(&self) -> EngineStatus {
        self.shared.status.lock().clone()
    }

    fn questions(&self) -> Option<&StoreQuestions> {
        Some(&self.shared.questions)
    }
}

impl Drop for KafkaEngine {
    fn drop(&mut self) {
        self.supervisor.abort();
    }
}

/// Connects again and again.
async fn supervise(shared: Arc<EngineState>, connection: watch::Sender<Option<Arc<Client>>>) {
    let mut pause = FIRST_PAUSE;
    loop {
        match Client::connect(&shared.config, &shared.layout).await {
            Ok(client) => {
                pause = FIRST_PAUSE;
                let client = Arc::new(client);
                note_connection(&shared);
                connection.send_replace(Some(client.clone()));
                let error = probe(&shared, &client).await;
                connection.send_replace(None);
                note_loss(&shared, &error);
            }
            Err(error) => note_failure(&shared, &error),
        }
        let jitter = rand::rng().random_range(0.5..1.0);
        tokio::time::sleep(pause.mul_f64(jitter)).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Asks for the end of the log until a request fails.
async fn probe(shared: &EngineState, client: &Client) -> ClientError {
    let partitions = [shared.layout.claims()];
    loop {
        tokio::time::sleep(PROBE_INTERVAL).await;
        if let Err(error) = client.ends(&partitions).await {
            return error;
        }
    }
}

fn note_connection(shared: &EngineState) {
    let mut status = shared.status.lock();
    status.is_connected = true;
    status.connections += 1;
    status.last_error = None;
    drop(status);
    tracing::info!(cluster = shared.layout.cluster, brokers = ?shared.config.brokers, "connected to Kafka");
}

fn note_loss(shared: &EngineState, error: &ClientError) {
    let mut status = shared.status.lock();
    status.is_connected = false;
    status.last_error = Some(error.to_string());
    drop(status);
    tracing::warn!(cluster = shared.layout.cluster, %error, "the connection to Kafka is lost: the engine connects again");
}

fn note_failure(shared: &EngineState, error: &ClientError) {
    shared.status.lock().last_error = Some(error.to_string());
    if let Some(more) = shared.connect_log.ready() {
        tracing::warn!(cluster = shared.layout.cluster, %error, more, "can't connect to Kafka: the engine tries again");
    }
}
