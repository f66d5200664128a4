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
use tracing_subscriber::{EnvFilter, Layer, reload};

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

/// Starts logging to standard error and to the configured processors. `TIDEGATE_LOG` (directives of tracing's `EnvFilter`)
/// overrides the configured levels. A second call in a process has no effect.
pub(super) fn start(config: &Logs, resource: &Resource) -> Result<RunningLogs, String> {
    let pushes: Vec<_> = config.processors.iter().filter_map(LogProcessor::push).collect();
    if pushes.is_empty() {
        return Ok(RunningLogs {
            push: None,
            set_levels: subscribe(config, None),
        });
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
    Ok(RunningLogs {
        set_levels: subscribe(config, Some(&provider)),
        push: Some(Push(provider)),
    })
}

/// The levels of lines.
struct Levels {
    filter: EnvFilter,
    components: Option<ComponentLevels>,
}

impl Levels {
    fn of(config: &Logs) -> Self {
        let by_target = directives(config, LevelFilter::OFF);
        // A directive can't be malformed: the check of the configuration has refused other characters.
        let by_target = by_target.parse().unwrap_or_default();
        let components = ComponentLevels::of(config, by_target);
        let most_verbose = components.as_ref().map(ComponentLevels::most_verbose);
        let directives = directives(config, most_verbose.unwrap_or(LevelFilter::OFF));
        Self {
            filter: EnvFilter::new(directives),
            components,
        }
    }

    /// The layers that apply the levels. A line that no level allows costs as little as with fixed levels: its call site
    /// remembers the answer until the next replacement.
    fn replaceable<S: 'static, T: 'static>(self) -> Replaceable<S, T> {
        let (filter, set_filter) = reload::Layer::new(self.filter);
        let (components, set_components) = reload::Layer::new(self.components);
        // A replacement fails only if this process had started to log before, by other layers.
        let set = move |levels: Self| {
            // Where components have levels, the filter alone lets too many lines pass. So these levels come first and go last.
            if levels.components.is_some() {
                let _ = set_components.reload(levels.components);
                let _ = set_filter.reload(levels.filter);
            } else {
                let _ = set_filter.reload(levels.filter);
                let _ = set_components.reload(levels.components);
            }
        };
        Replaceable {
            filter,
            components,
            set: Box::new(set),
        }
    }
}

/// Replaces the levels of lines.
type SetLevels = Box<dyn Fn(Levels) + Send + Sync>;

/// Layers for subscribers of these types, and the function that replaces their levels.
struct Replaceable<S, T> {
    filter: reload::Layer<EnvFilter, S>,
    components: reload::Layer<Option<ComponentLevels>, T>,
    set: SetLevels,
}

/// Starts to log. Returns the function that replaces the levels; `None`: `TIDEGATE_LOG` has set them.
fn subscribe(config: &Logs, provider: Option<&SdkLoggerProvider>) -> Option<SetLevels> {
    let from_environment = EnvFilter::try_from_env("TIDEGATE_LOG").ok();
    let is_fixed = from_environment.is_some();
    let levels = match from_environment {
        Some(filter) => Levels {
            filter,
            components: None,
        },
        None => Levels::of(config),
    };
    let Replaceable {
        filter,
        components,
        set,
    } = levels.replaceable();
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
    (!is_fixed).then_some(set)
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

/// The logs of a gateway.
#[derive(Default)]
pub(super) struct RunningLogs {
    push: Option<Push>,
    /// `None`: the levels can't change.
    set_levels: Option<SetLevels>,
}

impl RunningLogs {
    /// Logs by the levels of another configuration from now on, unless `TIDEGATE_LOG` has set them.
    pub(super) fn set_levels(&self, config: &Logs) {
        if let Some(set_levels) = &self.set_levels {
            set_levels(Levels::of(config));
        }
    }

    /// Sends pending records, with a time limit.
    pub(super) async fn stop(self) {
        if let Some(push) = self.push {
            push.stop().await;
        }
    }
}

/// The push of log records.
struct Push(SdkLoggerProvider);

impl Push {
    async fn stop(self) {
        let shutdown = tokio::task::spawn_blocking(move || self.0.shutdown_with_timeout(LAST_PUSH));
        // A failure needs no report: standard error has the records.
        let _ = tokio::time::timeout(LAST_PUSH, shutdown).await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering::SeqCst};

    use tracing::{Event, Subscriber};
    use tracing_subscriber::layer::Context;

    use super::*;
    use crate::telemetry::config::Level;

    /// Counts the lines that pass.
    #[derive(Clone, Default)]
    struct Counted(Arc<AtomicUsize>);

    impl<S: Subscriber> Layer<S> for Counted {
        fn on_event(&self, _: &Event<'_>, _: Context<'_, S>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    #[test]
    fn new_levels_hold_for_call_sites_that_have_logged_before() {
        const COMPONENT: &str = "exporters::otlphttp/vendor";
        let of = |level, of_component: Option<Level>| {
            let levels = of_component.map(|level| (COMPONENT.to_owned(), level));
            Levels::of(&Logs {
                level,
                levels: levels.into_iter().collect(),
                ..Logs::default()
            })
        };
        let Replaceable {
            filter,
            components,
            set,
        } = of(Level::Info, None).replaceable();
        let counted = Counted::default();
        let subscriber = tracing_subscriber::registry()
            .with(filter)
            .with(components)
            .with(counted.clone());
        tracing::subscriber::with_default(subscriber, || {
            let passed = || {
                tracing::debug!(target: "tidegate::delivery", component = COMPONENT, "of the component");
                tracing::debug!(target: "tidegate::delivery", "of another");
                counted.0.swap(0, SeqCst)
            };
            assert_eq!(passed(), 0);
            for (level, of_component, expected) in [
                (Level::Debug, None, 2),
                (Level::Info, Some(Level::Debug), 1),
                (Level::Debug, Some(Level::Error), 1),
                (Level::Warn, None, 0),
            ] {
                set(of(level, of_component));
                assert_eq!(passed(), expected, "{level:?} {of_component:?}");
            }
        });
    }

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
