//! The aggregation engine: identities, values, events, points, and the tables and composites that hold state.
//!
//! The engine does no I/O and has no async code. Callers pass the time in, from [`clock::now`]. The gateway, the SDK
//! and the Python wheel embed this crate.

#![forbid(unsafe_code)]

pub mod attributes;
mod budget;
mod bytes;
pub mod cadence;
mod chunks;
pub mod clock;
pub mod composite;
pub mod event;
mod fold;
mod freshness;
pub mod future;
pub mod grouping;
pub mod identity;
mod index;
pub mod key;
pub mod lease;
pub mod match_tracker;
pub mod partial;
pub mod pattern;
pub mod point;
mod restored;
pub mod rule;
mod saved;
mod snapshot_buffer;
pub mod stream_tracker;
mod streams;
pub mod table;
pub mod temporality;
pub mod timestamp_anomaly;
mod wheel;

pub use attributes::{
    AttributeList, AttributeRef, AttributeValue, Attributes, AttributesBuilder, ListRef, MapRef,
};
pub use budget::Budget;
pub use cadence::{Cadence, DEFAULT_LEASE_NS, patience_ns};
pub use composite::{
    Across, Added, Answer, Composite, CompositeSet, DataQuality, Declaration, Direction, Distribution,
    Evaluated, Expression, Feed, FeedKind, Function, Hysteresis, OnStale, Threshold,
};
pub use event::{Events, Kind, Schema, Source, SourceId, Values};
pub use freshness::Freshness;
pub use future::{Future, FutureAction};
pub use grouping::Grouping;
pub use identity::{Data, Instrument, Metric, Resource, Scope, Series, Temporality};
pub use key::{Key, KeyHasher};
pub use lease::Lease;
pub use match_tracker::MatchTracker;
pub use partial::{Partial, Partials};
pub use pattern::{AttributeFilter, BadPattern, Pattern};
pub use point::{Exemplar, Point};
pub use rule::{GaugePolicy, Input, Rule};
pub use saved::StreamId;
pub use stream_tracker::{Collision, Rejection, Sample};
pub use table::{
    Absorbed, Bounds, Count, Frozen, Holdings, Limits, LookupResult, Outcome, Overflow, Reading, Restored,
    SeriesExplanation, SeriesReader, SeriesSource, Session, SlotId, SourceStatus, Stats, Table, holdings,
};
pub use temporality::{Converted, Converter, ConverterLimits, FrozenPlaces};
pub use tidegate_model::{Buckets, ExponentialHistogram, Histogram, Number, Quantile, Summary, Value};
pub use timestamp_anomaly::{TimestampAnomalies, TimestampAnomaly};

/// Nanoseconds since the Unix epoch, as OTLP counts time. 0 means unknown.
pub type UnixNanos = u64;
