//! What of a series an instant or a range sees.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promql_parser::parser::{AtModifier, Offset};

use super::{Millis, QuerySeries, SampleValue};

/// A duration in milliseconds.
pub(super) fn millis(duration: Duration) -> Millis {
    Millis::try_from(duration.as_millis()).unwrap_or(Millis::MAX / 4)
}

/// A time of the query language in milliseconds; times before 1970 are negative.
fn at_millis(time: SystemTime) -> Millis {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => millis(since),
        Err(before) => -millis(before.duration()),
    }
}

/// The time that a selector looks at when the query is evaluated at `now`. `bounds`: first and last evaluation.
pub(super) fn shifted(
    now: Millis,
    at: Option<&AtModifier>,
    offset: Option<&Offset>,
    bounds: (Millis, Millis),
) -> Millis {
    let base = match at {
        None => now,
        Some(AtModifier::Start) => bounds.0,
        Some(AtModifier::End) => bounds.1,
        Some(AtModifier::At(time)) => at_millis(*time),
    };
    match offset {
        None => base,
        Some(Offset::Pos(by)) => base.saturating_sub(millis(*by)),
        Some(Offset::Neg(by)) => base.saturating_add(millis(*by)),
    }
}

/// The newest sample later than `from` and not later than `to`, unless the series ended with it.
pub(super) fn newest(series: &QuerySeries, from: Millis, to: Millis) -> Option<(Millis, SampleValue)> {
    let float = last(&series.samples, to, |sample| sample.time);
    let histogram = last(&series.histograms, to, |sample| sample.time);
    let histogram = histogram.filter(|one| float.is_none_or(|float| float.time < one.time));
    let (time, value) = match (float, histogram) {
        (_, Some(sample)) => (sample.time, SampleValue::Histogram(sample.value.clone())),
        (Some(sample), None) if !sample.is_stale() => (sample.time, SampleValue::Float(sample.value)),
        _ => return None,
    };
    (time > from).then_some((time, value))
}

fn last<T>(samples: &[T], to: Millis, time: impl Fn(&T) -> Millis) -> Option<&T> {
    let end = samples.partition_point(|sample| time(sample) <= to);
    samples.get(..end)?.last()
}

/// The samples later than `from` and not later than `to`, without stale markers.
pub(super) fn within(series: &QuerySeries, from: Millis, to: Millis) -> QuerySeries {
    let floats = part(&series.samples, from, to, |sample| sample.time).iter();
    QuerySeries {
        labels: series.labels.clone(),
        samples: floats.filter(|sample| !sample.is_stale()).copied().collect(),
        histograms: part(&series.histograms, from, to, |sample| sample.time).to_vec(),
    }
}

fn part<T>(samples: &[T], from: Millis, to: Millis, time: impl Fn(&T) -> Millis) -> &[T] {
    let begin = samples.partition_point(|sample| time(sample) <= from);
    let end = samples.partition_point(|sample| time(sample) <= to);
    samples.get(begin..end).unwrap_or_default()
}
