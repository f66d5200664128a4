// SPDX-License-Identifier: Apache-2.0

//! Streams whose points are refused because of their times: when a stream is stalled, and when its sender's
//! clock was set back.
//!
//! A sender whose clock steps back sends only points that are older than its newest, at the pace of the
//! clock. Delayed points differ: they come faster, or between points that are taken.

use super::{LastValue, PointSample, StreamTracker};
use crate::cadence::{PUSH_NS, SHORTEST_LEASE_NS};
use crate::{Data, Temporality, TimestampAnomaly, UnixNanos, clock};

/// Intervals after which the clock of a sender counts as set back: more than 2.5, as a lease has.
const INTERVALS: u32 = 3;

/// The network may shorten the distance of two points by this time, in nanoseconds.
const JITTER_NS: u64 = 2 * PUSH_NS;

/// The latest refused points in a row. Times are Unix time.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Stall {
    /// When the first of them came, by our clock; 0: the latest point was taken.
    since: UnixNanos,
    /// When the last of them came.
    at: UnixNanos,
    /// When the last push of them began.
    pushed: UnixNanos,
    /// Pushes after the first one, or after the latest step of the sender's clock.
    intervals: u32,
    /// More than one push was refused. After one alone, the next push may simply have overtaken it.
    is_stalled: bool,
    /// The times of the first and of the last, by the sender's clock.
    first: UnixNanos,
    last: UnixNanos,
    /// The lag of the sender's clock behind this clock since it was set back, in nanoseconds.
    pub(super) lag: u64,
}

impl Stall {
    /// Whether the latest point was refused.
    pub(super) fn has_begun(&self) -> bool {
        self.since != 0
    }

    /// Whether the stream is stalled: more than one push in a row was refused.
    pub(super) fn is_stalled(&self) -> bool {
        self.is_stalled
    }

    /// Notes that a point was taken. The lag of the clock stays.
    pub(super) fn clear(&mut self) {
        *self = Self {
            lag: self.lag,
            ..Self::default()
        };
    }

    /// Notes a refused point of this time. `true`: the stream is stalled from now on.
    pub(super) fn note(&mut self, time: UnixNanos, now: UnixNanos) -> bool {
        if self.since == 0 {
            (self.since, self.pushed) = (now.max(1), now);
            (self.at, self.first, self.last) = (now, time, time);
            return false;
        }
        let (passed, said) = (now.saturating_sub(self.at), time.checked_sub(self.last));
        if said.is_none_or(|said| said > passed.saturating_mul(2).saturating_add(JITTER_NS)) {
            // The order is another one, or the clock steps again: the pace counts from here.
            (self.since, self.first, self.intervals) = (now.max(1), time, 0);
        }
        (self.at, self.last) = (now, time);
        if now < self.pushed.saturating_add(PUSH_NS) {
            return false;
        }
        self.pushed = now;
        self.intervals = self.intervals.saturating_add(1);
        !std::mem::replace(&mut self.is_stalled, true)
    }

    /// Whether the points come as those of a clock that was set back: for longer than a lease, at the pace of ours.
    pub(super) fn is_set_back(&self, now: UnixNanos) -> bool {
        let (passed, said) = (now.saturating_sub(self.since), self.last - self.first);
        let is_in_step = said >= passed / 2 && said <= passed.saturating_mul(2);
        self.intervals >= INTERVALS && passed >= SHORTEST_LEASE_NS && is_in_step
    }
}

impl StreamTracker {
    /// Notes that the tracker refused a point at `now`: its time is older than the newest, or too far ahead. Returns
    /// the first anomaly of its kind. `shown` is the number or count that the state shows, for a tracker without a last
    /// value.
    #[cold]
    pub(crate) fn note_anomaly(
        &mut self,
        data: Data,
        sample: &PointSample<'_>,
        now: UnixNanos,
        shown: Option<f64>,
    ) -> Option<TimestampAnomaly> {
        let is_ahead = sample.time > self.newest();
        if sample.time == self.newest() || self.time == 0 {
            return None;
        }
        let stall = &mut self.out_of_order.get_or_insert_default().stall;
        let is_news = stall.note(sample.time, now);
        if is_ahead {
            return is_news.then_some(TimestampAnomaly::Ahead);
        }
        if stall.is_set_back(now) && self.goes_on(data, sample, shown) {
            self.set_back(data, sample, now);
            return Some(TimestampAnomaly::Reanchored);
        }
        is_news.then_some(TimestampAnomaly::Behind)
    }

    /// Whether a point can be the next one of its stream by another clock. A value that is less is an old
    /// one: it would count twice. So may a delta: nothing shows whether it counted.
    fn goes_on(&self, data: Data, sample: &PointSample<'_>, shown: Option<f64>) -> bool {
        if data == Data::Gauge || matches!(data, Data::Sum { monotonic: false, .. }) {
            return data.temporality() != Temporality::Delta || data == Data::Gauge;
        }
        let epoch = self.epochs().and_then(|epochs| epochs.find(sample.start));
        let is_current = sample.start == self.start || sample.start == 0 || self.start == 0;
        let then = match epoch {
            _ if is_current => self.last.weight().or(shown),
            Some(epoch) => epoch.last.weight(),
            None => None,
        };
        let now = LastValue::weight_of(sample.value);
        data.temporality() == Temporality::Cumulative && then.zip(now).is_none_or(|(then, now)| now >= then)
    }

    /// Follows the sender's clock: the point is newer than all before it.
    fn set_back(&mut self, data: Data, sample: &PointSample<'_>, now: UnixNanos) {
        let before = sample.time.saturating_sub(1);
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let is_of_older_epoch = sample.start != 0 && sample.start < self.start;
        let out_of_order = self.out_of_order.get_or_insert_default();
        out_of_order.set_back(before);
        out_of_order.stall.lag = clock::wall(now).saturating_sub(sample.time);
        if falls && is_of_older_epoch && sample.time <= self.start {
            // The process restarted by the new clock: its level replaces the one before.
            out_of_order.epochs.remove(sample.start);
            self.start = sample.start;
        }
        self.time = self.time.min(before);
    }

    /// Whether its latest points were refused, so that its value is stale.
    pub(crate) fn is_stalled(&self) -> bool {
        self.out_of_order.as_ref().is_some_and(|it| it.stall.is_stalled())
    }

    /// When its newest point was true by our clock, where the sender's clock was set back; otherwise by the sender's.
    pub(crate) fn newest_by_our_clock(&self) -> UnixNanos {
        let lag = self.out_of_order.as_ref().map_or(0, |it| it.stall.lag);
        self.newest().saturating_add(lag)
    }
}
