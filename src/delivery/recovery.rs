//! How far what a former run left on disk has come, for the log.

use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Between two lines about progress.
const INTERVAL: Duration = Duration::from_secs(10);

/// What a former run left, and how much of it is still there.
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
    /// So many of so many items are still to be sent.
    Remaining(u64, u64),
    /// None of so many is; it took so long.
    CaughtUp(u64, Duration),
}

impl Recovery {
    /// So many items were found.
    pub(super) fn begin(&self, items: u64, now: Instant) {
        let underway = Underway {
            items,
            begun: now,
            told: now,
        };
        *self.0.lock() = Some(underway).filter(|_| items > 0);
    }

    /// What to say when so many of them are still there.
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
    fn progress_is_told_now_and_then_and_its_end_once() {
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
