// SPDX-License-Identifier: Apache-2.0

//! Points and events from the future: their times are further ahead of the gateway's clock than clock errors explain.

use std::time::Duration;

use crate::lease::nanos;
use crate::{Events, UnixNanos, clock};

/// The policy for points from the future. Such a point would block its stream until its time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Future {
    /// A point may be this far ahead.
    pub tolerance: Duration,
    /// The action for a point that is further ahead.
    pub action: FutureAction,
}

/// The action for a point from the future.
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
            tolerance: Duration::from_mins(10),
            action: FutureAction::Refuse,
        }
    }
}

impl Future {
    /// The latest time of a point that arrives at `now`. For an hour after a step of the wall clock, the right time is
    /// unknown: the later one counts. After that, senders have been set as well.
    pub fn latest(&self, now: UnixNanos) -> UnixNanos {
        let wall = clock::wall(now);
        let latest = if clock::was_set_lately(now) {
            wall.max(now)
        } else {
            wall
        };
        latest.saturating_add(nanos(self.tolerance))
    }

    /// Applies the policy to events. Gives the remaining events and the number of removed ones; `None`: all events stay
    /// unchanged. `concerns` selects the kinds that matter.
    pub(crate) fn apply(&self, events: &Events, concerns: impl Fn(u16) -> bool) -> Option<(Events, usize)> {
        let times = events.times.as_deref()?;
        let latest = self.latest(events.observed);
        // Two operations an event, which the compiler does for several at once. The highest bit is set where a time is later
        // than `latest`, and where either is beyond the year 2262: then each time is looked at.
        let bits = |bits: u64, time: &UnixNanos| bits | time | latest.wrapping_sub(*time);
        if times.iter().fold(0, bits) >> 63 == 0 {
            return None;
        }
        let is_ahead = |at: usize| {
            let time = times.get(at).is_some_and(|time| *time > latest);
            time && events.kinds.get(at).is_some_and(|kind| concerns(*kind))
        };
        if self.action == FutureAction::Refuse {
            let kept = events.select(|at| !is_ahead(at));
            let cut = events.len() - kept.len();
            return (cut > 0).then_some((kept, cut));
        }
        let arrived = events.arrived();
        let settled = |(at, time): (usize, &UnixNanos)| if is_ahead(at) { arrived } else { *time };
        let times = times.iter().enumerate().map(settled).collect();
        let events = Events {
            times: Some(times),
            ..events.clone()
        };
        Some((events, 0))
    }
}

#[cfg(test)]
mod tests;
