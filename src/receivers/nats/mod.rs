// SPDX-License-Identifier: Apache-2.0

//! `nats`: reads metrics, traces and logs from streams of NATS JetStream.
//!
//! Each signal has a durable consumer, a task that asks for its messages (`reader.rs`) and a queue to the pipelines
//! (`signal.rs`). So a signal that waits does not hold up the others. All of them share one connection.

pub mod config;
mod deliveries;
mod reader;
mod running;
mod signal;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::batch::Signal;
use crate::component::{
    ComponentError, ConfigType, Context, ErrorDoc, Factory, Lifecycle, Receiver, ReceiverContext,
    ReceiverFactory, Stability,
};
use config::NatsReceiverConfig;
use running::NatsRun;
use signal::{CurrentLink, SignalContext};

/// The errors of `nats`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "NATS can't be reached, or a stream does not exist.",
        "NATS can't be read: the receiver tries again",
        "Check the servers, the credentials and the name of the stream. The line has the cause.",
    ),
    ErrorDoc::logged(
        "The connection breaks.",
        "the connection to NATS is lost: the receiver makes a new one",
        "Check the servers and the network.",
    ),
    ErrorDoc::logged(
        "A message can't be used, for example because it is not a request of its signal.",
        "a message is skipped",
        "Correct the sender. `reason` and `error` have the cause.",
    ),
    ErrorDoc::logged(
        "The pipelines refuse messages for now. The messages wait in the stream.",
        "messages wait: the pipelines refuse them for now",
        "Look at the queues of the exporters, and at the memory limit.",
    ),
    ErrorDoc::logged(
        "The memory limit is too low for the messages of a request.",
        "the memory limit is too low to ask for messages: raise it, or reduce `max_fetch_size`",
        "Raise the memory limit, or reduce `max_fetch_size`.",
    ),
];

/// The factory of `nats`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "nats",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Alpha),
        (Signal::Traces, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
    ],
    help: "reads metrics, traces and logs from streams of NATS JetStream",
    errors: &[ERRORS],
    config: ConfigType::of::<NatsReceiverConfig>(),
    build: |settings, cx| Ok(Arc::new(NatsReceiver::new(settings.get(), &cx))),
};

/// How long after its deadline the task may end by itself.
const END_ALLOWANCE: Duration = Duration::from_millis(200);

struct NatsReceiver {
    config: Arc<NatsReceiverConfig>,
    base: Context,
    signals: Vec<Arc<SignalContext>>,
    links: watch::Sender<Option<Arc<tidegate_nats::transport::TransportLink>>>,
    running: Mutex<Option<RunningTask>>,
}

struct RunningTask {
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
}

impl NatsReceiver {
    fn new(config: Arc<NatsReceiverConfig>, cx: &ReceiverContext) -> Self {
        let (links, current): (_, CurrentLink) = watch::channel(None);
        let entries = cx.entries.iter().flatten();
        let signals = entries.map(|entry| {
            let context = SignalContext::new(&config, cx, entry.clone(), current.clone());
            Arc::new(context)
        });
        Self {
            signals: signals.collect(),
            config,
            base: cx.base.clone(),
            links,
            running: Mutex::default(),
        }
    }
}

impl Receiver for NatsReceiver {}

#[async_trait]
impl Lifecycle for NatsReceiver {
    async fn start(&self) -> Result<(), ComponentError> {
        let (stop, stopping) = watch::channel(None);
        let run = NatsRun {
            config: self.config.clone(),
            receiver: self.base.id.clone(),
            shared: self.base.shared.clone(),
            signals: self.signals.clone(),
            links: self.links.clone(),
            stopping,
        };
        let task = tokio::spawn(run.run());
        *self.running.lock() = Some(RunningTask { stop, task });
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let running = self.running.lock().take();
        let Some(RunningTask { stop, mut task }) = running else {
            return;
        };
        let _ = stop.send(Some(deadline));
        let end = deadline + END_ALLOWANCE;
        if tokio::time::timeout_at(end.into(), &mut task).await.is_err() {
            task.abort();
        }
    }
}
