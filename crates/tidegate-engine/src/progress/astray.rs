//! A stream whose points are not taken: when it stands still, and when its sender's clock was set back.
//!
//! A sender whose clock steps back says nothing but points that are older than its newest, and goes on at the pace of the
//! clock. What was on the way for long comes faster, or between points that are taken.

use super::{Last, Progress, Sample};
use crate::cadence::{PUSH_NS, SHORTEST_LEASE_NS};
use crate::{Data, Stray, Temporality, UnixNanos, clock};

/// Intervals after which the clock of a sender counts as set back: more than 2.5, as a lease has.
const INTERVALS: u32 = 3;

/// Two points may be so much nearer to one another when they come than when they were made.
const JITTER_NS: u64 = 2 * PUSH_NS;

/// The points in a row that were not taken.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Astray {
    /// When the first of them came, by our clock; 0: the latest point was taken.
    since: UnixNanos,
    /// When the last of them came.
    at: UnixNanos,
    /// When the last push of them began.
    pushed: UnixNanos,
    /// Pushes after the first one, or after the latest step of the sender's clock.
    intervals: u32,
    /// More than one push was not taken: one may have been overtaken by the next.
    stands_still: bool,
    /// The times of the first and of the last, by the sender's clock.
    first: UnixNanos,
    last: UnixNanos,
    /// How far behind ours the sender's clock is, since it was set back.
    pub(super) lag: u64,
}

impl Astray {
    pub(super) fn is_astray(&self) -> bool {
        self.since != 0
    }

    pub(super) fn stands_still(&self) -> bool {
        self.stands_still
    }

    /// The latest point was taken.
    pub(super) fn clear(&mut self) {
        *self = Self {
            lag: self.lag,
            ..Self::default()
        };
    }

    /// A point of this time was not taken. `true`: the stream stands still from now on.
    pub(super) fn note(&mut self, time: UnixNanos, now: UnixNanos) -> bool {
        if self.since == 0 {
            (self.since, self.pushed) = (now.max(1), now);
            (self.at, self.first, self.last) = (now, time, time);
            return false;
        }
        let (passed, said) = (now.saturating_sub(self.at), time.checked_sub(self.last));
        if said.is_none_or(|said| said > passed.saturating_mul(2).saturating_add(JITTER_NS)) {
            // Another order, or another step: its pace is measured from here.
            (self.since, self.first, self.intervals) = (now.max(1), time, 0);
        }
        (self.at, self.last) = (now, time);
        if now < self.pushed.saturating_add(PUSH_NS) {
            return false;
        }
        self.pushed = now;
        self.intervals = self.intervals.saturating_add(1);
        !std::mem::replace(&mut self.stands_still, true)
    }

    /// Whether the points come as those of a clock that was set back: for longer than a lease, at the pace of ours.
    pub(super) fn is_set_back(&self, now: UnixNanos) -> bool {
        let (passed, said) = (now.saturating_sub(self.since), self.last - self.first);
        let is_in_step = said >= passed / 2 && said <= passed.saturating_mul(2);
        self.intervals >= INTERVALS && passed >= SHORTEST_LEASE_NS && is_in_step
    }
}

impl Progress {
    /// Notes that a point was not taken which came at `now`: it lies behind the newest, or too far ahead. `shown` is the
    /// number or count that the state shows, where nothing is kept of what the stream said.
    #[cold]
    pub(crate) fn stray(
        &mut self,
        data: Data,
        sample: &Sample<'_>,
        now: UnixNanos,
        shown: Option<f64>,
    ) -> Option<Stray> {
        let is_ahead = sample.time > self.newest();
        if sample.time == self.newest() || self.time == 0 {
            return None;
        }
        let astray = &mut self.late.get_or_insert_default().astray;
        let is_news = astray.note(sample.time, now);
        if is_ahead {
            return is_news.then_some(Stray::Ahead);
        }
        if astray.is_set_back(now) && self.goes_on(data, sample, shown) {
            self.set_back(data, sample, now);
            return Some(Stray::Reanchored);
        }
        is_news.then_some(Stray::Behind)
    }

    /// Whether a point can be the next word of its stream by another clock. What fell was said before, and adding it
    /// again would count it twice; so would deltas, of which nobody can tell whether they were added.
    fn goes_on(&self, data: Data, sample: &Sample<'_>, shown: Option<f64>) -> bool {
        if data == Data::Gauge || matches!(data, Data::Sum { monotonic: false, .. }) {
            return data.temporality() != Temporality::Delta || data == Data::Gauge;
        }
        let run = self.late.as_ref().and_then(|late| late.runs.find(sample.start));
        let is_current = sample.start == self.start || sample.start == 0 || self.start == 0;
        let then = match run {
            _ if is_current => self.last.weight().or(shown),
            Some(run) => run.last.weight(),
            None => None,
        };
        let now = Last::weight_of(sample.value);
        data.temporality() == Temporality::Cumulative && then.zip(now).is_none_or(|(then, now)| now >= then)
    }

    fn set_back(&mut self, data: Data, sample: &Sample<'_>, now: UnixNanos) {
        let before = sample.time.saturating_sub(1);
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let is_of_older_run = sample.start != 0 && sample.start < self.start;
        let late = self.late.get_or_insert_default();
        late.set_back(before);
        late.astray.lag = clock::wall(now).saturating_sub(sample.time);
        if falls && is_of_older_run && sample.time <= self.start {
            // A process began anew by the new clock: its level takes the place of the one before.
            late.runs.remove(sample.start);
            self.start = sample.start;
        }
        self.time = self.time.min(before);
    }

    /// Whether its latest points were not taken, so that what it has said is not what is.
    pub(crate) fn stands_still(&self) -> bool {
        self.late.as_ref().is_some_and(|late| late.astray.stands_still())
    }

    /// When its newest point was true by our clock, where the sender's clock was set back; otherwise by the sender's.
    pub(crate) fn newest_by_our_clock(&self) -> UnixNanos {
        let lag = self.late.as_ref().map_or(0, |late| late.astray.lag);
        self.newest().saturating_add(lag)
    }
}
