// SPDX-License-Identifier: Apache-2.0

//! The position of a point in its stream: after the newest, in a gap, in another epoch, or nowhere.

use super::out_of_order::OutOfOrder;
use super::{PointSample, Rejection, StreamTracker};
use crate::{Data, Temporality};

/// The position of a point in its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Position {
    /// After the newest point.
    Next,
    /// The first point of a new epoch.
    Restart,
    /// In a gap between deltas: it comes late, and counts.
    Gap,
    /// In an epoch that began before the newest: it adds the increase of that epoch.
    OtherEpoch,
    /// In such an epoch that is forgotten, or may be: the point is its baseline.
    ForgottenEpoch,
    /// In an epoch that the series had when the stream was forgotten: the point is its baseline.
    Folded,
}

impl StreamTracker {
    /// The position of a point; an error if it adds nothing.
    ///
    /// A later start time begins a new epoch, also if the point is older than the newest. A point that is older than
    /// the last of its epoch adds nothing: it is a duplicate if the last value covers it.
    pub(super) fn position(
        &self,
        data: Data,
        sample: &PointSample<'_>,
        lateness_ns: u64,
    ) -> Result<Position, Rejection> {
        if self.time == 0 {
            return Ok(Position::Next);
        }
        if data.temporality() == Temporality::Delta {
            return self.position_of_delta(sample);
        }
        let has_starts = data != Data::Gauge && self.start != 0 && sample.start != 0;
        if has_starts && sample.start > self.start {
            return self.position_of_new_epoch(sample, lateness_ns, Position::Restart);
        }
        if has_starts && sample.start < self.start {
            return self.position_of_other_epoch(data, sample, lateness_ns);
        }
        if self.out_of_order.as_ref().is_some_and(|it| it.is_folded) {
            let is_newer = sample.time > self.time;
            return is_newer.then_some(Position::Folded).ok_or(Rejection::Late);
        }
        if sample.time > self.time {
            Ok(Position::Next)
        } else {
            Err(self.why_not_newer(data, sample))
        }
    }

    /// The rejection of a point of the newest epoch that is not newer than its last.
    fn why_not_newer(&self, data: Data, sample: &PointSample<'_>) -> Rejection {
        let is_same = sample.time == self.time && self.equals_last(sample.value);
        let is_covered = sample.time < self.time && self.last.covers(data, sample.value);
        if is_same || is_covered {
            Rejection::Duplicate
        } else {
            Rejection::Late
        }
    }

    fn position_of_new_epoch(
        &self,
        sample: &PointSample<'_>,
        lateness_ns: u64,
        position: Position,
    ) -> Result<Position, Rejection> {
        let oldest = self.newest().max(sample.time).saturating_sub(lateness_ns);
        let is_full = |out_of_order: &OutOfOrder| out_of_order.epochs.are_full(oldest);
        if self.out_of_order.as_deref().is_some_and(is_full) {
            Err(Rejection::Limit)
        } else {
            Ok(position)
        }
    }

    /// An unknown epoch counts in full, however old its point: no other point has counted it. A forgotten
    /// epoch counts from now on only: the series has its earlier counts.
    fn position_of_other_epoch(
        &self,
        data: Data,
        sample: &PointSample<'_>,
        lateness_ns: u64,
    ) -> Result<Position, Rejection> {
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let epochs = self.epochs();
        let is_in_order = sample.time > self.newest();
        // Its increase is part of the next value of its epoch.
        let is_too_late = lateness_ns == 0 && !is_in_order;
        // The level is of a time before the next process began.
        let is_replaced = falls && sample.time <= self.start;
        if is_too_late || is_replaced {
            return Err(Rejection::Late);
        }
        match epochs.and_then(|epochs| epochs.find(sample.start)) {
            Some(epoch) if sample.time > epoch.time => Ok(Position::OtherEpoch),
            Some(epoch) if epoch.last.covers(data, sample.value) => Err(Rejection::Duplicate),
            Some(_) => Err(Rejection::Late),
            None if !falls && epochs.is_some_and(|epochs| epochs.may_have_forgotten(sample.start)) => {
                is_in_order
                    .then_some(Position::ForgottenEpoch)
                    .ok_or(Rejection::Late)
            }
            None => self.position_of_new_epoch(sample, lateness_ns, Position::OtherEpoch),
        }
    }

    fn position_of_delta(&self, sample: &PointSample<'_>) -> Result<Position, Rejection> {
        if sample.time > self.time {
            return Ok(Position::Next);
        }
        if (sample.start, sample.time) == (self.start, self.time) {
            return Err(Rejection::Duplicate);
        }
        let gap = self
            .out_of_order
            .as_ref()
            .and_then(|it| it.gap(sample.start, sample.time));
        if gap.is_some() {
            Ok(Position::Gap)
        } else {
            Err(Rejection::Late)
        }
    }
}
