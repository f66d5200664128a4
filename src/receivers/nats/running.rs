// SPDX-License-Identifier: Apache-2.0

//! The tasks of the receiver, from its start to its stop: the connection, and those of each signal.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_nats::NatsConnection;
use tidegate_nats::transport::{Acknowledgement, TransportLink};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::{info, warn};

use super::config::NatsReceiverConfig;
use super::reader::{ERROR_WAIT, MAX_ERROR_WAIT, SignalReader, WAITING};
use super::signal::{SignalContext, Stopping};
use crate::component::Shared;

/// How long messages on their way to the pipelines may end at the stop. One that is given back while an exporter sends it
/// arrives twice.
const QUEUE_TIME: Duration = Duration::from_secs(5);

pub(super) struct NatsRun {
    pub(super) config: Arc<NatsReceiverConfig>,
    pub(super) receiver: Arc<str>,
    pub(super) shared: Arc<Shared>,
    pub(super) signals: Vec<Arc<SignalContext>>,
    pub(super) links: watch::Sender<Option<Arc<TransportLink>>>,
    pub(super) stopping: Stopping,
}

impl NatsRun {
    pub(super) async fn run(self) {
        let mut tasks = JoinSet::new();
        for context in &self.signals {
            self.start(context, &mut tasks);
        }
        let mut stopping = self.stopping.clone();
        let connection = self.config.connection();
        tokio::select! {
            () = self.keep_connected(&connection) => {}
            _ = stopping.wait_for(Option::is_some) => {}
        }
        self.end(tasks).await;
    }

    /// Starts the tasks of a signal.
    fn start(&self, context: &Arc<SignalContext>, tasks: &mut JoinSet<()>) {
        let (queue, waiting) = mpsc::channel(WAITING);
        let signal = context.route.entry.signal();
        let reader = SignalReader {
            context: context.clone(),
            options: self.config.consumer(signal),
            fetch_bytes: self.config.max_fetch_size.as_usize(),
            queue,
            shared: self.shared.clone(),
            stopping: self.stopping.clone(),
        };
        tasks.spawn(reader.run());
        let most = self.config.max_in_flight.get();
        tasks.spawn(context.clone().hand_on_all(waiting, most, self.stopping.clone()));
        tasks.spawn(context.clone().extend(self.stopping.clone()));
    }

    /// Makes a connection, and a new one after each loss. It does not end.
    async fn keep_connected(&self, connection: &NatsConnection) {
        let receiver = &*self.receiver;
        let mut wait = ERROR_WAIT;
        loop {
            match TransportLink::connect(connection).await {
                Ok(link) => {
                    let link = Arc::new(link);
                    info!(receiver, server = link.server(), "connected to NATS");
                    wait = ERROR_WAIT;
                    self.links.send_replace(Some(link.clone()));
                    link.lost().await;
                    self.links.send_replace(None);
                    warn!(
                        receiver,
                        "the connection to NATS is lost: the receiver makes a new one"
                    );
                }
                Err(error) => warn!(receiver, %error, "NATS can't be read: the receiver tries again"),
            }
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(MAX_ERROR_WAIT);
        }
    }

    /// Ends the tasks and gives the messages without an answer back to the server.
    async fn end(&self, mut tasks: JoinSet<()>) {
        let deadline = *self.stopping.borrow();
        let deadline = deadline.unwrap_or_else(Instant::now);
        let left = || deadline.saturating_duration_since(Instant::now());
        let all = async { while tasks.join_next().await.is_some() {} };
        let _ = tokio::time::timeout(QUEUE_TIME.min(left() / 2), all).await;
        tasks.shutdown().await;
        let link = self.links.send_replace(None);
        let Some(link) = link else { return };
        for context in &self.signals {
            for reply in context.deliveries.give_up() {
                link.answer(&reply, Acknowledgement::Again).await;
            }
        }
        link.flush(left()).await;
    }
}
