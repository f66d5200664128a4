// SPDX-License-Identifier: Apache-2.0

//! Values of points: numbers, histograms, exponential histograms, summaries.

use std::sync::Arc;

/// The value of a point.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Integer number.
    Int(i64),
    /// Floating point number.
    Double(f64),
    /// Explicit-bounds histogram.
    Histogram(Box<Histogram>),
    /// Exponential histogram.
    ExponentialHistogram(Box<ExponentialHistogram>),
    /// Producer-side quantiles.
    Summary(Box<Summary>),
    /// `FLAG_NO_RECORDED_VALUE`: the series has ended.
    NoRecordedValue,
}

impl Value {
    /// The number as a double, where the value is a number. Integers beyond 2^53 lose precision.
    #[inline]
    pub fn as_f64(&self) -> Option<f64> {
        match self {
            Self::Int(number) => Some(*number as f64),
            Self::Double(number) => Some(*number),
            _ => None,
        }
    }

    /// The bytes that it has allocated for itself, computed from the lengths of its lists. Bounds are shared, and do
    /// not count.
    #[inline]
    pub fn bytes(&self) -> usize {
        match self {
            Self::Histogram(histogram) => size_of::<Histogram>() + 8 * histogram.counts.len(),
            Self::ExponentialHistogram(histogram) => {
                let buckets = histogram.positive.counts.len() + histogram.negative.counts.len();
                size_of::<ExponentialHistogram>() + 8 * buckets
            }
            Self::Summary(summary) => size_of::<Summary>() + size_of_val(&*summary.quantiles),
            Self::Int(_) | Self::Double(_) | Self::NoRecordedValue => 0,
        }
    }
}

/// An explicit-bounds histogram: OTLP's `HistogramDataPoint` without identity and times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Histogram {
    /// Number of observations.
    pub count: u64,
    /// Sum of observations, if it is meaningful.
    pub sum: Option<f64>,
    /// Smallest observation of the interval.
    pub min: Option<f64>,
    /// Largest observation of the interval.
    pub max: Option<f64>,
    /// Upper bounds (inclusive), strictly increasing, without +Inf.
    pub bounds: Arc<[f64]>,
    /// Observations by bucket (not running totals), one more than `bounds`; empty where the producer sent none.
    pub counts: Vec<u64>,
}

/// One side (positive or negative) of an exponential histogram.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Buckets {
    /// Index of the first bucket.
    pub offset: i32,
    /// Observations by bucket.
    pub counts: Vec<u64>,
}

/// An exponential histogram: OTLP's `ExponentialHistogramDataPoint` without identity and times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExponentialHistogram {
    /// Number of observations.
    pub count: u64,
    /// Sum of observations, if it is meaningful.
    pub sum: Option<f64>,
    /// Smallest observation of the interval.
    pub min: Option<f64>,
    /// Largest observation of the interval.
    pub max: Option<f64>,
    /// Resolution: base = 2^(2^-scale).
    pub scale: i32,
    /// Observations within `zero_threshold` of zero.
    pub zero_count: u64,
    /// Width of the zero bucket.
    pub zero_threshold: f64,
    /// Buckets above zero.
    pub positive: Buckets,
    /// Buckets below zero.
    pub negative: Buckets,
}

/// A quantile of a summary.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Quantile {
    /// 0.0 to 1.0.
    pub quantile: f64,
    /// The value at that quantile.
    pub value: f64,
}

/// Producer-side quantiles: OTLP's `SummaryDataPoint` without identity and times.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Summary {
    /// Number of observations.
    pub count: u64,
    /// Sum of observations.
    pub sum: f64,
    /// Quantiles, ascending.
    pub quantiles: Vec<Quantile>,
}

impl Summary {
    /// Adds the observations of another summary. The quantiles go, because those of two summaries do not add up.
    pub fn merge(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.sum += other.sum;
        self.quantiles = Vec::new();
    }
}
