// SPDX-License-Identifier: Apache-2.0

//! Logs to standard error and to OTLP destinations.

use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry_appender_tracing::layer::OpenTelemetryTracingBridge;
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::logs::{BatchConfigBuilder, BatchLogProcessor, SdkLoggerProvider};
use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::filter_fn;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Layer};

use super::component_levels::{ComponentLevels, level_filter, named_component};
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
    let by_target = directives(config, LevelFilter::OFF);
    // A directive can't be malformed: the check of the configuration has refused other characters.
    let by_target = by_target.parse().unwrap_or_default();
    let components = ComponentLevels::of(config, by_target);
    let (filter, components) = if let Ok(filter) = EnvFilter::try_from_env("TIDEGATE_LOG") {
        (filter, None)
    } else {
        let most_verbose = components.as_ref().map(ComponentLevels::most_verbose);
        let directives = directives(config, most_verbose.unwrap_or(LevelFilter::OFF));
        (EnvFilter::new(directives), components)
    };
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
        .with(components)
        .with(lines)
        .with(pushed)
        .try_init();
}

/// The levels of targets. Those of the gateway are at least as verbose as `at_least`.
///
/// Libraries log warnings and errors only, unless all levels are enabled. h2 and hickory log errors only, because any
/// peer can trigger their warnings at will. async_nats and krafka would log every attempt to connect: the components that
/// use them log the same errors less often. A directive selects by the prefix of a target: `tidegate` stands for all
/// crates of the gateway. The longest prefix decides.
fn directives(config: &Logs, at_least: LevelFilter) -> String {
    let level = level_filter(config.level).max(at_least);
    let mut all = format!("warn,h2=error,hickory=error,async_nats=off,krafka=error,tidegate={level}");
    // A longer prefix would win over a level for the library.
    if !config.levels.contains_key("krafka") {
        all.push_str(",krafka::network=off");
    }
    let levels = config.levels.iter();
    for (name, level) in levels.filter(|(name, _)| named_component(name).is_none()) {
        let level = level_filter(*level);
        all.extend(targets(name).map(|target| {
            let is_ours = target.starts_with("tidegate");
            let level = if is_ours { level.max(at_least) } else { level };
            format!(",{target}={level}")
        }));
    }
    all
}

/// Whether log lines have colours.
fn has_colours() -> bool {
    std::io::stderr().is_terminal() && !refuses_colours()
}

/// Whether the user refuses colours on a terminal: `NO_COLOR` has a value (<https://no-color.org>).
pub fn refuses_colours() -> bool {
    std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
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
    use crate::telemetry::config::Level;

    #[test]
    fn the_level_of_a_component_opens_the_targets_of_the_gateway_only() {
        let levels = [
            ("exporters::otlphttp/vendor", Level::Debug),
            ("exporters::otlp", Level::Error),
            ("rustls", Level::Error),
        ];
        let config = Logs {
            levels: levels.map(|(name, level)| (name.to_owned(), level)).into(),
            ..Logs::default()
        };
        let libraries = "warn,h2=error,hickory=error,async_nats=off,krafka=error";
        for (at_least, own) in [
            (
                LevelFilter::OFF,
                "tidegate=info,krafka::network=off,tidegate::exporters::otlp=error,rustls=error",
            ),
            (
                LevelFilter::DEBUG,
                "tidegate=debug,krafka::network=off,tidegate::exporters::otlp=debug,rustls=error",
            ),
        ] {
            assert_eq!(directives(&config, at_least), format!("{libraries},{own}"));
        }
    }

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
