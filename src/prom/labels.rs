//! Labels from attributes: names, collisions, escaping; `job`, `instance` and `target_info` from resources.

use std::collections::BTreeMap;
use std::fmt::Write;

use base64::Engine;
use tidegate_engine::{AttributeRef, Attributes, Resource, Scope};

/// Labels in name order; what is put under one name twice is joined by `;` (specification, "Metric Attributes").
#[derive(Debug, Default)]
pub struct Labels(BTreeMap<String, Vec<(String, String)>>);

/// Names that a histogram's or summary's own labels have. An attribute of such a name is exposed as `exported_*`.
const RESERVED: [&str; 3] = ["le", "quantile", "__name__"];

impl Labels {
    /// Adds an attribute.
    pub fn add(&mut self, key: &str, value: AttributeRef<'_>) {
        if let Some(name) = label_name(key) {
            self.0
                .entry(name)
                .or_default()
                .push((key.to_owned(), text(value)));
        }
    }

    /// Adds a label whose name is known to be good; it wins over attributes of that name.
    pub fn set(&mut self, name: &str, value: impl Into<String>) {
        self.0
            .insert(name.to_owned(), vec![(name.to_owned(), value.into())]);
    }

    /// Adds all of a set.
    pub fn extend(&mut self, attributes: &Attributes) {
        for (key, value) in attributes.iter() {
            self.add(key, value);
        }
    }

    /// `job` and `instance` of a resource that says who it is.
    pub fn identify(&mut self, resource: &Resource) {
        if let Some(job) = job(resource) {
            self.set("job", job);
            self.set("instance", instance(resource));
        }
    }

    /// `otel_scope_name` and its siblings, for a scope that has a name.
    pub fn scope(&mut self, scope: &Scope) {
        if scope.name.is_empty() {
            return;
        }
        for (key, value) in scope.attributes.iter() {
            self.add(&format!("otel_scope_{key}"), value);
        }
        self.set("otel_scope_name", &*scope.name);
        if !scope.version.is_empty() {
            self.set("otel_scope_version", &*scope.version);
        }
        if !scope.schema_url.is_empty() {
            self.set("otel_scope_schema_url", &*scope.schema_url);
        }
    }

    /// Names and values.
    pub fn into_pairs(self) -> Vec<(String, String)> {
        let joined = |(name, mut values): (String, Vec<(String, String)>)| {
            values.sort();
            let values: Vec<_> = values.into_iter().map(|(_, value)| value).collect();
            (name, values.join(";"))
        };
        self.0.into_iter().map(joined).collect()
    }

    /// `a="1",b="2"`, without braces.
    pub fn render(self) -> String {
        let mut text = String::new();
        for (name, value) in self.into_pairs() {
            if !text.is_empty() {
                text.push(',');
            }
            // Writing to a string can't fail.
            let _ = write!(text, "{name}=\"");
            escape(&mut text, &value);
            text.push('"');
        }
        text
    }
}

/// `service.namespace/service.name`, or `service.name` alone.
pub fn job(resource: &Resource) -> Option<String> {
    let get = |key| {
        resource
            .attributes
            .get(key)
            .map(text)
            .filter(|value| !value.is_empty())
    };
    let name = get("service.name")?;
    Some(match get("service.namespace") {
        Some(namespace) => format!("{namespace}/{name}"),
        None => name,
    })
}

/// `service.instance.id`, or nothing.
pub fn instance(resource: &Resource) -> String {
    resource
        .attributes
        .get("service.instance.id")
        .map(text)
        .unwrap_or_default()
}

/// A label name; `None` when nothing of the key is left.
fn label_name(key: &str) -> Option<String> {
    let kept = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut name = String::with_capacity(key.len());
    for c in key.chars().map(|c| if kept(c) { c } else { '_' }) {
        if c != '_' || !name.ends_with('_') {
            name.push(c);
        }
    }
    // Names the translator leaves alone: `__meta__`.
    if key.starts_with("__") && key.ends_with("__") && key.chars().all(kept) && key.len() > 4 {
        name = key.to_owned();
    }
    if name.bytes().all(|byte| byte == b'_') {
        return None;
    }
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        name.insert_str(0, "key_");
    }
    if RESERVED.contains(&name.as_str()) {
        name.insert_str(0, "exported_");
    }
    Some(name)
}

/// A value as text: JSON for lists and maps, base64 for bytes.
pub fn text(value: AttributeRef<'_>) -> String {
    match value {
        AttributeRef::Empty => String::new(),
        AttributeRef::Str(text) => text.to_owned(),
        AttributeRef::Bool(truth) => truth.to_string(),
        AttributeRef::Int(number) => number.to_string(),
        AttributeRef::Double(number) => number.to_string(),
        AttributeRef::Bytes(bytes) => base64::engine::general_purpose::STANDARD.encode(bytes),
        AttributeRef::Array(_) | AttributeRef::Map(_) => json(value).to_string(),
    }
}

fn json(value: AttributeRef<'_>) -> serde_json::Value {
    use serde_json::Value;
    match value {
        AttributeRef::Empty => Value::Null,
        AttributeRef::Bool(truth) => Value::Bool(truth),
        AttributeRef::Int(number) => Value::from(number),
        AttributeRef::Double(number) => Value::from(number),
        AttributeRef::Array(values) => values.iter().map(json).collect(),
        AttributeRef::Map(map) => map
            .iter()
            .map(|(key, value)| (key.to_owned(), json(value)))
            .collect(),
        AttributeRef::Str(_) | AttributeRef::Bytes(_) => Value::String(text(value)),
    }
}

/// Escapes a label value (text formats 0.0.4 and OpenMetrics 1.0.0 agree).
pub fn escape(text: &mut String, value: &str) {
    for c in value.chars() {
        match c {
            '\\' => text.push_str("\\\\"),
            '"' => text.push_str("\\\""),
            '\n' => text.push_str("\\n"),
            c => text.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use tidegate_engine::{AttributeList, AttributeValue};

    use super::*;

    fn rendered(entries: &[(&str, &str)]) -> String {
        let mut labels = Labels::default();
        labels.extend(&entries.iter().copied().collect());
        labels.render()
    }

    #[test]
    fn keys_become_label_names() {
        assert_eq!(rendered(&[("http.method", "GET")]), r#"http_method="GET""#);
        assert_eq!(rendered(&[("a..b", "1"), ("1x", "2")]), r#"a_b="1",key_1x="2""#);
        assert_eq!(
            rendered(&[("__x__", "1"), ("...", "2"), ("", "3")]),
            r#"__x__="1""#
        );
        assert_eq!(
            rendered(&[("le", "1"), ("quantile", "2")]),
            r#"exported_le="1",exported_quantile="2""#
        );
    }

    #[test]
    fn colliding_keys_are_joined_in_the_order_of_the_original_keys() {
        assert_eq!(rendered(&[("a_b", "2"), ("a.b", "1")]), r#"a_b="1;2""#);
    }

    #[test]
    fn values_are_escaped() {
        assert_eq!(rendered(&[("a", "x\"y\\z\nw")]), "a=\"x\\\"y\\\\z\\nw\"");
    }

    #[test]
    fn values_that_are_no_text_become_text() {
        let mut labels = Labels::default();
        let list: AttributeList = [AttributeValue::Int(1), "x".into()].into_iter().collect();
        labels.add("list", AttributeRef::Array(list.view()));
        labels.add("bytes", AttributeRef::Bytes(&[1, 2, 3]));
        labels.add("truth", AttributeRef::Bool(true));
        assert_eq!(labels.render(), r#"bytes="AQID",list="[1,\"x\"]",truth="true""#);
    }

    #[test]
    fn a_resource_that_says_who_it_is_gives_job_and_instance() {
        let attributes = [
            ("service.name", "a"),
            ("service.namespace", "n"),
            ("service.instance.id", "i"),
        ]
        .into_iter()
        .collect();
        let mut labels = Labels::default();
        labels.identify(&Resource {
            attributes,
            schema_url: "".into(),
        });
        assert_eq!(labels.render(), r#"instance="i",job="n/a""#);
        let mut nobody = Labels::default();
        nobody.identify(&Resource::default());
        assert_eq!(nobody.render(), "");
    }
}
