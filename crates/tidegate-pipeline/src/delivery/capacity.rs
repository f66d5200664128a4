// SPDX-License-Identifier: Apache-2.0

//! The capacity of a sending queue, and the permits that batches hold on it.
//!
//! A destination reserves capacity on admission, before any component commits to the push. The permit moves
//! with the batch through the delivery machine, and dropping its last copy releases the capacity.
//!
//! Invariants:
//!
//! - The use of a queue is the sum of its permits, in both units. The three signals add up to the use in units of the
//!   sizer. The account of memory holds the bytes too. While a permit is taken or resized, these counters may differ
//!   for a moment.
//! - Only `reserve` respects the limits. `force` and `fit` may exceed them, because these batches can't be refused.
//! - `fit` takes the new size before it releases the old one, so a queue in use never looks idle in between.
//! - Only permits in use count for the drain rate. A permit that was never used proves nothing about the peer.
//!
//! Ownership: a permit owns its part of the capacity. The drop releases the capacity, then answers the sender, then
//! settles the record on disk. All pieces of a batch share the permit, so this happens when the last piece is settled.
//!
//! Locks: the machine drops permits under its lock. So a drop must not lock the machine. The counters are `Relaxed`:
//! the lock of the machine orders the batches themselves.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use smallvec::SmallVec;
use tidegate_wal::NotKept;
use tokio::sync::oneshot;

use super::ack_guard::AckGuard;
use crate::batch::{Batch, Signal, Sizer};
use crate::component::{PushAnswer, PushOutcome, Reason, Refused, Shared};

/// The limits of a queue and its use of them: one in units of the sizer, one in bytes.
///
/// Counters are atomic, so that admission takes no lock while the queue is in use. The lock of a drain rate
/// is held for arithmetic only, and its holder takes no other lock.
pub struct QueueCapacity {
    sizer: Sizer,
    size: Limiter,
    bytes: Limiter,
    /// The share of each signal in `size`, by `Signal as usize`.
    of_signal: [AtomicUsize; 3],
    shared: Arc<Shared>,
}

/// A counter with a limit, in one unit.
struct Limiter {
    limit: usize,
    used: AtomicUsize,
    drain_rate: Mutex<DrainRate>,
}

/// The rate, in units per second, at which a limiter drains while it is in use.
#[derive(Default)]
struct DrainRate {
    /// The start of the measured interval. It moves forward, so that old times weigh little.
    since: Option<Instant>,
    /// Units drained since `since`.
    drained: f64,
    /// The rate of the previous interval, in units per second.
    before: f64,
}

impl DrainRate {
    /// The shortest interval with a usable measurement, in seconds.
    const SHORT: f64 = 0.2;
    /// Seconds after which the first half of an interval no longer counts.
    const LONG: f64 = 10.0;

    /// Starts a new interval: the limiter was idle and is in use now.
    fn begin(&mut self, now: Instant) {
        self.before = self.per_second(now);
        (self.since, self.drained) = (Some(now), 0.0);
    }

    fn drain(&mut self, amount: usize, now: Instant) {
        self.drained += amount as f64;
        let seconds = self.seconds(now);
        if seconds > Self::LONG {
            self.drained /= 2.0;
            self.since = now.checked_sub(Duration::from_secs_f64(seconds / 2.0));
        }
    }

    fn per_second(&self, now: Instant) -> f64 {
        let seconds = self.seconds(now);
        if seconds < Self::SHORT {
            self.before
        } else {
            self.drained / seconds
        }
    }

    fn seconds(&self, now: Instant) -> f64 {
        self.since
            .map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64())
    }
}

impl Limiter {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            drain_rate: Mutex::default(),
        }
    }

    fn take(&self, amount: usize) -> Result<(), CapacityError> {
        let sum = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Relaxed, Relaxed, sum) {
            Ok(0) => {
                self.drain_rate().begin(Instant::now());
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(_) if amount > self.limit => Err(CapacityError::TooLarge),
            Err(_) => Err(CapacityError::Full),
        }
    }

    fn release(&self, amount: usize) {
        self.used.fetch_sub(amount, Relaxed);
    }

    /// Releases units of batches that were delivered or dropped. [`Self::release`] is for units that were never
    /// used, which prove nothing about the speed of the destination.
    fn drain(&self, amount: usize) {
        self.drain_rate().drain(amount, Instant::now());
        self.release(amount);
    }

    /// Seconds until `amount` fits, at the recent rate; infinite while nothing drains.
    fn wait(&self, amount: usize, now: Instant) -> f64 {
        let missing = (self.used.load(Relaxed).saturating_add(amount)).saturating_sub(self.limit);
        match missing {
            0 => 0.0,
            missing => missing as f64 / self.drain_rate().per_second(now),
        }
    }

    fn drain_rate(&self) -> MutexGuard<'_, DrainRate> {
        self.drain_rate.lock()
    }
}

/// The reason why a queue has no capacity for a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CapacityError {
    /// Other batches use the capacity now.
    Full,
    /// The batch exceeds the limit of the empty queue.
    TooLarge,
    /// The storage takes no batch any more.
    Storage(NotKept),
}

impl QueueCapacity {
    /// Creates a queue for at most `limit` units of `sizer` and at most `max_bytes` bytes.
    pub fn new(sizer: Sizer, limit: usize, max_bytes: usize, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            sizer,
            size: Limiter::new(limit),
            bytes: Limiter::new(max_bytes),
            of_signal: Default::default(),
            shared,
        })
    }

    /// Reserves capacity for a batch.
    ///
    /// # Errors
    /// `Full`: other batches use the capacity now.
    /// `TooLarge`: the batch exceeds the limit of the empty queue.
    pub fn reserve(self: &Arc<Self>, batch: &Batch) -> Result<QueuePermit, CapacityError> {
        let (size, bytes) = (size_of(self.sizer, batch), batch.bytes());
        self.size.take(size)?;
        self.bytes.take(bytes).inspect_err(|_| self.size.release(size))?;
        Ok(self.held(batch.signal(), size, bytes))
    }

    /// Takes capacity for a batch that can't be refused any more, above the limits if necessary.
    pub fn force(self: &Arc<Self>, batch: &Batch) -> QueuePermit {
        let (size, bytes) = (size_of(self.sizer, batch), batch.bytes());
        self.size.used.fetch_add(size, Relaxed);
        self.bytes.used.fetch_add(bytes, Relaxed);
        let mut held = self.held(batch.signal(), size, bytes);
        held.is_used = true;
        held
    }

    fn held(self: &Arc<Self>, signal: Signal, size: usize, bytes: usize) -> QueuePermit {
        self.shared.memory.hold(bytes);
        self.of_signal[signal as usize].fetch_add(size, Relaxed);
        QueuePermit {
            capacity: self.clone(),
            signal,
            size,
            bytes,
            is_used: false,
            ack: None,
            answer: None,
            failure: OnceLock::new(),
        }
    }

    /// Whether at least half of both limits is free.
    pub fn is_half_free(&self) -> bool {
        let roomy = |limiter: &Limiter| limiter.used.load(Relaxed) <= limiter.limit / 2;
        roomy(&self.size) && roomy(&self.bytes)
    }

    /// The retry delay for a refused sender: the time until the batch fits at the recent drain rate, within
    /// bounds. A client must not return at once, and gives up after a long delay.
    pub fn retry_delay(&self, batch: &Batch, now: Instant) -> Duration {
        const SOONEST: f64 = 0.1;
        const LATEST: f64 = 10.0;
        let size = self.size.wait(size_of(self.sizer, batch), now);
        let bytes = self.bytes.wait(batch.bytes(), now);
        Duration::from_secs_f64(size.max(bytes).clamp(SOONEST, LATEST))
    }

    /// Units of the sizer in use now.
    pub fn used(&self) -> usize {
        self.size.used.load(Relaxed)
    }

    /// The units of `used` that belong to one signal.
    pub fn used_by(&self, signal: Signal) -> usize {
        self.of_signal[signal as usize].load(Relaxed)
    }

    /// Bytes in use now.
    pub fn used_bytes(&self) -> usize {
        self.bytes.used.load(Relaxed)
    }

    /// The limit, in units of the sizer.
    pub fn limit(&self) -> usize {
        self.size.limit
    }
}

/// The size of a batch in units of `sizer`. Its kept headers don't count, because they are not sent.
pub(super) fn size_of(sizer: Sizer, batch: &Batch) -> usize {
    match sizer {
        Sizer::Requests => 1,
        Sizer::Items => batch.items(),
        Sizer::Bytes => batch.payload.bytes(),
    }
}

/// The capacity and the memory of one batch; dropping the permit releases both.
///
/// The drop also settles the batch on disk, through the guard, and answers the sender that waits for the
/// result.
pub struct QueuePermit {
    capacity: Arc<QueueCapacity>,
    signal: Signal,
    size: usize,
    bytes: usize,
    is_used: bool,
    /// The batch's record on disk, settled when this is dropped.
    ack: Option<AckGuard>,
    /// The sender that waits for the result.
    answer: Option<oneshot::Sender<PushAnswer>>,
    /// The reason why a part of the batch was not delivered. The first reason stays.
    failure: OnceLock<Refused>,
}

impl QueuePermit {
    /// Attaches the guard of the batch's record on disk.
    pub(super) fn set_ack(&mut self, ack: AckGuard) {
        self.ack = Some(ack);
    }

    /// The guard of a batch that is on disk.
    pub(super) fn ack(&self) -> Option<&AckGuard> {
        self.ack.as_ref()
    }

    /// Sets the sender that waits for the result.
    pub(super) fn answer_to(&mut self, answer: oneshot::Sender<PushAnswer>) {
        self.answer = Some(answer);
    }

    /// Records that a part of the batch will not be delivered.
    pub(super) fn fail(&self, reason: Reason, why: &str) {
        /// A retry of the sender reaches another gateway, or this one after its peer has recovered.
        const RETRY_AFTER: Duration = Duration::from_secs(1);
        if self.answer.is_some() {
            self.failure.get_or_init(|| match reason {
                Reason::Shutdown | Reason::RetriesExhausted | Reason::QueueFull => {
                    Refused::busy(why, RETRY_AFTER)
                }
                _ => Refused::permanent(why),
            });
        }
    }

    /// Resizes the permit to the batch that arrives, because processors on the path may have changed it. Growth
    /// always succeeds, because a commitment can't be revoked.
    pub fn fit(&mut self, batch: &Batch) {
        let (size, bytes) = (size_of(self.capacity.sizer, batch), batch.bytes());
        self.capacity.size.used.fetch_add(size, Relaxed);
        self.capacity.of_signal[self.signal as usize].fetch_add(size, Relaxed);
        self.capacity.bytes.used.fetch_add(bytes, Relaxed);
        self.capacity.shared.memory.hold(bytes);
        self.release();
        (self.size, self.bytes, self.is_used) = (size, bytes, true);
    }

    fn release(&self) {
        let (size, bytes) = (&self.capacity.size, &self.capacity.bytes);
        if self.is_used {
            size.drain(self.size);
            bytes.drain(self.bytes);
        } else {
            size.release(self.size);
            bytes.release(self.bytes);
        }
        self.capacity.of_signal[self.signal as usize].fetch_sub(self.size, Relaxed);
        self.capacity.shared.memory.release(self.bytes);
    }
}

impl Drop for QueuePermit {
    fn drop(&mut self) {
        self.release();
        if let Some(answer) = self.answer.take() {
            // The receiver may have stopped waiting, so an error does not matter.
            let _ = answer.send(
                self.failure
                    .take()
                    .map_or_else(|| Ok(PushOutcome::default()), Err),
            );
        }
    }
}

impl std::fmt::Debug for QueuePermit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("QueuePermit")
            .field("size", &self.size)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// The permits of all batches that have a piece in a request. The pieces of a batch that was split share its
/// permit, as they share its bytes.
pub type Permits = SmallVec<[Arc<QueuePermit>; 1]>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Signal;
    use crate::delivery::testing::opaque;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_drain_rate_counts_the_time_in_use_only() {
        let (mut drain_rate, start) = (DrainRate::default(), Instant::now());
        assert_eq!(drain_rate.per_second(start), 0.0, "nothing is known");
        drain_rate.begin(start);
        drain_rate.drain(50, start + seconds(1.0));
        assert_eq!(drain_rate.per_second(start + seconds(2.0)), 25.0);
        // An idle hour proves nothing about the speed of the peer.
        let later = start + seconds(3600.0);
        drain_rate.before = 25.0;
        drain_rate.begin(later);
        drain_rate.drain(4, later + seconds(0.1));
        assert!(drain_rate.per_second(later + seconds(0.1)) < 25.0 + 1e-9);
        assert_eq!(drain_rate.per_second(later + seconds(0.4)), 10.0);
        // The rate of a stalled peer falls only after a while.
        for second in 1..=20 {
            drain_rate.drain(100, later + seconds(f64::from(second)));
        }
        let running = drain_rate.per_second(later + seconds(20.0));
        assert!((90.0..=110.0).contains(&running), "{running}");
        assert!(drain_rate.per_second(later + seconds(60.0)) < 25.0);
    }

    #[test]
    fn a_refused_sender_gets_the_delay_of_the_recent_drain_rate() {
        let capacity = QueueCapacity::new(Sizer::Items, 100, usize::MAX, Arc::default());
        let batch = opaque(Signal::Logs, b"x", 50);
        let hold = || {
            let mut held = capacity.reserve(&batch).unwrap();
            held.fit(&batch);
            held
        };
        let mut held = vec![hold(), hold()];
        let start = capacity.size.drain_rate().since.unwrap();
        assert!(capacity.reserve(&batch).is_err());
        let wait = |at: f64| capacity.retry_delay(&batch, start + seconds(at)).as_secs_f64();
        assert_eq!(wait(1.0), 10.0, "nothing has become free yet");
        held.pop();
        // An unused permit is not progress.
        drop(capacity.reserve(&batch).unwrap());
        held.push(hold());
        assert_eq!(wait(2.0), 2.0, "50 of them in two seconds, 50 are missing");
        held.pop();
        assert_eq!(wait(2.0), 0.1, "there is room now");
    }
}
