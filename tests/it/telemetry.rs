//! The gateway's own telemetry: served, pushed, and spans of what takes long.

use super::kit::{Gateway, OtlpSink, free_port, http};
use opentelemetry_proto::tonic::trace::v1::{Span, status::StatusCode};
use std::time::{Duration, Instant};

/// A log record, as JSON.
const LOGS: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"body":{"stringValue":"x"}}]}]}]}"#;

/// Takes logs by HTTP, delivers them to `data`, and pushes its own metrics and spans by `push`.
fn config(receiver: u16, data: &str, push: &str, slow_batch: &str) -> String {
    let endpoint = |signal: &str| match push.split_once(' ') {
        Some(("http/protobuf", base)) => {
            format!("{{protocol: http/protobuf, endpoint: \"{base}/v1/{signal}\", headers: {{tenant: us}}}}")
        }
        Some((_, base)) => {
            format!("{{endpoint: \"{base}\", compression: gzip, headers: [{{name: tenant, value: us}}]}}")
        }
        None => panic!("protocol and URL: {push}"),
    };
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"{data}\", retry_on_failure: {{initial_interval: 20ms, max_interval: 20ms}}}}}}
service:
  telemetry:
    resource: {{service.name: gate, rack: r7}}
    metrics: {{readers: [{{periodic: {{interval: 50, exporter: {{otlp: {}}}}}}}]}}
    traces: {{slow_batch: {slow_batch}, processors: [{{batch: {{schedule_delay: 20, exporter: {{otlp: {}}}}}}}]}}
  pipelines: {{logs: {{receivers: [otlp], exporters: [otlp]}}}}
",
        endpoint("metrics"),
        endpoint("traces"),
    )
}

fn send_logs(receiver: u16) {
    let answer = http::post(receiver, "/v1/logs", "application/json", LOGS).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

fn spans(sink: &OtlpSink) -> Vec<Span> {
    let resources = sink
        .traces()
        .into_iter()
        .flat_map(|request| request.resource_spans);
    let scopes = resources.flat_map(|resource| resource.scope_spans);
    scopes.flat_map(|scope| scope.spans).collect()
}

fn metrics_and_spans_arrive(protocol: &str) {
    let (data, own) = (OtlpSink::start(), OtlpSink::start());
    let receiver = free_port();
    let push = format!("{protocol} {}", own.endpoint());
    let gateway = Gateway::start(&config(receiver, &data.endpoint(), &push, "0s"));
    send_logs(receiver);
    own.wait_until("the accepted record is pushed", |own| {
        let accepted = own.points_of("otelcol_receiver_accepted_log_records");
        accepted.iter().any(|point| {
            point.number() == 1.0
                && point.attribute("receiver") == "otlp"
                && point.attribute("transport") == "http"
        })
    });
    own.wait_until("the delivered record is pushed", |own| {
        let sent = own.points_of("otelcol_exporter_sent_log_records");
        sent.iter().any(|point| point.number() == 1.0)
    });
    for point in own.points_of("otelcol_receiver_accepted_log_records") {
        assert_eq!(point.resource["service.name"], "gate");
        assert_eq!(point.resource["rack"], "r7");
        assert!(point.resource.contains_key("service.instance.id"));
    }
    own.wait_until("both stages have spans", |own| {
        ["push", "deliver", "attempt"]
            .iter()
            .all(|name| spans(own).iter().any(|span| span.name == *name))
    });
    let spans = spans(&own);
    let named = |name: &str| spans.iter().find(|span| span.name == name).expect("it was there");
    let (deliver, attempt) = (named("deliver"), named("attempt"));
    assert_eq!(attempt.parent_span_id, deliver.span_id);
    assert_eq!(attempt.trace_id, deliver.trace_id);
    assert!(deliver.start_time_unix_nano <= attempt.start_time_unix_nano);
    assert!(attempt.start_time_unix_nano < attempt.end_time_unix_nano);
    assert!(own.headers().iter().all(|headers| headers["tenant"] == "us"));
    gateway.stop();
}

#[test]
fn own_metrics_and_slow_batches_are_pushed_by_grpc() {
    metrics_and_spans_arrive("grpc");
}

#[test]
fn own_metrics_and_slow_batches_are_pushed_by_http() {
    metrics_and_spans_arrive("http/protobuf");
}

#[test]
fn only_slow_batches_have_spans_and_what_failed_says_so() {
    let (data, own) = (OtlpSink::start(), OtlpSink::start());
    let receiver = free_port();
    let push = format!("grpc {}", own.endpoint());
    let gateway = Gateway::start(&config(receiver, &data.endpoint(), &push, "60s"));
    send_logs(receiver);
    own.wait_until("the delivered record is pushed", |own| {
        let sent = own.points_of("otelcol_exporter_sent_log_records");
        sent.iter().any(|point| point.number() == 1.0)
    });
    gateway.stop();
    assert!(spans(&own).is_empty(), "nothing took a minute");

    let receiver = free_port();
    let gateway = Gateway::start(&config(receiver, "127.0.0.1:1", &push, "0s"));
    send_logs(receiver);
    own.wait_until("a failed attempt has a span", |own| {
        spans(own).iter().any(|span| {
            let status = span.status.clone().unwrap_or_default();
            span.name == "attempt" && status.code == StatusCode::Error as i32 && !status.message.is_empty()
        })
    });
    drop(gateway);
}

#[test]
fn a_peer_that_is_down_neither_delays_the_stop_nor_goes_unmentioned() {
    let data = OtlpSink::start();
    let receiver = free_port();
    let push = format!("grpc http://127.0.0.1:{}", free_port());
    let mut gateway = Gateway::start(&config(receiver, &data.endpoint(), &push, "0s"));
    send_logs(receiver);
    gateway.wait_for_log("own metrics could not be pushed");
    gateway.wait_for_log("spans of slow batches could not be pushed");
    let stopping = Instant::now();
    gateway.stop();
    assert!(
        stopping.elapsed() < Duration::from_secs(4),
        "it took {:?}",
        stopping.elapsed()
    );
}
