// SPDX-License-Identifier: Apache-2.0

//! Native histograms of both versions, and their OTLP forms: exponential histograms, or histograms with explicit
//! bounds for custom buckets (schema -53).

use prost::Message;
use tidegate_engine::{Buckets, Data, ExponentialHistogram, Histogram, Value};
use tidegate_exposition::{BadHistogram, BucketSpan as Run, Counts, NativeHistogram, Side};

use super::stale;
use crate::model;
use crate::render::histogram as native;

/// `Histogram` of both messages.
#[derive(Clone, PartialEq, Message)]
pub struct Native {
    /// The number of observations.
    #[prost(oneof = "Count", tags = "1, 2")]
    pub count: Option<Count>,
    /// The sum of all observations.
    #[prost(double, tag = "3")]
    pub sum: f64,
    /// The resolution: a bucket is 2^(2^-schema) wide; -53 = bounds in `custom_values`.
    #[prost(sint32, tag = "4")]
    pub schema: i32,
    /// The width of the zero bucket.
    #[prost(double, tag = "5")]
    pub zero_threshold: f64,
    /// The number of observations in the zero bucket.
    #[prost(oneof = "ZeroCount", tags = "6, 7")]
    pub zero_count: Option<ZeroCount>,
    /// The runs of negative buckets.
    #[prost(message, repeated, tag = "8")]
    pub negative_spans: Vec<WireSpan>,
    /// The counts of negative buckets, each as the difference from its predecessor.
    #[prost(sint64, repeated, tag = "9")]
    pub negative_deltas: Vec<i64>,
    /// The runs of positive buckets.
    #[prost(message, repeated, tag = "11")]
    pub positive_spans: Vec<WireSpan>,
    /// The counts of positive buckets, each as the difference from its predecessor.
    #[prost(sint64, repeated, tag = "12")]
    pub positive_deltas: Vec<i64>,
    /// Whether the counts may have fallen since the sample before; 3 = gauge.
    #[prost(int32, tag = "14")]
    pub reset_hint: i32,
    /// The time of the sample, in milliseconds.
    #[prost(int64, tag = "15")]
    pub timestamp: i64,
    /// The upper bounds of buckets for schema -53.
    #[prost(double, repeated, tag = "16")]
    pub custom_values: Vec<f64>,
    /// 2.0 only, from its release candidate 4 on.
    #[prost(int64, tag = "17")]
    pub start_timestamp: i64,
}

/// A count of observations.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum Count {
    /// Whole observations.
    #[prost(uint64, tag = "1")]
    Int(u64),
    /// Weighted observations, in a float histogram.
    #[prost(double, tag = "2")]
    Float(f64),
}

/// A count of observations in the zero bucket.
#[derive(Clone, Copy, PartialEq, prost::Oneof)]
pub enum ZeroCount {
    /// Whole observations.
    #[prost(uint64, tag = "6")]
    Int(u64),
    /// Weighted observations, in a float histogram.
    #[prost(double, tag = "7")]
    Float(f64),
}

/// A run of buckets: the number of skipped ones before it (for the first run its offset), and its length.
#[derive(Clone, Copy, PartialEq, Message)]
pub struct WireSpan {
    /// Buckets between the run before and this one; for the first run, the index of its first bucket.
    #[prost(sint32, tag = "1")]
    pub offset: i32,
    /// The number of buckets.
    #[prost(uint32, tag = "2")]
    pub length: u32,
}

/// Reset hint of histograms whose buckets may fall.
const HINT_GAUGE: i32 = 3;

/// The reason why a histogram is unusable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unfit {
    /// Counts that are not whole numbers.
    #[error("a histogram of floats: send whole numbers of observations")]
    Float,
    /// Buckets that may fall.
    #[error("a gauge histogram")]
    Gauge,
    /// No native histogram can say it: its scale is below -4, or it has no sum.
    #[error("a histogram without a sum, or with a scale below -4")]
    Unsayable,
    /// Counts or bounds that contradict each other.
    #[error("a histogram whose buckets contradict its count or its bounds: correct the sender")]
    Broken,
    /// The same error in a histogram that was read.
    #[error("a native histogram: {0}")]
    Bad(#[from] BadHistogram),
    /// Buckets of an unknown schema.
    #[error("a native histogram of schema {0}: send schema -4 to 8, or -53 for custom buckets")]
    Schema(i32),
    /// No schema is coarse enough.
    #[error("a histogram of too many buckets: send fewer, or a coarser schema")]
    TooMany,
}

impl Unfit {
    /// Whether it is invalid, as opposed to valid but not expressible.
    pub fn is_broken(self) -> bool {
        matches!(self, Self::Broken | Self::Bad(_))
    }
}

impl Native {
    /// The mark of a series that has ended.
    pub fn stale(custom: bool) -> Self {
        Self {
            count: Some(Count::Int(0)),
            sum: stale(),
            schema: if custom { NativeHistogram::CUSTOM } else { 0 },
            ..Self::default()
        }
    }

    /// An exponential histogram; scales above 8 are made coarser.
    ///
    /// # Errors
    /// `Broken`: its counts contradict each other. `Unsayable`: it has no sum, or its scale is below -4.
    pub fn of_exponential(histogram: &ExponentialHistogram) -> Result<Self, Unfit> {
        if !histogram.is_sound() {
            return Err(Unfit::Broken);
        }
        let made = native::native(histogram).ok_or(Unfit::Unsayable)?;
        Ok(Self {
            count: Some(Count::Int(made.count)),
            sum: made.sum,
            schema: made.schema,
            zero_threshold: made.zero_threshold,
            zero_count: Some(ZeroCount::Int(made.zero_count)),
            negative_spans: spans(&made.negative),
            negative_deltas: made.negative.deltas,
            positive_spans: spans(&made.positive),
            positive_deltas: made.positive.deltas,
            ..Self::default()
        })
    }

    /// A histogram with explicit bounds, with its bounds as custom buckets.
    ///
    /// # Errors
    /// `Broken`: its counts or bounds contradict each other, or a bound is infinite.
    /// `Unsayable`: it has no sum.
    pub fn of_explicit(histogram: &Histogram) -> Result<Self, Unfit> {
        if !histogram.is_sound() || histogram.bounds.iter().any(|bound| bound.is_infinite()) {
            return Err(Unfit::Broken);
        }
        let buckets = Buckets {
            // The first is number 0 there.
            offset: -1,
            counts: if histogram.counts.is_empty() {
                vec![histogram.count]
            } else {
                histogram.counts.clone()
            },
        };
        let side = native::side(&buckets, 0).ok_or(Unfit::Broken)?;
        Ok(Self {
            count: Some(Count::Int(histogram.count)),
            sum: histogram.sum.ok_or(Unfit::Unsayable)?,
            schema: NativeHistogram::CUSTOM,
            positive_spans: spans(&side),
            positive_deltas: side.deltas,
            custom_values: histogram.bounds.to_vec(),
            ..Self::default()
        })
    }

    /// The OTLP value. The buckets are moved out.
    ///
    /// # Errors
    /// `Float`, `Gauge`, `Schema` and `TooMany`: OTLP has no such histogram. `Bad`: it contradicts itself.
    pub fn read(&mut self) -> Result<(Value, Data), Unfit> {
        if matches!(self.count, Some(Count::Float(_))) || matches!(self.zero_count, Some(ZeroCount::Float(_)))
        {
            return Err(Unfit::Float);
        }
        if self.reset_hint == HINT_GAUGE {
            return Err(Unfit::Gauge);
        }
        if !model::knows_schema(self.schema) {
            return Err(Unfit::Schema(self.schema));
        }
        let side = |spans: &[WireSpan], deltas: &mut Vec<i64>| Side {
            spans: spans
                .iter()
                .map(|span| Run {
                    offset: span.offset,
                    length: span.length,
                })
                .collect(),
            deltas: std::mem::take(deltas),
            floats: Vec::new(),
        };
        let histogram = NativeHistogram {
            schema: self.schema,
            counts: Counts::Integer,
            count: match self.count {
                Some(Count::Int(count)) => count,
                _ => 0,
            },
            sum: self.sum,
            zero_threshold: self.zero_threshold,
            zero_count: match self.zero_count {
                Some(ZeroCount::Int(count)) => count,
                _ => 0,
            },
            positive: side(&self.positive_spans, &mut self.positive_deltas),
            negative: side(&self.negative_spans, &mut self.negative_deltas),
            custom_values: std::mem::take(&mut self.custom_values),
            ..NativeHistogram::default()
        };
        // A histogram that only marks the end of a series need not add up.
        if !model::is_stale(self.sum) {
            histogram.check()?;
        }
        match model::native(&histogram, 0) {
            Ok(Some(read)) => Ok(read),
            Ok(None) => Err(Unfit::Gauge),
            Err(_) => Err(Unfit::TooMany),
        }
    }
}

fn spans(side: &Side) -> Vec<WireSpan> {
    let spans = side.spans.iter();
    spans
        .map(|span| WireSpan {
            offset: span.offset,
            length: span.length,
        })
        .collect()
}
