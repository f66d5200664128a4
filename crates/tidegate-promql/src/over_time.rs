// SPDX-License-Identifier: Apache-2.0

//! Functions of a range of numbers: `rate` and similar ones, `*_over_time`.

use super::{Millis, Sample};

/// A range of one series, of at least one sample.
pub(super) struct Range<'a> {
    pub(super) samples: &'a [Sample],
    /// The beginning (not included); `to` is the end.
    pub(super) from: Millis,
    pub(super) to: Millis,
    /// When the query is evaluated.
    pub(super) now: Millis,
}

/// A function of a range, with the numbers before or after it in the call.
pub(super) type OverTime = fn(&Range<'_>, [f64; 2]) -> Option<f64>;

/// By name; whether the metric's name stays.
const FUNCTIONS: &[(&str, OverTime, bool)] = &[
    (
        "rate",
        |range, _| extrapolated(range, true, range.seconds()),
        false,
    ),
    ("increase", |range, _| extrapolated(range, true, 1.0), false),
    ("delta", |range, _| extrapolated(range, false, 1.0), false),
    ("irate", |range, _| instantly(range, true), false),
    ("idelta", |range, _| instantly(range, false), false),
    (
        "changes",
        |range, _| Some(range.pairs(|a, b| a != b && !(a.is_nan() && b.is_nan()))),
        false,
    ),
    ("resets", |range, _| Some(range.pairs(|a, b| b < a)), false),
    (
        "deriv",
        |range, _| slope(range, range.samples[0].time).map(|(slope, _)| slope),
        false,
    ),
    (
        "predict_linear",
        |range, [ahead, _]| slope(range, range.now).map(|(slope, here)| slope * ahead + here),
        false,
    ),
    (
        "double_exponential_smoothing",
        |range, [level, trend]| smoothed(range, level, trend),
        false,
    ),
    ("avg_over_time", |range, _| Some(mean(range.values())), false),
    ("sum_over_time", |range, _| Some(Sum::of(range.values())), false),
    (
        "count_over_time",
        |range, _| Some(range.samples.len() as f64),
        false,
    ),
    (
        "min_over_time",
        |range, _| extreme(range, |new, old| new < old).map(|sample| sample.value),
        false,
    ),
    (
        "max_over_time",
        |range, _| extreme(range, |new, old| new > old).map(|sample| sample.value),
        false,
    ),
    (
        "last_over_time",
        |range, _| range.samples.last().map(|sample| sample.value),
        true,
    ),
    (
        "first_over_time",
        |range, _| range.samples.first().map(|sample| sample.value),
        true,
    ),
    (
        "ts_of_min_over_time",
        |range, _| extreme(range, |new, old| new <= old).map(seconds_of),
        false,
    ),
    (
        "ts_of_max_over_time",
        |range, _| extreme(range, |new, old| new >= old).map(seconds_of),
        false,
    ),
    (
        "ts_of_last_over_time",
        |range, _| range.samples.last().map(seconds_of),
        false,
    ),
    (
        "ts_of_first_over_time",
        |range, _| range.samples.first().map(seconds_of),
        false,
    ),
    (
        "stdvar_over_time",
        |range, _| Some(variance(range.values())),
        false,
    ),
    (
        "stddev_over_time",
        |range, _| Some(variance(range.values()).sqrt()),
        false,
    ),
    (
        "mad_over_time",
        |range, _| {
            let median = quantile(0.5, range.values().collect());
            Some(quantile(
                0.5,
                range.values().map(|value| (value - median).abs()).collect(),
            ))
        },
        false,
    ),
    (
        "quantile_over_time",
        |range, [q, _]| Some(quantile(q, range.values().collect())),
        false,
    ),
    ("present_over_time", |_, _| Some(1.0), false),
];

/// `None`: no function has this name. Whether the metric's name stays.
pub(super) fn find(name: &str) -> Option<(OverTime, bool)> {
    let found = FUNCTIONS.iter().find(|(known, ..)| *known == name);
    found.map(|(_, function, keeps_name)| (*function, *keeps_name))
}

fn seconds_of(sample: &Sample) -> f64 {
    sample.time as f64 / 1000.0
}

impl Range<'_> {
    pub(super) fn seconds(&self) -> f64 {
        (self.to - self.from) as f64 / 1000.0
    }

    fn values(&self) -> impl Iterator<Item = f64> + Clone {
        self.samples.iter().map(|sample| sample.value)
    }

    fn pairs(&self, counts: impl Fn(f64, f64) -> bool) -> f64 {
        let pairs = self.samples.windows(2);
        pairs.filter(|pair| counts(pair[0].value, pair[1].value)).count() as f64
    }
}

/// When the samples of a range were taken.
pub(super) struct SampleTimes {
    pub(super) first: Millis,
    pub(super) last: Millis,
    pub(super) samples: usize,
}

impl SampleTimes {
    /// The factor for the increase between first and last sample, which extrapolates it to each end of the range that
    /// they come near. `since_zero`: the time since the value may have been zero, before the first sample, as a share
    /// of the covered time.
    pub(super) fn stretch(&self, range: &Range<'_>, since_zero: Option<f64>) -> f64 {
        /// A gap of this many mean distances means that the series began or ended within the range.
        const NEAR: f64 = 1.1;
        let seconds = |from: Millis, to: Millis| (to - from) as f64 / 1000.0;
        let covered = seconds(self.first, self.last);
        let mean_distance = covered / (self.samples - 1) as f64;
        let reach = |gap: f64| {
            if gap >= mean_distance * NEAR {
                mean_distance / 2.0
            } else {
                gap
            }
        };
        let before = reach(seconds(range.from, self.first));
        let before = since_zero.map_or(before, |rises| before.min(covered * rises));
        let after = reach(seconds(self.last, range.to));
        (covered + before + after) / covered
    }
}

/// The increase of the samples, extrapolated to each end of the range that they come near, divided by `seconds`.
fn extrapolated(range: &Range<'_>, is_counter: bool, seconds: f64) -> Option<f64> {
    let [first, .., last] = range.samples else {
        return None;
    };
    let mut rise = last.value - first.value;
    for pair in range.samples.windows(2).filter(|_| is_counter) {
        if pair[1].value < pair[0].value {
            rise += pair[0].value;
        }
    }
    let span = SampleTimes {
        first: first.time,
        last: last.time,
        samples: range.samples.len(),
    };
    // A counter was not below zero before its first sample.
    let since_zero = (is_counter && rise > 0.0 && first.value >= 0.0).then(|| first.value / rise);
    // The factor takes the division, as in Prometheus: so results are equal to the last bit.
    Some(rise * (span.stretch(range, since_zero) / seconds))
}

/// The result of the last two samples.
fn instantly(range: &Range<'_>, is_rate: bool) -> Option<f64> {
    let [.., before, last] = range.samples else {
        return None;
    };
    let reset = is_rate && last.value < before.value;
    let rise = if reset {
        last.value
    } else {
        last.value - before.value
    };
    let seconds = (last.time - before.time) as f64 / 1000.0;
    if is_rate {
        (seconds > 0.0).then(|| rise / seconds)
    } else {
        Some(rise)
    }
}

/// The line through the samples: its slope a second, and its value at `at`.
fn slope(range: &Range<'_>, at: Millis) -> Option<(f64, f64)> {
    if range.samples.len() < 2 {
        return None;
    }
    let first = range.samples[0].value;
    if range.values().all(|value| value == first) {
        // No line connects infinite values.
        let is_line = !first.is_infinite();
        return Some(if is_line {
            (0.0, first)
        } else {
            (f64::NAN, f64::NAN)
        });
    }
    let count = range.samples.len() as f64;
    let points = || {
        let seconds = |sample: &Sample| (sample.time - at) as f64 / 1000.0;
        range
            .samples
            .iter()
            .map(move |sample| (seconds(sample), sample.value))
    };
    let (x, y) = (
        Sum::of(points().map(|(x, _)| x)),
        Sum::of(points().map(|(_, y)| y)),
    );
    let (xy, xx) = (
        Sum::of(points().map(|(x, y)| x * y)),
        Sum::of(points().map(|(x, _)| x * x)),
    );
    let slope = (xy - x * y / count) / (xx - x * x / count);
    Some((slope, y / count - slope * x / count))
}

/// A sum that loses no small addends (Neumaier).
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Sum {
    sum: f64,
    lost: f64,
}

impl Sum {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> f64 {
        let mut sum = Self::default();
        values.for_each(|value| sum.add(value));
        sum.value()
    }

    pub(super) fn add(&mut self, value: f64) {
        let next = self.sum + value;
        if next.is_infinite() {
            self.lost = 0.0;
        } else if self.sum.abs() >= value.abs() {
            self.lost += (self.sum - next) + value;
        } else {
            self.lost += (value - next) + self.sum;
        }
        self.sum = next;
    }

    pub(super) fn value(&self) -> f64 {
        self.sum + self.lost
    }

    pub(super) fn mean(&self, count: f64) -> f64 {
        self.sum / count + self.lost / count
    }
}

pub(super) fn mean(values: impl Iterator<Item = f64> + Clone) -> f64 {
    let (mut sum, mut count) = (Sum::default(), 0.0);
    for value in values.clone() {
        sum.add(value);
        count += 1.0;
    }
    if sum.value().is_finite() {
        sum.mean(count)
    } else {
        // The sum may overflow where the mean does not.
        Sum::of(values.map(|value| value / count))
    }
}

/// The mean square of the distances from the mean, without a second pass: exactly zero for equal values (Welford).
pub(super) fn variance(values: impl Iterator<Item = f64>) -> f64 {
    let (mut count, mut mean, mut squares) = (0.0, Sum::default(), Sum::default());
    for value in values {
        count += 1.0;
        let distance = value - mean.value();
        mean.add(distance / count);
        squares.add(distance * (value - mean.value()));
    }
    squares.value() / count
}

/// The sample that `wins` over all before; NaN only where there is nothing else.
fn extreme<'a>(range: &Range<'a>, wins: impl Fn(f64, f64) -> bool) -> Option<&'a Sample> {
    let better = |best: &'a Sample, sample: &'a Sample| {
        if best.value.is_nan() || wins(sample.value, best.value) {
            sample
        } else {
            best
        }
    };
    range.samples.iter().reduce(better)
}

/// Holt's double exponential smoothing.
fn smoothed(range: &Range<'_>, level: f64, trend: f64) -> Option<f64> {
    let [first, second, ..] = range.samples else {
        return None;
    };
    let (mut before, mut smooth) = (0.0, first.value);
    let mut slope = second.value - first.value;
    for (at, sample) in range.samples.iter().enumerate().skip(1) {
        if at > 1 {
            slope = trend * (smooth - before) + (1.0 - trend) * slope;
        }
        let next = level * sample.value + (1.0 - level) * (smooth + slope);
        (before, smooth) = (smooth, next);
    }
    Some(smooth)
}

/// The value at a quantile, between the two nearest ranks.
pub(super) fn quantile(q: f64, mut values: Vec<f64>) -> f64 {
    if values.is_empty() || q.is_nan() {
        return f64::NAN;
    }
    if !(0.0..=1.0).contains(&q) {
        return if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
    }
    // NaN counts as smaller than everything.
    values.sort_by(|a, b| match (a.is_nan(), b.is_nan()) {
        (false, false) => a.total_cmp(b),
        (a, b) => b.cmp(&a),
    });
    let rank = q * (values.len() - 1) as f64;
    let lower = rank.floor().max(0.0) as usize;
    let upper = (lower + 1).min(values.len() - 1);
    let weight = rank - rank.floor();
    values[lower] * (1.0 - weight) + values[upper] * weight
}
