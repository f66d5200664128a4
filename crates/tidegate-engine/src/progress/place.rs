//! Where in its stream a point stands: behind everything so far, in a gap, in another run, or nowhere.

use super::late::Late;
use super::{Progress, Rejection, Sample};
use crate::{Data, Temporality};

/// Where in its stream a point stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Place {
    /// Behind everything so far.
    Next,
    /// The first of a new run.
    Restart,
    /// In a gap that was left by deltas: it comes late, and counts.
    Gap,
    /// Of a run that began before the newest: it adds what it has gained.
    OtherRun,
    /// Of such a run that was forgotten, or may have been: increases are counted from here.
    ForgottenRun,
    /// Of a run that was folded when the stream was forgotten: increases are counted from here.
    Folded,
}

impl Progress {
    /// Where a point stands; an error where it adds nothing.
    ///
    /// A later start time is a new run whatever the clock says. Of a run that has been heard of later than this point
    /// all is known; if it says no more than that, nothing is lost.
    pub(super) fn place(
        &self,
        data: Data,
        sample: &Sample<'_>,
        lateness_ns: u64,
    ) -> Result<Place, Rejection> {
        if self.time == 0 {
            return Ok(Place::Next);
        }
        if data.temporality() == Temporality::Delta {
            return self.place_of_delta(sample);
        }
        let has_starts = data != Data::Gauge && self.start != 0 && sample.start != 0;
        if has_starts && sample.start > self.start {
            return self.place_of_new_run(sample, lateness_ns, Place::Restart);
        }
        if has_starts && sample.start < self.start {
            return self.place_of_other_run(data, sample, lateness_ns);
        }
        if self.late.as_ref().is_some_and(|late| late.is_folded) {
            let is_newer = sample.time > self.time;
            return is_newer.then_some(Place::Folded).ok_or(Rejection::Late);
        }
        match sample.time > self.time {
            true => Ok(Place::Next),
            false => Err(self.is_repeated(data, sample)),
        }
    }

    fn is_repeated(&self, data: Data, sample: &Sample<'_>) -> Rejection {
        let is_same = sample.time == self.time && self.says(sample.value);
        let is_covered = sample.time < self.time && self.last.covers(data, sample.value);
        match is_same || is_covered {
            true => Rejection::Duplicate,
            false => Rejection::Late,
        }
    }

    fn place_of_new_run(
        &self,
        sample: &Sample<'_>,
        lateness_ns: u64,
        place: Place,
    ) -> Result<Place, Rejection> {
        let oldest = self.newest().max(sample.time).saturating_sub(lateness_ns);
        let is_full = |late: &Late| late.runs.are_full(oldest);
        match self.late.as_deref().is_some_and(is_full) {
            true => Err(Rejection::Limit),
            false => Ok(place),
        }
    }

    /// A run that was never heard of counts in full, however old its point: nobody else has counted it. One that may
    /// have been forgotten can't be told from one that was counted already.
    fn place_of_other_run(
        &self,
        data: Data,
        sample: &Sample<'_>,
        lateness_ns: u64,
    ) -> Result<Place, Rejection> {
        let falls = matches!(data, Data::Sum { monotonic: false, .. });
        let runs = self.late.as_ref().map(|late| &late.runs);
        let is_in_order = sample.time > self.newest();
        // What it gained is part of its next word.
        let is_too_late = lateness_ns == 0 && !is_in_order;
        // A level that was true before its successor began.
        let is_replaced = falls && sample.time <= self.start;
        if is_too_late || is_replaced {
            return Err(Rejection::Late);
        }
        match runs.and_then(|runs| runs.find(sample.start)) {
            Some(run) if sample.time > run.time => Ok(Place::OtherRun),
            Some(run) if run.last.covers(data, sample.value) => Err(Rejection::Duplicate),
            Some(_) => Err(Rejection::Late),
            None if !falls && runs.is_some_and(|runs| runs.may_have_forgotten(sample.start)) => {
                is_in_order.then_some(Place::ForgottenRun).ok_or(Rejection::Late)
            }
            None => self.place_of_new_run(sample, lateness_ns, Place::OtherRun),
        }
    }

    fn place_of_delta(&self, sample: &Sample<'_>) -> Result<Place, Rejection> {
        if sample.time > self.time {
            return Ok(Place::Next);
        }
        if (sample.start, sample.time) == (self.start, self.time) {
            return Err(Rejection::Duplicate);
        }
        let late = self.late.as_ref();
        match late.is_some_and(|late| late.gap(sample.start, sample.time).is_some()) {
            true => Ok(Place::Gap),
            false => Err(Rejection::Late),
        }
    }
}
