// SPDX-License-Identifier: Apache-2.0

//! Functions of single native histograms.

use super::float_histogram::{Boundary, Bucket, FloatHistogram};
use super::over_time::Sum;

/// A function of a histogram.
type OfHistogram = fn(&FloatHistogram) -> f64;

const FUNCTIONS: &[(&str, OfHistogram)] = &[
    ("histogram_count", |histogram| histogram.count),
    ("histogram_sum", |histogram| histogram.sum),
    ("histogram_avg", |histogram| histogram.sum / histogram.count),
    ("histogram_stdvar", variance),
    ("histogram_stddev", |histogram| variance(histogram).sqrt()),
];

/// `None`: no function has this name.
pub(super) fn function(name: &str) -> Option<OfHistogram> {
    let found = FUNCTIONS.iter().find(|(known, _)| *known == name);
    found.map(|(_, function)| *function)
}

/// Every observation counts as one in the geometric middle of its bucket.
fn variance(histogram: &FloatHistogram) -> f64 {
    let mean = histogram.sum / histogram.count;
    let squares = histogram.buckets().into_iter().map(|bucket| {
        let middle = match bucket.rule {
            Boundary::Closed => 0.0,
            Boundary::OpenLeft => (bucket.lower * bucket.upper).sqrt(),
            Boundary::OpenRight => -(bucket.lower * bucket.upper).sqrt(),
        };
        bucket.count * (middle - mean) * (middle - mean)
    });
    Sum::of(squares) / histogram.count
}

/// The value below which are the share `q` of all observations.
pub(super) fn quantile(q: f64, histogram: &FloatHistogram) -> f64 {
    if q < 0.0 {
        return f64::NEG_INFINITY;
    }
    if q > 1.0 {
        return f64::INFINITY;
    }
    if histogram.count == 0.0 || q.is_nan() {
        return f64::NAN;
    }
    // Observations of NaN are in no bucket but at the end. Otherwise counting from the nearer end is the most exact.
    let from_below = histogram.sum.is_nan() || q < 0.5;
    let mut buckets = histogram.one_sided();
    if !from_below {
        buckets.reverse();
    }
    let rank = if from_below { q } else { 1.0 - q } * histogram.count;
    let mut before = 0.0;
    let mut last = None;
    for bucket in buckets {
        if before + bucket.count >= rank {
            let share = (rank - before) / bucket.count;
            return bucket.value_at(if from_below { share } else { 1.0 - share });
        }
        before += bucket.count;
        last = Some(bucket);
    }
    match last {
        // Only fractions that don't add up exactly come here.
        Some(bucket) if !histogram.sum.is_nan() => bucket.value_at(if from_below { 1.0 } else { 0.0 }),
        _ => f64::NAN,
    }
}

/// The share of all observations between two values.
pub(super) fn fraction(lower: f64, upper: f64, histogram: &FloatHistogram) -> f64 {
    if histogram.count == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    let buckets = histogram.one_sided();
    let rank = |value: f64| {
        let mut below = 0.0;
        for bucket in &buckets {
            if bucket.lower >= value {
                return below;
            }
            if bucket.upper > value {
                return below + bucket.count * bucket.share_below(value);
            }
            below += bucket.count;
        }
        // Observations of NaN are in no bucket, and so between no values.
        if histogram.has_nan() {
            below
        } else {
            histogram.count
        }
    };
    let rank = |value: f64| rank(value).min(histogram.count);
    (rank(upper) - rank(lower)) / histogram.count
}

impl Bucket {
    fn is_linear(&self) -> bool {
        self.lower <= 0.0 && self.upper >= 0.0
    }

    /// The value at the share `share` of its observations. They are spread evenly in the zero bucket, and evenly by
    /// logarithm in the others.
    fn value_at(&self, share: f64) -> f64 {
        let between = |from: f64, to: f64| from + (to - from) * share;
        if self.is_linear() {
            return between(self.lower, self.upper);
        }
        let value = between(self.lower.abs().log2(), self.upper.abs().log2()).exp2();
        value.copysign(self.lower)
    }

    /// The share of its observations below a value in it.
    fn share_below(&self, value: f64) -> f64 {
        let within = |from: f64, to: f64, value: f64| (value - from) / (to - from);
        if self.is_linear() {
            within(self.lower, self.upper, value)
        } else {
            within(
                self.lower.abs().log2(),
                self.upper.abs().log2(),
                value.abs().log2(),
            )
        }
    }
}
