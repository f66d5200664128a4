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
use crate::config::Class;

/// The time limit of the last push at the stop.
const LAST_PUSH: Duration = Duration::from_secs(1);

/// Components with code in crates of their own.
const CRATES: &[(&str, &str)] = &[
    ("exporters::kafka", "tidegate_kafka::transport"),
    ("exporters::nats", "tidegate_nats::transport"),
    ("exporters::plugin", "tidegate_plugin"),
    ("extensions::cluster", "tidegate_direct"),
    ("extensions::cluster", "tidegate_kafka"),
    ("extensions::cluster", "tidegate_nats"),
    ("receivers::kafka", "tidegate_kafka::transport"),
    ("receivers::nats", "tidegate_nats::transport"),
    ("receivers::prometheus", "tidegate_scrape"),
];

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
    // crates of the gateway. The longest prefix decides.
    let mut default = format!("warn,h2=error,hickory=error,async_nats=off,krafka=error,tidegate={level}");
    for (name, level) in &config.levels {
        let targets = targets(name);
        default.extend(targets.map(|target| format!(",{target}={}", level.as_str())));
    }
    let filter = EnvFilter::try_from_env("TIDEGATE_LOG").unwrap_or_else(|_| EnvFilter::new(default));
    let lines = tracing_subscriber::fmt::layer()
        .with_writer(std::io::stderr)
        .with_ansi(has_colours());
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

/// Whether log lines have colours: on a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
fn has_colours() -> bool {
    let is_refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    std::io::stderr().is_terminal() && !is_refused
}

/// The targets of a name of `levels`: those of the modules of a component type, such as `receivers::otlp`, or the name itself.
fn targets(name: &str) -> impl Iterator<Item = String> {
    let class = name.split("::").next().unwrap_or_default();
    let is_component = Class::ALL.iter().any(|known| known.section() == class);
    let own = if is_component {
        format!("tidegate::{name}")
    } else {
        name.to_owned()
    };
    let crates = CRATES.iter().filter(move |(component, _)| *component == name);
    let crates: Vec<_> = crates.map(|(_, target)| (*target).to_owned()).collect();
    std::iter::once(own).chain(crates)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_component_type_has_the_targets_of_its_modules_and_crates() {
        for (name, expected) in [
            ("receivers::otlp", &["tidegate::receivers::otlp"][..]),
            (
                "receivers::prometheus",
                &["tidegate::receivers::prometheus", "tidegate_scrape"][..],
            ),
            (
                "tidegate_pipeline::delivery",
                &["tidegate_pipeline::delivery"][..],
            ),
            ("h2", &["h2"][..]),
        ] {
            assert_eq!(targets(name).collect::<Vec<_>>(), expected, "{name}");
        }
    }
}
