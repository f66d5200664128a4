// SPDX-License-Identifier: Apache-2.0

//! The due times of scrapes, which are also the times of their points.

use std::time::Duration;

use tidegate_pipeline::component::wall_now;

/// A scrape this little after its time counts as made on time, so that times are evenly spaced; never more than a
/// hundredth of the interval.
const TOLERANCE: Duration = Duration::from_millis(2);

/// The unit of all times, in nanoseconds.
pub(super) const MILLISECOND: u64 = 1_000_000;

/// The due time of a scrape at `now` after one that was due at `last`. Its points get this time, unless the scrape
/// is late. A clock that was set back continues from its current time.
pub(super) fn aligned(last: u64, now: u64, interval: Duration) -> (u64, u64) {
    let tolerance = nanos(TOLERANCE.min(interval / 100));
    let interval = nanos(interval).max(1);
    let last = if last <= now.saturating_add(tolerance) {
        last
    } else {
        now
    };
    let due = last + now.saturating_sub(last) / interval * interval;
    if now.saturating_sub(due) <= tolerance {
        (due, due)
    } else {
        (due, now)
    }
}

/// The duration in nanoseconds.
pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Now, in whole milliseconds, which is what Prometheus counts in.
pub(super) fn now() -> u64 {
    wall_now() / MILLISECOND * MILLISECOND
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_evenly_spaced_unless_a_scrape_is_late() {
        const MS: u64 = MILLISECOND;
        let table = [
            (5_000, 5_000, (5_000, 5_000)),
            (5_000, 6_001, (6_000, 6_000)),
            (5_000, 6_002, (6_000, 6_000)),
            (5_000, 6_003, (6_000, 6_003)),
            // A tick was skipped.
            (5_000, 7_001, (7_000, 7_000)),
            // The tick came a little early.
            (6_000, 5_999, (6_000, 6_000)),
            // The clock was put back.
            (6_000, 3_000, (3_000, 3_000)),
        ];
        for (last, now, (due, time)) in table {
            let found = aligned(last * MS, now * MS, Duration::from_secs(1));
            assert_eq!(found, (due * MS, time * MS), "{last:?} {now}");
        }
        let early = aligned(100 * MS, 101 * MS, Duration::from_millis(10));
        assert_eq!(early, (100 * MS, 101 * MS), "a hundredth of the interval is less");
    }
}
