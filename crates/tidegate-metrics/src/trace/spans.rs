//! Spans of `tracing`, exported by OpenTelemetry.

use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider, SpanExporter as Export};
use tracing::Subscriber;
use tracing_opentelemetry::{OpenTelemetryLayer, OpenTelemetrySpanExt};
use tracing_subscriber::registry::LookupSpan;

use super::TraceContext;
use super::context::exemplars_from_otel;
use crate::{ExportError, OtelError};

/// Exports the spans of `tracing`, and has instruments described with exemplars remember them.
///
/// ```no_run
/// use tracing_subscriber::prelude::*;
/// # use tidegate_metrics::Spans;
/// let spans = Spans::builder().endpoint("http://127.0.0.1:4317").resource("service.name", "worker").build()?;
/// tracing_subscriber::registry().with(spans.layer()).init();
/// # Ok::<(), tidegate_metrics::OtelError>(())
/// ```
#[derive(Debug)]
pub struct Spans(SdkTracerProvider);

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

    fn sdk_resource(&self) -> Resource {
        let attributes = self.resource.iter();
        let attributes =
            attributes.map(|(key, value)| opentelemetry::KeyValue::new(key.clone(), value.clone()));
        Resource::builder().with_attributes(attributes).build()
    }

    /// Exports in batches, on a thread of the SDK. Within a tokio runtime, which gRPC needs.
    ///
    /// # Errors
    /// The endpoint makes no sense.
    pub fn build(self) -> Result<Spans, OtelError> {
        let mut exporter = SpanExporter::builder().with_tonic();
        if let Some(endpoint) = &self.endpoint {
            exporter = exporter.with_endpoint(endpoint);
        }
        let bad = |_| OtelError::Endpoint(self.endpoint.clone().unwrap_or_default());
        let exporter = exporter.build().map_err(bad)?;
        let provider = SdkTracerProvider::builder().with_resource(self.sdk_resource());
        Ok(Spans::of(provider.with_batch_exporter(exporter).build()))
    }

    /// Exports every span at once to this exporter: for tests, and for what OpenTelemetry has no protocol for.
    pub fn export_to(self, exporter: impl Export + 'static) -> Spans {
        let provider = SdkTracerProvider::builder().with_resource(self.sdk_resource());
        Spans::of(provider.with_simple_exporter(exporter).build())
    }
}

impl Spans {
    /// Spans to a collector.
    pub fn builder() -> SpansBuilder {
        SpansBuilder::default()
    }

    fn of(provider: SdkTracerProvider) -> Self {
        // Somebody else's source is as good.
        exemplars_from_otel();
        Self(provider)
    }

    /// The layer for a subscriber of `tracing`.
    pub fn layer<S>(&self) -> OpenTelemetryLayer<S, SdkTracer>
    where
        S: Subscriber + for<'span> LookupSpan<'span>,
    {
        tracing_opentelemetry::layer().with_tracer(self.0.tracer("tidegate-metrics"))
    }

    /// Gets out the spans that have ended.
    ///
    /// # Errors
    /// They did not get out.
    pub fn flush(&self) -> Result<(), ExportError> {
        self.0
            .force_flush()
            .map_err(|error| ExportError::Peer(error.to_string()))
    }

    /// Gets out the spans that have ended, and stops.
    ///
    /// # Errors
    /// They did not get out.
    pub fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        let stopped = self.0.shutdown_with_timeout(within);
        stopped.map_err(|error| ExportError::Peer(error.to_string()))
    }
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
