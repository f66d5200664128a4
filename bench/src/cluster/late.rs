// SPDX-License-Identifier: Apache-2.0

//! When pages of the gateway were late: its composites are then older than their bound.

use std::time::{Duration, Instant};

use super::producer::INTERVAL;
use crate::http::sum;

/// What the gateway says of its pages.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageCounts {
    /// Pages that waited longer than an interval.
    late: f64,
    /// Pages that the store did not take.
    failed: f64,
    /// The time for which a page waits now, in seconds.
    wait: f64,
}

impl PageCounts {
    /// The counts of the gateway's own metrics.
    pub(super) fn parse(page: &str) -> Self {
        Self {
            late: sum(page, "tidegate_partials_late_pages_total"),
            failed: sum(page, "tidegate_partials_failed_pages_total"),
            wait: sum(page, "tidegate_partials_oldest_wait_seconds"),
        }
    }

    /// Whether a page is late, or was since an earlier check. A page that waits for half an interval has missed its update.
    fn is_late_since(&self, earlier: &Self) -> bool {
        self.late > earlier.late || self.failed > earlier.failed || self.wait > INTERVAL.as_secs_f64() / 2.0
    }
}

/// The times in which pages were late.
#[derive(Debug)]
pub(super) struct LateTimes {
    counts: PageCounts,
    /// When the gateway was last asked.
    last_check: Instant,
    /// The begin and the end of each time.
    times: Vec<[Instant; 2]>,
}

impl LateTimes {
    pub(super) fn new(now: Instant) -> Self {
        Self {
            counts: PageCounts::default(),
            last_check: now,
            times: Vec::new(),
        }
    }

    /// Takes the counts of a check. `None`: the gateway did not answer, and its pages may be late.
    pub(super) fn take(&mut self, counts: Option<PageCounts>, now: Instant) {
        if counts.is_none_or(|counts| counts.is_late_since(&self.counts)) {
            self.times.push([self.last_check, now]);
        }
        self.counts = counts.unwrap_or(self.counts);
        self.last_check = now;
    }

    /// Whether no page was late for this time before `end`. It is not known after the last check.
    pub(super) fn is_timely(&self, end: Instant, time: Duration) -> bool {
        let Some(begin) = end.checked_sub(time) else {
            return false;
        };
        let mut times = self.times.iter();
        end <= self.last_check && times.all(|[begun, ended]| *ended < begin || *begun > end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(late: u64, failed: u64, wait: f64) -> Option<PageCounts> {
        let page = format!(
            "# TYPE tidegate_partials_late_pages_total counter
tidegate_partials_late_pages_total{{exporter=\"partials\"}} {late}
tidegate_partials_failed_pages_total{{exporter=\"partials\"}} {failed}
tidegate_partials_oldest_wait_seconds{{exporter=\"partials\"}} {wait}
"
        );
        Some(PageCounts::parse(&page))
    }

    #[test]
    fn pages_are_late_if_they_wait_or_fail_or_nobody_answers() {
        for (next, is_late) in [
            (counts(2, 3, 0.001), false),
            (counts(3, 3, 0.0), true),
            (counts(2, 4, 0.0), true),
            (counts(2, 3, 0.9), true),
            (None, true),
        ] {
            let (begun, second) = (Instant::now(), Duration::from_secs(1));
            let mut late = LateTimes::new(begun);
            late.take(counts(2, 3, 0.0), begun + second);
            late.take(next, begun + second * 20);
            late.take(
                next.or(counts(2, 3, 0.0))
                    .map(|last| PageCounts { wait: 0.0, ..last }),
                begun + second * 21,
            );
            assert_eq!(
                !late.is_timely(begun + second * 21, second * 2),
                is_late,
                "{next:?}"
            );
        }
    }

    #[test]
    fn a_time_is_timely_beside_late_ones_and_before_the_last_check() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut late = LateTimes::new(begun);
        for (at, failed) in [(1, 0), (10, 0), (11, 5), (30, 5)] {
            late.take(counts(0, failed, 0.0), begun + second * at);
        }
        for (end, time, expected) in [
            (9, 5, true),
            (10, 5, false),
            (14, 5, false),
            (17, 5, true),
            (30, 5, true),
            (31, 5, false),
        ] {
            assert_eq!(
                late.is_timely(begun + second * end, second * time),
                expected,
                "{end}"
            );
        }
    }
}
