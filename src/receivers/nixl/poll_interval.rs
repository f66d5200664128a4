// SPDX-License-Identifier: Apache-2.0

//! The polling interval of a ring: about the configured interval while it is quiet, and shorter while it fills.
//!
//! The configured interval is the longest wait of an event. Timers fire late and the other rings take time, so a
//! part of it is kept in reserve. An agent may suddenly flush whole rings at that very interval. Then its first
//! flush is drained before the second one.
//!
//! NIXL flushes up to a whole ring at once every `NIXL_TELEMETRY_RUN_INTERVAL`. The next flush drops data that
//! does not fit. So a full ring must be empty again before the next flush, at intervals down to 10 ms. A poll of
//! an empty ring costs about a microsecond.

use std::time::Duration;

/// The part of the configured interval after which a quiet ring is polled. The rest is the reserve.
const QUIET: f64 = 0.75;
/// A ring that was found at least this full (as a fraction of its capacity) is hurried.
const HURRY_FILL: f64 = 0.25;
/// The shortest interval: a tenth of the fastest flush that NIXL's users are seen to configure.
const SHORTEST: Duration = Duration::from_millis(1);
/// An idle poll lengthens the interval by this factor until it is the configured one again.
const RELAX: f64 = 1.05;

/// The interval of one ring.
#[derive(Debug)]
pub(super) struct PollInterval {
    quiet: Duration,
    now: Duration,
}

impl PollInterval {
    /// For a configured poll interval.
    pub(super) fn new(interval: Duration) -> Self {
        let quiet = interval.mul_f64(QUIET);
        Self { quiet, now: quiet }
    }

    /// The wait after a poll that found the ring filled to `fill` (0.0 to 1.0).
    pub(super) fn after(&mut self, fill: f64) -> Duration {
        self.now = if fill >= HURRY_FILL {
            SHORTEST.min(self.quiet)
        } else {
            self.now.mul_f64(RELAX).min(self.quiet)
        };
        self.now
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_filling_ring_is_hurried_and_relaxes_slowly() {
        let interval = Duration::from_millis(10);
        let quiet = interval.mul_f64(QUIET);
        let mut pace = PollInterval::new(interval);
        assert_eq!(pace.after(0.0), quiet);
        assert_eq!(pace.after(0.9), SHORTEST);
        let mut waited = Duration::ZERO;
        let mut polls = 0;
        while pace.after(0.0) < quiet {
            waited += pace.now;
            polls += 1;
            assert!(polls < 1_000, "it never relaxes");
        }
        assert!(
            waited > Duration::from_millis(100),
            "it relaxes within a default flush interval: {waited:?}"
        );
    }

    #[test]
    fn an_interval_below_the_shortest_is_kept() {
        let quiet = Duration::from_micros(200);
        assert_eq!(PollInterval::new(quiet).after(1.0), quiet.mul_f64(QUIET));
    }
}
