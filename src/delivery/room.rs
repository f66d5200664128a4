//! The room of a queue: set aside before anybody commits, given back when the last piece of what it was for is gone.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use smallvec::SmallVec;
use tokio::sync::oneshot;

use super::ticket::Ticket;
use crate::batch::{Batch, Signal, Sizer};
use crate::component::{Answer, Reason, Refused, Shared, Verdict};

/// How much a queue may hold, and how much it holds. Taking room needs no lock.
pub struct Room {
    sizer: Sizer,
    size: Gauge,
    bytes: Gauge,
    /// What of the size is whose, by `Signal as usize`.
    of_signal: [AtomicUsize; 3],
    shared: Arc<Shared>,
}

/// Something of which there is a limited amount.
struct Gauge {
    limit: usize,
    used: AtomicUsize,
    pace: Mutex<Pace>,
}

/// How fast it becomes free while any of it is in use.
#[derive(Default)]
struct Pace {
    /// When it last came into use, or so that old times weigh little.
    since: Option<Instant>,
    /// What has become free since then.
    drained: f64,
    /// What was measured last before that, a second.
    before: f64,
}

impl Pace {
    /// A shorter time says little.
    const SHORT: f64 = 0.2;
    /// After so long the first half counts for nothing.
    const LONG: f64 = 10.0;

    /// It comes into use.
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
        match seconds < Self::SHORT {
            true => self.before,
            false => self.drained / seconds,
        }
    }

    fn seconds(&self, now: Instant) -> f64 {
        self.since
            .map_or(0.0, |since| now.saturating_duration_since(since).as_secs_f64())
    }
}

impl Gauge {
    fn new(limit: usize) -> Self {
        Self {
            limit,
            used: AtomicUsize::new(0),
            pace: Mutex::default(),
        }
    }

    fn take(&self, amount: usize) -> Result<(), NoRoom> {
        let sum = |used: usize| used.checked_add(amount).filter(|sum| *sum <= self.limit);
        match self.used.fetch_update(Relaxed, Relaxed, sum) {
            Ok(0) => {
                self.pace().begin(Instant::now());
                Ok(())
            }
            Ok(_) => Ok(()),
            Err(_) if amount > self.limit => Err(NoRoom::NeverFits),
            Err(_) => Err(NoRoom::Full),
        }
    }

    fn give_back(&self, amount: usize) {
        self.used.fetch_sub(amount, Relaxed);
    }

    /// Gives back what was delivered or dropped, as opposed to what was never used.
    fn drain(&self, amount: usize) {
        self.pace().drain(amount, Instant::now());
        self.give_back(amount);
    }

    /// Seconds until there is room for `amount`, at the recent pace; infinite where nothing becomes free.
    fn wait(&self, amount: usize, now: Instant) -> f64 {
        let missing = (self.used.load(Relaxed).saturating_add(amount)).saturating_sub(self.limit);
        match missing {
            0 => 0.0,
            missing => missing as f64 / self.pace().per_second(now),
        }
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoRoom {
    /// Others have it now.
    Full,
    /// It would not fit into the empty queue.
    NeverFits,
}

impl Room {
    /// Room for `limit` of what `sizer` counts, and for `max_bytes` whatever the sizer.
    pub fn new(sizer: Sizer, limit: usize, max_bytes: usize, shared: Arc<Shared>) -> Arc<Self> {
        Arc::new(Self {
            sizer,
            size: Gauge::new(limit),
            bytes: Gauge::new(max_bytes),
            of_signal: Default::default(),
            shared,
        })
    }

    /// Sets room aside for a batch.
    pub fn reserve(self: &Arc<Self>, batch: &Batch) -> Result<Reservation, NoRoom> {
        let (size, bytes) = (size_of(self.sizer, batch), batch.bytes());
        self.size.take(size)?;
        self.bytes
            .take(bytes)
            .inspect_err(|_| self.size.give_back(size))?;
        Ok(self.held(batch.signal(), size, bytes))
    }

    /// Room for a batch that there is no way back for, whether there is room or not.
    pub fn force(self: &Arc<Self>, batch: &Batch) -> Reservation {
        let (size, bytes) = (size_of(self.sizer, batch), batch.bytes());
        self.size.used.fetch_add(size, Relaxed);
        self.bytes.used.fetch_add(bytes, Relaxed);
        let mut held = self.held(batch.signal(), size, bytes);
        held.is_used = true;
        held
    }

    fn held(self: &Arc<Self>, signal: Signal, size: usize, bytes: usize) -> Reservation {
        self.shared.memory.hold(bytes);
        self.of_signal[signal as usize].fetch_add(size, Relaxed);
        Reservation {
            room: self.clone(),
            signal,
            size,
            bytes,
            is_used: false,
            ticket: None,
            answer: None,
            failure: OnceLock::new(),
        }
    }

    /// Whether more than half of it is free.
    pub fn is_roomy(&self) -> bool {
        let roomy = |gauge: &Gauge| gauge.used.load(Relaxed) <= gauge.limit / 2;
        roomy(&self.size) && roomy(&self.bytes)
    }

    /// When it is worth while for a refused batch to come back: when at the recent pace there is room for it, but
    /// neither at once nor so late that a client gives up.
    pub fn worth_while(&self, batch: &Batch, now: Instant) -> Duration {
        const SOONEST: f64 = 0.1;
        const LATEST: f64 = 10.0;
        let size = self.size.wait(size_of(self.sizer, batch), now);
        let bytes = self.bytes.wait(batch.bytes(), now);
        Duration::from_secs_f64(size.max(bytes).clamp(SOONEST, LATEST))
    }

    /// What is set aside or held now, in units of the sizer.
    pub fn used(&self) -> usize {
        self.size.used.load(Relaxed)
    }

    /// What of it a signal has.
    pub fn used_by(&self, signal: Signal) -> usize {
        self.of_signal[signal as usize].load(Relaxed)
    }

    /// Bytes that are set aside or held now.
    pub fn used_bytes(&self) -> usize {
        self.bytes.used.load(Relaxed)
    }

    /// The most that may be.
    pub fn limit(&self) -> usize {
        self.size.limit
    }
}

/// The size of a batch as `sizer` counts it. Headers that it keeps are no part of a request.
pub(super) fn size_of(sizer: Sizer, batch: &Batch) -> usize {
    match sizer {
        Sizer::Requests => 1,
        Sizer::Items => batch.items(),
        Sizer::Bytes => batch.payload.bytes(),
    }
}

/// Room and memory that one batch takes; both are given back on drop.
pub struct Reservation {
    room: Arc<Room>,
    signal: Signal,
    size: usize,
    bytes: usize,
    is_used: bool,
    /// What it is on disk; settled when this is dropped.
    ticket: Option<Ticket>,
    /// Who waits to hear what becomes of it.
    answer: Option<oneshot::Sender<Answer>>,
    /// Why a part of it was not delivered.
    failure: OnceLock<Refused>,
}

impl Reservation {
    /// The batch is on disk too.
    pub(super) fn set_ticket(&mut self, ticket: Ticket) {
        self.ticket = Some(ticket);
    }

    /// Its ticket, where the batch is on disk.
    pub(super) fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Somebody wants to know what becomes of it.
    pub(super) fn answer_to(&mut self, answer: oneshot::Sender<Answer>) {
        self.answer = Some(answer);
    }

    /// A part of the batch will not be delivered.
    pub(super) fn fail(&self, reason: Reason, why: &str) {
        /// A sender that sends it again finds another gateway, or this one with its peer back.
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

    /// Fits the reservation to the batch that came in the end: processors on the way may have changed it.
    /// Growth is always granted, since a commitment can't be taken back.
    pub fn fit(&mut self, batch: &Batch) {
        let (size, bytes) = (size_of(self.room.sizer, batch), batch.bytes());
        self.room.size.used.fetch_add(size, Relaxed);
        self.room.of_signal[self.signal as usize].fetch_add(size, Relaxed);
        self.room.bytes.used.fetch_add(bytes, Relaxed);
        self.room.shared.memory.hold(bytes);
        self.give_back();
        (self.size, self.bytes, self.is_used) = (size, bytes, true);
    }

    fn give_back(&self) {
        let (size, bytes) = (&self.room.size, &self.room.bytes);
        match self.is_used {
            true => {
                size.drain(self.size);
                bytes.drain(self.bytes);
            }
            false => {
                size.give_back(self.size);
                bytes.give_back(self.bytes);
            }
        }
        self.room.of_signal[self.signal as usize].fetch_sub(self.size, Relaxed);
        self.room.shared.memory.release(self.bytes);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back();
        if let Some(answer) = self.answer.take() {
            // A caller that no longer waits need not know.
            let _ = answer.send(self.failure.take().map_or_else(|| Ok(Verdict::default()), Err));
        }
    }
}

impl std::fmt::Debug for Reservation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reservation")
            .field("size", &self.size)
            .field("bytes", &self.bytes)
            .finish_non_exhaustive()
    }
}

/// What a request keeps alive: the reservations of all batches that have a piece in it. The pieces of a batch
/// that was cut share its reservation, as they share its bytes.
pub type Charge = SmallVec<[Arc<Reservation>; 1]>;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Signal;
    use crate::delivery::testing::opaque;

    fn seconds(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    #[test]
    fn the_pace_is_that_of_the_time_in_use() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        assert_eq!(pace.per_second(start), 0.0, "nothing is known");
        pace.begin(start);
        pace.drain(50, start + seconds(1.0));
        assert_eq!(pace.per_second(start + seconds(2.0)), 25.0);
        // An idle hour says nothing of how fast the peer is.
        let later = start + seconds(3600.0);
        pace.before = 25.0;
        pace.begin(later);
        pace.drain(4, later + seconds(0.1));
        assert!(pace.per_second(later + seconds(0.1)) < 25.0 + 1e-9);
        assert_eq!(pace.per_second(later + seconds(0.4)), 10.0);
        // A peer that comes to a standstill is believed to after a while.
        for second in 1..=20 {
            pace.drain(100, later + seconds(f64::from(second)));
        }
        let running = pace.per_second(later + seconds(20.0));
        assert!((90.0..=110.0).contains(&running), "{running}");
        assert!(pace.per_second(later + seconds(60.0)) < 25.0);
    }

    #[test]
    fn who_is_refused_is_told_to_come_back_when_there_is_room_at_the_pace_of_late() {
        let room = Room::new(Sizer::Items, 100, usize::MAX, Arc::default());
        let batch = opaque(Signal::Logs, b"x", 50);
        let hold = || {
            let mut held = room.reserve(&batch).unwrap();
            held.fit(&batch);
            held
        };
        let mut held = vec![hold(), hold()];
        let start = room.size.pace().since.unwrap();
        assert!(room.reserve(&batch).is_err());
        let wait = |at: f64| room.worth_while(&batch, start + seconds(at)).as_secs_f64();
        assert_eq!(wait(1.0), 10.0, "nothing has become free yet");
        held.pop();
        // What was set aside and never used is no progress.
        drop(room.reserve(&batch).unwrap());
        held.push(hold());
        assert_eq!(wait(2.0), 2.0, "50 of them in two seconds, 50 are missing");
        held.pop();
        assert_eq!(wait(2.0), 0.1, "there is room now");
    }
}
