// SPDX-License-Identifier: Apache-2.0

//! The progress on the items that a previous run left on disk, for the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// The interval between two lines about progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// The items that a previous run left, and the number that still remains.
#[derive(Default)]
pub(super) struct Recovery(Mutex<Option<Underway>>);

struct Underway {
    items: u64,
    begun: Instant,
    told: Instant,
}

/// A line for the log.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// The remaining items, and the items at the start.
    Remaining(u64, u64),
    /// All items are sent: their number, and the time that it took.
    CaughtUp(u64, Duration),
}

impl Recovery {
    /// Begins the recovery of `items` items.
    pub(super) fn begin(&self, items: u64, now: Instant) {
        let underway = Underway {
            items,
            begun: now,
            told: now,
        };
        *self.0.lock() = Some(underway).filter(|_| items > 0);
    }

    /// Returns the due log line, given the remaining items.
    pub(super) fn progress(&self, remaining: u64, now: Instant) -> Option<Progress> {
        let mut recovery = self.0.lock();
        let underway = recovery.as_mut()?;
        let items = underway.items;
        if remaining == 0 {
            let took = now.saturating_duration_since(underway.begun);
            *recovery = None;
            return Some(Progress::CaughtUp(items, took));
        }
        let due = now.saturating_duration_since(underway.told) >= INTERVAL;
        due.then(|| {
            underway.told = now;
            Progress::Remaining(remaining, items)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_logged_now_and_then_and_its_end_once() {
        let (recovery, start) = (Recovery::default(), Instant::now());
        let at = |seconds: u64| start + Duration::from_secs(seconds);
        assert_eq!(recovery.progress(0, start), None, "nothing was found");
        recovery.begin(100, start);
        assert_eq!(recovery.progress(90, at(9)), None);
        assert_eq!(recovery.progress(80, at(10)), Some(Progress::Remaining(80, 100)));
        assert_eq!(recovery.progress(70, at(11)), None);
        let end = Progress::CaughtUp(100, Duration::from_secs(12));
        assert_eq!(recovery.progress(0, at(12)), Some(end));
        assert_eq!(recovery.progress(0, at(13)), None);
    }
}
