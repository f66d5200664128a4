// SPDX-License-Identifier: Apache-2.0

//! Values as they are read back: what an exposition, an export or a test looks at.

use std::sync::Arc;
use std::time::SystemTime;

pub use tidegate_model::{Buckets as ExponentialBuckets, ExponentialHistogram};

use crate::description::Kind;
use crate::span::SpanRef;

/// The value of one series at an instant. `tidegate_cells::Value` does not serve here: its histograms have no bounds, and
/// its gauges have a time.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum Value {
    /// Of a [`Counter`](crate::Counter).
    Counter(u64),
    /// Of a [`FloatCounter`](crate::FloatCounter).
    FloatCounter(f64),
    /// Of an [`UpDownCounter`](crate::UpDownCounter).
    UpDownCounter(i64),
    /// Of a [`Gauge`](crate::Gauge).
    Gauge(f64),
    /// Of a [`Histogram`](crate::Histogram) with fixed buckets.
    Histogram(HistogramValue),
    /// Of an exponential [`Histogram`](crate::Histogram).
    Exponential(ExponentialHistogram),
}

impl Value {
    /// As one number: the value, or of histograms the number of values.
    pub fn as_f64(&self) -> f64 {
        match self {
            Self::Counter(value) => *value as f64,
            Self::FloatCounter(value) | Self::Gauge(value) => *value,
            Self::UpDownCounter(value) => *value as f64,
            Self::Histogram(histogram) => histogram.count() as f64,
            Self::Exponential(histogram) => histogram.count as f64,
        }
    }

    /// Number and sum of the values of a histogram.
    pub fn count_and_sum(&self) -> Option<(u64, f64)> {
        match self {
            Self::Histogram(histogram) => Some((histogram.count(), histogram.sum)),
            Self::Exponential(histogram) => Some((histogram.count, histogram.sum.unwrap_or_default())),
            _ => None,
        }
    }
}

/// A histogram with fixed buckets.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramValue {
    /// Upper bounds, rising.
    pub bounds: Arc<[f64]>,
    /// How many values each bucket holds, not accumulated; one more than bounds.
    pub counts: Vec<u64>,
    /// Sum of all values.
    pub sum: f64,
}

impl HistogramValue {
    /// How many values.
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |all, count| all.wrapping_add(*count))
    }
}

/// One observation, and the span that it was made in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Exemplar {
    /// The value that was observed or added.
    pub value: f64,
    /// The span.
    pub span: SpanRef,
    /// When.
    pub time: SystemTime,
}

/// The values of one family in a registry.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyValues {
    /// Name as declared, prefixes included.
    pub name: String,
    /// Its description.
    pub help: String,
    /// UCUM unit.
    pub unit: String,
    /// The kind of instrument.
    pub kind: Kind,
    /// Its series.
    pub series: Vec<SeriesValues>,
}

/// One series with its value.
#[derive(Clone, Debug, PartialEq)]
pub struct SeriesValues {
    /// All labels, by name.
    pub labels: Vec<(String, String)>,
    /// Its value.
    pub value: Value,
    /// Recent observations with their spans; of a histogram at most one a bucket.
    pub exemplars: Vec<Exemplar>,
}

impl FamilyValues {
    /// The series that has these labels and no others.
    pub fn find(&self, labels: &[(&str, &str)]) -> Option<&SeriesValues> {
        let has = |series: &&SeriesValues, (key, value): &(&str, &str)| {
            series.labels.iter().any(|(k, v)| k == key && v == value)
        };
        self.series.iter().find(|series| {
            series.labels.len() == labels.len() && labels.iter().all(|label| has(series, label))
        })
    }
}

/// The description of a family in a registry, without values.
#[derive(Clone, Debug, PartialEq)]
pub struct FamilyDescription {
    /// Name as declared, prefixes included.
    pub name: String,
    /// Its description.
    pub help: String,
    /// UCUM unit.
    pub unit: String,
    /// The kind of instrument.
    pub kind: Kind,
    /// The labels of each of its series, by name.
    pub series: Vec<Vec<(String, String)>>,
}

impl From<FamilyValues> for FamilyDescription {
    fn from(values: FamilyValues) -> Self {
        Self {
            name: values.name,
            help: values.help,
            unit: values.unit,
            kind: values.kind,
            series: values.series.into_iter().map(|series| series.labels).collect(),
        }
    }
}
