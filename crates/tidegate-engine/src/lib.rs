//! The aggregation engine: identities, values, events, points, and the tables and composites that hold state.
//!
//! No I/O, no async, no clock of its own: callers pass the time in. The gateway, the SDK and the
//! Python wheel embed this same crate.

#![forbid(unsafe_code)]

pub mod attributes;
pub mod composite;
pub mod event;
pub mod grouping;
pub mod identity;
pub mod lease;
pub mod pattern;
pub mod point;
pub mod table;
pub mod value;

pub use attributes::{AttributeValue, Attributes};
pub use composite::{Answer, Composite, Declaration, Function, State};
pub use event::{Events, Kind, Schema, Source, SourceId, Values};
pub use grouping::Grouping;
pub use identity::{Data, Instrument, Metric, Resource, Scope, Series, Temporality};
pub use lease::Lease;
pub use pattern::{AttributeFilter, BadPattern, Pattern};
pub use point::{Exemplar, Point};
pub use table::{Reading, Table};
pub use value::{Buckets, ExponentialHistogram, Histogram, Quantile, Summary, Value};

/// Nanoseconds since the Unix epoch, as OTLP counts time. 0 means unknown.
pub type UnixNanos = u64;
