// SPDX-License-Identifier: Apache-2.0

//! Functions of a range that contains native histograms.

use std::sync::Arc;

use super::float_histogram::Total;
use super::notes::Note;
use super::over_time::{OverTime, Range, SampleTimes};
use super::{FloatHistogram, HistogramSample, Millis, SampleValue};

/// The result of a function for a range with histograms, and a note about the metric `metric`. Functions that ignore
/// histograms apply `numbers` to the numbers.
pub(super) fn over_time(
    name: &str,
    (numbers, parameters): (OverTime, [f64; 2]),
    range: &Range<'_>,
    histograms: &[HistogramSample],
    metric: &str,
) -> (Option<SampleValue>, Option<Note>) {
    let is_unmixed = range.samples.is_empty();
    let float = |value: f64| (Some(SampleValue::Float(value)), None);
    let timeline = || timeline(range, histograms);
    match name {
        "count_over_time" => return float((range.samples.len() + histograms.len()) as f64),
        "present_over_time" => return float(1.0),
        "first_over_time" => return (timeline().into_iter().next().map(|(_, value)| value), None),
        "last_over_time" => return (timeline().pop().map(|(_, value)| value), None),
        "ts_of_first_over_time" => {
            return float(timeline().first().map_or(0, |(time, _)| *time) as f64 / 1000.0);
        }
        "ts_of_last_over_time" => {
            return float(timeline().last().map_or(0, |(time, _)| *time) as f64 / 1000.0);
        }
        "changes" => return float(pairs(&timeline(), |before, now| !is_same(before, now))),
        "resets" => return float(pairs(&timeline(), is_reset)),
        _ => {}
    }
    if !of_histograms(name) {
        let value = if is_unmixed {
            None
        } else {
            numbers(range, parameters).map(SampleValue::Float)
        };
        return (
            value,
            (!is_unmixed).then(|| Note::IgnoredInRange(metric.to_owned())),
        );
    }
    if matches!(name, "irate" | "idelta") {
        return instantly(&timeline(), name == "irate", metric);
    }
    if !is_unmixed {
        return (None, Some(Note::MixedInRange(metric.to_owned())));
    }
    let samples = || histograms.iter().map(|sample| &*sample.value);
    let made = match name {
        "rate" => extrapolated(histograms, range, true, range.seconds()),
        "increase" => extrapolated(histograms, range, true, 1.0),
        "delta" => extrapolated(histograms, range, false, 1.0),
        "sum_over_time" => Total::of(samples()).map(Total::whole),
        _ => Total::of(samples()).map(|total| total.mean(samples())),
    };
    // Histograms that are not counters have no type here.
    let is_wrong = name == "delta" && histograms.len() > 1;
    let note = is_wrong.then(|| Note::NotGauge(metric.to_owned()));
    (made.map(|made| SampleValue::Histogram(Arc::new(made))), note)
}

/// Whether a function makes histograms of histograms.
fn of_histograms(name: &str) -> bool {
    matches!(
        name,
        "rate" | "increase" | "delta" | "irate" | "idelta" | "sum_over_time" | "avg_over_time"
    )
}

/// Numbers and histograms in the order of time.
fn timeline(range: &Range<'_>, histograms: &[HistogramSample]) -> Vec<(Millis, SampleValue)> {
    let floats = range.samples.iter();
    let floats = floats.map(|sample| (sample.time, SampleValue::Float(sample.value)));
    let histograms = histograms.iter();
    let histograms = histograms.map(|sample| (sample.time, SampleValue::Histogram(sample.value.clone())));
    let mut all: Vec<_> = floats.chain(histograms).collect();
    all.sort_by_key(|(time, _)| *time);
    all
}

type Timeline = [(Millis, SampleValue)];

fn pairs(timeline: &Timeline, counts: impl Fn(&SampleValue, &SampleValue) -> bool) -> f64 {
    let pairs = timeline.windows(2).filter(|pair| counts(&pair[0].1, &pair[1].1));
    pairs.count() as f64
}

fn is_same(before: &SampleValue, now: &SampleValue) -> bool {
    match (before, now) {
        (SampleValue::Float(before), SampleValue::Float(now)) => {
            before == now || (before.is_nan() && now.is_nan())
        }
        (SampleValue::Histogram(before), SampleValue::Histogram(now)) => before.is_same(now),
        _ => false,
    }
}

fn is_reset(before: &SampleValue, now: &SampleValue) -> bool {
    match (before, now) {
        (SampleValue::Float(before), SampleValue::Float(now)) => now < before,
        (SampleValue::Histogram(before), SampleValue::Histogram(now)) => now.is_reset(before),
        _ => true,
    }
}

/// The increase of the histograms, extrapolated to each end of the range that they come near, divided by `seconds`.
fn extrapolated(
    histograms: &[HistogramSample],
    range: &Range<'_>,
    is_counter: bool,
    seconds: f64,
) -> Option<FloatHistogram> {
    let [first, .., last] = histograms else {
        return None;
    };
    let mut rise = FloatHistogram::clone(&last.value);
    rise.subtract(&first.value);
    for pair in histograms.windows(2).filter(|_| is_counter) {
        if pair[1].value.is_reset(&pair[0].value) {
            rise.add(&pair[0].value);
        }
    }
    let span = SampleTimes {
        first: first.time,
        last: last.time,
        samples: histograms.len(),
    };
    // A counter was not below zero before its first sample.
    let since_zero =
        (is_counter && rise.count > 0.0 && first.value.count >= 0.0).then(|| first.value.count / rise.count);
    Some(rise.times(span.stretch(range, since_zero) / seconds))
}

/// The result of the last two samples.
fn instantly(timeline: &Timeline, is_rate: bool, metric: &str) -> (Option<SampleValue>, Option<Note>) {
    let [.., (time_before, before), (time, last)] = timeline else {
        return (None, None);
    };
    let seconds = (time - time_before) as f64 / 1000.0;
    match (before, last) {
        (SampleValue::Float(before), SampleValue::Float(last)) => {
            let rise = if is_rate && last < before {
                *last
            } else {
                last - before
            };
            let value = if is_rate { rise / seconds } else { rise };
            (Some(SampleValue::Float(value)), None)
        }
        (SampleValue::Histogram(before), SampleValue::Histogram(last)) => {
            let mut rise = FloatHistogram::clone(last);
            if !(is_rate && last.is_reset(before)) {
                rise.subtract(before);
            }
            let made = if is_rate { rise.over(seconds) } else { rise };
            let note = (!is_rate).then(|| Note::NotGauge(metric.to_owned()));
            (Some(SampleValue::Histogram(Arc::new(made))), note)
        }
        _ => (None, Some(Note::MixedInRange(metric.to_owned()))),
    }
}
