//! How often a source reports, and from which silence on it counts as quiet.

use crate::UnixNanos;

const SECOND: u64 = 1_000_000_000;

/// Requests of one source within this time are one push.
const PUSH_NS: u64 = SECOND;

/// A lease is never shorter.
const SHORTEST_NS: u64 = 5 * SECOND;

/// The lease of a source whose interval is not known yet: 90 s.
pub const DEFAULT_LEASE_NS: u64 = 90 * SECOND;

/// Gaps between pushes that are remembered.
const GAPS: usize = 8;

/// The gaps between the latest pushes of one source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cadence {
    /// When the present push began.
    began: UnixNanos,
    /// In milliseconds; the oldest is overwritten.
    gaps: [u32; GAPS],
    /// How many gaps were ever seen.
    count: u32,
}

impl Cadence {
    /// Notes that the source reported at `time`. Calls may repeat a time.
    pub fn note(&mut self, time: UnixNanos) {
        if self.began == 0 {
            self.began = time;
            return;
        }
        let gap = time.saturating_sub(self.began);
        if gap < PUSH_NS {
            return;
        }
        let at = self.count as usize % GAPS;
        if let Some(place) = self.gaps.get_mut(at) {
            *place = u32::try_from(gap / 1_000_000).unwrap_or(u32::MAX);
        }
        self.count = self.count.saturating_add(1);
        self.began = time;
    }

    /// The longest of the latest gaps in nanoseconds; `None` until three pushes are seen.
    pub fn interval_ns(&self) -> Option<u64> {
        (self.count >= 2).then(|| {
            let longest = self.gaps.iter().max().copied().unwrap_or(0);
            u64::from(longest) * 1_000_000
        })
    }

    /// How long the source may be silent and still counts as alive: 2.5 intervals, 5 s at least; `default` until the
    /// interval is known. In nanoseconds.
    pub fn lease_ns(&self, default: u64) -> u64 {
        let of_interval = |interval: u64| (interval.saturating_mul(5) / 2).max(SHORTEST_NS);
        self.interval_ns().map_or(default, of_interval)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(times: &[u64]) -> Cadence {
        let mut cadence = Cadence::default();
        times.iter().for_each(|time| cadence.note(time * SECOND / 10));
        cadence
    }

    #[test]
    fn a_lease_is_two_and_a_half_of_the_longest_gap_among_eight() {
        let lease = |times: &[u64]| after(times).lease_ns(DEFAULT_LEASE_NS) / SECOND;
        assert_eq!(lease(&[10]), 90);
        assert_eq!(lease(&[10, 110]), 90, "one gap is no cadence");
        assert_eq!(lease(&[10, 110, 210]), 25);
        assert_eq!(lease(&[10, 110, 310]), 50);
        assert_eq!(
            lease(&[10, 15, 19, 110, 114, 210]),
            25,
            "requests within a second are one push"
        );
        assert_eq!(lease(&[10, 20, 30, 40]), 5, "5 s at least");
        let mut times = vec![10, 1010];
        times.extend((1..=8).map(|push| 1010 + push * 100));
        assert_eq!(lease(&times), 25, "the long gap is the ninth");
    }
}
