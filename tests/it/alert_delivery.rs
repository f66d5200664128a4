// SPDX-License-Identifier: Apache-2.0

//! The requests of the `rules` extension to an Alertmanager.

use super::kit::{Gateway, HttpPeer, SOON, wait_for, wait_until};
use serde_json::{Value, json};
use std::fs;
use tempfile::TempDir;

const RULES: &str = "groups: [{name: g, rules: [{alert: Always, expr: vector(1)}]}]\n";

#[test]
fn an_alertmanager_gets_the_credentials_and_headers_of_its_options() {
    let (peer, directory) = (HttpPeer::start(), TempDir::new().expect("a temporary directory"));
    let file = directory.path().join("always.yaml");
    fs::write(&file, RULES).expect("a file of the test");
    let gateway = Gateway::start(&format!(
        "extensions:
  basicauth/am: {{client_auth: {{username: ann, password: s3cret}}}}
  rules:
    files: [\"{}\"]
    interval: 100ms
    alertmanagers:
      - endpoint: \"http://127.0.0.1:{}\"
        path_prefix: /team
        auth: {{authenticator: basicauth/am}}
        headers: {{x-scope-orgid: team-a}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:0\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\"}}}}
service:
  extensions: [health_check, basicauth/am, rules]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
",
        file.display(),
        peer.port()
    ));
    let request = wait_for(SOON, "a request", || peer.seen().into_iter().next());
    assert_eq!(request.line, "POST /team/api/v2/alerts HTTP/1.1");
    // Base64 of `ann:s3cret`; the peer keeps headers in lower case.
    for header in [
        "authorization: basic yw5uonmzy3jlda==\r\n",
        "x-scope-orgid: team-a\r\n",
    ] {
        assert!(request.headers.contains(header), "{}", request.headers);
    }
    let said = gateway.stop();
    assert!(!said.contains("s3cret"), "{said}");
}

/// The labels of the alerts in the first request to an Alertmanager.
fn labels(peer: &HttpPeer) -> Vec<Value> {
    let request = wait_for(SOON, "a request", || peer.seen().into_iter().next());
    let alerts: Vec<Value> = serde_json::from_slice(&request.body).expect("a list of alerts");
    alerts.iter().map(|alert| alert["labels"].clone()).collect()
}

#[test]
fn alerts_are_relabelled_and_those_that_a_rule_drops_are_counted() {
    const THREE_RULES: &str =
        "groups: [{name: g, rules: [{alert: Noise, expr: vector(1)}, {alert: Always, expr: vector(1)},
  {alert: Again, expr: vector(1)}]}]\n";
    let (first, second) = (HttpPeer::start(), HttpPeer::start());
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("three.yaml");
    fs::write(&file, THREE_RULES).expect("a file of the test");
    let gateway = Gateway::start(&format!(
        "extensions:
  rules:
    files: [\"{}\"]
    interval: 100ms
    external_labels: {{cluster: c1}}
    alert_relabel_configs:
      - {{action: drop, source_labels: [alertname, cluster], regex: Noise;c1}}
      - {{source_labels: [cluster], target_label: team, replacement: \"of $1\"}}
      - {{regex: Again, source_labels: [alertname], target_label: alertname, replacement: Always}}
    alertmanagers:
      - endpoint: \"http://127.0.0.1:{}\"
      - endpoint: \"http://127.0.0.1:{}\"
        alert_relabel_configs: [{{action: labeldrop, regex: cluster}}]
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:0\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\"}}}}
service:
  extensions: [health_check, rules]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
",
        file.display(),
        first.port(),
        second.port()
    ));
    assert_eq!(
        labels(&first),
        [json!({"alertname": "Always", "cluster": "c1", "team": "of c1"})]
    );
    assert_eq!(labels(&second), [json!({"alertname": "Always", "team": "of c1"})]);
    for peer in [&first, &second] {
        let alertmanager = format!("alertmanager=\"http://127.0.0.1:{}/api/v2/alerts\"", peer.port());
        let dropped = [&*alertmanager, "reason=\"relabelled\""];
        // All alerts are due again after a minute. `Again` has become equal to `Always`.
        assert_eq!(gateway.own_metric("tidegate_alerts_dropped_total", &dropped), 1.0);
        wait_until(SOON, "one alert is sent", || {
            gateway.own_metric("tidegate_alerts_sent_total", &[&alertmanager]) == 1.0
        });
    }
    gateway.stop();
}
