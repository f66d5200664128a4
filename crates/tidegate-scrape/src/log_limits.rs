// SPDX-License-Identifier: Apache-2.0

//! The limits of the log lines of a job. The counters have every event.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tidegate_runtime::Every;

/// At most one line in this time about the same kind of trouble of a job.
const LOG_INTERVAL: Duration = Duration::from_secs(30);

/// The most targets of a job that get a line in this time because they begin to fail; as many because they are back.
const MAX_CHANGES: usize = 5;

/// The lines of a job so far.
#[derive(Default)]
pub(super) struct LogLimits {
    kinds: HashMap<&'static str, Every>,
    failed: ChangeLimit,
    back: ChangeLimit,
}

/// Limits the lines about targets that change their state to [`MAX_CHANGES`] per [`LOG_INTERVAL`].
#[derive(Default)]
struct ChangeLimit {
    /// The time of the first line of the interval.
    since: Option<Instant>,
    /// The lines of the interval.
    lines: usize,
    /// The targets without a line since the last line.
    others: usize,
}

/// The numbers of a line about a failed scrape.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct FailureLine {
    /// The lines of its kind that were suppressed since the last one.
    pub(super) suppressed: usize,
    /// The other targets that have begun to fail without a line since the last line.
    pub(super) others: usize,
}

/// The targets that have changed their state without a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UnnamedTargets {
    pub(super) failed: usize,
    pub(super) back: usize,
}

fn has_passed(since: Option<Instant>, now: Instant) -> bool {
    since.is_none_or(|since| now.saturating_duration_since(since) >= LOG_INTERVAL)
}

impl ChangeLimit {
    /// Whether a target that changes its state gets a line. If not, it is one of the others of the next line.
    fn allow(&mut self, now: Instant) -> bool {
        if has_passed(self.since, now) {
            (self.since, self.lines) = (Some(now), 0);
        }
        let is_allowed = self.lines < MAX_CHANGES;
        if is_allowed {
            self.lines += 1;
        } else {
            self.others += 1;
        }
        is_allowed
    }

    /// The targets without a line, once the interval has passed.
    fn take_late(&mut self, now: Instant) -> usize {
        if has_passed(self.since, now) {
            std::mem::take(&mut self.others)
        } else {
            0
        }
    }
}

impl LogLimits {
    /// The number of suppressed lines; `None`: a line of this kind was logged lately.
    pub(super) fn of_kind(&mut self, kind: &'static str, now: Instant) -> Option<usize> {
        let lines = self.kind(kind, now).note(LOG_INTERVAL, 1, now)?;
        Some(lines - 1)
    }

    fn kind(&mut self, kind: &'static str, now: Instant) -> &Every {
        let of_kind = self.kinds.entry(kind);
        of_kind.or_insert_with(|| Every::since(now, LOG_INTERVAL))
    }

    /// The line about a failed scrape. `begins`: the last scrape of its target did not fail.
    pub(super) fn of_failure(
        &mut self,
        reason: &'static str,
        begins: bool,
        now: Instant,
    ) -> Option<FailureLine> {
        let suppressed = match self.of_kind(reason, now) {
            Some(suppressed) => suppressed,
            // The limit of its kind has counted it.
            None if begins && self.failed.allow(now) => self.kind(reason, now).let_through(now) - 1,
            None => return None,
        };
        Some(FailureLine {
            suppressed,
            others: std::mem::take(&mut self.failed.others),
        })
    }

    /// The number of other targets that are back without a line since the last line; `None`: there have been enough lines.
    pub(super) fn of_return(&mut self, now: Instant) -> Option<usize> {
        let is_allowed = self.back.allow(now);
        is_allowed.then(|| std::mem::take(&mut self.back.others))
    }

    /// The targets that have changed their state, and that no later line has counted.
    pub(super) fn of_unnamed(&mut self, now: Instant) -> Option<UnnamedTargets> {
        let unnamed = UnnamedTargets {
            failed: self.failed.take_late(now),
            back: self.back.take_late(now),
        };
        (unnamed.failed + unnamed.back > 0).then_some(unnamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn line(suppressed: usize, others: usize) -> Option<FailureLine> {
        Some(FailureLine { suppressed, others })
    }

    #[test]
    fn a_second_target_that_fails_has_a_line_and_both_are_back() {
        let (mut limits, begin) = (LogLimits::default(), Instant::now());
        let at = |seconds: u32| begin + seconds * SECOND;
        assert_eq!(limits.of_failure("connection", true, at(0)), line(0, 0));
        assert_eq!(limits.of_failure("connection", false, at(1)), None);
        assert_eq!(limits.of_failure("connection", true, at(2)), line(1, 0));
        assert_eq!(limits.of_failure("connection", false, at(3)), None);
        assert_eq!(
            limits.of_failure("timeout", false, at(4)),
            line(0, 0),
            "another kind"
        );
        assert_eq!(
            limits.of_failure("connection", false, at(32)),
            line(1, 0),
            "30 s later"
        );
        assert_eq!([limits.of_return(at(40)), limits.of_return(at(41))], [Some(0); 2]);
        assert_eq!(limits.of_unnamed(at(100)), None);
    }

    #[test]
    fn lines_of_many_targets_are_limited_and_all_targets_count() {
        let (mut limits, begin) = (LogLimits::default(), Instant::now());
        let at = |seconds: u32| begin + seconds * SECOND;
        // The first one has a line by its kind.
        let lines = (0..100).filter_map(|_| limits.of_failure("connection", true, at(0)));
        assert_eq!(lines.count(), 1 + MAX_CHANGES);
        assert_eq!(
            limits.of_failure("connection", false, at(30)),
            line(94, 94),
            "the others"
        );
        let lines = (0..100).filter_map(|_| limits.of_return(at(31)));
        assert_eq!(lines.count(), MAX_CHANGES);
        assert_eq!(limits.of_unnamed(at(60)), None, "too early");
        let late = UnnamedTargets { failed: 0, back: 95 };
        assert_eq!(limits.of_unnamed(at(61)), Some(late));
        assert_eq!(limits.of_unnamed(at(62)), None);
        assert_eq!(limits.of_return(at(63)), Some(0));
    }

    #[test]
    fn trouble_of_one_kind_is_logged_once_in_an_interval() {
        let (mut limits, begin) = (LogLimits::default(), Instant::now());
        assert_eq!(limits.of_kind("target", begin), Some(0));
        assert_eq!(limits.of_kind("target", begin + SECOND), None);
        assert_eq!(limits.of_kind("dns", begin + SECOND), Some(0));
        assert_eq!(limits.of_kind("target", begin + 30 * SECOND), Some(1));
    }
}
