// SPDX-License-Identifier: Apache-2.0

//! A queue hands the messages of one partition to the pipelines, one after another. Queues do not wait for each other.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tidegate_kafka::transport::{IncomingMessage, Marks, PartitionKey, Waker};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tracing::warn;

use super::decoder::MessageDecoder;
use crate::component::Held;
use crate::receivers::messages::{Taken, Why};

/// The parts of a partition's log that may wait behind the one that is being handed on.
pub(super) const WAITING: usize = 2;

/// The least time between two log lines of the same kind.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Messages of one partition, and their memory.
pub(super) struct Work {
    pub(super) messages: Vec<IncomingMessage>,
    pub(super) held: Held,
}

/// What all queues share.
pub(super) struct PartitionQueueContext {
    pub(super) receiver: Arc<str>,
    pub(super) decoder: MessageDecoder,
    /// Whether messages are marked when the pipelines have them.
    pub(super) marks_after: bool,
    /// Whether a message that is refused for now is dropped.
    pub(super) drops_busy: bool,
    /// Whether each part is committed at once.
    pub(super) commits_at_once: bool,
    pub(super) log: Log,
}

/// Limits log lines.
#[derive(Default)]
pub(super) struct Log {
    skipped: Mutex<Option<Instant>>,
    waiting: Mutex<Option<Instant>>,
}

/// Whether a line may be written now.
pub(super) fn is_due(last: &Mutex<Option<Instant>>) -> bool {
    let mut last = last.lock();
    let is_due = last.is_none_or(|last| last.elapsed() >= LOG_INTERVAL);
    if is_due {
        *last = Some(Instant::now());
    }
    is_due
}

impl PartitionQueueContext {
    /// Counts messages that are skipped.
    pub(super) fn skip(&self, place: &PartitionKey, offset: i64, messages: u64, why: Why, error: &str) {
        metrics::counter!(
            "tidegate_kafka_skipped_messages_total", "receiver" => self.receiver.clone(), "reason" => why.name()
        )
        .increment(messages);
        if is_due(&self.log.skipped) {
            let (receiver, topic, partition) = (&*self.receiver, &*place.topic, place.partition);
            warn!(receiver, topic, partition, offset, messages, reason = why.name(), %error, "messages are skipped");
        }
    }

    fn note_wait(&self, place: &PartitionKey, why: &str) {
        if is_due(&self.log.waiting) {
            let (receiver, topic, partition) = (&*self.receiver, &*place.topic, place.partition);
            warn!(
                receiver,
                topic,
                partition,
                reason = why,
                "a partition waits: its messages are refused for now"
            );
        }
    }
}

/// A partition that is being read.
pub(super) struct PartitionQueue {
    /// The number of the partition.
    pub(super) number: u64,
    work: mpsc::Sender<Work>,
    is_paused: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl PartitionQueue {
    pub(super) fn start(
        context: Arc<PartitionQueueContext>,
        place: PartitionKey,
        number: u64,
        marks: Marks,
        waker: Waker,
        stopping: watch::Receiver<Option<Instant>>,
    ) -> Self {
        let (work, waiting) = mpsc::channel(WAITING);
        let is_paused = Arc::new(AtomicBool::new(false));
        let run = Run {
            context,
            place,
            number,
            marks,
            waker,
            stopping,
            is_paused: is_paused.clone(),
            unresolved: None,
        };
        Self {
            number,
            work,
            is_paused,
            task: tokio::spawn(run.work(waiting)),
        }
    }

    /// Takes work, or gives it back if the queue is full or has ended.
    pub(super) fn take(&self, work: Work) -> Result<(), Work> {
        self.work.try_send(work).map_err(|error| match error {
            mpsc::error::TrySendError::Full(work) | mpsc::error::TrySendError::Closed(work) => work,
        })
    }

    /// Whether its task has ended. It takes no more work.
    pub(super) fn is_closed(&self) -> bool {
        self.work.is_closed()
    }

    /// Whether the queue is full.
    pub(super) fn is_full(&self) -> bool {
        self.work.capacity() == 0
    }

    pub(super) fn is_paused(&self) -> bool {
        self.is_paused.load(SeqCst)
    }

    pub(super) fn set_paused(&self, is_paused: bool) {
        self.is_paused.store(is_paused, SeqCst);
    }

    /// Ends after the message that is on its way. Drops the rest.
    pub(super) async fn end(mut self, wait: Duration) {
        drop(self.work);
        if tokio::time::timeout(wait, &mut self.task).await.is_err() {
            self.task.abort();
        }
    }

    /// Drops all work: the partition is gone.
    pub(super) fn abandon(self) {
        self.task.abort();
    }
}

struct Run {
    context: Arc<PartitionQueueContext>,
    place: PartitionKey,
    number: u64,
    marks: Marks,
    waker: Waker,
    stopping: watch::Receiver<Option<Instant>>,
    is_paused: Arc<AtomicBool>,
    /// The offset of a message that is marked, and not handed on yet.
    unresolved: Option<i64>,
}

impl Drop for Run {
    /// Counts the message that a stop or a rebalance interrupts: it does not come again.
    fn drop(&mut self) {
        if let Some(offset) = self.unresolved {
            let error = "the gateway stops, or loses the partition, before the pipelines take the message";
            self.context.skip(&self.place, offset, 1, Why::Interrupted, error);
        }
    }
}

impl Run {
    async fn work(mut self, mut waiting: mpsc::Receiver<Work>) {
        while let Some(work) = waiting.recv().await {
            if self.is_paused.load(SeqCst) {
                self.waker.wake();
            }
            for message in &work.messages {
                if self.is_stopping() {
                    return;
                }
                if !self.context.marks_after {
                    // As in the Collector. A mark of the whole part would lose the messages that still wait here.
                    self.mark(message);
                    self.unresolved = Some(message.offset);
                }
                if !self.hand_on(message).await {
                    return;
                }
                self.unresolved = None;
                if self.context.marks_after {
                    self.mark(message);
                }
            }
            drop(work.held);
            if self.context.commits_at_once {
                self.waker.wake();
            }
        }
    }

    fn mark(&self, message: &IncomingMessage) {
        let next = message.offset + 1;
        self.marks.mark(&self.place, self.number, next, message.epoch);
    }

    fn is_stopping(&self) -> bool {
        self.stopping.borrow().is_some()
    }

    /// Hands a message on, or skips it. `false`: the gateway stops first.
    async fn hand_on(&mut self, message: &IncomingMessage) -> bool {
        loop {
            let (why, error) = match self.context.decoder.take(message).await {
                Taken::Yes => return true,
                Taken::Later(after, error) if !self.context.drops_busy => {
                    self.context.note_wait(&self.place, &error);
                    if !self.sleep(after).await {
                        return false;
                    }
                    continue;
                }
                Taken::Later(_, error) => (Why::Busy, error),
                Taken::Never(why, error) => (why, error),
            };
            if why == Why::Invalid {
                self.context.decoder.fail(&self.place.topic, 1);
            }
            self.context.skip(&self.place, message.offset, 1, why, &error);
            return true;
        }
    }

    /// Waits. `false`: the gateway stops.
    async fn sleep(&mut self, time: Duration) -> bool {
        tokio::select! {
            () = tokio::time::sleep(time) => true,
            _ = self.stopping.wait_for(Option::is_some) => false,
        }
    }
}
