// SPDX-License-Identifier: Apache-2.0

//! A point: the value of a series at a time.

use std::sync::Arc;

use crate::{AttributeValue, Attributes, Series, UnixNanos, Value};

/// The value of a series at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    /// The series.
    pub series: Arc<Series>,
    /// Start of the interval that the value covers; 0 = unknown.
    pub start: UnixNanos,
    /// When the value was true.
    pub time: UnixNanos,
    /// The value.
    pub value: Value,
    /// Example measurements that the value includes.
    pub exemplars: Vec<Exemplar>,
}

impl Point {
    /// The bytes that it has allocated, computed from the lengths of its lists. Its shared series does not count. Its
    /// bounds do: a decoded point shares them with nothing.
    pub fn bytes(&self) -> usize {
        let bounds = match &self.value {
            Value::Histogram(histogram) => size_of_val(&*histogram.bounds),
            _ => 0,
        };
        let exemplars = self.exemplars.iter().map(Exemplar::bytes);
        self.value.bytes() + bounds + exemplars.sum::<usize>()
    }
}

/// A series as a reader of a table sees it.
#[derive(Clone, Copy, Debug)]
pub struct Reading<'a> {
    /// The series.
    pub series: &'a Arc<Series>,
    /// Start of the interval that the value covers; 0 = unknown.
    pub start: UnixNanos,
    /// When the value last changed or was confirmed.
    pub time: UnixNanos,
    /// When something that feeds the series was last alive, by the gateway's clock.
    pub seen: UnixNanos,
    /// The value; sums and histograms are cumulative.
    pub value: &'a Value,
    /// The latest exemplars.
    pub exemplars: &'a [Exemplar],
}

/// An example of a measurement, with a link to its trace.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Exemplar {
    /// Attributes that aggregation removed.
    pub filtered_attributes: Attributes,
    /// When it was measured.
    pub time: UnixNanos,
    /// The measured value: `Int` or `Double`, `Empty` when absent.
    pub value: AttributeValue,
    /// 16 bytes, or empty.
    pub trace_id: Vec<u8>,
    /// 8 bytes, or empty.
    pub span_id: Vec<u8>,
}

impl Exemplar {
    /// The bytes that it takes, estimated.
    pub(crate) fn bytes(&self) -> usize {
        size_of::<Self>() + self.filtered_attributes.bytes() + self.trace_id.len() + self.span_id.len()
    }
}
