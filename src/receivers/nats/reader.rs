// SPDX-License-Identifier: Apache-2.0

//! The task that asks for the messages of one signal.
//!
//! The memory of a pull is reserved before it begins. Messages that it brings take their part of that reservation with them,
//! and the next pull waits until it is whole again.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_nats::transport::{
    Acknowledgement, DurableConsumer, DurableOptions, MAX_MESSAGES, NatsMessageIn, NatsReadError,
    TransportLink,
};
use tidegate_runtime::Every;
use tokio::sync::mpsc;
use tracing::{info, warn};

use super::deliveries::Arrival;
use super::signal::{QueuedMessage, SignalContext, Stopping};
use crate::component::{Ceiling, Held, Shared};

/// How long the server waits for a message before it ends a pull.
const PULL: Duration = Duration::from_secs(5);

/// The least time between two pulls without messages. The server ends a pull at once if others want its messages too.
const EMPTY_WAIT: Duration = Duration::from_millis(50);

/// The interval at which a reader looks whether messages have gone to the pipelines.
const FULL_WAIT: Duration = Duration::from_millis(10);

/// The interval at which memory is asked for again.
const ROOM_WAIT: Duration = Duration::from_millis(100);

/// How long the reader waits after an error, at first and at most.
pub(super) const ERROR_WAIT: Duration = Duration::from_millis(500);
pub(super) const MAX_ERROR_WAIT: Duration = Duration::from_secs(10);

/// The least time between two log lines about memory.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The messages that may wait for the pipelines.
pub(super) const WAITING: usize = MAX_MESSAGES;

pub(super) struct SignalReader {
    pub(super) context: Arc<SignalContext>,
    pub(super) options: DurableOptions,
    pub(super) fetch_bytes: usize,
    pub(super) queue: mpsc::Sender<QueuedMessage>,
    pub(super) shared: Arc<Shared>,
    pub(super) stopping: Stopping,
}

impl SignalReader {
    pub(super) async fn run(self) {
        let mut stopping = self.stopping.clone();
        tokio::select! {
            () = self.run_unstopped() => {}
            _ = stopping.wait_for(Option::is_some) => {}
        }
    }

    async fn run_unstopped(&self) {
        let mut links = self.context.links.clone();
        let mut wait = ERROR_WAIT;
        // The library fails at a message with malformed headers, and loses the messages behind it until they come again. So
        // the next messages come one at a time.
        let mut singles = 0;
        loop {
            let link = match links.wait_for(Option::is_some).await {
                Ok(link) => link.clone(),
                Err(_) => return,
            };
            let Some(link) = link else { continue };
            let (error, is_open) = self.read_through(link, &mut singles).await;
            if is_open {
                wait = ERROR_WAIT;
            }
            // The task of the connection reports its loss.
            if error != NatsReadError::Lost {
                let (receiver, signal) = (&*self.context.receiver, self.context.signal_name());
                warn!(receiver, signal, %error, "NATS can't be read: the receiver tries again");
            }
            tokio::time::sleep(wait).await;
            wait = (2 * wait).min(MAX_ERROR_WAIT);
        }
    }

    /// Reads over a connection. Returns why that ended, and whether the consumer was open.
    async fn read_through(&self, link: Arc<TransportLink>, singles: &mut usize) -> (NatsReadError, bool) {
        let opened = DurableConsumer::open(link, &self.options, self.fetch_bytes).await;
        let (consumer, differences) = match opened {
            Ok(opened) => opened,
            Err(error) => return (error, false),
        };
        self.context.set_ack_wait(consumer.ack_wait());
        self.context.deliveries.open(consumer.created());
        if !differences.is_empty() {
            let (receiver, consumer) = (&*self.context.receiver, &*self.options.name);
            let differences = differences.join(", ");
            info!(
                receiver,
                consumer, differences, "the consumer exists and keeps its settings: edit it to change them"
            );
        }
        let Err(error) = self.read(&consumer, singles).await;
        (error, true)
    }

    /// Reads until an error. `singles`: the messages to ask for one at a time.
    async fn read(
        &self,
        consumer: &DurableConsumer,
        singles: &mut usize,
    ) -> Result<Infallible, NatsReadError> {
        let context = &self.context;
        let mut held = Held::under(Ceiling::Soft, self.shared.memory.clone());
        let memory_log = Every::new(LOG_INTERVAL);
        loop {
            // It waits for a free slot. This task is the only one that fills them.
            if self.queue.reserve().await.is_err() {
                return Err(NatsReadError::Failed("the queue has ended (a bug)".to_owned()));
            }
            // More would take the memory that the first of them needs in the pipelines.
            if context.waiting_bytes() > self.fetch_bytes {
                tokio::time::sleep(FULL_WAIT).await;
                continue;
            }
            let room = consumer.room();
            if held.try_grow_to(room).is_err() {
                self.note_memory(&held, room, &memory_log);
                tokio::time::sleep(ROOM_WAIT).await;
                continue;
            }
            let started = Instant::now();
            let most = if *singles > 0 { 1 } else { self.queue.capacity() };
            let mut pull = consumer
                .pull(most, PULL)
                .await
                .inspect_err(|_| *singles = MAX_MESSAGES)?;
            let mut is_empty = true;
            loop {
                match pull.next().await {
                    Ok(Some(message)) => {
                        is_empty = false;
                        *singles = singles.saturating_sub(1);
                        self.arrive(message, &mut held).await;
                    }
                    Ok(None) => break,
                    Err(error) => {
                        *singles = MAX_MESSAGES;
                        return Err(error);
                    }
                }
            }
            if is_empty {
                tokio::time::sleep(EMPTY_WAIT.saturating_sub(started.elapsed())).await;
            }
        }
    }

    /// Queues a message, unless it came before.
    async fn arrive(&self, message: NatsMessageIn, held: &mut Held) {
        let context = &self.context;
        match context.deliveries.arrive(message.key, &message.reply) {
            Arrival::New => {}
            Arrival::InHand => return,
            Arrival::Answered => {
                let receiver = context.receiver.clone();
                metrics::counter!("tidegate_nats_repeated_messages_total", "receiver" => receiver)
                    .increment(1);
                return context.answer(&message.reply, Acknowledgement::Done).await;
            }
        }
        let mut own = Held::under(Ceiling::Soft, self.shared.memory.clone());
        held.shrink(message.bytes.min(held.bytes()));
        own.promise(message.bytes);
        context.note_waiting(message.bytes);
        let queued = QueuedMessage { message, held: own };
        // A pull asks for no more than there is room for. If the server sends more, these come again later.
        if let Err(mpsc::error::TrySendError::Full(queued) | mpsc::error::TrySendError::Closed(queued)) =
            self.queue.try_send(queued)
        {
            context.note_gone(queued.message.bytes);
            context.deliveries.forget(queued.message.key);
        }
    }

    fn note_memory(&self, held: &Held, room: usize, log: &Every) {
        if log.ready().is_none() {
            return;
        }
        let receiver = &*self.context.receiver;
        if held.could_ever_grow(room.saturating_sub(held.bytes())) {
            warn!(
                receiver,
                bytes = room,
                "memory is short: the receiver asks for messages later"
            );
        } else {
            warn!(
                receiver,
                bytes = room,
                "the memory limit is too low to ask for messages: raise it, or reduce `max_fetch_size`"
            );
        }
    }
}
