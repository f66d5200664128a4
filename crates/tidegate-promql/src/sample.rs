// SPDX-License-Identifier: Apache-2.0

//! Samples: numbers and native histograms at a time, and series of them.

use std::sync::Arc;

use super::{FloatHistogram, Labels, Millis};

/// A value at a time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sample {
    /// When.
    pub time: Millis,
    /// The value; a stale marker says that the series has ended.
    pub value: f64,
}

impl Sample {
    /// Prometheus's stale marker: one NaN among many.
    pub const STALE: u64 = 0x7ff0_0000_0000_0002;

    pub(super) fn is_stale(&self) -> bool {
        self.value.to_bits() == Self::STALE
    }
}

/// A native histogram at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct HistogramSample {
    /// When.
    pub time: Millis,
    /// The histogram.
    pub value: Arc<FloatHistogram>,
}

/// The value of a sample.
#[derive(Clone, Debug, PartialEq)]
pub enum SampleValue {
    /// A number.
    Float(f64),
    /// A native histogram.
    Histogram(Arc<FloatHistogram>),
}

impl SampleValue {
    /// The number, if it is one.
    pub fn float(&self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(*number),
            Self::Histogram(_) => None,
        }
    }
}

/// The samples of a series, in the order of time. Most series have floats only.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct QuerySeries {
    /// Its labels, with the name.
    pub labels: Labels,
    /// Its samples that are numbers, and stale markers.
    pub samples: Vec<Sample>,
    /// Its samples that are native histograms.
    pub histograms: Vec<HistogramSample>,
}

impl QuerySeries {
    /// A series of numbers.
    pub fn of_floats(labels: Labels, samples: Vec<Sample>) -> Self {
        Self {
            labels,
            samples,
            histograms: Vec::new(),
        }
    }

    /// Whether it has no samples.
    pub fn is_empty(&self) -> bool {
        self.samples.is_empty() && self.histograms.is_empty()
    }

    /// Appends a sample, not earlier than those that it has.
    pub fn push(&mut self, time: Millis, value: SampleValue) {
        match value {
            SampleValue::Float(value) => self.samples.push(Sample { time, value }),
            SampleValue::Histogram(value) => self.histograms.push(HistogramSample { time, value }),
        }
    }

    /// When its last sample was taken.
    pub fn last_time(&self) -> Option<Millis> {
        let float = self.samples.last().map(|sample| sample.time);
        float.max(self.histograms.last().map(|sample| sample.time))
    }

    /// The number of samples that it counts as.
    pub fn weight(&self) -> usize {
        weight(&self.samples, &self.histograms)
    }
}

/// The number of samples that these count as.
pub(super) fn weight(samples: &[Sample], histograms: &[HistogramSample]) -> usize {
    let histograms = histograms.iter().map(|sample| 1 + sample.value.len());
    samples.len() + histograms.sum::<usize>()
}
