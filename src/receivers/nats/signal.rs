// SPDX-License-Identifier: Apache-2.0

//! The messages of one signal on their way to the pipelines, and their answers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use tidegate_nats::transport::{Acknowledgement, NatsMessageIn, ReplySubject, TransportLink};
use tidegate_runtime::Every;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tracing::warn;

use super::config::NatsReceiverConfig;
use super::deliveries::Deliveries;
use crate::component::{Entry, Held, ReceiverContext};
use crate::net::Coding;
use crate::receivers::messages::{ContentDecoder, MessageContent, MessageLimits, MessageRoute, Taken, Why};

/// The least time between two log lines of the same kind.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// The bounds of the interval at which the times of messages are looked at.
const MIN_EXTENSION: Duration = Duration::from_millis(100);
const MAX_EXTENSION: Duration = Duration::from_secs(1);

/// The present connection.
pub(super) type CurrentLink = watch::Receiver<Option<Arc<TransportLink>>>;

/// The deadline of the stop, once it begins.
pub(super) type Stopping = watch::Receiver<Option<Instant>>;

/// A message that waits for the pipelines, and its memory.
pub(super) struct QueuedMessage {
    pub(super) message: NatsMessageIn,
    pub(super) held: Held,
}

/// What the tasks of a signal share.
pub(super) struct SignalContext {
    pub(super) receiver: Arc<str>,
    pub(super) route: MessageRoute,
    pub(super) deliveries: Deliveries,
    pub(super) links: CurrentLink,
    content: ContentDecoder,
    /// The headers that become resource attributes.
    headers: Vec<String>,
    /// In milliseconds.
    ack_wait: AtomicU64,
    /// The bytes of messages without an answer.
    waiting_bytes: AtomicUsize,
    skipped_log: Every,
    waiting_log: Every,
}

impl SignalContext {
    pub(super) fn new(
        config: &NatsReceiverConfig,
        cx: &ReceiverContext,
        entry: Entry,
        links: CurrentLink,
    ) -> Self {
        let context = Self {
            receiver: cx.base.id.clone(),
            route: MessageRoute {
                encoding: config.encoding(entry.signal()),
                entry,
            },
            deliveries: Deliveries::default(),
            links,
            content: ContentDecoder {
                shared: cx.base.shared.clone(),
                limits: MessageLimits {
                    max_elements: config.max_elements_per_item.get(),
                    max_bytes: config.max_decompressed_size.as_usize(),
                },
            },
            headers: config.header_extraction.names().to_vec(),
            ack_wait: AtomicU64::new(0),
            waiting_bytes: AtomicUsize::new(0),
            skipped_log: Every::new(LOG_INTERVAL),
            waiting_log: Every::new(LOG_INTERVAL),
        };
        context.set_ack_wait(config.ack_wait);
        context
    }

    pub(super) fn signal_name(&self) -> &'static str {
        self.route.entry.signal().name()
    }

    /// The bytes of messages that wait, or that the pipelines have not taken yet.
    pub(super) fn waiting_bytes(&self) -> usize {
        self.waiting_bytes.load(Relaxed)
    }

    pub(super) fn note_waiting(&self, bytes: usize) {
        self.waiting_bytes.fetch_add(bytes, Relaxed);
    }

    pub(super) fn note_gone(&self, bytes: usize) {
        self.waiting_bytes.fetch_sub(bytes, Relaxed);
    }

    /// The consumer has this time.
    pub(super) fn set_ack_wait(&self, time: Duration) {
        self.ack_wait
            .store(u64::try_from(time.as_millis()).unwrap_or(u64::MAX), Relaxed);
    }

    /// Answers a message, if there is a connection. Without one, the server delivers it again.
    pub(super) async fn answer(&self, reply: &ReplySubject, with: Acknowledgement) {
        let link = self.links.borrow().clone();
        if let Some(link) = link {
            link.answer(reply, with).await;
        }
    }

    /// Hands a message to the pipelines.
    pub(super) async fn take(&self, message: &NatsMessageIn) -> Taken {
        let coding = match message.content_encoding.as_deref() {
            None => Coding::Identity,
            Some(name) => match Coding::named(name) {
                Some(coding) => coding,
                None => {
                    return Taken::Never(
                        Why::Invalid,
                        format!("the content encoding `{name}` is not known"),
                    );
                }
            },
        };
        let headers = message.headers.iter();
        let headers = headers.filter(|(name, _)| self.headers.contains(name));
        let attribute = |(name, value): &(String, String)| (format!("nats.header.{name}"), value.clone());
        let content = MessageContent {
            value: message.payload.clone(),
            is_shared: false,
            coding,
            attributes: headers.map(attribute).collect(),
        };
        self.content.take(&self.route, content).await
    }

    /// Counts a message that is skipped.
    fn skip(&self, message: &NatsMessageIn, why: Why, error: &str) {
        if matches!(why, Why::Invalid | Why::TooLarge) {
            self.route.entry.fail(1);
        }
        metrics::counter!(
            "tidegate_nats_skipped_messages_total", "receiver" => self.receiver.clone(), "reason" => why.name()
        )
        .increment(1);
        if let Some(more) = self.skipped_log.ready() {
            let (receiver, subject, sequence) = (&*self.receiver, &*message.subject, message.key.sequence);
            warn!(receiver, subject, sequence, more, reason = why.name(), %error, "a message is skipped");
        }
    }

    fn note_wait(&self, why: &str) {
        if self.waiting_log.ready().is_some() {
            let (receiver, signal) = (&*self.receiver, self.signal_name());
            warn!(
                receiver,
                signal,
                reason = why,
                "messages wait: the pipelines refuse them for now"
            );
        }
    }

    /// Hands a message on until it has its answer. At the stop, it stays without one.
    async fn hand_on(self: Arc<Self>, queued: QueuedMessage, mut stopping: Stopping) {
        let QueuedMessage { message, held } = queued;
        let answer = loop {
            match self.take(&message).await {
                Taken::Yes => break Acknowledgement::Done,
                Taken::Never(why, error) => {
                    self.skip(&message, why, &error);
                    break Acknowledgement::Never;
                }
                Taken::Later(after, error) => {
                    self.note_wait(&error);
                    tokio::select! {
                        () = tokio::time::sleep(after) => {}
                        _ = stopping.wait_for(Option::is_some) => return,
                    }
                }
            }
        };
        self.note_gone(message.bytes);
        drop((message.payload, held));
        if let Some(reply) = self.deliveries.finish(message.key) {
            self.answer(&reply, answer).await;
        }
    }

    /// Hands messages on, `most` at a time, until the stop.
    pub(super) async fn hand_on_all(
        self: Arc<Self>,
        mut queue: mpsc::Receiver<QueuedMessage>,
        most: usize,
        mut stopping: Stopping,
    ) {
        let mut running = JoinSet::new();
        loop {
            if running.len() >= most {
                running.join_next().await;
            }
            let queued = tokio::select! {
                biased;
                _ = stopping.wait_for(Option::is_some) => break,
                queued = queue.recv() => queued,
            };
            let Some(queued) = queued else { break };
            running.spawn(self.clone().hand_on(queued, stopping.clone()));
        }
        while running.join_next().await.is_some() {}
    }

    /// Extends the time of all messages without an answer, until the stop.
    pub(super) async fn extend(self: Arc<Self>, mut stopping: Stopping) {
        let mut last = Instant::now();
        loop {
            // The time of the consumer is known when it is open.
            let interval = Duration::from_millis(self.ack_wait.load(Relaxed) / 3);
            tokio::select! {
                () = tokio::time::sleep(interval.clamp(MIN_EXTENSION, MAX_EXTENSION)) => {}
                _ = stopping.wait_for(Option::is_some) => return,
            }
            if last.elapsed() < interval {
                continue;
            }
            last = Instant::now();
            for reply in self.deliveries.in_hand() {
                self.answer(&reply, Acknowledgement::InProgress).await;
            }
        }
    }
}
