// SPDX-License-Identifier: Apache-2.0

//! Backpressure: answers to senders wait briefly while a destination is slow.
//!
//! A queue bridges the time in which a destination can't take data. If a receiver answers as soon as a batch is
//! queued, it can fill the queue on a shared processor. The destination would have taken that data a moment later.
//!
//! So an answer waits briefly for the delivery of its batch while many bytes are queued. After a wait that timed
//! out, no answer waits for a while: senders to a slow or dead destination wait for the queue alone.

use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::component::PushAnswer;

/// The number of queued bytes up to which no answer waits.
const FREE_BYTES: usize = 256 << 10;

/// The longest wait of an answer.
const MAX_WAIT: Duration = Duration::from_millis(25);

/// The time without waits after a timeout. A slow destination costs senders at most a tenth of their time.
const COOLDOWN: Duration = Duration::from_millis(250);

/// The backpressure of one destination. The lock is never held across an await.
#[derive(Debug, Default)]
pub(super) struct Backpressure {
    timed_out: Mutex<Option<Instant>>,
}

impl Backpressure {
    /// Whether an answer should wait while `bytes` are queued.
    pub(super) fn is_due(&self, bytes: usize) -> bool {
        bytes > FREE_BYTES && self.timed_out().is_none_or(|when| when.elapsed() >= COOLDOWN)
    }

    /// Waits until a batch is settled. The result does not matter: the queue has taken the batch already.
    pub(super) async fn wait(&self, delivered: oneshot::Receiver<PushAnswer>) {
        if timeout(MAX_WAIT, delivered).await.is_err() {
            *self.timed_out() = Some(Instant::now());
        }
    }

    fn timed_out(&self) -> MutexGuard<'_, Option<Instant>> {
        self.timed_out.lock()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn after_a_timeout_no_sender_waits_for_a_while() {
        let backpressure = Backpressure::default();
        assert!(!backpressure.is_due(FREE_BYTES) && backpressure.is_due(FREE_BYTES + 1));
        let (answer, delivered) = oneshot::channel();
        let begun = Instant::now();
        backpressure.wait(delivered).await;
        assert_eq!(begun.elapsed(), MAX_WAIT);
        drop(answer);
        assert!(!backpressure.is_due(usize::MAX));
        tokio::time::advance(COOLDOWN).await;
        assert!(backpressure.is_due(usize::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_delivered_or_lost_ends_the_wait() {
        let backpressure = Backpressure::default();
        let begun = Instant::now();
        let (answer, delivered) = oneshot::channel();
        answer
            .send(Err(crate::component::Refused::permanent("no")))
            .unwrap();
        backpressure.wait(delivered).await;
        let (answer, delivered) = oneshot::channel();
        drop(answer);
        backpressure.wait(delivered).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(backpressure.is_due(usize::MAX));
    }
}
