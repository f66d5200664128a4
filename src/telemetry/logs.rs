// SPDX-License-Identifier: Apache-2.0

//! Logs to standard error and to OTLP destinations.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{BatchConfigBuilder, BatchLogProcessor, SdkLoggerProvider};
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::config::{Encoding, LogProcessor, Logs};

/// The time limit of the last push at the stop.
const LAST_PUSH: Duration = Duration::from_secs(1);

/// Starts logging. `TIDEGATE_LOG` (directives of tracing's `EnvFilter`) overrides the configured level. A second
/// call in a process has no effect.
pub fn start_logs(config: &Logs) {
    subscribe(config, None);
}

/// Starts logging to standard error and to the configured processors.
pub(super) fn start(config: &Logs, resource: &Resource) -> Result<Option<Push>, String> {
    let pushes: Vec<_> = config.processors.iter().filter_map(LogProcessor::push).collect();
    if pushes.is_empty() {
        start_logs(config);
        return Ok(None);
    }
    let mut provider = SdkLoggerProvider::builder().with_resource(resource.clone());
    for (batch, otlp) in pushes {
        let limits = BatchConfigBuilder::default()
            .with_max_queue_size(batch.max_queue_size)
            .with_max_export_batch_size(batch.max_export_batch_size)
            .with_scheduled_delay(batch.schedule_delay.0);
        let processor = BatchLogProcessor::builder(otlp.logs()?).with_batch_config(limits.build());
        provider = provider.with_log_processor(processor.build());
    }
    let provider = provider.build();
    subscribe(config, Some(&provider));
    Ok(Some(Push(provider)))
}

fn subscribe(config: &Logs, provider: Option<&SdkLoggerProvider>) {
    let level = config.level.as_str();
    // Libraries log warnings and errors only, unless all levels are enabled. h2 and hickory log errors only, because any
    // peer can trigger their warnings at will. async_nats and krafka would log every attempt to connect: the engine of the
    // cluster logs the same errors less often. A directive selects by the prefix of a target: `tidegate` stands for all
    // crates of the gateway.
    let default = format!("warn,h2=error,hickory=error,async_nats=off,krafka=error,tidegate={level}");
    let filter = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal());
    let lines = match config.encoding {
        Encoding::Console => lines.with_target(false).boxed(),
        Encoding::Json => lines.json().flatten_event(true).boxed(),
    };
    // Log lines of the push libraries would be pushed again.
    let ours = filter_fn(|metadata| metadata.target().starts_with("tidegate"));
    let pushed = provider.map(|provider| OpenTelemetryTracingBridge::new(provider).with_filter(ours));
    // It fails only if logging has been started before.
    let _ = tracing_subscriber::registry()
        .with(filter)
        .with(lines)
        .with(pushed)
        .try_init();
}

/// The push of log records.
pub(super) struct Push(SdkLoggerProvider);

impl Push {
    /// Sends pending records, with a time limit.
    pub(super) async fn stop(self) {
        let shutdown = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST_PUSH));
        // A failure needs no report: standard error has the records.
        let _ = tokio::time::timeout(LAST_PUSH, shutdown).await;
    }
}
