// SPDX-License-Identifier: Apache-2.0

//! The account of the gateway's memory: the last measurement, plus all bytes reserved or received since.
//!
//! A reservation ([`Held`]) says how many bytes its owner may allocate, and how many of them are allocated. A
//! measurement covers allocated bytes only. Bytes that are reserved and not yet allocated count on top of every
//! measurement.

mod arriving;
mod held;
mod limits;
pub mod measure;
mod senders;
mod waiting;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicBool, AtomicU64, AtomicUsize,
    Ordering::{Relaxed, SeqCst},
};
use std::time::Duration;

use parking_lot::Mutex;

use tidegate_account::{Begun, Counters, resident};
use tidegate_engine::Bounds;
use tokio::sync::Notify;
use tokio::time::Instant;

pub use arriving::{Arriving, Late, Pauses};
pub use held::Held;
use limits::Limits;
pub use limits::{Ceiling, Limit, default_limit};
pub use senders::SenderKey;
use senders::Senders;

/// Memory counts as short for this long after room was last refused.
const SHORT_FOR: Duration = Duration::from_secs(1);

/// A reservation of this many bytes or more must fit on top of the resident memory. Freed memory stays resident until
/// the allocator returns it, some tenths of a second later. Small buffers fit into it; large ones do not.
const LARGE: usize = 1 << 20;

/// The shortest time between two measurements of the process, however many callers ask.
const MEASURE_AFTER: Duration = Duration::from_millis(1);

/// The interval of measurements while no memory limiter runs.
const MEASURE_EVERY: Duration = Duration::from_secs(1);

/// The memory limit leaves no room now.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the gateway is over its memory limit")]
pub struct NoRoom;

/// Counts a request that was refused because memory or processors are too short for it. `class` is `receiver`, or `component`
/// for all others.
pub fn count_refusal(class: &'static str, id: &Arc<str>, reason: &'static str) {
    metrics::counter!("tidegate_memory_refusals_total", class => id.clone(), "reason" => reason).increment(1);
}

/// A time of short memory under one ceiling.
#[derive(Debug, Default)]
struct Shortage {
    /// In milliseconds after the account began.
    until: AtomicU64,
    begins: Notify,
}

/// The memory account. A gateway has one.
#[derive(Debug)]
pub struct Account {
    /// The smallest of `limits`. Requests that stay are refused above it, and tables take in no new series.
    soft: AtomicUsize,
    /// The same; all requests are refused above it.
    hard: AtomicUsize,
    limits: Mutex<Limits>,
    /// The bounds of each table: a quarter of the soft limit where the table's configuration sets none.
    of_a_table: Arc<Bounds>,
    senders: Senders,
    /// Whether the account is that of this process: set once [`Self::watch`] runs.
    is_live: AtomicBool,
    /// Bytes measured, reserved and filled, and the number of waiting requests.
    counters: Counters,
    /// The number of bodies that are being received.
    arriving: AtomicUsize,
    /// Bytes that waiting requests want.
    wanted: AtomicUsize,
    freed: Notify,
    /// The number of notifications through `freed`.
    frees: AtomicUsize,
    began: Instant,
    /// One for each ceiling.
    shortages: [Shortage; 2],
    opened: std::time::Instant,
    /// The time of the last measurement, in microseconds after `opened`; 0 before the first.
    measured_at: AtomicU64,
}

impl Default for Account {
    fn default() -> Self {
        Self {
            soft: AtomicUsize::new(usize::MAX),
            hard: AtomicUsize::new(usize::MAX),
            limits: Mutex::default(),
            of_a_table: Arc::default(),
            senders: Senders::default(),
            is_live: AtomicBool::new(false),
            counters: Counters::default(),
            arriving: AtomicUsize::new(0),
            wanted: AtomicUsize::new(0),
            freed: Notify::new(),
            frees: AtomicUsize::new(0),
            began: Instant::now(),
            shortages: Default::default(),
            opened: std::time::Instant::now(),
            measured_at: AtomicU64::new(0),
        }
    }
}

impl Account {
    /// Adds the limit of a memory limiter that starts.
    pub fn add_limit(&self, limit: Limit) {
        self.change_limits(|limits| limits.of_limiters.push(limit));
    }

    /// Removes the limit of a memory limiter that ends.
    pub fn remove_limit(&self, ended: Limit) {
        self.change_limits(|limits| {
            let mut known = limits.of_limiters.iter();
            if let Some(at) = known.position(|limit| *limit == ended) {
                limits.of_limiters.swap_remove(at);
            }
        });
    }

    /// Sets the limit, in bytes, for the time while no memory limiter runs.
    pub fn set_default_limit(&self, bytes: usize) {
        self.change_limits(|limits| limits.default = Some(bytes));
    }

    /// Whether the limit is that of a memory limiter, which also measures.
    fn has_limiter(&self) -> bool {
        let limits = self.limits.lock();
        !limits.of_limiters.is_empty()
    }

    fn change_limits(&self, change: impl FnOnce(&mut Limits)) {
        let mut limits = self.limits.lock();
        change(&mut limits);
        let Limit { soft, hard } = limits.least();
        self.soft.store(soft, Relaxed);
        self.hard.store(hard, Relaxed);
        self.of_a_table
            .set_bytes(if soft == usize::MAX { soft } else { soft / 4 });
    }

    /// Measures the process once a second while no memory limiter does. It never returns.
    pub async fn watch(&self) {
        self.is_live.store(true, Relaxed);
        let mut ticks = tokio::time::interval(MEASURE_EVERY);
        loop {
            ticks.tick().await;
            if !self.has_limiter() {
                // If the system gives no number, the last measurement stays.
                let _ = self.measure();
            }
        }
    }

    /// The most that may be used.
    pub fn limit(&self) -> usize {
        self.hard.load(Relaxed)
    }

    /// The most that may be used by requests under `ceiling`.
    pub fn limit_under(&self, ceiling: Ceiling) -> usize {
        match ceiling {
            Ceiling::Soft => self.soft.load(Relaxed),
            Ceiling::Hard => self.hard.load(Relaxed),
        }
    }

    /// The bounds of a table whose configuration sets none: a quarter of the soft limit. They follow later changes of
    /// the limit. Above the soft limit, tables take in no new series.
    pub fn bounds_of_tables(&self) -> Arc<Bounds> {
        self.of_a_table.clone()
    }

    /// The process was measured, for a test.
    #[cfg(any(test, feature = "testing"))]
    pub fn note(&self, measured: usize) {
        self.take_measure(self.counters.begin(), measured);
        self.wake_waiters();
    }

    /// Measures the process.
    ///
    /// # Errors
    /// The system does not say how much it uses.
    pub fn measure(&self) -> io::Result<usize> {
        let begun = self.counters.begin();
        let resident = usize::try_from(measure::resident_bytes()?).unwrap_or(usize::MAX);
        self.take_measure(begun, resident);
        Ok(resident)
    }

    fn take_measure(&self, begun: Begun, measured: usize) {
        let before = self.used_bytes();
        self.counters.note(begun, measured);
        let used = self.used_bytes();
        self.of_a_table.set_tight(used > self.limit_under(Ceiling::Soft));
        if used < before {
            self.wake_waiters();
        }
    }

    /// Bytes in use: the last measurement, plus those reserved or received since.
    pub fn used_bytes(&self) -> usize {
        self.counters.used()
    }

    /// Whether more is used than the limit under `ceiling` allows.
    pub fn is_over(&self, ceiling: Ceiling) -> bool {
        self.uses_more_than(self.limit_under(ceiling))
    }

    /// Whether more than `limit` bytes are in use.
    pub fn uses_more_than(&self, limit: usize) -> bool {
        !self.holds_again(|| self.used_bytes() <= limit)
    }

    /// Whether `bytes` more could be reserved now for data that stays in memory.
    pub fn has_room(&self, bytes: usize) -> bool {
        self.has_room_within(bytes, self.limit_under(Ceiling::Soft))
    }

    /// Whether `bytes` more could be reserved now without using more than `most`.
    fn has_room_within(&self, bytes: usize, most: usize) -> bool {
        self.holds_again(|| {
            let reserved = self.counters.reserved().saturating_add(bytes);
            self.counters.used_with(reserved) <= most
        })
    }

    /// The part of `bytes` that could be reserved now without using more than `most`.
    pub fn room_for(&self, bytes: usize, most: usize) -> usize {
        let room = || most.saturating_sub(self.used_bytes()).min(bytes);
        if room() < bytes {
            self.measure_again();
        }
        room()
    }

    /// Whether `condition` holds now, or after a new measurement: memory returned to the system since the last one
    /// refuses no request.
    fn holds_again(&self, mut condition: impl FnMut() -> bool) -> bool {
        condition() || (self.measure_again() && condition())
    }

    /// Bytes that are reserved.
    pub fn reserved_bytes(&self) -> usize {
        self.counters.reserved()
    }

    /// Bytes of reservations that are allocated.
    pub fn filled_bytes(&self) -> usize {
        self.counters.filled()
    }

    /// Notes bytes that the gateway holds already.
    pub fn hold(&self, bytes: usize) {
        self.counters.fill(bytes, bytes);
    }

    /// Notes that the gateway has freed `bytes` of them.
    pub fn release(&self, bytes: usize) {
        self.give_back(bytes, bytes);
    }

    fn give_back(&self, reserved: usize, filled: usize) {
        if self.counters.give_back(reserved, filled) {
            self.wake();
        }
    }

    /// Each of them looks once whether there is room now, one after the other.
    fn wake_waiters(&self) {
        if self.counters.has_waiting() {
            self.wake();
        }
    }

    fn wake(&self) {
        self.frees.fetch_add(1, SeqCst);
        self.freed.notify_one();
    }

    /// Measures now if this is the account of this process and the last measurement is old enough. Says whether the use
    /// is lower than assumed. A higher result is ignored: memory that others freed is still resident, and will be used
    /// again.
    fn measure_again(&self) -> bool {
        if !self.is_live.load(Relaxed) || !self.is_measure_due() {
            return false;
        }
        let begun = self.counters.begin();
        let resident = measure::resident_bytes().ok();
        let resident = resident.and_then(|bytes| usize::try_from(bytes).ok());
        let less = resident.filter(|bytes| *bytes < self.used_bytes());
        if let Some(bytes) = less {
            self.take_measure(begun, bytes);
        }
        less.is_some()
    }

    /// Whether `bytes` fit on top of the memory that is resident now and of reservations that are not filled yet.
    fn fits_beside_resident(&self, bytes: usize, most: usize) -> bool {
        if !self.is_live.load(Relaxed) || most == usize::MAX {
            return true;
        }
        let Some(resident_now) = measure::resident_bytes().ok() else {
            return true;
        };
        let to_come = self.reserved_bytes().saturating_sub(self.filled_bytes());
        let to_come = resident(to_come.saturating_add(bytes));
        usize::try_from(resident_now).is_ok_and(|now| now.saturating_add(to_come) <= most)
    }

    /// Whether [`MEASURE_AFTER`] is over. If so, only this caller measures.
    fn is_measure_due(&self) -> bool {
        let micros = |time: Duration| u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let (now, last) = (
            micros(self.opened.elapsed()).max(1),
            self.measured_at.load(Relaxed),
        );
        let is_due = last == 0 || now.saturating_sub(last) >= micros(MEASURE_AFTER);
        is_due
            && self
                .measured_at
                .compare_exchange(last, now, Relaxed, Relaxed)
                .is_ok()
    }

    /// Reserves bytes under `ceiling` without using more than `most`.
    fn reserve(&self, bytes: usize, most: usize, ceiling: Ceiling) -> Result<(), NoRoom> {
        self.reserve_quietly(bytes, most)
            .inspect_err(|_| self.run_short(ceiling))
    }

    /// The same, but a failure does not mark memory as short.
    fn reserve_quietly(&self, bytes: usize, most: usize) -> Result<(), NoRoom> {
        let fits = bytes < LARGE || self.fits_beside_resident(bytes, most);
        if fits && self.holds_again(|| self.counters.reserve(bytes, most)) {
            Ok(())
        } else {
            Err(NoRoom)
        }
    }

    /// Marks memory as short for [`SHORT_FOR`]: slow bodies under `ceiling` lose their room. If the hard limit leaves
    /// no room, neither does the soft one.
    pub(crate) fn run_short(&self, ceiling: Ceiling) {
        let until = self.began.elapsed() + SHORT_FOR;
        let until = u64::try_from(until.as_millis()).unwrap_or(u64::MAX);
        for shortage in &self.shortages[..=ceiling as usize] {
            shortage.until.fetch_max(until, Relaxed);
            shortage.begins.notify_waiters();
        }
    }

    /// Whether room under `ceiling` was refused just now.
    pub fn is_short(&self, ceiling: Ceiling) -> bool {
        let now = u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX);
        now < self.shortages[ceiling as usize].until.load(Relaxed)
    }

    /// Returns when the next request under `ceiling` is refused room.
    pub(crate) fn shortage(&self, ceiling: Ceiling) -> impl Future<Output = ()> {
        self.shortages[ceiling as usize].begins.notified()
    }
}

#[cfg(test)]
mod tests;
