// SPDX-License-Identifier: Apache-2.0

//! The sink of both sockets: it pushes events into the pipelines, and counts those that they refuse.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::Events;
use tidegate_runtime::Every;
use tokio_util::sync::CancellationToken;

use super::session::StoppedSessions;
use crate::batch::Batch;
use crate::component::worker::Slot;
use crate::component::{Ceiling, Context, Entry, Held, PushOutcome, Refused, Shared};

/// The retry delay for refused events. The delay of the refusal is ignored: asking costs almost nothing, and the
/// senders' socket buffers fill meanwhile.
const RETRY: Duration = Duration::from_millis(20);

/// The interval of checks of the memory limiter while reading is suspended.
pub(super) const MEMORY_POLL: Duration = Duration::from_millis(50);

/// The most events that tables absorb inline, in less than a millisecond.
pub(super) const LIGHT_EVENTS: usize = 16 << 10;

/// At most one log line in this time about bad input; the counters have them all.
const LOG_INTERVAL: Duration = Duration::from_secs(10);

/// Hands batches to the pipelines. Both sockets share it.
pub(super) struct EventSink {
    pub(super) entry: Entry,
    pub(super) shared: Arc<Shared>,
    pub(super) source_timeout: Duration,
    /// The sessions of the stream socket, once the receiver has stopped.
    pub(super) stopped: StoppedSessions,
    receiver: Arc<str>,
    refused_log: Every,
}

impl EventSink {
    pub(super) fn new(base: &Context, entry: Entry, source_timeout: Duration) -> Self {
        Self {
            entry,
            shared: base.shared.clone(),
            source_timeout,
            stopped: StoppedSessions::default(),
            receiver: base.id.clone(),
            refused_log: Every::new(LOG_INTERVAL),
        }
    }

    /// Hands a batch to the pipelines: many events in a place for long work, which may be there already.
    pub(super) async fn send(&self, batch: Batch, slot: Option<Slot>) -> Result<PushOutcome, Refused> {
        let slot = match (batch.items() > LIGHT_EVENTS, slot) {
            (false, _) => None,
            (true, Some(slot)) => Some(slot),
            // There is always one in the end.
            (true, None) => Slot::get_in_any_case().await.ok(),
        };
        self.entry.send_held(batch, None, slot).await
    }

    /// Pushes until the pipelines take the events or refuse them permanently; when the receiver stops, one last time.
    pub(super) async fn push_until_taken(
        &self,
        events: Events,
        mut slot: Option<Slot>,
        stopping: &CancellationToken,
    ) -> Result<PushOutcome, Refused> {
        let batch = Batch::new(events);
        loop {
            let last_time = stopping.is_cancelled();
            let refused = match self.send(batch.clone(), slot.take()).await {
                Ok(outcome) => return Ok(outcome),
                Err(refused) => refused,
            };
            match refused.retry_after {
                Some(_) if !last_time => {
                    stopping.run_until_cancelled(tokio::time::sleep(RETRY)).await;
                }
                _ => {
                    self.lose(batch.items(), "refused", &refused.reason);
                    return Err(refused);
                }
            }
        }
    }

    /// An empty reservation for data from a socket.
    pub(super) fn hold(&self) -> Held {
        Held::under(self.entry.ceiling(), self.shared.memory.clone())
    }

    /// Returns when the memory limiter lets receivers read again.
    pub(super) async fn memory_is_available(&self) {
        while self.shared.memory.is_over(Ceiling::Hard) {
            tokio::time::sleep(MEMORY_POLL).await;
        }
    }

    /// Counts items that can't enter, and says so now and then.
    pub(super) fn lose(&self, items: usize, reason: &'static str, detail: &dyn std::fmt::Display) {
        self.entry.fail(items);
        metrics::counter!(
            "tidegate_uds_rejected_events_total",
            "receiver" => self.receiver.clone(),
            "reason" => reason,
        )
        .increment(items as u64);
        if let Some(suppressed) = self.refused_log.ready() {
            let receiver = &*self.receiver;
            tracing::warn!(
                receiver,
                items,
                reason,
                suppressed,
                "refused from a socket: {detail}"
            );
        }
    }
}
