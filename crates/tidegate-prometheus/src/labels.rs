// SPDX-License-Identifier: Apache-2.0

//! Labels from attributes: names, collisions, escaping; `job`, `instance` and the scope's labels.

use std::collections::BTreeMap;

use tidegate_engine::{AttributeRef, Attributes, Data, Pattern, Resource, Scope, Series};
use tidegate_exposition::lines::push_quoted;

use super::escaping::{Escaping, is_legacy_label_name};
use super::name::{Naming, Spelling, without_nul};
pub use super::text::text;

/// The sources of the labels of every series, besides its own attributes.
#[derive(Clone, Debug, Default)]
pub struct LabelSources {
    /// Names as configured, and values. They win over everything else.
    pub constant: Vec<(String, String)>,
    /// Resource attributes.
    pub resource: ResourceLabels,
    /// Leave `otel_scope_*` out.
    pub without_scope: bool,
    /// Whether `otel_scope_schema_url` is omitted, as the Collector does.
    pub without_schema_url: bool,
}

/// The resource attributes that become labels. None by default.
#[derive(Clone, Debug, Default)]
pub struct ResourceLabels {
    /// Attributes that match one of these patterns, ...
    pub included: Vec<Pattern>,
    /// ... or all without such patterns. Attributes that match one of these are always excluded.
    pub excluded: Vec<Pattern>,
}

impl ResourceLabels {
    fn wants(&self, key: &str) -> bool {
        let any = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.matches(key));
        match self.included.as_slice() {
            [] => !self.excluded.is_empty() && !any(&self.excluded),
            included => any(included) && !any(&self.excluded),
        }
    }
}

/// Labels in name order. Values that come under one name are joined by `;` in the order of their original keys
/// (specification, "Metric Attributes").
#[derive(Debug, Default)]
pub struct PrometheusLabels {
    /// Keys keep their characters until they are escaped.
    keeps_characters: bool,
    /// The origin of the keys' names.
    spelling: Spelling,
    escaping: Escaping,
    /// The label that belongs to the series' type.
    reserved: Option<&'static str>,
    labels: BTreeMap<String, Vec<(String, String)>>,
    /// They are those of a series or of its target.
    is_identified: bool,
}

const JOB: &str = "job";
const INSTANCE: &str = "instance";

/// Labels of the scope itself; attributes of the scope don't take these names.
const OF_SCOPE: [&str; 3] = ["otel_scope_name", "otel_scope_version", "otel_scope_schema_url"];

impl PrometheusLabels {
    /// An empty set.
    pub fn new(naming: &Naming, spelling: Spelling) -> Self {
        Self {
            keeps_characters: !naming.strategy.escapes(),
            spelling,
            escaping: naming.escaping,
            ..Self::default()
        }
    }

    /// All labels of a series.
    pub fn of(series: &Series, naming: &Naming, sources: &LabelSources) -> Self {
        let mut labels = Self {
            reserved: match series.metric.data {
                Data::Histogram { .. } | Data::ExponentialHistogram { .. } => Some("le"),
                Data::Summary => Some("quantile"),
                Data::Gauge | Data::Sum { .. } => None,
            },
            ..Self::new(naming, Spelling::of(&series.metric))
        };
        // An attribute of the resource wins over one of the point with the same key.
        let copied = |key: &str| sources.resource.wants(key);
        for (key, value) in series.attributes.iter() {
            if series.resource.attributes.get(key).is_none() || !copied(key) {
                labels.add(key, value);
            }
        }
        let attributes = series.resource.attributes.iter();
        for (key, value) in attributes.filter(|(key, _)| copied(key)) {
            labels.add(key, value);
        }
        if !sources.without_scope {
            labels.scope(&series.scope, !sources.without_schema_url);
        }
        labels.identify(&series.resource);
        for (name, value) in &sources.constant {
            labels.set(name, value.as_str());
        }
        labels
    }

    /// Adds an attribute. It does not become a label if no name is left of it.
    pub fn add(&mut self, key: &str, value: AttributeRef<'_>) {
        self.join(key, text(value));
    }

    /// Adds a label of ours; it wins over everything of that name.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        // These labels are equal on every series, whatever the others are.
        if let Some(name) = self.spelt(name, Spelling::Otlp) {
            let value = value_without_nul(value.into());
            self.labels.insert(name.clone(), vec![(name, value)]);
        }
    }

    /// Adds all of a set.
    pub fn extend(&mut self, attributes: &Attributes) {
        for (key, value) in attributes.iter() {
            self.add(key, value);
        }
    }

    /// Adds `job` and `instance` of a resource that has an identity.
    pub fn identify(&mut self, resource: &Resource) {
        let instance = instance(resource);
        // An attribute of that name is the label if the resource has no instance.
        if !instance.is_empty() {
            self.join(INSTANCE, instance);
        }
        if let Some(job) = job(resource) {
            self.join(JOB, job);
        }
        self.is_identified = true;
    }

    /// `otel_scope_name` and its siblings, as far as the scope has them.
    pub fn scope(&mut self, scope: &Scope, with_schema_url: bool) {
        let own = OF_SCOPE.map(|name| self.name(name));
        for (key, value) in scope.attributes.iter() {
            let key = format!("otel_scope_{key}");
            if !own.contains(&self.name(&key)) {
                self.add(&key, value);
            }
        }
        for (name, value) in OF_SCOPE
            .into_iter()
            .zip([&scope.name, &scope.version, &scope.schema_url])
        {
            if !value.is_empty() && (with_schema_url || name != OF_SCOPE[2]) {
                self.join(name, value.to_string());
            }
        }
    }

    fn join(&mut self, key: &str, value: String) {
        if let Some(name) = self.name(key) {
            let one = (key.to_owned(), value_without_nul(value));
            self.labels.entry(name).or_default().push(one);
        }
    }

    /// Names and values. Prometheus treats an empty label as absent, so a series that has one is the same as a series
    /// that has not. But a job without an instance says so: a scraper that honours labels gives it none of its own.
    pub fn into_pairs(self) -> Vec<(String, String)> {
        let joined = |(name, mut values): (String, Vec<(String, String)>)| {
            values.sort();
            let values: Vec<_> = values.into_iter().map(|(_, value)| value).collect();
            (name, values.join(";"))
        };
        let pairs = self.labels.into_iter().map(joined);
        let mut pairs: Vec<_> = pairs.filter(|(_, value)| !value.is_empty()).collect();
        let find =
            |pairs: &[(String, String)], name| pairs.binary_search_by(|(known, _)| known.as_str().cmp(name));
        if self.is_identified
            && find(&pairs, JOB).is_ok()
            && let Err(at) = find(&pairs, INSTANCE)
        {
            pairs.insert(at, (INSTANCE.to_owned(), String::new()));
        }
        pairs
    }

    /// `a="1","b.c"="2"`, without braces.
    pub fn render(self) -> String {
        render(&self.into_pairs())
    }

    /// The label name of a key; `None` when nothing of the key is left.
    fn name(&self, key: &str) -> Option<String> {
        self.spelt(key, self.spelling)
    }

    fn spelt(&self, key: &str, spelling: Spelling) -> Option<String> {
        let is_kept = spelling == Spelling::Prometheus && is_legacy_label_name(key);
        let name = if is_kept {
            key.to_owned()
        } else if self.keeps_characters {
            self.escaping.label(without_nul(key.to_owned()))
        } else {
            plain(key)
        };
        // Two underscores at the front are Prometheus's own: client libraries refuse such labels.
        let name = match name.trim_start_matches('_') {
            "" if !is_kept => return None,
            rest if name.starts_with("__") => format!("_{rest}"),
            _ => name,
        };
        Some(if self.reserved == Some(name.as_str()) {
            format!("exported_{name}")
        } else {
            name
        })
    }
}

/// A name of letters, digits and single underscores.
fn plain(key: &str) -> String {
    let mut name = String::with_capacity(key.len());
    for c in key.chars() {
        match c {
            c if c.is_ascii_alphanumeric() => name.push(c),
            _ if name.ends_with('_') => {}
            _ => name.push('_'),
        }
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "key_");
    }
    name
}

/// `service.namespace/service.name`, or `service.name` alone.
pub fn job(resource: &Resource) -> Option<String> {
    let get = |key| {
        let value = resource.attributes.get(key).map(text);
        value.filter(|value| !value.is_empty())
    };
    let name = get("service.name")?;
    Some(match get("service.namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    })
}

/// `service.instance.id`, or nothing.
pub fn instance(resource: &Resource) -> String {
    let id = resource.attributes.get("service.instance.id");
    id.map(text).unwrap_or_default()
}

/// `a="1","b.c"="2"`, without braces.
pub fn render(pairs: &[(String, String)]) -> String {
    let mut text = String::new();
    for (name, value) in pairs {
        if !text.is_empty() {
            text.push(',');
        }
        if is_legacy_label_name(name) {
            text.push_str(name);
        } else {
            push_quoted(&mut text, name);
        }
        text.push('=');
        push_quoted(&mut text, value);
    }
    text
}

/// Prometheus's parsers of text take a NUL for the end of the page; a series has the same labels in every format.
fn value_without_nul(value: String) -> String {
    if value.contains('\0') {
        value.replace('\0', "\u{fffd}")
    } else {
        value
    }
}

#[cfg(test)]
mod tests;
