// SPDX-License-Identifier: Apache-2.0

//! Spans of slow batches, exported by OpenTelemetry's SDK.

use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use opentelemetry::trace::{Span, SpanBuilder, SpanKind, Status, TraceContextExt, Tracer, TracerProvider};
use opentelemetry::{Context, KeyValue};
use opentelemetry_otlp::SpanExporter as OtlpSpans;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::error::OTelSdkResult;
use opentelemetry_sdk::trace::{
    BatchConfigBuilder, BatchSpanProcessor, SdkTracer, SdkTracerProvider, SpanData, SpanExporter,
};
use tidegate_runtime::Every;

use super::config::{Detail, SpanProcessor, Traces};
use crate::component::slow::{Observer, Slow, Slowness, Stage};

/// The interval between log lines about an unreachable peer.
const FAILURE_LOG_INTERVAL: Duration = Duration::from_secs(60);
/// The time limit of the last export at the stop.
const LAST_EXPORT: Duration = Duration::from_secs(1);

/// The running tracing of slow batches.
pub(super) struct Spans {
    provider: SdkTracerProvider,
}

impl Spans {
    /// Starts the tracing; `None` if no destination for spans is configured.
    pub(super) fn start(
        config: &Traces,
        resource: Resource,
        slowness: &Slowness,
    ) -> Result<Option<Self>, String> {
        let pushes: Vec<_> = config.processors.iter().filter_map(SpanProcessor::push).collect();
        if config.level == Detail::None || pushes.is_empty() {
            return Ok(None);
        }
        let mut builder = SdkTracerProvider::builder().with_resource(resource);
        for (batch, otlp) in pushes {
            let exporter = Reporting {
                spans: otlp.spans()?,
                endpoint: otlp.endpoint.into(),
                failure_log: Arc::new(Every::new(FAILURE_LOG_INTERVAL)),
            };
            let limits = BatchConfigBuilder::default()
                .with_max_queue_size(batch.max_queue_size)
                .with_max_export_batch_size(batch.max_export_batch_size)
                .with_scheduled_delay(batch.schedule_delay.0);
            let processor = BatchSpanProcessor::builder(exporter).with_batch_config(limits.build());
            builder = builder.with_span_processor(processor.build());
        }
        let provider = builder.build();
        let recorder = Recorder(provider.tracer(super::SCOPE));
        slowness.observe(config.slow_batch, Arc::new(recorder));
        Ok(Some(Self { provider }))
    }

    /// Exports pending spans, with a time limit.
    pub(super) async fn stop(self) {
        let shutdown = tokio::task::spawn_blocking(move || self.provider.shutdown_with_timeout(LAST_EXPORT));
        // The result does not matter: the failures of the peer are already logged.
        let _ = tokio::time::timeout(LAST_EXPORT, shutdown).await;
    }
}

struct Recorder(SdkTracer);

impl Observer for Recorder {
    fn slow(&self, slow: Slow) {
        let clock = Clock::now();
        let (name, kind) = match slow.stage {
            Stage::Push => ("push", SpanKind::Server),
            Stage::Deliver => ("deliver", SpanKind::Internal),
        };
        let whole = SpanBuilder::from_name(name)
            .with_kind(kind)
            .with_start_time(clock.at(slow.started))
            .with_attributes(attributes(&slow));
        let mut whole = self.0.build(whole);
        if let Some(attempted) = slow.attempted {
            let parent = Context::new().with_remote_span_context(whole.span_context().clone());
            let attempt = SpanBuilder::from_name("attempt")
                .with_kind(SpanKind::Client)
                .with_start_time(clock.at(attempted));
            let mut attempt = self.0.build_with_context(attempt, &parent);
            end(&mut attempt, &slow, clock);
        }
        end(&mut whole, &slow, clock);
    }
}

fn attributes(slow: &Slow) -> Vec<KeyValue> {
    vec![
        KeyValue::new("tidegate.component", slow.component.to_string()),
        KeyValue::new("tidegate.signal", slow.signal.name()),
        KeyValue::new("tidegate.items", i64::try_from(slow.items).unwrap_or(i64::MAX)),
    ]
}

fn end(span: &mut impl Span, slow: &Slow, clock: Clock) {
    if let Some(error) = &slow.error {
        span.set_status(Status::error(error.clone()));
    }
    span.end_with_timestamp(clock.at(slow.ended));
}

/// Converts moments of the monotonic clock to wall-clock time.
#[derive(Clone, Copy)]
struct Clock {
    wall: SystemTime,
    monotonic: Instant,
}

impl Clock {
    fn now() -> Self {
        Self {
            wall: SystemTime::now(),
            monotonic: Instant::now(),
        }
    }

    fn at(self, moment: Instant) -> SystemTime {
        self.wall - self.monotonic.saturating_duration_since(moment)
    }
}

/// The OTLP exporter, with log lines for failures that the SDK would hide.
#[derive(Debug)]
struct Reporting {
    spans: OtlpSpans,
    endpoint: Arc<str>,
    failure_log: Arc<Every>,
}

impl SpanExporter for Reporting {
    async fn export(&self, batch: Vec<SpanData>) -> OTelSdkResult {
        let exported = self.spans.export(batch).await;
        if let Err(error) = &exported {
            metrics::counter!("tidegate_telemetry_push_failures_total", "signal" => "traces").increment(1);
            if self.failure_log.ready().is_some() {
                tracing::warn!(endpoint = %self.endpoint, %error, "spans of slow batches could not be pushed");
            }
        }
        exported
    }

    fn shutdown_with_timeout(&self, timeout: Duration) -> OTelSdkResult {
        self.spans.shutdown_with_timeout(timeout)
    }

    fn set_resource(&mut self, resource: &Resource) {
        self.spans.set_resource(resource);
    }
}
