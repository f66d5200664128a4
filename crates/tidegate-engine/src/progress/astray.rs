//! A stream whose points are not taken: when it stands still, and when its sender's clock was set back.
//!
//! A sender whose clock steps back says nothing but points that are older than its newest, and goes on at the pace of the
//! clock. What was on the way for long comes faster, or between points that are taken.

use crate::UnixNanos;
use crate::cadence::{PUSH_NS, SHORTEST_LEASE_NS};

/// Intervals after which the clock of a sender counts as set back: more than 2.5, as a lease has.
const INTERVALS: u32 = 3;

/// Two points may be so much nearer to one another when they come than when they were made.
const JITTER_NS: u64 = 2 * PUSH_NS;

/// The points in a row that were not taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Astray {
    /// When the first of them came, by our clock; 0: the latest point was taken.
    since: UnixNanos,
    /// When the last of them came.
    at: UnixNanos,
    /// When the last push of them began.
    pushed: UnixNanos,
    /// Pushes after the first one, or after the latest step of the sender's clock.
    intervals: u32,
    /// More than one push was not taken: one may have been overtaken by the next.
    stands_still: bool,
    /// The times of the first and of the last, by the sender's clock.
    first: UnixNanos,
    last: UnixNanos,
    /// How far behind ours the sender's clock is, since it was set back.
    pub(super) lag: u64,
}

impl Astray {
    pub(super) fn is_astray(&self) -> bool {
        self.since != 0
    }

    pub(super) fn stands_still(&self) -> bool {
        self.stands_still
    }

    /// The latest point was taken.
    pub(super) fn clear(&mut self) {
        *self = Self {
            lag: self.lag,
            ..Self::default()
        };
    }

    /// A point of this time was not taken. `true`: the stream stands still from now on.
    pub(super) fn note(&mut self, time: UnixNanos, now: UnixNanos) -> bool {
        if self.since == 0 {
            (self.since, self.pushed) = (now.max(1), now);
            (self.at, self.first, self.last) = (now, time, time);
            return false;
        }
        let (passed, said) = (now.saturating_sub(self.at), time.checked_sub(self.last));
        if said.is_none_or(|said| said > passed.saturating_mul(2).saturating_add(JITTER_NS)) {
            // Another order, or another step: its pace is measured from here.
            (self.since, self.first, self.intervals) = (now.max(1), time, 0);
        }
        (self.at, self.last) = (now, time);
        if now < self.pushed.saturating_add(PUSH_NS) {
            return false;
        }
        self.pushed = now;
        self.intervals = self.intervals.saturating_add(1);
        !std::mem::replace(&mut self.stands_still, true)
    }

    /// Whether the points come as those of a clock that was set back: for longer than a lease, at the pace of ours.
    pub(super) fn is_set_back(&self, now: UnixNanos) -> bool {
        let (passed, said) = (now.saturating_sub(self.since), self.last - self.first);
        let is_in_step = said >= passed / 2 && said <= passed.saturating_mul(2);
        self.intervals >= INTERVALS && passed >= SHORTEST_LEASE_NS && is_in_step
    }
}
