// SPDX-License-Identifier: Apache-2.0

//! OTLP through the gateway: the Python SDK pushes, and equal values come out of Prometheus and of an OTLP sink.

use super::kit::points::points;
use super::kit::{
    Gateway, Ledgers, OtlpSink, Prometheus, SOON, Script, Trouble, free_port, http, wait_until,
};
use super::peers::{expected, last_like};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use prost::Message;
use serde_json::Value as Json;
use tempfile::TempDir;
use tidegate::batch::Signal;
use tidegate::batch::json::to_protobuf;

/// A gateway that takes OTLP and hands everything to a sink, over both protocols, and to Prometheus.
struct Hop {
    gateway: Gateway,
    grpc_in: u16,
    http_in: u16,
    scrape: u16,
    admin: u16,
    over_grpc: OtlpSink,
    over_http: OtlpSink,
}

impl Hop {
    /// `processors` is YAML of the section, `chain` the list that every pipeline gets.
    fn start(processors: &str, chain: &str) -> Self {
        let (grpc_in, http_in) = (free_port(), free_port());
        let (scrape, admin) = (free_port(), free_port());
        let (over_grpc, over_http) = (OtlpSink::start(), OtlpSink::start());
        let yaml = format!(
            "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: \"127.0.0.1:{grpc_in}\"}}
      http: {{endpoint: \"127.0.0.1:{http_in}\"}}
processors: {processors}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{scrape}\"}}
  otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}, retry_on_failure: {{initial_interval: 50ms}}}}
  otlphttp: {{endpoint: \"http://127.0.0.1:{}\", compression: zstd, retry_on_failure: {{initial_interval: 50ms}}}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: {chain}, exporters: [otlp, otlphttp, prometheus]}}
    traces: {{receivers: [otlp], processors: {chain}, exporters: [otlp, otlphttp]}}
    logs: {{receivers: [otlp], processors: {chain}, exporters: [otlp, otlphttp]}}
",
            over_grpc.port(),
            over_http.port()
        );
        let gateway = Gateway::start(&yaml);
        Self {
            gateway,
            grpc_in,
            http_in,
            scrape,
            admin,
            over_grpc,
            over_http,
        }
    }

    fn push(&self, protocol: &str, more: &[&str]) -> Json {
        let port = if protocol == "grpc" {
            self.grpc_in
        } else {
            self.http_in
        };
        let endpoint = format!("http://127.0.0.1:{port}");
        let script = Script::new("otel_push.py").args(["--protocol", protocol, "--endpoint", &endpoint]);
        script.args(more.iter().copied()).json()
    }
}

/// Every point that the SDK reports is the last of its series in the sink.
fn arrived(sink: &OtlpSink, report: &Json) {
    for metric in report["metrics"].as_array().expect("metrics") {
        let name = metric["name"].as_str().expect("a name");
        let kind = metric["kind"].as_str().expect("a kind");
        for point in metric["points"].as_array().expect("points") {
            let came = sink.points_of(name);
            assert_eq!(last_like(&came, point).value, expected(point, kind, 2), "{name}");
        }
    }
}

#[test]
fn metrics_of_the_python_sdk_have_equal_values_in_prometheus_and_otlp() {
    for protocol in ["grpc", "http"] {
        let hop = Hop::start("{}", "[]");
        let server = Prometheus::scraping(&[hop.scrape]);
        let report = hop.push(protocol, &["--compression", "gzip", "--flushes", "2"]);
        for sink in [&hop.over_grpc, &hop.over_http] {
            sink.wait_until("both requests arrived", |sink| sink.metrics().len() == 2);
            arrived(sink, &report);
        }
        for metric in report["metrics"].as_array().expect("metrics") {
            let name = metric["name"].as_str().expect("a name");
            let family = prometheus_name(name, metric["kind"] == "histogram");
            let values = metric["points"].as_array().expect("points").iter();
            let total: f64 = values
                .map(|point| {
                    point["value"]
                        .as_f64()
                        .or(point["count"].as_f64())
                        .expect("a value")
                })
                .sum();
            server.wait_for_value(&format!("sum({family})"), total);
        }
        hop.gateway.stop();
    }
}

/// The name that the specification gives to the driver's metrics in Prometheus.
fn prometheus_name(name: &str, histogram: bool) -> String {
    let names = [
        ("push.requests", "push_requests_total"),
        ("push.volume", "push_volume_bytes_total"),
        ("push.queue", "push_queue"),
        ("push.temperature", "push_temperature_celsius"),
    ];
    match names.iter().find(|(otlp, _)| *otlp == name) {
        Some((_, prometheus)) => (*prometheus).to_owned(),
        None => {
            assert!(histogram, "{name} is new in the driver");
            format!("{{__name__=~\"{}.*_count\"}}", name.replace('.', "_"))
        }
    }
}

#[test]
fn traces_and_logs_pass_as_they_came() {
    let hop = Hop::start("{}", "[]");
    hop.push("grpc", &["--signal", "traces"]);
    hop.push("http", &["--signal", "logs"]);
    for sink in [&hop.over_grpc, &hop.over_http] {
        sink.wait_until("both arrived", |sink| {
            !sink.traces().is_empty() && !sink.logs().is_empty()
        });
        let span = &sink.traces()[0].resource_spans[0].scope_spans[0].spans[0];
        assert_eq!((&*span.name, span.events.len()), ("answer 0", 1));
        assert_eq!(
            &*sink.logs()[0].resource_logs[0].scope_logs[0].log_records[0].severity_text,
            "WARN"
        );
    }
    hop.gateway.stop();
}

#[test]
fn processors_edit_all_signals_on_the_way() {
    let processors = "
  resource: {attributes: [{key: cluster, value: c1, action: upsert}, {key: service.name, action: update, value: renamed}]}
  attributes: {actions: [{key: added, value: 7, action: insert}]}
  filter: {metrics: {exclude: {match_type: regexp, metric_names: [\"^push\\\\.temp\"]}}}
  batch: {timeout: 10ms}
  memory_limiter: {check_interval: 1s, limit_mib: 2000}";
    let hop = Hop::start(
        processors,
        "[memory_limiter, resource, attributes, filter, batch]",
    );
    hop.push("grpc", &[]);
    hop.push("grpc", &["--signal", "traces"]);
    let sink = &hop.over_http;
    sink.wait_until("both arrived", |sink| {
        !sink.traces().is_empty() && !sink.metrics().is_empty()
    });
    let points = sink.points();
    assert!(
        points.iter().all(|point| point.name != "push.temperature"),
        "{points:?}"
    );
    for point in &points {
        assert_eq!(
            point.attributes.get("added").map(String::as_str),
            Some("7"),
            "{point:?}"
        );
        assert_eq!(
            point.resource.get("cluster").map(String::as_str),
            Some("c1"),
            "{point:?}"
        );
        assert_eq!(
            point.resource.get("service.name").map(String::as_str),
            Some("renamed"),
            "{point:?}"
        );
    }
    let spans = &sink.traces()[0].resource_spans[0].scope_spans[0].spans;
    assert!(
        spans
            .iter()
            .all(|span| span.attributes.iter().any(|pair| pair.key == "added")),
        "{spans:?}"
    );
    hop.gateway.stop();
}

#[test]
fn a_destination_that_is_down_for_a_while_loses_nothing() {
    let hop = Hop::start("{}", "[]");
    hop.over_grpc
        .trouble([Trouble::UNAVAILABLE, Trouble::UNAVAILABLE, Trouble::UNAVAILABLE]);
    hop.over_http
        .trouble([Trouble::UNAVAILABLE, Trouble::UNAVAILABLE]);
    let report = hop.push("grpc", &[]);
    for sink in [&hop.over_grpc, &hop.over_http] {
        sink.wait_until("it arrived in the end", |sink| !sink.metrics().is_empty());
        arrived(sink, &report);
        assert_eq!(sink.metrics().len(), 1, "it arrived once");
    }
    assert_eq!(
        [hop.over_grpc.attempts(), hop.over_http.attempts()],
        [4, 3],
        "after each refusal"
    );
    let ledgers = Ledgers::at_rest(&hop.gateway, hop.admin);
    for (exporter, sink) in [
        ("exporters::otlp", &hop.over_grpc),
        ("exporters::otlphttp", &hop.over_http),
    ] {
        let sent = sink.points().len() as u64;
        let counts = ledgers.of(exporter, "metrics");
        assert_eq!(counts, [("in", sent), ("out", sent)], "{exporter}");
    }
    hop.gateway.stop();
}

#[test]
fn a_refused_request_is_counted_as_lost_with_its_reason() {
    let hop = Hop::start("{}", "[]");
    // Every piece of it, too: the search for what is refused ends after some.
    hop.over_grpc
        .trouble(std::iter::repeat_with(|| Trouble::INVALID).take(200));
    let report = hop.push("grpc", &[]);
    hop.over_http
        .wait_until("the other one takes it", |sink| !sink.points().is_empty());
    arrived(&hop.over_http, &report);
    let sent = hop.over_http.points().len() as u64;
    let ledgers = Ledgers::at_rest(&hop.gateway, hop.admin);
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("accepted", sent)]);
    assert_eq!(
        ledgers.of("exporters::otlp", "metrics"),
        [("dropped rejected", sent), ("in", sent)]
    );
    assert_eq!(
        ledgers.of("exporters::otlphttp", "metrics"),
        [("in", sent), ("out", sent)]
    );
    assert!(hop.over_grpc.attempts() > 1, "it was tried in parts");
    assert!(hop.over_grpc.metrics().is_empty());
    hop.gateway.stop();
}

#[test]
fn a_request_that_is_refused_once_is_taken_in_halves() {
    let hop = Hop::start("{}", "[]");
    hop.over_http.trouble([Trouble::INVALID]);
    let report = hop.push("grpc", &[]);
    hop.over_grpc
        .wait_until("it is here whole", |sink| !sink.points().is_empty());
    let all = hop.over_grpc.points().len();
    hop.over_http
        .wait_until("all of it arrived", |sink| sink.points().len() == all);
    arrived(&hop.over_http, &report);
    assert!(hop.over_http.metrics().len() > 1);
    let sent = all as u64;
    let ledgers = Ledgers::at_rest(&hop.gateway, hop.admin);
    for exporter in ["exporters::otlp", "exporters::otlphttp"] {
        let counts = ledgers.of(exporter, "metrics");
        assert_eq!(
            counts,
            [("in", sent), ("out", sent)],
            "{exporter}: nothing is lost"
        );
    }
    hop.gateway.stop();
}

#[test]
fn json_is_taken_like_protobuf() {
    let hop = Hop::start("{}", "[]");
    let body = r#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"j","gauge":{"dataPoints":[
        {"asInt":"42","timeUnixNano":"1700000000000000000","attributes":[{"key":"a","value":{"stringValue":"b"}}]}]}}]}]}]}"#;
    let answer =
        http::post(hop.http_in, "/v1/metrics", "application/json", body.as_bytes()).expect("an answer");
    assert_eq!((answer.status, answer.text().trim()), (200, "{}"));
    hop.over_http
        .wait_until("it arrived", |sink| sink.points_of("j").len() == 1);
    wait_until(SOON, "it is scraped", || {
        let page = http::get(hop.scrape, "/metrics").expect("a page");
        page.text().contains("j{a=\"b\"} 42\n")
    });
    hop.gateway.stop();
}

#[test]
fn the_python_sdks_metrics_are_in_files_of_both_formats_with_equal_values() {
    let directory = TempDir::new().expect("a temporary directory");
    let (port, path) = (free_port(), |name: &str| directory.path().join(name));
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
exporters:
  file/json: {{path: {}}}
  file/proto: {{path: {}, format: proto, compression: zstd, flush_interval: 0s}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [file/json, file/proto]}}}}}}
",
        path("out.jsonl").display(),
        path("out.bin").display()
    ));
    let endpoint = format!("http://127.0.0.1:{port}");
    let script = Script::new("otel_push.py").args(["--protocol", "grpc", "--endpoint", &endpoint]);
    let report = script.args(["--flushes", "2"]).json();
    gateway.stop();

    let lines = std::fs::read_to_string(path("out.jsonl")).expect("it was written");
    let json = lines
        .lines()
        .map(|line| to_protobuf(Signal::Metrics, line.as_bytes()).expect("a request"));
    same_as_reported(json.map(|wire| decode(&wire)).collect(), &report);

    let (framed, mut frames) = (
        std::fs::read(path("out.bin")).expect("it was written"),
        Vec::new(),
    );
    let mut rest = framed.as_slice();
    while let Some((length, behind)) = rest.split_first_chunk::<4>() {
        let (frame, next) = behind.split_at(u32::from_be_bytes(*length) as usize);
        frames.push(decode(&zstd::decode_all(frame).expect("zstd")));
        rest = next;
    }
    assert_eq!(frames.len(), 2);
    same_as_reported(frames, &report);
}

fn decode(wire: &[u8]) -> ExportMetricsServiceRequest {
    ExportMetricsServiceRequest::decode(wire).expect("a request")
}

fn same_as_reported(requests: Vec<ExportMetricsServiceRequest>, report: &Json) {
    let came = points(&requests);
    for metric in report["metrics"].as_array().expect("metrics") {
        let (name, kind) = (
            metric["name"].as_str().expect("a name"),
            metric["kind"].as_str().expect("a kind"),
        );
        let of_metric: Vec<_> = came.iter().filter(|point| point.name == name).cloned().collect();
        for point in metric["points"].as_array().expect("points") {
            assert_eq!(
                last_like(&of_metric, point).value,
                expected(point, kind, 2),
                "{name}"
            );
        }
    }
}
