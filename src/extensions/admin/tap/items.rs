// SPDX-License-Identifier: Apache-2.0

//! The items of a batch as lines of OTLP/JSON.

use serde_json::Value;
use tidegate_promql::{Labels, NAME};

use super::filter::TapFilter;
use crate::batch::{Batch, Signal, json};
use crate::component::tap::{self, MAX_TAP_BYTES, TappedBatch};
use crate::component::{Held, NoRoom};
use crate::delivery::ExportRequest;

/// The most items that are read at a time.
const PIECE_ITEMS: usize = 256;

/// The memory of a JSON tree, as a multiple of its text.
const TREE_FACTOR: usize = 10;

/// The end of each line.
const TAIL: &str = "]}]}]}";

/// The fields of a metric that have points.
const DATA: [&str; 5] = ["gauge", "sum", "histogram", "exponentialHistogram", "summary"];

/// A batch of which items have not been read.
pub(super) struct UnreadBatch {
    /// The copy. Its batch is the next part to read.
    tapped: TappedBatch,
    /// The parts behind it, the last one first.
    later: Vec<Batch>,
}

impl UnreadBatch {
    /// A batch without any item read.
    pub(super) const fn of(tapped: TappedBatch) -> Self {
        Self {
            tapped,
            later: Vec::new(),
        }
    }

    /// Cuts the next part until it is small. It cuts in the middle: a cut copies all items of the part, so that a cut
    /// behind each piece would take quadratic time.
    fn cut(&mut self) -> Result<(), NoRoom> {
        while self.tapped.batch.items() > PIECE_ITEMS {
            // Both sides may have all that is not an item, such as attributes of the resource.
            tap::reserve(&mut self.tapped.held, self.tapped.batch.bytes())?;
            let middle = (self.tapped.batch.items() / 2).next_multiple_of(PIECE_ITEMS);
            let Some((first, second)) = self.tapped.batch.split_at(middle) else {
                break;
            };
            self.tapped.batch = first;
            self.later.push(second);
            self.give_back();
        }
        Ok(())
    }

    /// The parts behind the next one. `None`: there are none.
    fn rest(mut self) -> Option<Self> {
        self.tapped.batch = self.later.pop()?;
        self.give_back();
        Some(self)
    }

    /// Gives back what the parts do not need.
    fn give_back(&mut self) {
        let later: usize = self.later.iter().map(Batch::bytes).sum();
        self.tapped
            .held
            .keep(later.saturating_add(self.tapped.batch.bytes()));
    }
}

/// The lines of the first items of a batch.
pub(super) struct TapPiece {
    /// OTLP/JSON, one item a line.
    pub(super) lines: Vec<String>,
    /// Whether further items would have been accepted.
    pub(super) is_cut: bool,
    /// The items that have not been read.
    pub(super) rest: Option<UnreadBatch>,
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

/// Reads the first items of a batch, once there is memory for their JSON. It shows `most` lines at most, and at most
/// `MAX_TAP_BYTES` of them unless the first line is longer.
pub(super) fn read(mut unread: UnreadBatch, filter: &TapFilter, most: usize) -> Result<TapPiece, Unshown> {
    unread.cut()?;
    let first = unread.tapped.batch.clone();
    let request = ExportRequest::new(first.clone());
    let bytes = request.json_bytes().saturating_mul(1 + TREE_FACTOR);
    let mut held = Held::ours(unread.tapped.held.account().clone());
    tap::reserve(&mut held, bytes.saturating_add(request.message_bytes()))?;
    let encoded = first.payload.encode();
    let text = json::to_json(&encoded).map_err(|error| Unshown::Invalid(error.to_string()))?;
    let mut lines = TapLines::new(most, &mut held);
    let is_cut = lines.add(encoded.signal, &text, filter);
    let is_cut = is_cut.map_err(|error| Unshown::Invalid(error.to_string()))?;
    let (lines, bytes) = (lines.lines, lines.bytes);
    held.keep(bytes);
    Ok(TapPiece {
        lines,
        is_cut,
        rest: unread.rest(),
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

/// Lines within their limits. Each line repeats the resource, the scope and the metric of its item, so that all lines may
/// be much longer than the request.
struct TapLines<'a> {
    lines: Vec<String>,
    /// The bytes of all lines.
    bytes: usize,
    most: usize,
    /// Where their bytes are reserved.
    held: &'a mut Held,
}

/// The resource and the scope of an item.
struct ItemPath<'a> {
    resource: &'a Value,
    scope: &'a Value,
    /// The text of a line before its item.
    head: [&'a str; 5],
}

impl<'a> TapLines<'a> {
    const fn new(most: usize, held: &'a mut Held) -> Self {
        Self {
            lines: Vec::new(),
            bytes: 0,
            most,
            held,
        }
    }

    /// Adds the lines of a request, and returns whether some had no room.
    fn add(&mut self, signal: Signal, request: &str, filter: &TapFilter) -> Result<bool, serde_json::Error> {
        let names = ListNames::of(signal);
        let mut request: Value = serde_json::from_str(request)?;
        let resources = take_list(&mut request, names.resources);
        let start = before(&request, names.resources);
        for mut resource in resources {
            let scopes = take_list(&mut resource, names.scopes);
            let of_resource = before(&resource, names.scopes);
            for mut scope in scopes {
                let items = take_list(&mut scope, names.items);
                let of_scope = before(&scope, names.items);
                let path = ItemPath {
                    resource: &resource,
                    scope: &scope,
                    head: [&start, "[", &of_resource, "[", &of_scope],
                };
                for item in items {
                    let has_room = match signal {
                        Signal::Metrics => self.add_points(&path, item, filter),
                        Signal::Traces | Signal::Logs => self.add_item(&path, &item, filter),
                    };
                    if !has_room {
                        return Ok(true);
                    }
                }
            }
        }
        Ok(false)
    }

    /// Adds a span or a log record if the filter accepts it. `false`: it has no room.
    fn add_item(&mut self, path: &ItemPath<'_>, item: &Value, filter: &TapFilter) -> bool {
        if !filter.accepts(|| labels(path, item, &item["attributes"])) {
            return true;
        }
        self.push(path, &["[", &item.to_string()])
    }

    /// Adds a metric for each of its points that the filter accepts. `false`: one has no room.
    fn add_points(&mut self, path: &ItemPath<'_>, mut metric: Value, filter: &TapFilter) -> bool {
        const POINTS: &str = "dataPoints";
        let Some(kind) = DATA.into_iter().find(|kind| metric.get(kind).is_some()) else {
            return true;
        };
        let mut data = take(&mut metric, kind);
        let points = take_list(&mut data, POINTS);
        let (of_metric, of_data) = (before(&metric, kind), before(&data, POINTS));
        points.iter().all(|point| {
            !filter.accepts(|| labels(path, &metric, &point["attributes"]))
                || self.push(path, &["[", &of_metric, &of_data, "[", &point.to_string(), "]}}"])
        })
    }

    /// Adds a line. `false`: it has no room.
    fn push(&mut self, path: &ItemPath<'_>, item: &[&str]) -> bool {
        let parts = [path.head.as_slice(), item, &[TAIL]].concat();
        let bytes: usize = parts.iter().map(|part| part.len()).sum();
        let more = self.bytes.saturating_add(bytes);
        let is_allowed = self.lines.len() < self.most && (self.lines.is_empty() || more <= MAX_TAP_BYTES);
        if !is_allowed || tap::reserve(self.held, bytes).is_err() {
            return false;
        }
        self.lines.push(parts.concat());
        self.bytes = more;
        true
    }
}

/// Takes a field out of an object.
fn take(from: &mut Value, name: &str) -> Value {
    let field = from.as_object_mut().and_then(|fields| fields.remove(name));
    field.unwrap_or_default()
}

/// Takes a list out of an object.
fn take_list(from: &mut Value, name: &str) -> Vec<Value> {
    match take(from, name) {
        Value::Array(list) => list,
        _ => Vec::new(),
    }
}

/// The text of an object up to the value of a further field `name`.
fn before(object: &Value, name: &str) -> String {
    let mut text = match object {
        Value::Object(_) => object.to_string(),
        _ => "{}".to_owned(),
    };
    // The brace at the end.
    text.pop();
    let comma = if text.len() > 1 { "," } else { "" };
    [&*text, comma, "\"", name, "\":"].concat()
}

/// The labels that conditions select by. `own` are the attributes of the item.
fn labels(path: &ItemPath<'_>, item: &Value, own: &Value) -> Labels {
    let string = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let name = string(&item["name"]);
    // Of two labels with one name, the later one stays.
    let mut labels = vec![
        ("scope".to_owned(), string(&path.scope["scope"]["name"])),
        ("name".to_owned(), name.clone()),
        ("severity".to_owned(), string(&item["severityText"])),
        ("body".to_owned(), text(&item["body"])),
    ];
    push_attributes(&mut labels, &path.resource["resource"]["attributes"]);
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
    use std::sync::Arc;

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

    /// The lines of a request, and whether some had no room.
    fn lines(signal: Signal, request: &str, filter: &TapFilter, most: usize) -> (Vec<String>, bool) {
        let mut held = Held::ours(Arc::default());
        let mut lines = TapLines::new(most, &mut held);
        let is_cut = lines.add(signal, request, filter).unwrap();
        (lines.lines, is_cut)
    }

    fn selected(signal: Signal, request: &str, conditions: &[&str]) -> Vec<Value> {
        let conditions: Vec<String> = conditions.iter().map(|text| (*text).to_owned()).collect();
        let filter = TapFilter::parse(&conditions).unwrap();
        let (lines, is_cut) = lines(signal, request, &filter, usize::MAX);
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
        assert_eq!(logs("body=~\"s[a-z]{6}\""), 1);
        assert_eq!(logs("{body=~\"s[a-z]{6}\"} # a comment"), 1);
        assert_eq!(logs("name=\"x\""), 0);
    }

    #[test]
    fn more_lines_than_wanted_are_cut() {
        let filter = TapFilter::parse(&[]).unwrap();
        let cut = |most| {
            let (lines, is_cut) = lines(Signal::Metrics, METRICS, &filter, most);
            (lines.len(), is_cut)
        };
        assert_eq!((cut(2), cut(3)), ((2, true), (3, false)));
    }

    #[test]
    fn a_long_resource_is_not_repeated_without_bound() {
        let filter = TapFilter::parse(&[]).unwrap();
        let record = json!({"body": {"stringValue": "x"}});
        let text = "r".repeat(MAX_TAP_BYTES / 4);
        let attribute = json!({"key": "a", "value": {"stringValue": text}});
        let request = |attributes: usize| {
            json!({"resourceLogs": [{
                "resource": {"attributes": vec![attribute.clone(); attributes]},
                "scopeLogs": [{"logRecords": vec![record.clone(); 256]}],
            }]})
            .to_string()
        };
        let shown = |attributes| {
            let (lines, is_cut) = lines(Signal::Logs, &request(attributes), &filter, usize::MAX);
            (lines.len(), is_cut)
        };
        assert_eq!(shown(1), (3, true));
        assert_eq!(shown(5), (1, true), "one line is always shown");
    }

    #[test]
    fn a_long_description_is_not_repeated_without_bound() {
        let filter = TapFilter::parse(&[]).unwrap();
        let request = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{
            "name": "m",
            "description": "d".repeat(MAX_TAP_BYTES / 4),
            "gauge": {"dataPoints": vec![json!({"asInt": "1"}); 256]},
        }]}]}]});
        let (lines, is_cut) = lines(Signal::Metrics, &request.to_string(), &filter, usize::MAX);
        assert_eq!((lines.len(), is_cut), (3, true));
    }
}
