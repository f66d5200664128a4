// SPDX-License-Identifier: Apache-2.0

//! The clock of the brokers, as acknowledgements of writes show it.

use std::time::{Duration, Instant};

/// A better acknowledgement is trusted this long. Clocks drift apart by less than 1 ms in that time.
const TRUST: Duration = Duration::from_secs(30);

#[derive(Debug)]
struct ClockSample {
    /// The milliseconds to add to our clock.
    ahead: i64,
    /// The time between the request and its answer. Half of it is the largest error.
    round_trip: Duration,
    at: Instant,
}

/// An estimate of the time of the brokers. It never goes back.
#[derive(Debug)]
pub(crate) struct BrokerTime {
    start: Instant,
    best: Option<ClockSample>,
    last: i64,
}

impl BrokerTime {
    pub(crate) fn new(now: Instant) -> Self {
        Self {
            start: now,
            best: None,
            last: 0,
        }
    }

    /// Notes that a broker took a record at `millis` of its clock, between a request and its answer.
    pub(crate) fn note(&mut self, sent: Instant, answered: Instant, millis: i64) {
        let round_trip = answered.saturating_duration_since(sent);
        let is_worse = self.best.as_ref().is_some_and(|best| {
            best.round_trip < round_trip && answered.saturating_duration_since(best.at) < TRUST
        });
        if !is_worse {
            self.best = Some(ClockSample {
                ahead: millis.saturating_sub(self.own(sent + round_trip / 2)),
                round_trip,
                at: answered,
            });
        }
    }

    /// Milliseconds since 1970; 0 before the first acknowledgement.
    pub(crate) fn now(&mut self, now: Instant) -> i64 {
        if let Some(best) = &self.best {
            self.last = self.last.max(self.own(now).saturating_add(best.ahead));
        }
        self.last
    }

    fn own(&self, at: Instant) -> i64 {
        i64::try_from(at.saturating_duration_since(self.start).as_millis()).unwrap_or(i64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_quickest_acknowledgement_counts_and_time_never_goes_back() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        let mut time = BrokerTime::new(start);
        assert_eq!(time.now(at(5)), 0);
        time.note(at(10), at(20), 1_015);
        assert_eq!(time.now(at(30)), 1_030);
        time.note(at(30), at(530), 1_040);
        assert_eq!(time.now(at(540)), 1_540);
        // The broker set its clock back. A sample that is as good as the one before takes its place.
        time.note(at(600), at(610), 1_405);
        assert_eq!(time.now(at(620)), 1_540);
        assert_eq!(time.now(at(800)), 1_600);
    }
}
