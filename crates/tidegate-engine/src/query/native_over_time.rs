//! Functions of a range that has native histograms in it.

use std::sync::Arc;

use super::aggregate::total;
use super::over_time::{OverTime, Range, Span};
use super::{FloatHistogram, HistogramSample, Millis, QuerySeries, SampleValue};

/// What a function makes of a range; `numbers` is what it does with numbers, for those that pass over histograms.
pub(super) fn over_time(
    name: &str,
    numbers: OverTime,
    number: f64,
    series: &QuerySeries,
    range: &Range<'_>,
) -> Option<SampleValue> {
    let histograms = &series.histograms;
    // Numbers and histograms don't add up.
    let unmixed = || series.samples.is_empty();
    let float = |value: f64| Some(SampleValue::Float(value));
    let made = match name {
        "count_over_time" => return float((series.samples.len() + histograms.len()) as f64),
        "present_over_time" => return float(1.0),
        "first_over_time" => return timeline(series).into_iter().next().map(|(_, value)| value),
        "last_over_time" => return timeline(series).pop().map(|(_, value)| value),
        "changes" => return float(pairs(series, |before, now| !is_same(before, now))),
        "resets" => return float(pairs(series, is_reset)),
        "rate" => unmixed()
            .then(|| extrapolated(histograms, range, true))??
            .over(range.seconds()),
        "increase" => unmixed().then(|| extrapolated(histograms, range, true))??,
        "delta" => unmixed().then(|| extrapolated(histograms, range, false))??,
        "irate" => unmixed().then(|| instantly(histograms, true))??,
        "idelta" => unmixed().then(|| instantly(histograms, false))??,
        "sum_over_time" => unmixed().then(|| whole(histograms))??,
        "avg_over_time" => unmixed()
            .then(|| whole(histograms))??
            .over(histograms.len() as f64),
        _ if unmixed() => return None,
        _ => return numbers(range, number).map(SampleValue::Float),
    };
    Some(SampleValue::Histogram(Arc::new(made)))
}

fn whole(histograms: &[HistogramSample]) -> Option<FloatHistogram> {
    total(histograms.iter().map(|sample| &*sample.value))
}

/// Numbers and histograms in the order of time.
fn timeline(series: &QuerySeries) -> Vec<(Millis, SampleValue)> {
    let floats = series.samples.iter();
    let floats = floats.map(|sample| (sample.time, SampleValue::Float(sample.value)));
    let histograms = series.histograms.iter();
    let histograms = histograms.map(|sample| (sample.time, SampleValue::Histogram(sample.value.clone())));
    let mut all: Vec<_> = floats.chain(histograms).collect();
    all.sort_by_key(|(time, _)| *time);
    all
}

fn pairs(series: &QuerySeries, counts: impl Fn(&SampleValue, &SampleValue) -> bool) -> f64 {
    let timeline = timeline(series);
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

/// What the histograms rose by, as if they reached to both ends of the range where they come near.
fn extrapolated(
    histograms: &[HistogramSample],
    range: &Range<'_>,
    is_counter: bool,
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
    let span = Span {
        first: first.time,
        last: last.time,
        samples: histograms.len(),
    };
    // A counter was not below zero before its first sample.
    let since_zero =
        (is_counter && rise.count > 0.0 && first.value.count >= 0.0).then(|| first.value.count / rise.count);
    Some(rise.times(span.stretch(range, since_zero)))
}

/// What the last two histograms say.
fn instantly(histograms: &[HistogramSample], is_rate: bool) -> Option<FloatHistogram> {
    let [.., before, last] = histograms else {
        return None;
    };
    let mut rise = FloatHistogram::clone(&last.value);
    if !(is_rate && last.value.is_reset(&before.value)) {
        rise.subtract(&before.value);
    }
    let seconds = (last.time - before.time) as f64 / 1000.0;
    match is_rate {
        true => (seconds > 0.0).then(|| rise.over(seconds)),
        false => Some(rise),
    }
}
