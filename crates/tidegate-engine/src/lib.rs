// SPDX-License-Identifier: Apache-2.0

//! The aggregation engine: identities, values, events, points, and the tables and composites that hold state.
//!
//! The engine does no I/O and has no async code. Callers pass the time in, from [`clock::now`]. The gateway, the SDK
//! and the Python wheel embed this crate.

#![forbid(unsafe_code)]
// Without tables some functions of the modules that they share with composites have no caller.
#![cfg_attr(not(feature = "tables"), allow(dead_code))]

pub mod attributes;
mod budget;
mod bytes;
pub mod cadence;
mod chunks;
pub mod clock;
pub mod composite;
pub mod event;
#[cfg(feature = "tables")]
mod fold;
mod freshness;
#[cfg(feature = "tables")]
pub mod future;
pub mod grouping;
pub mod identity;
#[cfg(feature = "tables")]
mod index;
pub mod key;
pub mod lease;
pub mod match_tracker;
#[cfg(feature = "tables")]
pub mod merged;
#[cfg(feature = "tables")]
pub mod partition;
pub mod pattern;
pub mod point;
#[cfg(feature = "tables")]
mod restored;
#[cfg(feature = "tables")]
pub mod rule;
#[cfg(feature = "tables")]
mod saved;
#[cfg(feature = "tables")]
mod snapshot_buffer;
#[cfg(feature = "tables")]
pub mod stream_tracker;
#[cfg(feature = "tables")]
mod streams;
#[cfg(feature = "tables")]
pub mod table;
#[cfg(feature = "tables")]
pub mod temporality;
#[cfg(feature = "tables")]
pub mod timestamp_anomaly;
#[cfg(feature = "tables")]
mod wheel;

pub use attributes::{
    AttributeList, AttributeRef, AttributeValue, Attributes, AttributesBuilder, ListRef, MapRef,
};
pub use budget::{Bounds, Budget, identity_bytes};
pub use cadence::{Cadence, DEFAULT_LEASE_NS, patience_ns};
pub use composite::{
    Across, Added, Answer, Composite, DataQuality, Declaration, Direction, Distribution, Evaluated,
    Expression, Feed, FeedKind, Function, Hysteresis, OnStale, Threshold,
};
#[cfg(feature = "tables")]
pub use composite::{
    CompositeSet, MergedWindows, ProducerRun, SavedWindows, SilenceReason, SilentSource, SilentSources,
    SubWindow, SubWindowOutcome, SubWindowRefused, Unshareable, WindowMergeLimits, WindowRefusals,
};
pub use event::{EventKind, Events, Schema, Source, SourceId, Values};
pub use freshness::Freshness;
#[cfg(feature = "tables")]
pub use future::{Future, FutureAction};
pub use grouping::Grouping;
pub use identity::{Data, Instrument, Metric, Resource, Scope, Series, Temporality};
pub use key::{Key, KeyHasher};
pub use lease::Lease;
pub use match_tracker::MatchTracker;
#[cfg(feature = "tables")]
pub use merged::{
    CompactedPart, CompactedTotal, LISTED_STARTS, MergeMode, MergeRefusal, Merged, MergedLimits,
    MergedReading, MergedStats, ProducerId, ProducerShare, ReportKind, RetainedTotal, RunReport, StreamTotal,
    ValueForm,
};
#[cfg(feature = "tables")]
pub use partition::{PartitionHasher, partition_id};
pub use pattern::{AttributeFilter, BadPattern, Pattern};
pub use point::{Exemplar, Point, Reading};
#[cfg(feature = "tables")]
pub use rule::{GaugePolicy, Input, Rule};
#[cfg(feature = "tables")]
pub use saved::StreamId;
#[cfg(feature = "tables")]
pub use stream_tracker::{Collision, PointSample, Rejection};
#[cfg(feature = "tables")]
pub use table::{
    Absorbed, Count, Frozen, Holdings, Limits, LookupResult, Outcome, Overflow, Restored, SeriesExplanation,
    SeriesReader, SeriesSource, Session, SlotId, SourceList, SourceStatus, Stats, Table, holdings,
};
#[cfg(feature = "tables")]
pub use temporality::{Converted, Converter, ConverterLimits, FrozenPositions, PointArrival};
pub use tidegate_model::{Buckets, ExponentialHistogram, Histogram, Number, Quantile, Summary, Value};
#[cfg(feature = "tables")]
pub use timestamp_anomaly::{TimestampAnomalies, TimestampAnomaly};

/// Nanoseconds since the Unix epoch, as OTLP counts time. 0 means unknown.
pub type UnixNanos = u64;
