// SPDX-License-Identifier: Apache-2.0

//! Values pushed to an OpenTelemetry collector, over OTLP.
//!
//! The SDK of OpenTelemetry has no API for a histogram whose value is kept elsewhere, and its
//! own instruments lock and look up attributes at every call. So this registry keeps values in cells like the others and
//! makes the protocol's messages of them itself (`opentelemetry-proto`); resources and environment variables are those of
//! the SDK.

mod build;
mod delta;
mod encode;
mod send;
#[cfg(feature = "tracing")]
mod spans;
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
/// A push carries the state, so a failed push loses nothing: the next one carries the same values and newer ones. (With
/// delta temporality, the next push contains the increase of a push that was not accepted.)
#[derive(Clone)]
pub struct Otel(Arc<Inner>);

struct Inner {
    cells: Arc<Cells>,
    pusher: thread::Pusher,
    #[cfg(feature = "tracing")]
    builder: OtelBuilder,
    /// Made when they are first asked for.
    #[cfg(feature = "tracing")]
    spans: std::sync::OnceLock<crate::Spans>,
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

    /// To 127.0.0.1:4317 over gRPC once a minute by default.
    pub fn builder() -> OtelBuilder {
        OtelBuilder::default()
    }

    fn start(builder: OtelBuilder) -> Result<Self, OtelError> {
        let store = Store::in_memory(crate::registries::options(Vec::new()));
        let cells = Arc::new(Cells::new(store));
        let pusher = thread::Pusher::start(builder.clone(), cells.clone())?;
        Ok(Self(Arc::new(Inner {
            cells,
            pusher,
            #[cfg(feature = "tracing")]
            builder,
            #[cfg(feature = "tracing")]
            spans: std::sync::OnceLock::new(),
        })))
    }

    /// The spans of this registry: of the same resource, by the same way to the same collector. `flush` and `shutdown`
    /// of the registry get them out as well.
    ///
    /// ```no_run
    /// use tracing_subscriber::prelude::*;
    /// # use tidegate_metrics::Otel;
    /// let registry = Otel::builder().endpoint("http://127.0.0.1:4317").resource("service.name", "worker").build()?;
    /// tracing_subscriber::registry().with(registry.spans()?.layer()).init();
    /// # Ok::<(), tidegate_metrics::OtelError>(())
    /// ```
    ///
    /// # Errors
    /// No thread can be had.
    #[cfg(feature = "tracing")]
    pub fn spans(&self) -> Result<&crate::Spans, OtelError> {
        if let Some(spans) = self.0.spans.get() {
            return Ok(spans);
        }
        let spans = spans::of(&self.0.builder)?;
        Ok(self.0.spans.get_or_init(|| spans))
    }

    #[cfg(feature = "tracing")]
    fn with_spans(&self, act: impl Fn(&crate::Spans) -> Result<(), ExportError>) -> Result<(), ExportError> {
        self.0.spans.get().map_or(Ok(()), act)
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

    #[cfg(feature = "tracing")]
    fn tracer(&self) -> crate::Tracer {
        self.spans().map(crate::Spans::tracer).unwrap_or_default()
    }

    fn flush(&self, within: Duration) -> Result<(), ExportError> {
        let pushed = self.0.pusher.push(within, false);
        #[cfg(feature = "tracing")]
        self.with_spans(crate::Spans::flush)?;
        pushed
    }

    fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        let pushed = self.0.pusher.push(within, true);
        #[cfg(feature = "tracing")]
        self.with_spans(|spans| spans.shutdown(within))?;
        pushed
    }
}
