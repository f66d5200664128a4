// SPDX-License-Identifier: Apache-2.0

//! Leases: whether a source is still alive, independent of its measurements.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use crate::UnixNanos;

/// The liveness of a source, shared by all that watch the source and by all state that the source feeds.
///
/// A receiver makes one lease per source. It touches the lease whenever it sees the source (a ring file is present and
/// readable, a peer is connected), even without events. So a value can be `idle` (alive, nothing happened) instead of
/// `stale` (unknown).
#[derive(Debug)]
pub struct Lease {
    term_ns: AtomicU64,
    touched: AtomicU64,
    lost_at: AtomicU64,
    suspended: AtomicBool,
    ended: AtomicBool,
}

impl Lease {
    /// A lease that is overdue when it was not touched for `term`. `now` is its first touch.
    pub fn new(term: Duration, now: UnixNanos) -> Self {
        Self {
            term_ns: AtomicU64::new(nanos(term)),
            touched: AtomicU64::new(now),
            lost_at: AtomicU64::new(0),
            suspended: AtomicBool::new(false),
            ended: AtomicBool::new(false),
        }
    }

    /// The source is alive now.
    pub fn touch(&self, now: UnixNanos) {
        self.touched.fetch_max(now, Relaxed);
        self.suspended.store(false, Relaxed);
    }

    /// From now on it is overdue when it was not touched for `term`: another receiver goes on with it.
    pub fn set_term(&self, term: Duration) {
        self.term_ns.store(nanos(term), Relaxed);
    }

    /// The source is dead now. It stays expected, and the next touch makes it alive again.
    pub fn suspend(&self) {
        self.suspended.store(true, Relaxed);
    }

    /// The source has ended itself (or was seen to be dead): its state is folded at the next sweep.
    pub fn end(&self) {
        self.ended.store(true, Relaxed);
    }

    /// Something the source measured was lost before it reached us (a ring found full, say): composites that
    /// cover this moment are `partial`.
    pub fn lost(&self, now: UnixNanos) {
        self.lost_at.fetch_max(now, Relaxed);
    }

    /// When it was last known to be alive.
    pub fn touched(&self) -> UnixNanos {
        self.touched.load(Relaxed)
    }

    /// When a loss was last noted; 0 = never.
    pub fn lost_at(&self) -> UnixNanos {
        self.lost_at.load(Relaxed)
    }

    /// Whether the source is gone permanently.
    pub fn is_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// Whether the receiver has seen that the source is dead, for now or permanently.
    pub fn is_dead(&self) -> bool {
        self.suspended.load(Relaxed) || self.is_ended()
    }

    /// The longest time between two touches of a source that is alive, in nanoseconds.
    pub fn term_ns(&self) -> u64 {
        self.term_ns.load(Relaxed)
    }

    /// Whether the source is neither dead nor overdue.
    pub fn is_alive(&self, now: UnixNanos) -> bool {
        !self.is_dead() && now.saturating_sub(self.touched()) <= self.term_ns()
    }
}

/// Whether a run of a producer still reports. The owner of the state knows the term of its leases.
#[cfg(feature = "tables")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RunLiveness {
    /// When its newest lease began, or when the run reported its end.
    pub(crate) touched: UnixNanos,
    /// Whether the run has reported its end.
    pub(crate) is_ended: bool,
}

#[cfg(feature = "tables")]
impl RunLiveness {
    /// The run was alive at `seen`.
    pub(crate) fn touch(&mut self, seen: UnixNanos) {
        self.touched = self.touched.max(seen);
    }

    /// The run has reported its end.
    pub(crate) fn end(&mut self, now: UnixNanos) {
        self.touch(now);
        self.is_ended = true;
    }

    pub(crate) fn is_alive(&self, now: UnixNanos, term_ns: u64) -> bool {
        !self.is_ended && now.saturating_sub(self.touched) <= term_ns
    }
}

/// A duration as nanoseconds, at most `u64::MAX` (584 years).
pub(crate) fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_alive_until_its_term_has_passed_or_it_ended() {
        let lease = Lease::new(Duration::from_nanos(10), 100);
        assert!(lease.is_alive(110) && !lease.is_alive(111));
        lease.touch(120);
        lease.touch(90);
        assert!(lease.is_alive(130));
        lease.set_term(Duration::from_nanos(20));
        assert!(lease.is_alive(140) && !lease.is_alive(141) && lease.term_ns() == 20);
        lease.suspend();
        assert!(!lease.is_alive(120) && lease.is_dead() && !lease.is_ended());
        lease.touch(125);
        assert!(lease.is_alive(120) && !lease.is_dead());
        lease.end();
        assert!(!lease.is_alive(120));
        lease.touch(126);
        assert!(lease.is_dead() && lease.is_ended());
    }
}
