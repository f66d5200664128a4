// SPDX-License-Identifier: Apache-2.0

//! Signals that end a gateway.

use super::kit::http_peer::Reply;
use super::kit::{Gateway, HttpPeer, SOON, free_port, http, wait_until};
use rustix::process::Signal;
use std::time::Duration;

/// A request with one log record.
const LOG: &str = r#"{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "a"}}]}]}]}"#;

#[test]
fn two_signals_at_once_do_not_cut_the_drain() {
    let slow = Reply {
        delay: Duration::from_millis(500),
        ..Reply::default()
    };
    let (vendor, input) = (HttpPeer::answering(slow), free_port());
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}}}
exporters: {{otlphttp: {{endpoint: \"http://127.0.0.1:{}\"}}}}
service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}}}
",
        vendor.port()
    ));
    let answer = http::post(input, "/v1/logs", "application/json", LOG.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
    wait_until(SOON, "the vendor reads the request", || !vendor.seen().is_empty());
    // As a terminal and a supervisor do.
    gateway.signal(Signal::INT);
    let said = gateway.stop();
    assert!(!said.contains("second signal"), "{said}");
    assert!(said.contains("sent=1 "), "{said}");
    assert_eq!(vendor.seen().len(), 1, "it is sent once");
}
