// SPDX-License-Identifier: Apache-2.0

//! `composite` with `storage`: the windows continue after a stop and after a kill.

use super::kit::query_api::QueryApi;
use super::kit::{Gateway, SOON, free_port, http, wait_until};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

struct Run {
    gateway: Gateway,
    api: QueryApi,
    input: u16,
}

/// A gateway with a sum and a quantile over the last hour, for metrics that `metric` selects.
fn start(storage: &Path, metric: &str) -> Run {
    let (input, admin) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "
extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
  file_storage: {{directory: {storage:?}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  composite:
    storage: file_storage
    composites:
      - {{name: done, metric: \"{metric}\", function: sum, window: 1h, by: [model], quantiles: [0.5]}}
exporters: {{nop: {{}}}}
service:
  extensions: [health_check, admin, file_storage]
  pipelines: {{metrics: {{receivers: [otlp], processors: [composite], exporters: [nop]}}}}
"
    ));
    Run {
        gateway,
        api: QueryApi::at(admin),
        input,
    }
}

impl Run {
    /// Adds to a counter of a model.
    fn send(&self, value: u64) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("after 1970")
            .as_nanos();
        let attributes = r#"[{"key":"model","value":{"stringValue":"m"}}]"#;
        let point = format!(
            r#"{{"asInt":"{value}","startTimeUnixNano":"{}","timeUnixNano":"{now}","attributes":{attributes}}}"#,
            now - 1
        );
        let sum = format!(r#"{{"isMonotonic":true,"aggregationTemporality":1,"dataPoints":[{point}]}}"#);
        let metric = format!(r#"{{"name":"work","sum":{sum}}}"#);
        let body = format!(r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[{metric}]}}]}}]}}"#);
        let answer = http::post(self.input, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.expect("an answer").status, 200);
    }

    fn value(&self) -> Option<f64> {
        let samples = self.api.query("done{model=\"m\"}");
        samples.first().map(|sample| sample.value)
    }

    /// The state and the count of the group, as the JSON of composites shows them.
    fn shown(&self) -> (String, f64) {
        let page = http::get(self.api.port(), "/api/v1/composites/done")
            .expect("a page")
            .json();
        let group = &page[0];
        let state = group["state"].as_str().unwrap_or_default();
        (state.to_owned(), group["count"].as_f64().unwrap_or_default())
    }

    fn stored_bytes(&self) -> f64 {
        self.gateway.own_metric("tidegate_storage_bytes", &["component="])
    }
}

#[test]
fn windows_continue_after_a_stop_and_after_a_kill() {
    let storage = TempDir::new().expect("a folder");
    let run = start(storage.path(), "work");
    (1..=3).for_each(|value| run.send(value));
    assert_eq!(run.value(), Some(6.0));
    run.gateway.stop();

    let mut run = start(storage.path(), "work");
    run.gateway.wait_for_log("the windows are restored");
    assert_eq!(
        run.shown(),
        ("partial".to_owned(), 3.0),
        "no source has reported yet"
    );
    run.send(10);
    assert_eq!(run.value(), Some(16.0));
    assert_eq!(run.shown(), ("fresh".to_owned(), 4.0));
    let before = run.stored_bytes();
    run.send(100);
    wait_until(SOON, "the window is on disk", || run.stored_bytes() > before);
    // It may be the record of the value before, and one second later is the next.
    let once = run.stored_bytes();
    run.send(1000);
    wait_until(SOON, "the window is on disk again", || run.stored_bytes() > once);
    run.gateway.kill();

    let run = start(storage.path(), "work");
    run.send(10_000);
    let value = run.value().expect("a value");
    // The last value before the kill may have come too late for the record.
    assert!([10_116.0, 11_116.0].contains(&value), "{value}");
    run.gateway.stop();

    let run = start(storage.path(), "wor*");
    run.send(7);
    assert_eq!(run.value(), Some(7.0), "another input begins an empty window");
    run.gateway.stop();
}
