// SPDX-License-Identifier: Apache-2.0

//! A batch to export, as the gateway owns it.

use std::sync::Arc;

use bytes::Bytes;

use crate::plugin::{Instrument, Signal};

/// The payload of one call: OTLP, events of some sources, or both.
#[derive(Clone, Debug, PartialEq)]
pub struct ExportBatch {
    /// Which telemetry it is.
    pub signal: Signal,
    /// How many items, in OTLP and events.
    pub items: u64,
    /// An OTLP export request, or nothing.
    pub otlp: Bytes,
    /// Events by source.
    pub events: Vec<Events>,
}

/// Events of one source. All columns have the same length.
#[derive(Clone, Debug, PartialEq)]
pub struct Events {
    /// The name of the source.
    pub source: Arc<str>,
    /// Attributes of every event.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
    /// The kinds of the events.
    pub kinds: Vec<EventKind>,
    /// Index into `kinds`.
    pub kind: Vec<u16>,
    /// The values.
    pub values: Values,
    /// Nanoseconds since 1970.
    pub times_ns: Vec<u64>,
    /// How many measurements each stands for, where not one.
    pub weights: Option<Vec<f64>>,
}

/// The kind of an event.
#[derive(Clone, Debug, PartialEq)]
pub struct EventKind {
    /// Metric name.
    pub name: Arc<str>,
    /// The attribute `category`, or empty.
    pub category: Arc<str>,
    /// UCUM unit.
    pub unit: Arc<str>,
    /// Free text.
    pub description: Arc<str>,
    /// How values combine.
    pub instrument: Instrument,
    /// All attributes.
    pub attributes: Vec<(Arc<str>, Arc<str>)>,
}

/// The column of values.
#[derive(Clone, Debug, PartialEq)]
pub enum Values {
    /// Whole numbers.
    U64(Vec<u64>),
    /// Doubles.
    F64(Vec<f64>),
}

impl Values {
    fn len(&self) -> usize {
        match self {
            Self::U64(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }
}

impl Events {
    /// Whether columns are of one length and kinds within. A plugin may rely on this.
    pub fn is_sound(&self) -> bool {
        let count = self.kind.len();
        let lengths = [self.values.len(), self.times_ns.len()];
        lengths.iter().all(|length| *length == count)
            && self.weights.as_ref().is_none_or(|weights| weights.len() == count)
            && self.kind.iter().all(|kind| usize::from(*kind) < self.kinds.len())
    }
}
