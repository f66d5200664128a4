// SPDX-License-Identifier: Apache-2.0

//! `kafka`: reads metrics, traces and logs from topics of Kafka, as the Collector's receiver does.
//!
//! One task is a member of the group and fetches (`reader.rs`). Each partition has a queue of its own to the pipelines
//! (`partition_queue.rs`), so that a partition that waits does not hold up the others.

pub mod config;
mod decoder;
mod partition_queue;
mod reader;
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
use config::KafkaReceiverConfig;
use decoder::MessageDecoder;
use partition_queue::{Log, PartitionQueueContext};
use reader::Reader;

/// The errors of `kafka`.
const ERRORS: &[ErrorDoc] = &[
    ErrorDoc::logged(
        "The brokers can't be reached, or a topic does not exist.",
        "Kafka can't be read: the receiver tries again",
        "Check the brokers, the credentials and the topics. The line has the cause.",
    ),
    ErrorDoc::logged(
        "A message can't be used, for example because it is not a request of its signal.",
        "messages are skipped",
        "Correct the sender. `reason` and `error` have the cause.",
    ),
    ErrorDoc::logged(
        "The pipelines refuse messages for now. The messages wait in the partition.",
        "a partition waits: its messages are refused for now",
        "Look at the queues of the exporters, and at the memory limit.",
    ),
    ErrorDoc::logged(
        "The memory limit is too low for a fetch.",
        "the memory limit is too low to fetch: raise it, or reduce `max_batch_size`",
        "Raise the memory limit, or reduce `max_batch_size`.",
    ),
    ErrorDoc::logged(
        "The brokers do not accept the offsets.",
        "offsets are not committed: messages may come again",
        "Check the brokers, and the permissions of the consumer group.",
    ),
];

/// The factory of `kafka`.
pub static FACTORY: ReceiverFactory = Factory {
    kind: "kafka",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Alpha),
        (Signal::Traces, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
    ],
    help: "reads metrics, traces and logs from topics of Kafka",
    errors: &[ERRORS],
    config: ConfigType::of::<KafkaReceiverConfig>(),
    build: |settings, cx| Ok(Arc::new(KafkaReceiver::new(settings.get(), &cx)?)),
};

/// How long after its deadline the task may end by itself.
const END_ALLOWANCE: Duration = Duration::from_millis(200);

struct KafkaReceiver {
    config: Arc<KafkaReceiverConfig>,
    base: Context,
    queues: Arc<PartitionQueueContext>,
    running: Mutex<Option<Running>>,
}

struct Running {
    stop: watch::Sender<Option<Instant>>,
    task: JoinHandle<()>,
}

impl KafkaReceiver {
    fn new(config: Arc<KafkaReceiverConfig>, cx: &ReceiverContext) -> Result<Self, ComponentError> {
        let decoder = MessageDecoder::new(&config, cx).map_err(|error| cx.base.error(error))?;
        let queues = PartitionQueueContext {
            receiver: cx.base.id.clone(),
            decoder,
            marks_after: config.message_marking.after,
            drops_busy: config.message_marking.on_error,
            commits_at_once: !config.autocommit.enable,
            log: Log::default(),
        };
        Ok(Self {
            config,
            base: cx.base.clone(),
            queues: Arc::new(queues),
            running: Mutex::default(),
        })
    }
}

impl Receiver for KafkaReceiver {}

#[async_trait]
impl Lifecycle for KafkaReceiver {
    async fn start(&self) -> Result<(), ComponentError> {
        let (stop, stopping) = watch::channel(None);
        let reader = Reader {
            connection: self.config.connection(),
            group: self.config.group(self.queues.decoder.topics()),
            commit_interval: self.config.autocommit.interval,
            queues: self.queues.clone(),
            shared: self.base.shared.clone(),
            stopping,
        };
        let task = tokio::spawn(reader.run());
        *self.running.lock() = Some(Running { stop, task });
        Ok(())
    }

    async fn stop(&self, deadline: Instant) {
        let running = self.running.lock().take();
        let Some(Running { stop, mut task }) = running else {
            return;
        };
        let _ = stop.send(Some(deadline));
        let end = deadline + END_ALLOWANCE;
        if tokio::time::timeout_at(end.into(), &mut task).await.is_err() {
            task.abort();
        }
    }
}
