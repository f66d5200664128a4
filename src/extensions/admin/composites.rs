//! Composites as JSON, as they are at the moment of asking.

use std::sync::Arc;

use http::StatusCode;
use serde_json::{Map, Value, json};
use tidegate_engine::{Answer as Reading, AttributeValue, Attributes, Composite, UnixNanos};

use crate::config::nearest;
use crate::extensions::server::{self, Answer};

/// The list of composites; below it, one by name.
pub(super) const COMPOSITES: &str = "/api/v1/composites";

/// The page below [`COMPOSITES`]; `None`: there is none of this path.
pub(super) fn page(path: &str, composites: &[Arc<Composite>], now: UnixNanos) -> Option<Answer> {
    match path.strip_prefix(COMPOSITES)? {
        "" | "/" => Some(server::json(StatusCode::OK, &label_sets(composites.iter(), now))),
        rest => Some(one(rest.strip_prefix('/')?, composites, now)),
    }
}

fn one(name: &str, composites: &[Arc<Composite>], now: UnixNanos) -> Answer {
    // Pipelines may each have a composite of the same name.
    let mut named = composites
        .iter()
        .filter(|composite| &*composite.declaration().name == name)
        .peekable();
    if named.peek().is_some() {
        return server::json(StatusCode::OK, &label_sets(named, now));
    }
    let names = composites.iter().map(|composite| &*composite.declaration().name);
    not_found(format!("no composite is named {name:?}"), nearest(name, names))
}

pub(super) fn not_found(error: String, near: Option<&str>) -> Answer {
    let body = match near {
        Some(near) => json!({"error": error, "did_you_mean": near}),
        None => json!({"error": error}),
    };
    server::json(StatusCode::NOT_FOUND, &body)
}

fn label_sets<'a>(composites: impl Iterator<Item = &'a Arc<Composite>>, now: UnixNanos) -> Value {
    let sets = composites.flat_map(|composite| {
        let name = &composite.declaration().name;
        composite
            .read(now)
            .into_iter()
            .map(|reading| label_set(name, &reading))
    });
    Value::Array(sets.collect())
}

/// `value` and `age_ms` are null where there is none.
pub(super) fn label_set(name: &str, reading: &Reading) -> Value {
    json!({
        "name": name,
        "labels": labels(&reading.attributes),
        "value": reading.value,
        "window": humantime::format_duration(reading.window).to_string(),
        "count": reading.count,
        "age_ms": reading.age.map(|age| age.as_secs_f64() * 1e3),
        "state": reading.state.name(),
        "sources": {"reporting": reading.sources_reporting, "expected": reading.sources_expected},
    })
}

fn labels(attributes: &Attributes) -> Value {
    let entries = attributes
        .iter()
        .map(|(key, value)| (key.to_string(), label(value)));
    Value::Object(Map::from_iter(entries))
}

fn label(value: &AttributeValue) -> Value {
    match value {
        AttributeValue::Empty => Value::Null,
        AttributeValue::Str(text) => text.as_ref().into(),
        AttributeValue::Bool(truth) => (*truth).into(),
        AttributeValue::Int(number) => (*number).into(),
        AttributeValue::Double(number) => (*number).into(),
        AttributeValue::Bytes(bytes) => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(bytes).into()
        }
        AttributeValue::Array(values) => values.iter().map(label).collect(),
        AttributeValue::Map(map) => labels(map),
    }
}
