// SPDX-License-Identifier: Apache-2.0

//! Scopes: a prefix and constant labels for everything that is registered through them.

use std::sync::Arc;
use std::time::Duration;

use crate::description::FamilySpec;
use crate::family::AnyFamily;
use crate::value::FamilyValues;
use crate::{ExportError, MetricsRegistry, RegisterError, Tracer};

/// The levels of a hierarchy as labels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LevelNames {
    /// Of the namespace.
    pub namespace: &'static str,
    /// Of the component.
    pub component: &'static str,
    /// Of the endpoint.
    pub endpoint: &'static str,
}

impl LevelNames {
    /// As Dynamo names them.
    pub const DYNAMO: Self = Self {
        namespace: "dynamo_namespace",
        component: "dynamo_component",
        endpoint: "dynamo_endpoint",
    };
}

/// A registry that puts a prefix before all names and adds labels to all series.
///
/// ```
/// # use std::sync::Arc;
/// # use tidegate_metrics::{Description, MetricsRegistry, Prometheus, Scope};
/// let registry = Arc::new(Prometheus::new());
/// let endpoint = Scope::new(registry.clone()).prefix("dynamo_component").namespace("demo").component("worker").endpoint("generate");
/// endpoint.counter(&Description::new("requests", "Requests"), &[]).unwrap().inc();
/// let page = registry.prometheus_format_str();
/// assert!(page.contains(
///     r#"dynamo_component_requests_total{dynamo_namespace="demo",dynamo_component="worker",dynamo_endpoint="generate"} 1"#
/// ));
/// ```
///
/// All three levels are labels of every metric below [`namespace`](Self::namespace); a level that is not reached has no
/// value, which readers take for no label. So a metric may be there at several levels.
#[derive(Clone)]
#[must_use]
pub struct Scope {
    registry: Arc<dyn MetricsRegistry>,
    prefix: String,
    labels: Vec<(String, String)>,
    levels: LevelNames,
}

impl Scope {
    /// Everything of `registry`, without prefix and labels yet.
    pub fn new(registry: Arc<dyn MetricsRegistry>) -> Self {
        Self {
            registry,
            prefix: String::new(),
            labels: Vec::new(),
            levels: LevelNames::DYNAMO,
        }
    }

    /// With this before all names, behind the prefix there is, joined by `_`.
    pub fn prefix(mut self, prefix: &str) -> Self {
        self.prefix = join_names(&self.prefix, prefix);
        self
    }

    /// With this label on all series.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let (key, value) = (key.into(), value.into());
        match self.labels.iter_mut().find(|(own, _)| *own == key) {
            Some(label) => label.1 = value,
            None => self.labels.push((key, value)),
        }
        self
    }

    /// With other names for the levels; say so before the first of them.
    pub fn levels(mut self, levels: LevelNames) -> Self {
        self.levels = levels;
        self
    }

    /// Within this namespace.
    pub fn namespace(self, name: &str) -> Self {
        let levels = self.levels;
        self.label(levels.namespace, name)
            .label(levels.component, "")
            .label(levels.endpoint, "")
    }

    /// Of this component.
    pub fn component(self, name: &str) -> Self {
        let levels = self.levels;
        self.label(levels.component, name).label(levels.endpoint, "")
    }

    /// Of this endpoint.
    pub fn endpoint(self, name: &str) -> Self {
        let levels = self.levels;
        self.label(levels.endpoint, name)
    }

    /// The labels that it adds.
    pub fn labels(&self) -> &[(String, String)] {
        &self.labels
    }
}

impl MetricsRegistry for Scope {
    fn register(&self, spec: &FamilySpec) -> Result<AnyFamily, RegisterError> {
        let mut spec = spec.clone();
        spec.name = join_names(&self.prefix, &spec.name);
        // A label that the metric sets as well is there twice then, which is refused.
        spec.constant.splice(0..0, self.labels.iter().cloned());
        self.registry.register(&spec)
    }

    /// The values of the families within this scope.
    fn gather(&self) -> Vec<FamilyValues> {
        let within = |labels: &[(String, String)]| {
            let has = |(key, value): &(String, String)| {
                let own = labels.iter().find(|(own, _)| own == key);
                own.map_or("", |(_, own)| own) == value
            };
            // A level that is not reached is not a condition: lower ones lie within.
            self.labels.iter().filter(|(_, value)| !value.is_empty()).all(has)
        };
        let mut families = self.registry.gather();
        families.retain(|family| family.name.starts_with(&self.prefix));
        for family in &mut families {
            family.series.retain(|series| within(&series.labels));
        }
        families.retain(|family| !family.series.is_empty());
        families
    }

    fn tracer(&self) -> Tracer {
        self.registry.tracer()
    }

    fn flush(&self, within: Duration) -> Result<(), ExportError> {
        self.registry.flush(within)
    }

    fn shutdown(&self, within: Duration) -> Result<(), ExportError> {
        self.registry.shutdown(within)
    }
}

/// A name behind a prefix, joined by `_`; either may be empty.
pub fn join_names(prefix: &str, name: &str) -> String {
    match (prefix.trim_end_matches('_'), name) {
        ("", name) => name.to_owned(),
        (prefix, "") => prefix.to_owned(),
        (prefix, name) => format!("{prefix}_{name}"),
    }
}
