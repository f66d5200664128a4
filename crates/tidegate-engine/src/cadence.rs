// SPDX-License-Identifier: Apache-2.0

//! The interval at which a source reports, and the silence after which it counts as quiet.

use std::time::Duration;

use crate::UnixNanos;
use crate::lease::nanos;

const SECOND: u64 = 1_000_000_000;

/// Requests of one source within this time are one push.
pub const PUSH_NS: u64 = SECOND;

/// A lease by cadence is never shorter.
pub const SHORTEST_LEASE_NS: u64 = 5 * SECOND;

/// The lease of a source whose interval is not known yet: 90 s.
pub const DEFAULT_LEASE_NS: u64 = 90 * SECOND;

/// Gaps between pushes that are remembered.
const GAPS: usize = 8;

/// Gaps that must be seen before a source lives by its cadence: those between three pushes.
const KNOWN_GAPS: u32 = 2;

/// The gaps between the latest pushes of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cadence {
    /// When the present push began; 0: there was none.
    began: UnixNanos,
    /// When the source was last heard of.
    heard: UnixNanos,
    /// In milliseconds; the oldest is overwritten.
    gaps: [u32; GAPS],
    /// Gaps seen since the last outage.
    count: u32,
    /// A configured lease; 0: there is none.
    fixed_ns: u64,
}

impl Cadence {
    /// The cadence of a source whose lease may be configured.
    pub fn with_lease(lease: Option<Duration>) -> Self {
        Self {
            fixed_ns: lease.map_or(0, nanos),
            ..Self::default()
        }
    }

    /// Notes that the source was heard of at `time`. Calls may repeat a time. `true`: a push begins.
    pub fn note(&mut self, time: UnixNanos) -> bool {
        if self.began != 0 && time < self.began.saturating_add(PUSH_NS) {
            self.heard = self.heard.max(time);
            return false;
        }
        // A source that was overdue by its own cadence had an outage: an outage resets the cadence. Before the cadence is
        // known, a long gap is that of a slow source.
        let is_known = self.count >= KNOWN_GAPS || self.fixed_ns != 0;
        if is_known && time.saturating_sub(self.heard) > self.lease_ns() {
            self.count = 0;
        } else if self.began != 0 {
            let at = self.count as usize % GAPS;
            if let Some(place) = self.gaps.get_mut(at) {
                *place = u32::try_from((time - self.began) / 1_000_000).unwrap_or(u32::MAX);
            }
            self.count = self.count.saturating_add(1);
        }
        (self.began, self.heard) = (time.max(1), self.heard.max(time));
        true
    }

    /// When the source was last heard of; 0: never.
    pub fn last_seen(&self) -> UnixNanos {
        self.heard
    }

    /// When the present push began; 0: there was none.
    pub fn began(&self) -> UnixNanos {
        self.began
    }

    /// The longest of the latest gaps in nanoseconds; 0: there was none yet.
    pub fn longest_ns(&self) -> u64 {
        let known = (self.count as usize).min(GAPS);
        let longest = self.gaps.iter().take(known).max().copied().unwrap_or(0);
        u64::from(longest) * 1_000_000
    }

    /// The longest silence, in nanoseconds, with which the source counts as alive. A configured lease comes first. The
    /// default is 2.5 intervals and at least 5 s. Before three pushes were seen, it is 90 s.
    pub fn lease_ns(&self) -> u64 {
        match (self.fixed_ns, self.count) {
            (0, 0..KNOWN_GAPS) => DEFAULT_LEASE_NS,
            (0, _) => lease_by_gap_ns(self.longest_ns()),
            (fixed, _) => fixed,
        }
    }
}

/// The longest silence, in nanoseconds, of a source whose longest gap between two pushes is `gap`. It is 2.5 gaps and
/// at least 5 s; 90 s if `gap` is 0 (unknown).
pub(crate) fn lease_by_gap_ns(gap: u64) -> u64 {
    match gap {
        0 => DEFAULT_LEASE_NS,
        gap => patience_ns(gap).max(SHORTEST_LEASE_NS),
    }
}

/// The longest delay, in nanoseconds, of a report with this interval: 2.5 intervals.
pub fn patience_ns(interval: u64) -> u64 {
    interval.saturating_mul(5) / 2
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: &[u64]) -> Cadence {
        let mut cadence = Cadence::default();
        for time in times {
            cadence.note(time * SECOND / 10);
        }
        cadence
    }

    #[test]
    fn a_lease_is_two_and_a_half_of_the_longest_gap_among_eight() {
        let lease = |times: &[u64]| after(times).lease_ns() / SECOND;
        assert_eq!(lease(&[10]), 90);
        assert_eq!(lease(&[10, 110]), 90, "one gap is not a cadence");
        assert_eq!(lease(&[10, 110, 210]), 25);
        assert_eq!(lease(&[10, 110, 310]), 50);
        assert_eq!(lease(&[10, 1210, 2410]), 300, "slower than the default lease");
        assert_eq!(
            lease(&[10, 15, 19, 110, 114, 210]),
            25,
            "requests within a second are one push"
        );
        assert_eq!(lease(&[10, 20, 30, 40]), 5, "5 s at least");
        let mut times = vec![10, 510];
        times.extend((1..=8).map(|push| 510 + push * 100));
        assert_eq!(lease(&times), 25, "the long gap is the ninth");
        assert_eq!(
            lease(&[10, 110, 210, 1210, 1310]),
            90,
            "an outage resets the cadence"
        );
        let mut fixed = Cadence::with_lease(Some(Duration::from_secs(7)));
        (1..9).for_each(|second| _ = fixed.note(second * SECOND));
        assert_eq!(fixed.lease_ns(), 7 * SECOND);
    }
}
