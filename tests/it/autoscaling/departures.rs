// SPDX-License-Identifier: Apache-2.0

//! Sources that leave discovery, and sources whose lease is over.

use super::*;
use serde_json::json;
use std::thread;

/// Longer than what counts as one push.
const INTERVAL: Duration = Duration::from_millis(1100);

#[test]
fn no_replicas_are_wanted_when_every_target_has_left_discovery() {
    // Nobody else gets the ports when the servers have ended.
    let (a, b) = (server(free_port(), 5, 1), server(free_port(), 6, 1));
    let (admin, directory) = (free_port(), tempfile::tempdir().expect("a folder"));
    let file = directory.path().join("targets.json");
    let list = |targets: &[String]| {
        let list = serde_json::json!([{"targets": targets}]).to_string();
        let fresh = directory.path().join("fresh.json");
        std::fs::write(&fresh, list).expect("written");
        std::fs::rename(&fresh, &file).expect("renamed");
    };
    list(&[a.address(), b.address()]);
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  prometheus:
    config:
      scrape_configs:
        - job_name: vllm
          scrape_interval: 1s
          file_sd_configs: [{{files: [\"{}\"], refresh_interval: 200ms}}]
processors:
  composite:
    composites:
      - {{name: queue_depth, metric: \"vllm:num_requests_waiting\", function: last, across: sum, by: [model_name]}}
exporters:
  nop_sink: {{}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheus], processors: [composite], exporters: [nop_sink]}}}}
",
        file.display()
    ).replace("nop_sink", "debug"));
    let mut keda = Keda::at(admin);
    let gone = [&DEPTH[..], &[("whenGone", "inactive")]].concat();
    let by_query = [&BY_QUERY[..], &[("whenGone", "inactive")]].concat();
    wait_until(SOON, "both are seen", || keda.metric(&gone) == Ok(11.0));
    wait_until(SOON, "they are active", || keda.is_active(&gone) == Ok(true));
    // One fails, and leaves; the other leaves. It is not over before that.
    drop(a);
    wait_until(SOON, "one failed", || keda.metric(&gone) == Ok(6.0));
    list(&[b.address()]);
    drop(b);
    wait_until(SOON, "nothing is known", || keda.metric(&gone).is_err());
    let (code, why) = keda.is_active(&gone).expect_err("nothing is known");
    assert_eq!(code, Code::FailedPrecondition, "{why}");
    list(&[]);
    wait_until(SOON, "every target has left", || {
        keda.is_active(&gone) == Ok(false)
    });
    assert_eq!(keda.metric(&gone), Ok(0.0));
    assert_eq!(keda.is_active(&by_query), Ok(false));
    // The rest of a query may have sources that have not gone.
    let more = [
        ("query", "sum(queue_depth) + sum(other)"),
        ("target", "10"),
        ("whenGone", "inactive"),
    ];
    let (code, why) = keda.is_active(&more).expect_err("something else is asked for");
    assert_eq!(code, Code::FailedPrecondition, "{why}");
    let (code, why) = keda.metric(&DEPTH).expect_err("an error by default");
    assert_eq!(code, Code::FailedPrecondition, "{why}");
    gateway.stop();
}

/// Pushes a gauge of a pod over OTLP.
fn push_waiting(port: u16, pod: &str, waiting: u32) {
    let text = |key: &str, value: &str| json!({"key": key, "value": {"stringValue": value}});
    let body = json!({"resourceMetrics": [{
        "resource": {"attributes": [text("service.name", "vllm"), text("service.instance.id", pod)]},
        "scopeMetrics": [{"metrics": [{"name": "waiting", "gauge": {"dataPoints": [{"asInt": waiting}]}}]}],
    }]});
    let body = body.to_string();
    let answer = http::post(port, "/v1/metrics", "application/json", body.as_bytes());
    assert_eq!(answer.expect("the gateway answers").status, 200);
}

#[test]
fn a_query_of_a_gauge_is_refused_when_the_lease_of_its_sources_is_over() {
    let (otlp, admin) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
",
        free_port()
    ));
    let mut keda = Keda::at(admin);
    let sum = [("query", "sum(waiting)"), ("target", "10")];
    // Three pushes and the next: the sender's own interval is known.
    for waiting in 1..=4 {
        push_waiting(otlp, "a", waiting);
        wait_until(SOON, "the last push is known", || {
            keda.metric(&sum) == Ok(f64::from(waiting))
        });
        thread::sleep(INTERVAL);
    }
    wait_until(SOON, "the lease is over", || keda.metric(&sum).is_err());
    let or_zero = [("query", "waiting or vector(0)"), ("target", "10")];
    for trigger in [&sum, &or_zero] {
        let (code, why) = keda.metric(trigger).expect_err("stale");
        assert_eq!(code, Code::FailedPrecondition, "{why}");
        let expected = "`waiting` is stale and has no value: 0 of 1 sources report; check that they run";
        assert!(why.contains(expected), "{why}");
        let (code, why) = keda.is_active(trigger).expect_err("stale");
        assert_eq!(code, Code::FailedPrecondition, "{why}");
        assert!(why.contains(expected), "{why}");
    }
    // Another pod lives: the value is partial.
    push_waiting(otlp, "b", 6);
    wait_until(SOON, "one of two reports", || keda.metric(&sum) == Ok(10.0));
    let strict = [&sum[..], &[("onPartial", "error")]].concat();
    let (_, why) = keda.metric(&strict).expect_err("partial");
    assert!(why.contains("1 of 2 sources report"), "{why}");
    push_waiting(otlp, "a", 5);
    wait_until(SOON, "both report", || keda.metric(&strict) == Ok(11.0));
    gateway.stop();
}
