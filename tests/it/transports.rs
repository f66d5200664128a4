// SPDX-License-Identifier: Apache-2.0

//! Options of servers and clients: what the peer sees of them.

mod clients;
mod servers;

use super::kit::{Gateway, HttpPeer, OtlpSink, SOON, free_port, http, wait_until};
use std::fs;
use tempfile::TempDir;

const LOG: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO"}]}]}]}"#;

/// Takes logs by HTTP with these options of the server, and hands them to an exporter.
fn gateway(port: u16, server: &str, kind: &str, exporter: &str) -> Gateway {
    with_processors(port, server, "{}", "", kind, exporter)
}

fn with_processors(
    port: u16,
    server: &str,
    processors: &str,
    named: &str,
    kind: &str,
    exporter: &str,
) -> Gateway {
    Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\", {server}}}}}}}}}
processors: {processors}
exporters: {{{kind}: {{{exporter}}}}}
service:
  telemetry: {{metrics: {{level: detailed}}}}
  pipelines: {{logs: {{receivers: [otlp], processors: [{named}], exporters: [{kind}]}}}}
"
    ))
}

fn send(port: u16) {
    let answer = http::post(port, "/v1/logs", "application/json", LOG).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// A gateway that takes OTLP/HTTP over TLS, and says what its clients speak.
struct Secure {
    gateway: Gateway,
    port: u16,
    _files: TempDir,
}

impl Secure {
    fn start() -> Self {
        let files = TempDir::new().expect("a temporary directory");
        let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        fs::write(&certificate, pair.cert.pem()).expect("written");
        fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
        let port = free_port();
        let server = format!("tls: {{cert_file: {certificate:?}, key_file: {key:?}}}");
        let gateway = gateway(port, &server, "nop", "");
        Self {
            gateway,
            port,
            _files: files,
        }
    }

    /// Requests that came in a version of HTTP.
    fn requests(&self, version: &str) -> f64 {
        let version = format!("network_protocol_version=\"{version}\"");
        self.gateway.own_metric(
            "http_server_request_duration_count",
            &[&version, "url_scheme=\"https\""],
        )
    }
}

/// A gauge in a scope with a schema.
const METRICS: &str = r#"{"resourceMetrics":[{"scopeMetrics":[{"schemaUrl":"https://schema/1","scope":{"name":"lib"},
"metrics":[{"name":"level","gauge":{"dataPoints":[{"asInt":"7","timeUnixNano":"TIME"}]}}]}]}]}"#;

#[test]
fn the_label_of_the_scope_s_schema_can_be_omitted() {
    for (option, is_there) in [("", true), ("scope_schema_url: false", false)] {
        let (peer, port, page) = (HttpPeer::start(), free_port(), free_port());
        let gateway = Gateway::start(&format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\", {option}}}
  prometheusremotewrite: {{endpoint: \"http://127.0.0.1:{}/write\", {option}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus, prometheusremotewrite]}}}}}}
",
            peer.port()
        ));
        let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
        let body = METRICS.replace("TIME", &now.to_string());
        let answer = http::post(port, "/v1/metrics", "application/json", body.as_bytes()).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        wait_until(SOON, "the write", || !peer.seen().is_empty());
        let shown = http::get(page, "/metrics").expect("a page").text();
        let line = shown
            .lines()
            .find(|line| line.starts_with("level{"))
            .expect("the gauge");
        assert!(line.contains("otel_scope_name=\"lib\""), "{line}");
        assert_eq!(
            line.contains("otel_scope_schema_url=\"https://schema/1\""),
            is_there,
            "{line}"
        );
        let written = snap::raw::Decoder::new()
            .decompress_vec(&peer.seen()[0].body)
            .expect("snappy");
        let written = String::from_utf8_lossy(&written);
        assert!(written.contains("otel_scope_name"));
        assert_eq!(written.contains("otel_scope_schema_url"), is_there);
        gateway.stop();
    }
}
