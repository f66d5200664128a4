//! Points from the future: those whose time lies further ahead of the gateway's clock than any honest clock is wrong.

use std::time::Duration;

use crate::lease::nanos;
use crate::{UnixNanos, clock};

/// What becomes of points from the future. One of them would hold its stream up until its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Future {
    /// A point may lie so far ahead.
    pub tolerance: Duration,
    /// What becomes of one that lies further ahead.
    pub action: FutureAction,
}

/// What becomes of a point from the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FutureAction {
    /// It is refused.
    Refuse,
    /// It gets the time of its arrival.
    Arrival,
}

impl Default for Future {
    fn default() -> Self {
        Self {
            tolerance: Duration::from_secs(600),
            action: FutureAction::Refuse,
        }
    }
}

impl Future {
    /// The latest time that a point may have which arrives at `now`. Where the wall clock was set, nobody knows which of
    /// its times were right.
    pub(crate) fn latest(&self, now: UnixNanos) -> UnixNanos {
        clock::wall(now).max(now).saturating_add(nanos(self.tolerance))
    }
}
