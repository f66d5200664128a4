// SPDX-License-Identifier: Apache-2.0

//! A metrics SDK: declared once, recorded for the price of an atomic addition, shown by any registry.
//!
//! ```
//! use tidegate_metrics::{Counter, Gauge, Histogram, MetricSet, MetricsRegistry, Prometheus};
//!
//! #[derive(MetricSet)]
//! #[metrics(prefix = "service", labels(model))]
//! struct Service {
//!     /// Requests processed.
//!     requests: Counter,
//!     /// Requests in flight.
//!     inflight: Gauge,
//!     /// Time to the first token.
//!     #[metric(unit = "s", buckets = "latency")]
//!     ttft: Histogram,
//! }
//!
//! let registry = Prometheus::new();
//! let service = Service::register(&registry, &[("model", "m")])?;
//! service.requests.inc();
//! service.ttft.observe(0.2);
//! assert!(registry.prometheus_format_str().contains("service_requests_total{model=\"m\"} 1\n"));
//! # Ok::<(), tidegate_metrics::RegisterError>(())
//! ```
//!
//! Values live in cells ([`tidegate_cells`]), in memory or in a file; registries differ in who reads them. The record
//! path never blocks and never allocates once a series is known. Registration returns errors; misuse at run time is a
//! no-op that is [counted](misused).
//!
//! Features, of which the first three are on by default:
//!
//! - `composites`: `MetricsRegistry::composite`, composites and callbacks.
//! - `http`: `serve_http` for `/metrics`, `/health` and `/live`.
//! - `shm`: the registry `Shm`, whose files processes share.
//! - `otel`: the registry `Otel`, which pushes OTLP, and the adapter `Meters`.
//! - `tracing`: `Spans`. It turns `otel` on.
//! - `metrics-facade`: the recorder `Facade` of the crate `metrics`.
//!
//! `docs/sdk.md` is the guide.

#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(any(feature = "otel", feature = "metrics-facade"))]
mod adapters;
pub mod buckets;
mod catalog;
mod cells;
#[cfg(feature = "composites")]
mod composite;
mod description;
mod error;
mod family;
mod handle;
#[cfg(feature = "http")]
mod http;
#[cfg(feature = "otel")]
mod instance;
mod labels;
mod registries;
mod registry;
mod report;
mod scope;
mod set;
mod side;
mod span;
pub mod text;
mod trace;
mod value;
#[cfg_attr(not(feature = "composites"), path = "unwatched.rs")]
mod watched;

#[cfg(feature = "metrics-facade")]
pub use adapters::Facade;
#[cfg(feature = "otel")]
pub use adapters::Meters;
#[cfg(feature = "composites")]
pub use composite::{
    Across, Change, Composite, CompositeBuilder, CompositeError, Function, LOOK_EVERY, Snapshot, Source,
    State, Subscription, Trigger, Watcher, callback_panics, composite,
};
pub use description::{Description, FamilySpec, GaugeMode, Kind, MAX_SCALE};
pub use error::{ExportError, RegisterError};
pub use family::{
    AnyFamily, CounterFamily, Family, FloatCounterFamily, GaugeFamily, HistogramFamily, Made, Make,
    UpDownCounterFamily,
};
pub use handle::{
    Counter, CounterFn, FloatCounter, FloatCounterFn, Gauge, GaugeFn, Histogram, HistogramFn, InProgress,
    Instrument, Timer, UpDownCounter, UpDownCounterFn, misused,
};
#[cfg(feature = "http")]
pub use http::{Health, HttpServer, serve_http};
pub use labels::{LabelSet, LabelValue, Scratch};
#[cfg(feature = "shm")]
pub use registries::Shm;
#[cfg(feature = "otel")]
pub use registries::otel::{Otel, OtelBuilder, OtelError, Protocol, Temporality};
pub use registries::{Fanout, Foreign, ForeignSpec, ForeignText, ForeignVtable, Null, Prometheus};
pub use registry::{Labels, MetricsRegistry, register};
pub use report::set_reporter;
pub use scope::{LevelNames, Scope, join_names};
pub use set::{Member, MetricSet};
pub use side::Info;
pub use span::{SpanRef, SpanSource, set_source};
pub use tidegate_cells::Error as OpenError;
pub use tidegate_metrics_derive::{LabelSet, MetricSet};
#[cfg(feature = "otel")]
pub use trace::exemplars_from_otel;
pub use trace::{ActiveSpan, BadContext, DetachedSpan, TraceContext, Tracer};
#[cfg(feature = "tracing")]
pub use trace::{Spans, SpansBuilder};
pub use value::{
    Exemplar, ExponentialBuckets, ExponentialHistogram, FamilyDescription, FamilyValues, HistogramValue,
    SeriesValues, Value,
};
