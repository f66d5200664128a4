//! Values pushed to an OpenTelemetry collector, over OTLP.
//!
//! The SDK of OpenTelemetry has no door through which a value that is kept elsewhere could enter as a histogram, and its
//! own instruments lock and look up attributes at every call. So this registry keeps values in cells like the others and
//! makes the protocol's messages of them itself (`opentelemetry-proto`); resources and environment variables are those of
//! the SDK.

mod build;
mod delta;
mod encode;
mod send;
mod thread;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use tidegate_cells::Store;

pub use build::{OtelBuilder, OtelError, Protocol, Temporality};

use crate::cells::Cells;
use crate::description::FamilySpec;
use crate::family::AnyFamily;
use crate::value::FamilyValues;
use crate::{ExportError, MetricsRegistry, RegisterError};

/// Keeps values in memory and pushes them to a collector: every so often, when asked to, and at the end.
///
/// What a push carries is the state, so one that fails loses nothing: the next one says the same and more. (With delta
/// temporality, what was not taken is part of the next push.)
#[derive(Clone)]
pub struct Otel(Arc<Inner>);

struct Inner {
    cells: Arc<Cells>,
    pusher: thread::Pusher,
}

impl Otel {
    /// As the environment variables of OpenTelemetry say (`OTEL_EXPORTER_OTLP_ENDPOINT`, `..._PROTOCOL`, `..._HEADERS`,
    /// `..._TIMEOUT` and their variants for metrics, `OTEL_METRIC_EXPORT_INTERVAL`, `OTEL_SERVICE_NAME`,
    /// `OTEL_RESOURCE_ATTRIBUTES`).
    ///
    /// # Errors
    /// One of them makes no sense, or no thread can be had.
    pub fn from_env() -> Result<Self, OtelError> {
        Self::builder().env()?.build()
    }

    /// To 127.0.0.1:4317 over gRPC once a minute, unless told otherwise.
    pub fn builder() -> OtelBuilder {
        OtelBuilder::default()
    }

    fn start(builder: OtelBuilder) -> Result<Self, OtelError> {
        let store = Store::in_memory(crate::registries::options(Vec::new()));
        let cells = Arc::new(Cells::new(store));
        let pusher = thread::Pusher::start(builder, cells.clone())?;
        Ok(Self(Arc::new(Inner { cells, pusher })))
    }

    /// How many pushes failed so far.
    pub fn failed_pushes(&self) -> u64 {
        self.0.pusher.failed.load(Relaxed)
    }

    /// How many points the collector took notice of and refused.
    pub fn rejected_points(&self) -> u64 {
        self.0.pusher.rejected.load(Relaxed)
    }
}

impl std::fmt::Debug for Otel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Otel").finish_non_exhaustive()
    }
}

impl MetricsRegistry for Otel {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        self.0.cells.register(spec)
    }

    fn gather(&self) -> Vec<FamilyValues> {
        self.0.cells.gather()
    }

    fn flush(&self, within: Duration) -> Result<(), ExportError> {
        self.0.pusher.push(within, false)
    }

    fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        self.0.pusher.push(within, true)
    }
}
