// SPDX-License-Identifier: Apache-2.0

//! The JSON of composites: on the admin pages, in event streams and in webhooks.

use serde_json::{Map, Value, json};
use tidegate_engine::{Across, AttributeRef, Attributes, Function, MapRef};

use super::{Crossing, GroupAnswer, Watched};
use crate::component::unix_now;

/// One group of a composite. Unknown values are null.
pub fn label_set(watched: &Watched, group: &GroupAnswer) -> Value {
    of_group(watched.declaration(), group)
}

fn of_group(declaration: &tidegate_engine::Declaration, group: &GroupAnswer) -> Value {
    let answer = &group.answer;
    let quantiles = answer.quantiles.iter();
    let quantiles = quantiles.map(|told| (told.quantile.to_string(), json!(told.value)));
    let mut all = json!({
        "name": &*declaration.name,
        "labels": labels(&answer.attributes),
        "function": match declaration.expression {
            Some(_) => "expr",
            None => declaration.function.name(),
        },
        "expr": declaration.expression.as_ref().map(|expression| &*expression.text),
        "across": declaration.across.filter(|_| declaration.expression.is_none()).map(Across::name),
        "value": answer.value,
        "min": answer.min,
        "avg": answer.avg,
        "max": answer.max,
        "last": answer.last,
        "sum": answer.known(answer.sum),
        "count": answer.known(answer.count),
        "quantiles": Value::Object(Map::from_iter(quantiles)),
        "window": humantime::format_duration(answer.window).to_string(),
        "state": answer.state.name(),
        "age_ms": answer.age.map(|age| age.as_secs_f64() * 1e3),
        "sources": {"reporting": answer.sources_reporting, "expected": answer.sources_expected},
        "seq": group.seq,
        "error": answer.error.as_deref(),
        "collision": answer.collision.as_deref(),
    });
    if let (Some(Across::Quantile(rank)), Some(all)) = (declaration.across, all.as_object_mut()) {
        all.insert("across_quantile".to_owned(), json!(rank));
    }
    if let (Function::Quantile(rank), Some(all)) = (declaration.function, all.as_object_mut()) {
        all.insert("quantile".to_owned(), json!(rank));
    }
    all
}

/// A threshold that was crossed or cleared.
pub fn crossing(crossing: &Crossing) -> Value {
    let threshold = &crossing.threshold;
    json!({
        "composite": &*crossing.declaration.name,
        "threshold": &*threshold.name,
        "state": if crossing.is_crossed { "crossed" } else { "cleared" },
        "side": threshold.direction.name(),
        "at": threshold.at,
        "clear": threshold.clear,
        "time_unix_ms": tidegate_engine::clock::wall(crossing.at) / 1_000_000,
        "delay_ms": unix_now().saturating_sub(crossing.at) as f64 / 1e6,
        "shown": of_group(&crossing.declaration, &crossing.group),
    })
}

/// Attributes as an object.
pub fn labels(attributes: &Attributes) -> Value {
    object(attributes.view())
}

fn object(map: MapRef<'_>) -> Value {
    let entries = map.iter().map(|(key, value)| (key.to_owned(), label(value)));
    Value::Object(Map::from_iter(entries))
}

fn label(value: AttributeRef<'_>) -> Value {
    match value {
        AttributeRef::Empty => Value::Null,
        AttributeRef::Str(text) => text.into(),
        AttributeRef::Bool(truth) => truth.into(),
        AttributeRef::Int(number) => number.into(),
        AttributeRef::Double(number) => number.into(),
        AttributeRef::Bytes(bytes) => {
            use base64::Engine as _;
            base64::engine::general_purpose::STANDARD.encode(bytes).into()
        }
        AttributeRef::Array(list) => list.iter().map(label).collect(),
        AttributeRef::Map(map) => object(map),
    }
}
