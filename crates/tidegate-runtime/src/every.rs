// SPDX-License-Identifier: Apache-2.0

//! A rate limit for repeated messages.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Lets one of many equal messages through every so often and counts the rest.
#[derive(Debug)]
pub struct Every {
    start: Instant,
    interval: Duration,
    /// Milliseconds from `start` to the last message that came through, plus 1; 0: none yet.
    last: AtomicU64,
    held_back: AtomicUsize,
}

impl Every {
    /// At most one message per `interval`.
    pub fn new(interval: Duration) -> Self {
        Self::since(Instant::now(), interval)
    }

    /// The same for callers with a clock of their own, which says `now`.
    pub fn since(now: Instant, interval: Duration) -> Self {
        Self {
            start: now,
            interval,
            last: AtomicU64::new(0),
            held_back: AtomicUsize::new(0),
        }
    }

    /// If it is time to log, the number of messages that were held back since the last time.
    pub fn ready(&self) -> Option<usize> {
        if self.is_due(self.interval, Instant::now()) {
            Some(self.held_back.swap(0, Relaxed))
        } else {
            self.held_back.fetch_add(1, Relaxed);
            None
        }
    }

    /// Notes `items`; when a message is due, all items since the last one. The interval counts from that one.
    pub fn note(&self, interval: Duration, items: usize, now: Instant) -> Option<usize> {
        if self.is_due(interval, now) {
            Some(self.held_back.swap(0, Relaxed) + items)
        } else {
            self.held_back.fetch_add(items, Relaxed);
            None
        }
    }

    /// Lets a message through that is not due. The interval counts from it. Gives the number of messages that were held back.
    pub fn let_through(&self, now: Instant) -> usize {
        self.last.store(self.stamp(now), Relaxed);
        self.held_back.swap(0, Relaxed)
    }

    /// If several threads ask at once, one gets true.
    fn is_due(&self, interval: Duration, now: Instant) -> bool {
        let (now, last) = (self.stamp(now), self.last.load(Relaxed));
        let is_due = last == 0 || now.saturating_sub(last) >= millis(interval);
        is_due && self.last.compare_exchange(last, now, Relaxed, Relaxed).is_ok()
    }

    /// `last` of a message that comes through now.
    fn stamp(&self, now: Instant) -> u64 {
        millis(now.saturating_duration_since(self.start)).saturating_add(1)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_hours(1);

    #[test]
    fn repeated_messages_are_held_back_and_counted() {
        let every = Every::new(INTERVAL);
        assert_eq!(every.ready(), Some(0));
        assert_eq!(every.ready(), None);
        assert_eq!(every.ready(), None);
        every.last.store(0, Relaxed);
        assert_eq!(every.ready(), Some(2));
    }

    #[test]
    fn the_next_message_has_the_items_of_all_that_were_held_back() {
        let start = Instant::now();
        let every = Every::since(start, INTERVAL);
        let note = |interval, items, after| every.note(interval, items, start + after);
        assert_eq!(note(INTERVAL, 1, Duration::ZERO), Some(1));
        assert_eq!(note(INTERVAL, 2, INTERVAL / 2), None);
        assert_eq!(note(2 * INTERVAL, 3, INTERVAL), None);
        assert_eq!(note(INTERVAL, 4, INTERVAL), Some(9));
        assert_eq!(note(INTERVAL, 5, INTERVAL), None);
    }

    #[test]
    fn the_interval_counts_from_a_message_that_was_let_through() {
        let start = Instant::now();
        let every = Every::since(start, INTERVAL);
        let note = |after| every.note(INTERVAL, 1, start + after);
        assert_eq!((note(Duration::ZERO), note(INTERVAL / 4)), (Some(1), None));
        assert_eq!(every.let_through(start + INTERVAL / 2), 1);
        assert_eq!((note(INTERVAL), note(INTERVAL * 3 / 2)), (None, Some(2)));
    }
}
