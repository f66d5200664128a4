// SPDX-License-Identifier: Apache-2.0

//! Values.

use std::sync::Arc;

use tidegate_model::ExponentialHistogram;

use crate::exponential;
use crate::spec::{FamilySpec, Kind};

/// The result of one read: families in the order in which they were first seen.
#[derive(Clone, Debug, Default)]
pub struct Snapshot {
    /// The families.
    pub families: Vec<FamilyValues>,
}

impl Snapshot {
    /// The first family of that name.
    pub fn family(&self, name: &str) -> Option<&FamilyValues> {
        self.families.iter().find(|family| family.spec.name == name)
    }

    /// The value of the series of that family with exactly these labels, in any order.
    pub fn value(&self, name: &str, labels: &[(&str, &str)]) -> Option<&Value> {
        let family = self.family(name)?;
        let has = |series: &&SeriesValue| {
            let all = |(key, value): &(&str, &str)| series.label(key) == Some(value);
            series.labels.len() == labels.len() && labels.iter().all(all)
        };
        family.series.iter().find(has).map(|series| &series.value)
    }
}

/// A family and its series.
#[derive(Clone, Debug)]
pub struct FamilyValues {
    /// Its specification. A merged family has that of the first one seen; the bounds of a histogram are those of the
    /// values here.
    pub spec: Arc<FamilySpec>,
    /// The series, in the order in which they were first seen.
    pub series: Vec<SeriesValue>,
}

/// A series.
#[derive(Clone, Debug)]
pub struct SeriesValue {
    /// Names and values of its labels. The overflow series has `otel_metric_overflow="true"` only, per-process
    /// gauges have `pid` last.
    pub labels: Labels,
    /// Its value.
    pub value: Value,
    /// Unless it is the overflow series 0: how many look-ups it took.
    pub overflowed: u64,
}

impl SeriesValue {
    /// The value of a label.
    pub fn label(&self, name: &str) -> Option<&str> {
        let found = self.labels.iter().find(|(key, _)| **key == *name);
        found.map(|(_, value)| &**value)
    }
}

/// Names and values of labels.
pub type Labels = Arc<[(Arc<str>, Box<str>)]>;

/// The label of the series for label sets without room.
pub const OVERFLOW_LABEL: (&str, &str) = ("otel_metric_overflow", "true");

/// A value; which one is of the family's [`Kind`]. `tidegate_model::Value` does not serve here: its integers are signed,
/// its gauges have no time, and its histograms carry their bounds.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// [`Kind::Counter`].
    Counter(u64),
    /// [`Kind::FloatCounter`].
    FloatCounter(f64),
    /// [`Kind::UpDownCounter`].
    UpDownCounter(i64),
    /// [`Kind::Gauge`].
    Gauge {
        /// Its value.
        value: f64,
        /// When it was set last, in nanoseconds since 1970, of the modes of the most recent; else 0.
        set_ns: u64,
    },
    /// [`Kind::Histogram`].
    Histogram {
        /// Counts by bucket, not cumulative; one more than the bounds.
        buckets: Vec<u64>,
        /// Sum of the values.
        sum: f64,
    },
    /// [`Kind::ExponentialHistogram`].
    Exponential(Box<ExponentialHistogram>),
    /// [`Kind::Summary`].
    Summary {
        /// Number of values.
        count: u64,
        /// Sum of the values.
        sum: f64,
    },
}

impl Value {
    /// The value of words; `read` gives the word of that number.
    pub(crate) fn decode(kind: &Kind, read: impl Fn(usize) -> u64) -> Value {
        let float = |word: usize| f64::from_bits(read(word));
        match kind {
            Kind::Counter => Value::Counter(read(0)),
            Kind::FloatCounter => Value::FloatCounter(float(0)),
            Kind::UpDownCounter => Value::UpDownCounter(read(0) as i64),
            Kind::Gauge(mode) => Value::Gauge {
                value: float(0),
                set_ns: if mode.is_most_recent() { read(1) } else { 0 },
            },
            Kind::Histogram { bounds } => Value::Histogram {
                buckets: (0..=bounds.len()).map(|bucket| read(bucket + 1)).collect(),
                sum: float(0),
            },
            Kind::ExponentialHistogram { .. } => Value::Exponential(Box::new(exponential::decode(read))),
            Kind::Summary => Value::Summary {
                count: read(0),
                sum: float(1),
            },
        }
    }
}
