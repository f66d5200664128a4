// SPDX-License-Identifier: Apache-2.0

//! The single clock of a process: monotonic, and anchored to the wall clock.
//!
//! Windows, leases and expiry use [`now`], which never jumps. Times in output are those of the wall clock: [`wall`]
//! converts them. A step of the wall clock changes only the offset between the two.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::UnixNanos;
use crate::lease::nanos;

/// Both clocks run at one pace. A larger difference, in nanoseconds (100 ms), means that the wall clock was set.
const STEP_NS: u64 = 100_000_000;

/// Two readings that take longer say nothing of one moment.
const MOMENT: Duration = Duration::from_millis(20);

/// A monotonic moment, and the wall clock at that moment.
static ANCHOR: OnceLock<(Instant, UnixNanos)> = OnceLock::new();

/// The time of a clock that is set by hand; 0: the clock runs.
static MANUAL: AtomicU64 = AtomicU64::new(0);

static STEPS: AtomicU64 = AtomicU64::new(0);

/// The time for which a step of the wall clock counts as recent, in nanoseconds (1 h).
const LATELY_NS: u64 = 3_600_000_000_000;

/// The offset of the wall clock from this clock in nanoseconds, in two's complement.
#[cfg(not(test))]
static AHEAD: AtomicU64 = AtomicU64::new(0);

/// When the wall clock was last set, by our clock; 0: never.
#[cfg(not(test))]
static SET: AtomicU64 = AtomicU64::new(0);

#[cfg(not(test))]
fn ahead() -> i64 {
    AHEAD.load(Relaxed).cast_signed()
}

#[cfg(not(test))]
fn set_ahead_at(ns: i64, now: UnixNanos) {
    AHEAD.store(ns.cast_unsigned(), Relaxed);
    SET.store(now, Relaxed);
}

#[cfg(not(test))]
fn was_set() -> UnixNanos {
    SET.load(Relaxed)
}

// Each test has a wall clock of its own.
#[cfg(test)]
thread_local! {
    static AHEAD: std::cell::Cell<i64> = const { std::cell::Cell::new(0) };
    static SET: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

#[cfg(test)]
fn ahead() -> i64 {
    AHEAD.get()
}

#[cfg(test)]
pub(crate) fn set_ahead_at(ns: i64, now: UnixNanos) {
    AHEAD.set(ns);
    SET.set(now);
}

/// Sets the offset, which then counts as set just now at any time.
#[cfg(test)]
pub(crate) fn set_ahead(ns: i64) {
    set_ahead_at(ns, UnixNanos::MAX);
}

#[cfg(test)]
fn was_set() -> UnixNanos {
    SET.get()
}

/// Stops the clock of this process at a time, which both [`now`] and the wall clock have until the next call. Tests of
/// configurations run on such a clock. Call it before anything reads the clock.
pub fn set_manual(now: UnixNanos) {
    MANUAL.store(now.max(1), Relaxed);
}

/// Whether the clock is set by hand.
#[inline]
pub fn is_manual() -> bool {
    MANUAL.load(Relaxed) > 0
}

/// Now, by the clock that never jumps. It notices when the wall clock was set.
pub fn now() -> UnixNanos {
    let manual = MANUAL.load(Relaxed);
    if manual > 0 {
        return manual;
    }
    let (begun, anchor) = *ANCHOR.get_or_init(|| (Instant::now(), wall_clock()));
    let now = anchor.saturating_add(nanos(begun.elapsed()));
    if apart(wall_clock(), now).unsigned_abs() > STEP_NS {
        follow(begun, anchor);
    }
    now
}

/// The number of steps of the wall clock since the process began.
pub fn steps() -> u64 {
    STEPS.load(Relaxed)
}

/// Whether the wall clock was set in the hour before `now`.
#[inline]
pub(crate) fn was_set_lately(now: UnixNanos) -> bool {
    let set = was_set();
    set > 0 && now.saturating_sub(set) < LATELY_NS
}

/// The wall-clock time of a time from [`now`].
#[inline]
pub fn wall(time: UnixNanos) -> UnixNanos {
    time.saturating_add_signed(ahead())
}

/// The reverse of [`wall`].
pub fn steady(time: UnixNanos) -> UnixNanos {
    time.saturating_add_signed(ahead().saturating_neg())
}

fn wall_clock() -> UnixNanos {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    nanos(since)
}

/// The distance of the wall clock from its assumed position, in nanoseconds.
fn apart(wall_clock: UnixNanos, now: UnixNanos) -> i64 {
    wall_clock.wrapping_sub(wall(now)).cast_signed()
}

/// Follows the wall clock. A thread that was suspended between two readings sees no step.
#[cold]
fn follow(begun: Instant, anchor: UnixNanos) {
    let before = Instant::now();
    let read = wall_clock();
    if before.elapsed() > MOMENT {
        return;
    }
    let now = anchor.saturating_add(nanos(before.saturating_duration_since(begun)));
    if apart(read, now).unsigned_abs() > STEP_NS {
        set_ahead_at(read.wrapping_sub(now).cast_signed(), now);
        STEPS.fetch_add(1, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wall_time_is_followed_and_our_clock_continues() {
        let (first, said) = (now(), wall_clock());
        assert!(wall(first).abs_diff(said) < STEP_NS);
        // Pretends that the wall clock was a day ahead until now.
        set_ahead(86_400_000_000_000);
        let (steps, second) = (steps(), now());
        assert!(second >= first && second - first < 10_000_000_000);
        assert!(wall(second).abs_diff(wall_clock()) < 2 * STEP_NS);
        assert_eq!(super::steps(), steps + 1);
        set_ahead(-5);
        assert_eq!((wall(100), steady(95)), (95, 100));
    }
}
