// SPDX-License-Identifier: Apache-2.0

//! Spans of `tracing`, exported by OpenTelemetry.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as Export};
use tokio::runtime::Runtime;
use tracing::{Metadata, Subscriber};
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::{FilterFn, Filtered, filter_fn};
use tracing_subscriber::registry::LookupSpan;

use super::context::exemplars_from_otel;
use super::{TraceContext, Tracer};
use crate::instance::resource;
use crate::{ExportError, OtelError};

/// The time that spans without a shutdown wait for the export of the last of them.
const LAST_PUSH: Duration = Duration::from_secs(5);

/// Targets of spans that the exporter itself makes, and of targets within them.
const EXPORT_TARGETS: [&str; 5] = ["h2", "hyper", "hyper_util", "tonic", "tower"];

/// Exports the spans of `tracing`, and has instruments described with exemplars remember them. Dropping it gets out the
/// spans that have ended, for up to 5 s; spans that end later go nowhere.
///
/// ```no_run
/// use tracing_subscriber::prelude::*;
/// # use tidegate_metrics::Spans;
/// let spans = Spans::builder().endpoint("http://127.0.0.1:4317").resource("service.name", "worker").build()?;
/// tracing_subscriber::registry().with(spans.layer()).init();
/// # Ok::<(), tidegate_metrics::OtelError>(())
/// ```
#[derive(Debug)]
pub struct Spans {
    provider: SdkTracerProvider,
    /// The runtime of gRPC; the program may have no runtime.
    runtime: Mutex<Option<Runtime>>,
    is_shut: AtomicBool,
    /// The process that its threads are in: a fork takes none along.
    process: u32,
}

/// How spans are exported.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct SpansBuilder {
    endpoint: Option<String>,
    resource: Vec<(String, String)>,
}

impl SpansBuilder {
    /// Over gRPC to this collector; without, where the environment variables of OpenTelemetry say, or 127.0.0.1:4317.
    pub fn endpoint(mut self, endpoint: impl Into<String>) -> Self {
        self.endpoint = Some(endpoint.into());
        self
    }

    /// The resource has this attribute, whatever the environment says.
    pub fn resource(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.resource.push((key.into(), value.into()));
        self
    }

    /// Exports in batches, on threads of its own.
    ///
    /// # Errors
    /// The endpoint makes no sense, or no thread can be had.
    pub fn build(self) -> Result<Spans, OtelError> {
        let runtime = export_runtime()?;
        let exporter = {
            let _inside = runtime.enter();
            let mut exporter = SpanExporter::builder().with_tonic();
            if let Some(endpoint) = &self.endpoint {
                exporter = exporter.with_endpoint(endpoint);
            }
            let bad = |_| OtelError::Endpoint(self.endpoint.clone().unwrap_or_default());
            exporter.build().map_err(bad)?
        };
        Ok(Spans::in_batches(&self.resource, exporter, runtime))
    }

    /// Exports every span at once to this exporter: for tests, and for what OpenTelemetry has no protocol for.
    pub fn export_to(self, exporter: impl Export + 'static) -> Spans {
        let provider = SdkTracerProvider::builder().with_resource(resource(&self.resource));
        Spans::of(provider.with_simple_exporter(exporter).build(), None)
    }
}

/// The runtime of the exporters of spans.
pub(crate) fn export_runtime() -> Result<Runtime, OtelError> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("metrics-spans")
        .enable_all()
        .build();
    Ok(runtime?)
}

impl Spans {
    /// Spans to a collector.
    pub fn builder() -> SpansBuilder {
        SpansBuilder::default()
    }

    pub(crate) fn in_batches(
        attributes: &[(String, String)],
        exporter: impl Export + 'static,
        runtime: Runtime,
    ) -> Self {
        let provider = SdkTracerProvider::builder().with_resource(resource(attributes));
        Self::of(provider.with_batch_exporter(exporter).build(), Some(runtime))
    }

    fn of(provider: SdkTracerProvider, runtime: Option<Runtime>) -> Self {
        // The source of another caller is as good.
        exemplars_from_otel();
        Self {
            provider,
            runtime: Mutex::new(runtime),
            is_shut: AtomicBool::new(false),
            process: std::process::id(),
        }
    }

    /// The layer for a subscriber of `tracing`. It drops what sending makes itself: the spans of h2, hyper, tonic,
    /// tower and opentelemetry.
    pub fn layer<S>(&self) -> Filtered<OpenTelemetryLayer<S, SdkTracer>, FilterFn, S>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        self.unfiltered_layer().with_filter(filter_fn(is_of_program))
    }

    /// The layer with no filter, for a program with filters of its own. Spans of the sending itself feed themselves for
    /// ever unless such a filter leaves them out.
    pub fn unfiltered_layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer().with_tracer(self.sdk_tracer())
    }

    /// Makes spans without `tracing`.
    pub fn tracer(&self) -> Tracer {
        Tracer::of(self.sdk_tracer())
    }

    fn sdk_tracer(&self) -> SdkTracer {
        self.provider.tracer("tidegate-metrics")
    }

    /// Gets out the spans that have ended.
    ///
    /// # Errors
    /// They did not get out.
    pub fn flush(&self) -> Result<(), ExportError> {
        self.provider
            .force_flush()
            .map_err(|error| ExportError::Peer(error.to_string()))
    }

    /// Gets out the spans that have ended, and stops. The second time there is nothing to do.
    ///
    /// # Errors
    /// They did not get out.
    pub fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        let is_elsewhere = self.process != std::process::id();
        if is_elsewhere || self.is_shut.swap(true, Relaxed) {
            return Ok(());
        }
        let stopped = self.provider.shutdown_with_timeout(within);
        stopped.map_err(|error| ExportError::Peer(error.to_string()))
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        // A caller that needs the result shuts it down itself.
        let _ = self.shutdown(LAST_PUSH);
        let runtime = self.runtime.get_mut().ok().and_then(Option::take);
        if self.process == std::process::id() {
            // A runtime that waits for its threads panics where it is dropped within another one.
            runtime.into_iter().for_each(Runtime::shutdown_background);
        } else {
            // Its threads are in another process.
            std::mem::forget(runtime);
        }
    }
}

/// Whether a span is not of what exports spans.
fn is_of_program(span: &Metadata<'_>) -> bool {
    let target = span.target();
    let root = target.split("::").next().unwrap_or(target);
    !EXPORT_TARGETS.contains(&root) && !root.starts_with("opentelemetry")
}

impl TraceContext {
    /// The context of a span of `tracing`: what a request to elsewhere carries.
    pub fn of_span(span: &tracing::Span) -> Option<Self> {
        Self::of(&span.context())
    }

    /// Makes a span of `tracing` part of this trace: the request that it serves came from there. `false`: no layer is
    /// there, or the span has begun to be exported.
    pub fn adopt(&self, span: &tracing::Span) -> bool {
        span.set_parent(self.to_otel()).is_ok()
    }
}
