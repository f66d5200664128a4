// SPDX-License-Identifier: Apache-2.0

//! The samples of a series that instants and ranges see, step by step. Times only rise, so each sample is passed once.

use std::borrow::Cow;

use super::rows::Cell;
use super::syntax::ast::At;
use super::{HistogramSample, Millis, QuerySeries, Sample};

/// The time that a selector looks at when the query is evaluated at `now`. `bounds`: first and last evaluation.
pub(super) fn shifted(
    now: Millis,
    at: Option<At>,
    offset: Option<Millis>,
    bounds: (Millis, Millis),
) -> Millis {
    let base = match at {
        None => now,
        Some(At::Start) => bounds.0,
        Some(At::End) => bounds.1,
        Some(At::Time(time)) => time,
    };
    base.saturating_sub(offset.unwrap_or(0))
}

/// The number of samples, in the order of time, that are not later than `to`. The first `passed` are known to be.
fn passed<T>(samples: &[T], passed: usize, to: Millis, time: impl Fn(&T) -> Millis) -> usize {
    const NEAR: usize = 8;
    let rest = samples.get(passed..).unwrap_or_default();
    let near = rest.iter().take(NEAR).take_while(|sample| time(sample) <= to);
    match near.count() {
        NEAR => passed + NEAR + rest[NEAR..].partition_point(|sample| time(sample) <= to),
        near => passed + near,
    }
}

/// The newest samples of a series.
pub(super) struct Newest<'a> {
    series: &'a QuerySeries,
    floats: usize,
    histograms: usize,
}

impl<'a> Newest<'a> {
    pub(super) fn of(series: &'a QuerySeries) -> Self {
        Self {
            series,
            floats: 0,
            histograms: 0,
        }
    }

    /// The newest sample later than `from` and not later than `to`, unless the series ended with it. `to` never falls.
    pub(super) fn at(&mut self, from: Millis, to: Millis) -> Option<(Millis, Cell<'a>)> {
        let (floats, histograms) = (&self.series.samples, &self.series.histograms);
        self.floats = passed(floats, self.floats, to, |sample| sample.time);
        self.histograms = passed(histograms, self.histograms, to, |sample| sample.time);
        let float = self.floats.checked_sub(1).and_then(|at| floats.get(at));
        let histogram = self.histograms.checked_sub(1).and_then(|at| histograms.get(at));
        let histogram = histogram.filter(|one| float.is_none_or(|float| float.time < one.time));
        let (time, cell) = match (float, histogram) {
            (_, Some(sample)) => (sample.time, Cell::Histogram(&sample.value)),
            (Some(sample), None) if !sample.is_stale() => (sample.time, Cell::Float(sample.value)),
            _ => return None,
        };
        (time > from).then_some((time, cell))
    }
}

/// The ranges of a series.
pub(super) struct Windows<'a> {
    /// Without stale markers.
    floats: Cow<'a, [Sample]>,
    histograms: &'a [HistogramSample],
    begin: (usize, usize),
    end: (usize, usize),
}

impl<'a> Windows<'a> {
    pub(super) fn of(series: &'a QuerySeries) -> Self {
        let floats = &*series.samples;
        let floats = if floats.iter().any(Sample::is_stale) {
            Cow::Owned(
                floats
                    .iter()
                    .filter(|sample| !sample.is_stale())
                    .copied()
                    .collect(),
            )
        } else {
            Cow::Borrowed(floats)
        };
        Self {
            floats,
            histograms: &series.histograms,
            begin: (0, 0),
            end: (0, 0),
        }
    }

    /// The samples later than `from` and not later than `to`; neither ever falls.
    pub(super) fn at(&mut self, from: Millis, to: Millis) -> (&[Sample], &'a [HistogramSample]) {
        let float = |sample: &Sample| sample.time;
        let histogram = |sample: &HistogramSample| sample.time;
        self.begin.0 = passed(&self.floats, self.begin.0, from, float);
        self.end.0 = passed(&self.floats, self.end.0.max(self.begin.0), to, float);
        if !self.histograms.is_empty() {
            self.begin.1 = passed(self.histograms, self.begin.1, from, histogram);
            self.end.1 = passed(self.histograms, self.end.1.max(self.begin.1), to, histogram);
        }
        (
            self.floats.get(self.begin.0..self.end.0).unwrap_or_default(),
            self.histograms.get(self.begin.1..self.end.1).unwrap_or_default(),
        )
    }
}
