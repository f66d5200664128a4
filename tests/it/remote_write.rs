// SPDX-License-Identifier: Apache-2.0

//! Remote write, out and in: real servers hold what is written to them, and what they write comes out as it was.

mod alternating;
mod out;
mod taken;

use super::kit::{free_port, http};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// A gateway's way in.
struct Otlp {
    port: u16,
}

impl Otlp {
    fn new() -> Self {
        Self { port: free_port() }
    }

    /// The section of the receivers.
    fn receiver(&self) -> String {
        format!(
            "  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{}\"}}}}}}\n",
            self.port
        )
    }

    /// Pushes metrics of a resource.
    fn push(&self, metrics: &Value) {
        let attribute = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
        let attributes = [
            ("service.name", "svc"),
            ("service.namespace", "ns"),
            ("service.instance.id", "i-1"),
            ("zone", "z"),
        ];
        let attributes: Vec<_> = attributes
            .iter()
            .map(|(key, value)| attribute(key, value))
            .collect();
        let request = json!({"resourceMetrics": [{
            "resource": {"attributes": attributes},
            "scopeMetrics": [{"scope": {"name": "lib", "version": "1"}, "metrics": metrics}],
        }]});
        let body = request.to_string();
        let answer = http::post(self.port, "/v1/metrics", "application/json", body.as_bytes());
        let answer = answer.expect("the gateway answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
}

/// Milliseconds since 1970.
fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    u64::try_from(since.as_millis()).expect("a time")
}

/// Nanoseconds, as ProtoJSON has them.
fn nanos(ms: u64) -> String {
    format!("{ms}000000")
}

/// A metric of every kind, at this time; `data` adds to each point.
fn every_kind(ms: u64) -> Value {
    let (time, start) = (nanos(ms), nanos(ms - 60_000));
    let exemplar = json!({
        "timeUnixNano": time, "asDouble": 0.75, "traceId": "0102030405060708090a0b0c0d0e0f10",
        "filteredAttributes": [{"key": "user.id", "value": {"stringValue": "7"}}],
    });
    json!([
        {"name": "rw.temperature", "unit": "Cel", "gauge": {"dataPoints": [
            {"timeUnixNano": time, "asDouble": -3.5, "attributes": [{"key": "room.name", "value": {"stringValue": "a"}}]},
        ]}},
        {"name": "rw.requests", "description": "What came.", "sum": {
            "isMonotonic": true, "aggregationTemporality": 2,
            "dataPoints": [{"startTimeUnixNano": start, "timeUnixNano": time, "asInt": "1027", "exemplars": [exemplar]}],
        }},
        {"name": "rw.queue", "sum": {
            "isMonotonic": false, "aggregationTemporality": 2,
            "dataPoints": [{"startTimeUnixNano": start, "timeUnixNano": time, "asInt": "-4"}],
        }},
        {"name": "rw.latency", "unit": "s", "histogram": {"aggregationTemporality": 2, "dataPoints": [{
            "startTimeUnixNano": start, "timeUnixNano": time, "count": "6", "sum": 7.5,
            "explicitBounds": [0.5, 1.0], "bucketCounts": ["1", "2", "3"], "exemplars": [exemplar],
        }]}},
        {"name": "rw.size", "unit": "By", "exponentialHistogram": {"aggregationTemporality": 2, "dataPoints": [{
            "startTimeUnixNano": start, "timeUnixNano": time, "count": "10", "sum": 100.0, "scale": 2, "zeroCount": "1",
            "positive": {"offset": -3, "bucketCounts": ["2", "0", "0", "0", "3"]},
            "negative": {"offset": 4, "bucketCounts": ["4"]},
        }]}},
        {"name": "rw.pause", "summary": {"dataPoints": [{
            "startTimeUnixNano": start, "timeUnixNano": time, "count": "30", "sum": 17.5,
            "quantileValues": [{"quantile": 0.5, "value": 0.25}, {"quantile": 0.99, "value": 2.0}],
        }]}},
    ])
}

/// The same metrics without values: all their series have ended.
fn no_recorded_values(ms: u64) -> Value {
    let mut metrics = every_kind(ms);
    for metric in metrics.as_array_mut().expect("a list") {
        let data = metric.as_object_mut().expect("a metric").values_mut();
        for points in data.filter_map(|data| data.get_mut("dataPoints")?.as_array_mut()) {
            for point in points {
                let mut ended = json!({"timeUnixNano": nanos(ms), "flags": 1});
                if let Some(attributes) = point.get("attributes") {
                    ended["attributes"] = attributes.clone();
                }
                *point = ended;
            }
        }
    }
    metrics
}
