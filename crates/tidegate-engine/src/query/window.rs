//! What of a series an instant or a range sees.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use promql_parser::parser::{AtModifier, Offset};

use super::{Millis, Sample};

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
pub(super) fn newest(samples: &[Sample], from: Millis, to: Millis) -> Option<Sample> {
    let end = samples.partition_point(|sample| sample.time <= to);
    let newest = samples[..end].last()?;
    (newest.time > from && !newest.is_stale()).then_some(*newest)
}

/// The samples later than `from` and not later than `to`, without stale markers.
pub(super) fn within(samples: &[Sample], from: Millis, to: Millis) -> Vec<Sample> {
    let begin = samples.partition_point(|sample| sample.time <= from);
    let end = samples.partition_point(|sample| sample.time <= to);
    let seen = samples.get(begin..end).unwrap_or_default().iter();
    seen.filter(|sample| !sample.is_stale()).copied().collect()
}
