// SPDX-License-Identifier: Apache-2.0

//! `tidegate top` shows what the peers of a gateway sent and got.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use tidegate_requests::{gauge, int, request};

use super::kit::gateway::tidegate;
use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_until};

#[test]
fn top_once_shows_the_totals_that_a_peer_sent() {
    let (receiver, admin, sink) = (free_port(), free_port(), OtlpSink::start());
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}
",
        sink.port()
    ));
    let metrics = ["a", "b", "c"].map(|name| gauge(name.to_owned(), [int(1)]));
    let body: ExportMetricsServiceRequest = request(Vec::new(), "", metrics);
    let sent = http::post(
        receiver,
        "/v1/metrics",
        "application/x-protobuf",
        &body.encode_to_vec(),
    );
    assert_eq!(sent.expect("an answer").status, 200);
    let endpoint = format!("127.0.0.1:{admin}");
    let mut text = String::new();
    wait_until(SOON, "the totals of both components", || {
        let arguments = ["top", "--once", "--interval", "100ms", "--endpoint", &*endpoint];
        let output = tidegate().args(arguments).output().expect("it runs");
        text = String::from_utf8(output.stdout).expect("text");
        let total = |name: &str| {
            let line = text.lines().find(|line| line.trim_start().starts_with(name))?;
            line.split_whitespace().nth(4).map(str::to_owned)
        };
        ["receiver otlp", "exporter otlp"].map(total) == [Some("3".to_owned()), Some("3".to_owned())]
    });
    assert!(!text.contains('\x1b'), "{text}");
    assert!(text.contains("ready") && text.contains("\nmetrics\n"), "{text}");
    gateway.stop();
}
