//! Senders keep pace with a destination that keeps up.
//!
//! A queue is for what a destination can't take for a while. Where the two share a processor, a receiver that answers as
//! soon as a batch is queued fills the queue with what the destination would have taken a moment later, and memory with
//! it. So while more than a little is on its way, answers wait for the delivery of what they answer, but only briefly,
//! and not where that was in vain just now: who sends to a slow destination, or a dead one, waits for the queue alone.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::component::Answer;

/// As many bytes are on their way before anybody waits.
const ON_THE_WAY: usize = 256 << 10;

/// The longest that an answer waits.
const PATIENCE: Duration = Duration::from_millis(25);

/// Nobody waits for so long after somebody has waited in vain: slow destinations cost senders a tenth.
const IMPATIENCE: Duration = Duration::from_millis(250);

/// Whether those who send to a destination wait for it.
#[derive(Debug, Default)]
pub(super) struct Pacing {
    in_vain: Mutex<Option<Instant>>,
}

impl Pacing {
    /// Whether it is worth while to wait with so many bytes on their way.
    pub(super) fn is_due(&self, bytes: usize) -> bool {
        bytes > ON_THE_WAY && self.in_vain().is_none_or(|when| when.elapsed() >= IMPATIENCE)
    }

    /// Waits for what becomes of a batch; whatever that is, the sender has been relieved of it.
    pub(super) async fn wait(&self, delivered: oneshot::Receiver<Answer>) {
        if timeout(PATIENCE, delivered).await.is_err() {
            *self.in_vain() = Some(Instant::now());
        }
    }

    fn in_vain(&self) -> MutexGuard<'_, Option<Instant>> {
        self.in_vain.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn who_waits_in_vain_waits_briefly_and_not_again_at_once() {
        let pacing = Pacing::default();
        assert!(!pacing.is_due(ON_THE_WAY) && pacing.is_due(ON_THE_WAY + 1));
        let (answer, delivered) = oneshot::channel();
        let begun = Instant::now();
        pacing.wait(delivered).await;
        assert_eq!(begun.elapsed(), PATIENCE);
        drop(answer);
        assert!(!pacing.is_due(usize::MAX));
        tokio::time::advance(IMPATIENCE).await;
        assert!(pacing.is_due(usize::MAX));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_delivered_or_lost_ends_the_wait() {
        let pacing = Pacing::default();
        let begun = Instant::now();
        let (answer, delivered) = oneshot::channel();
        answer
            .send(Err(crate::component::Refused::permanent("no")))
            .unwrap();
        pacing.wait(delivered).await;
        let (answer, delivered) = oneshot::channel();
        drop(answer);
        pacing.wait(delivered).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(pacing.is_due(usize::MAX));
    }
}
