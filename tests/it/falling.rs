// SPDX-License-Identifier: Apache-2.0

//! Sums of deltas that may fall: no reader of totals knows where they began. The page, the queries and the remote write
//! leave them out, each counts them, and an `aggregate` makes totals of them.

use super::kit::{Gateway, Ledgers, Prometheus, QueryApi, Release, free_port, http};
use serde_json::{Value, json};
use std::time::{SystemTime, UNIX_EPOCH};

/// Two sums of deltas of a second, one of which may fall.
fn request(start: u64, falling: i64) -> Value {
    let time = start + 1;
    let sum = |name: &str, monotonic: bool, value: i64| {
        json!({"name": name, "sum": {
            "isMonotonic": monotonic, "aggregationTemporality": 1,
            "dataPoints": [{
                "startTimeUnixNano": format!("{start}000000000"), "timeUnixNano": format!("{time}000000000"),
                "asInt": value.to_string(),
            }],
        }})
    };
    json!({"resourceMetrics": [{
        "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "svc"}}]},
        "scopeMetrics": [{"metrics": [sum("falling", false, falling), sum("rising", true, 4)]}],
    }]})
}

#[test]
fn falling_deltas_are_dropped_and_counted_unless_an_aggregate_adds_them() {
    let store = Prometheus::start_release(Release::Newest, "");
    let (otlp, page, added, admin) = (free_port(), free_port(), free_port(), free_port());
    let mut gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: \"*\"}}}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
  prometheus/added: {{endpoint: \"127.0.0.1:{added}\", namespace: added}}
  prometheusremotewrite: {{endpoint: \"http://127.0.0.1:{}/api/v1/write\"}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus, prometheusremotewrite]}}
    metrics/added: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus/added]}}
",
        store.port()
    ));
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let begin = now.expect("after 1970").as_secs() - 10;
    // Each begins when the one before has ended.
    for (start, falling) in [(begin, 5), (begin + 1, -2)] {
        let body = request(start, falling).to_string();
        let answer = http::post(otlp, "/v1/metrics", "application/json", body.as_bytes());
        let answer = answer.expect("the gateway answers");
        assert_eq!(answer.status, 200, "{}", answer.text());
        // The page drops one point of the request. The remote write drops it after the answer.
        let partial = &answer.json()["partialSuccess"];
        assert_eq!(partial["rejectedDataPoints"], "1", "{partial}");
        let why = partial["errorMessage"].as_str().expect("a reason");
        assert!(
            why.starts_with("`falling`: a sum of deltas that may fall"),
            "{why}"
        );
    }
    let queries = QueryApi::at(admin);
    queries.wait_for_value("rising_total", 8.0);
    store.wait_for_value("rising_total", 8.0);
    let text = |port| http::get(port, "/metrics").expect("the exporter answers").text();
    assert!(!text(page).contains("falling"), "{}", text(page));
    assert_eq!((queries.value("falling"), store.value("falling")), (None, None));
    // Added up, it is a total.
    queries.wait_for_value("added_falling", 3.0);
    let shown = text(added);
    assert!(
        shown
            .lines()
            .any(|line| line.starts_with("added_falling{") && line.ends_with(" 3")),
        "{shown}"
    );
    let ledgers = Ledgers::at_rest(&gateway, admin);
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("accepted", 4)]);
    for exporter in ["exporters::prometheus", "exporters::prometheusremotewrite"] {
        // The counts add up, so two more points went out or were absorbed.
        let counts = ledgers.of(exporter, "metrics");
        for expected in [("dropped unsupported", 2), ("in", 4)] {
            assert!(counts.contains(&expected), "{exporter}: {counts:?}");
        }
    }
    let line = gateway.wait_for_log("a sum of deltas that may fall");
    assert!(line.contains("falling"), "{line}");
    gateway.stop();
}
