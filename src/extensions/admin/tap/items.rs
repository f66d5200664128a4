// SPDX-License-Identifier: Apache-2.0

//! The items of a batch as lines of OTLP/JSON, and the conditions that select them.

use serde_json::{Map, Value};
use tidegate_promql::{Labels, Matcher, NAME, Query};

use crate::batch::{Signal, json};
use crate::component::tap::TappedBatch;
use crate::component::{Held, NoRoom};
use crate::delivery::ExportRequest;

/// The most items that are read at a time.
const PIECE_ITEMS: usize = 256;

/// The most conditions of a tap.
const MAX_CONDITIONS: usize = 16;

/// The memory of a JSON tree, as a multiple of its text.
const TREE_FACTOR: usize = 10;

/// The fields of a metric that have points.
const DATA: [&str; 5] = ["gauge", "sum", "histogram", "exponentialHistogram", "summary"];

/// Conditions on labels. An item must satisfy all of them.
pub(super) struct TapFilter(Vec<Matcher>);

impl TapFilter {
    /// Reads selectors of PromQL. Those without a name need no braces.
    pub(super) fn parse(texts: &[String]) -> Result<Self, String> {
        if texts.len() > MAX_CONDITIONS {
            return Err(format!(
                "{} parameters where: {MAX_CONDITIONS} are allowed",
                texts.len()
            ));
        }
        let mut matchers = Vec::new();
        for text in texts.iter().map(|text| text.trim()) {
            if text.is_empty() {
                continue;
            }
            let selector = if text.contains('{') || !text.contains('=') {
                text.to_owned()
            } else {
                format!("{{{text}}}")
            };
            let query = Query::parse(&selector).map_err(|error| format!("where: {error}"))?;
            let selection = query.selection();
            let selection = selection.ok_or_else(|| format!("where: `{text}` is not a selector"))?;
            matchers.extend(selection.matchers);
        }
        Ok(Self(matchers))
    }

    fn accepts(&self, labels: impl FnOnce() -> Labels) -> bool {
        if self.0.is_empty() {
            return true;
        }
        let labels = labels();
        self.0.iter().all(|matcher| matcher.accepts(&labels))
    }
}

/// The lines of the first items of a batch.
pub(super) struct TapPiece {
    /// OTLP/JSON, one item a line.
    pub(super) lines: Vec<String>,
    /// Whether further items would have been accepted.
    pub(super) is_cut: bool,
    /// The items that have not been read.
    pub(super) rest: Option<TappedBatch>,
    /// The reservation of the lines.
    pub(super) held: Held,
}

/// Why a batch has no lines.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unshown {
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    #[error("{0}")]
    Invalid(String),
}

/// Reads the first items of a batch, once there is memory for their JSON. It shows `most` lines at most.
pub(super) fn read(mut tapped: TappedBatch, filter: &TapFilter, most: usize) -> Result<TapPiece, Unshown> {
    let (first, rest) = match tapped.batch.split_at(PIECE_ITEMS) {
        Some((first, rest)) => (first, Some(rest)),
        None => (tapped.batch.clone(), None),
    };
    let request = ExportRequest::new(first.clone());
    let bytes = request.json_bytes().saturating_mul(1 + TREE_FACTOR);
    let mut held = Held::ours(tapped.held.account().clone());
    held.try_grow_quietly(bytes.saturating_add(request.message_bytes()))?;
    let encoded = first.payload.encode();
    let text = json::to_json(&encoded).map_err(|error| Unshown::Invalid(error.to_string()))?;
    let (lines, is_cut) =
        lines(encoded.signal, &text, filter, most).map_err(|error| Unshown::Invalid(error.to_string()))?;
    held.keep(lines.iter().map(String::len).sum());
    let rest = rest.map(|batch| {
        tapped.batch = batch;
        tapped
    });
    Ok(TapPiece {
        lines,
        is_cut,
        rest,
        held,
    })
}

/// The names of the lists of a request.
struct ListNames {
    resources: &'static str,
    scopes: &'static str,
    items: &'static str,
}

impl ListNames {
    const fn of(signal: Signal) -> Self {
        let (resources, scopes, items) = match signal {
            Signal::Metrics => ("resourceMetrics", "scopeMetrics", "metrics"),
            Signal::Traces => ("resourceSpans", "scopeSpans", "spans"),
            Signal::Logs => ("resourceLogs", "scopeLogs", "logRecords"),
        };
        Self {
            resources,
            scopes,
            items,
        }
    }
}

/// The lines of a request, and whether there are more than `most`.
fn lines(
    signal: Signal,
    request: &str,
    filter: &TapFilter,
    most: usize,
) -> Result<(Vec<String>, bool), serde_json::Error> {
    let names = ListNames::of(signal);
    let mut request: Value = serde_json::from_str(request)?;
    let mut lines = Vec::new();
    for mut resource in take_list(&mut request, names.resources) {
        for mut scope in take_list(&mut resource, names.scopes) {
            let items = take_list(&mut scope, names.items).into_iter();
            for item in items.flat_map(|item| single_items(signal, item)) {
                if !filter.accepts(|| labels(signal, &resource, &scope, &item)) {
                    continue;
                }
                if lines.len() == most {
                    return Ok((lines, true));
                }
                let of_scope = with_only(&scope, names.items, item);
                let of_resource = with_only(&resource, names.scopes, of_scope);
                let line = with_only(&Value::Null, names.resources, of_resource);
                lines.push(line.to_string());
            }
        }
    }
    Ok((lines, false))
}

/// Takes a list out of an object.
fn take_list(from: &mut Value, name: &str) -> Vec<Value> {
    match from.get_mut(name).map(Value::take) {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

/// A copy of an object whose field `name` is `value`.
fn with(object: &Value, name: &str, value: Value) -> Value {
    let mut fields: Map<String, Value> = object.as_object().cloned().unwrap_or_default();
    fields.insert(name.to_owned(), value);
    Value::Object(fields)
}

/// A copy of an object whose list `name` has only `item`.
fn with_only(object: &Value, name: &str, item: Value) -> Value {
    with(object, name, Value::Array(vec![item]))
}

/// A metric for each of its points; a span or a log record as it is.
fn single_items(signal: Signal, mut item: Value) -> Vec<Value> {
    const POINTS: &str = "dataPoints";
    if signal != Signal::Metrics {
        return vec![item];
    }
    let Some(kind) = DATA.into_iter().find(|kind| item.get(kind).is_some()) else {
        return Vec::new();
    };
    let mut data = item[kind].take();
    let points = take_list(&mut data, POINTS).into_iter();
    let metric = |point| with(&item, kind, with_only(&data, POINTS, point));
    points.map(metric).collect()
}

/// The value of a field that is missing.
static MISSING: Value = Value::Null;

/// The labels that conditions select by.
fn labels(signal: Signal, resource: &Value, scope: &Value, item: &Value) -> Labels {
    let own = match signal {
        Signal::Metrics => {
            let data = DATA.into_iter().find_map(|kind| item.get(kind));
            data.map_or(&MISSING, |data| &data["dataPoints"][0]["attributes"])
        }
        Signal::Traces | Signal::Logs => &item["attributes"],
    };
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = string(&item["name"]);
    // Of two labels with one name, the later one stays.
    let mut labels = vec![
        ("scope".to_owned(), string(&scope["scope"]["name"])),
        ("name".to_owned(), name.clone()),
        ("severity".to_owned(), string(&item["severityText"])),
        ("body".to_owned(), text(&item["body"])),
    ];
    push_attributes(&mut labels, &resource["resource"]["attributes"]);
    push_attributes(&mut labels, own);
    labels.push((NAME.to_owned(), name));
    labels.into_iter().collect()
}

/// Adds attributes under their names, and with `_` for the characters that names of labels do not have unquoted.
fn push_attributes(labels: &mut Vec<(String, String)>, attributes: &Value) {
    for attribute in attributes.as_array().into_iter().flatten() {
        let key = attribute["key"].as_str().unwrap_or_default();
        let value = text(&attribute["value"]);
        let plain = key.replace(|c: char| !c.is_ascii_alphanumeric(), "_");
        if plain != key {
            labels.push((plain, value.clone()));
        }
        labels.push((key.to_owned(), value));
    }
}

/// The text of an `AnyValue`.
fn text(value: &Value) -> String {
    let only = value.as_object().and_then(|fields| fields.values().next());
    match only {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const METRICS: &str = r#"{"resourceMetrics":[{"resource":{"attributes":[
        {"key":"service.name","value":{"stringValue":"api"}}]},"scopeMetrics":[{"scope":{"name":"s"},"metrics":[
        {"name":"hits","sum":{"isMonotonic":true,"dataPoints":[
            {"asInt":"1","attributes":[{"key":"code","value":{"intValue":"200"}}]},
            {"asInt":"2","attributes":[{"key":"code","value":{"intValue":"500"}}]}]}},
        {"name":"load","gauge":{"dataPoints":[{"asDouble":0.5}]}}]}]}]}"#;

    const LOGS: &str = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[
        {"severityText":"ERROR","body":{"stringValue":"disk full"}},
        {"severityText":"INFO","body":{"stringValue":"started"}}]}]}]}"#;

    fn selected(signal: Signal, request: &str, conditions: &[&str]) -> Vec<Value> {
        let conditions: Vec<String> = conditions.iter().map(|text| (*text).to_owned()).collect();
        let filter = TapFilter::parse(&conditions).unwrap();
        let (lines, is_cut) = lines(signal, request, &filter, usize::MAX).unwrap();
        assert!(!is_cut);
        lines
            .iter()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    #[test]
    fn each_point_is_a_request_with_its_resource_and_scope() {
        let points = selected(Signal::Metrics, METRICS, &[]);
        assert_eq!(points.len(), 3);
        let expected = json!({"resourceMetrics": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "api"}}]},
            "scopeMetrics": [{"scope": {"name": "s"}, "metrics": [{"name": "hits", "sum": {
                "isMonotonic": true,
                "dataPoints": [{"asInt": "2", "attributes": [{"key": "code", "value": {"intValue": "500"}}]}],
            }}]}],
        }]});
        assert_eq!(points[1], expected);
    }

    #[test]
    fn conditions_select_by_name_attributes_severity_and_body() {
        let points = |conditions: &[&str]| selected(Signal::Metrics, METRICS, conditions).len();
        assert_eq!(points(&["hits"]), 2);
        assert_eq!(points(&["name=~\"h.*\""]), 2);
        assert_eq!(points(&["hits{code=\"500\"}"]), 1);
        assert_eq!(points(&["{\"service.name\"=\"api\"}"]), 3);
        assert_eq!(points(&["service_name=\"api\"", "scope=\"s\"", "load"]), 1);
        assert_eq!(points(&["service_name=\"web\""]), 0);
        let logs = |condition| selected(Signal::Logs, LOGS, &[condition]).len();
        assert_eq!(logs("severity=\"ERROR\""), 1);
        assert_eq!(logs("body=~\".*start.*\""), 1);
        assert_eq!(logs("name=\"x\""), 0);
        let wrong = |text: &str| TapFilter::parse(&[text.to_owned()]).is_err();
        assert!(wrong("{") && wrong("sum(a)") && wrong("a=~\"(\"") && !wrong(" "));
        assert!(TapFilter::parse(&vec![String::new(); MAX_CONDITIONS + 1]).is_err());
    }

    #[test]
    fn more_lines_than_wanted_are_cut() {
        let filter = TapFilter::parse(&[]).unwrap();
        let cut = |most| {
            let (lines, is_cut) = lines(Signal::Metrics, METRICS, &filter, most).unwrap();
            (lines.len(), is_cut)
        };
        assert_eq!((cut(2), cut(3)), ((2, true), (3, false)));
    }
}
