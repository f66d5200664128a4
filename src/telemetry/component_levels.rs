// SPDX-License-Identifier: Apache-2.0

//! Log levels of single components, such as `exporters::otlphttp/vendor`.
//!
//! A filter by target can't tell two components of one type apart. So it lets the lines of all components pass at the most
//! verbose of these levels, and this layer reads which component a line names. The layer exists only if a component has a
//! level of its own.

use std::collections::HashMap;
use std::fmt::Debug;

use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::{Event, Metadata, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::layer::Context;

use super::config::{Level, Logs};
use crate::config::{Class, ComponentId};

/// The component that a key of `levels` names by its id, which has a name after the slash.
pub fn named_component(name: &str) -> Option<(Class, ComponentId)> {
    let (section, id) = name.split_once("::")?;
    let class = Class::ALL.into_iter().find(|class| class.section() == section)?;
    let id: ComponentId = id.parse().ok()?;
    (!id.name.is_empty()).then_some((class, id))
}

pub(super) const fn level_filter(level: Level) -> LevelFilter {
    match level {
        Level::Debug => LevelFilter::DEBUG,
        Level::Info => LevelFilter::INFO,
        Level::Warn => LevelFilter::WARN,
        Level::Error => LevelFilter::ERROR,
    }
}

/// Decides on lines that name a component with a level of its own, and on all others by their targets.
pub(super) struct ComponentLevels {
    by_path: HashMap<String, LevelFilter>,
    by_target: Targets,
}

impl ComponentLevels {
    /// `None`: no component has a level of its own. `by_target`: the levels of all other lines.
    pub(super) fn of(config: &Logs, by_target: Targets) -> Option<Self> {
        let named = config.levels.iter();
        let named = named.filter(|(name, _)| named_component(name).is_some());
        let by_path: HashMap<_, _> = named
            .map(|(name, level)| (name.clone(), level_filter(*level)))
            .collect();
        (!by_path.is_empty()).then_some(Self { by_path, by_target })
    }

    /// The most verbose of the levels.
    pub(super) fn most_verbose(&self) -> LevelFilter {
        let levels = self.by_path.values().copied();
        levels.max().unwrap_or(LevelFilter::OFF)
    }

    fn allows(&self, metadata: &Metadata<'_>, own: Option<LevelFilter>) -> bool {
        match own {
            Some(own) => *metadata.level() <= own,
            None => self.by_target.would_enable(metadata.target(), metadata.level()),
        }
    }
}

impl<S: Subscriber> Layer<S> for ComponentLevels {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        // Libraries name no components, and the filter by target has decided on their lines.
        if !metadata.target().starts_with("tidegate") {
            return true;
        }
        let mut visitor = PathVisitor {
            levels: &self.by_path,
            found: None,
        };
        event.record(&mut visitor);
        self.allows(metadata, visitor.found)
    }
}

/// Finds the level of the component that a line names: by its path in `component`, or by its id in `receiver`, `exporter`
/// and so on.
struct PathVisitor<'a> {
    levels: &'a HashMap<String, LevelFilter>,
    found: Option<LevelFilter>,
}

impl PathVisitor<'_> {
    fn names_component(field: &Field) -> bool {
        field.name() == "component" || class_of(field).is_some()
    }

    /// The path of a processor ends in its pipeline: `processors::batch/large@metrics`.
    fn level_of(&self, path: &str) -> Option<LevelFilter> {
        let of = |path: &str| self.levels.get(path).copied();
        of(path).or_else(|| of(path.rsplit_once('@')?.0))
    }
}

fn class_of(field: &Field) -> Option<Class> {
    Class::ALL
        .into_iter()
        .find(|class| class.as_str() == field.name())
}

impl Visit for PathVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.found.is_some() || !Self::names_component(field) {
            return;
        }
        self.found = match class_of(field) {
            Some(class) if !value.contains("::") => self.level_of(&format!("{}::{value}", class.section())),
            _ => self.level_of(value),
        };
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if Self::names_component(field) {
            self.record_str(field, &format!("{value:?}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use parking_lot::Mutex;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[test]
    fn only_an_id_with_a_name_names_a_component() {
        let named = |name| named_component(name).map(|(class, id)| format!("{} {id}", class.as_str()));
        assert_eq!(
            named("exporters::otlphttp/vendor").as_deref(),
            Some("exporter otlphttp/vendor")
        );
        for name in [
            "exporters::otlphttp",
            "exporters::otlphttp/",
            "exporter::otlphttp/a",
            "h2",
            "otlphttp/a",
        ] {
            assert_eq!(named(name), None, "{name}");
        }
    }

    /// Notes the messages of the lines that pass.
    #[derive(Clone, Default)]
    struct Noted(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Noted {
        fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
            event.record(&mut self.clone());
        }
    }

    impl Visit for Noted {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if field.name() == "message" {
                self.0.lock().push(format!("{value:?}"));
            }
        }
    }

    #[test]
    fn a_line_has_the_level_of_the_component_that_it_names() {
        let config = Logs {
            levels: BTreeMap::from([
                ("exporters::otlphttp/vendor".to_owned(), Level::Debug),
                ("processors::batch/large".to_owned(), Level::Debug),
                ("receivers::kafka/quiet".to_owned(), Level::Error),
            ]),
            ..Logs::default()
        };
        let by_target = "warn,tidegate=info".parse().unwrap();
        let levels = ComponentLevels::of(&config, by_target).unwrap();
        assert_eq!(levels.most_verbose(), LevelFilter::DEBUG);
        let noted = Noted::default();
        let subscriber = tracing_subscriber::registry().with(levels).with(noted.clone());
        tracing::subscriber::with_default(subscriber, || {
            tracing::debug!(target: "tidegate::delivery", component = "exporters::otlphttp/vendor", "path");
            tracing::debug!(target: "tidegate::delivery", component = %"exporters::otlphttp/vendor", "shown");
            tracing::debug!(target: "tidegate::delivery", exporter = %"otlphttp/vendor", "id");
            tracing::debug!(target: "tidegate::delivery", component = "processors::batch/large@logs/a", "pipeline");
            tracing::debug!(target: "tidegate::delivery", component = "exporters::otlphttp", "no: another id");
            tracing::debug!(target: "tidegate::delivery", receiver = "otlphttp/vendor", "no: another class");
            tracing::debug!(target: "tidegate::delivery", "no: names nothing");
            tracing::info!(target: "tidegate::delivery", component = "exporters::otlphttp", "by target");
            tracing::warn!(target: "tidegate::receivers", receiver = "kafka/quiet", "no: below error");
            tracing::error!(target: "tidegate::receivers", receiver = "kafka/quiet", "error");
            tracing::debug!(target: "h2", "library");
        });
        let noted = noted.0.lock();
        let expected = ["path", "shown", "id", "pipeline", "by target", "error", "library"];
        assert_eq!(*noted, expected);
    }

    #[test]
    fn without_levels_of_components_there_is_no_layer() {
        let config = Logs {
            levels: BTreeMap::from([("exporters::otlphttp".to_owned(), Level::Debug)]),
            ..Logs::default()
        };
        assert!(ComponentLevels::of(&config, Targets::new()).is_none());
    }
}
