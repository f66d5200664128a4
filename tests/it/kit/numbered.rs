// SPDX-License-Identifier: Apache-2.0

//! Requests of all signals whose items have numbers, the numbers of what arrives, and what gateways count.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::number_data_point::Value;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use std::collections::BTreeSet;
use std::ops::Range;
use tidegate::batch::Signal;
use tidegate_requests::{gauge, int, request};

use super::{Gateway, OtlpSink, SOON, http, wait_until};

/// Of each signal: its path, its topic in Kafka.
pub(crate) const SIGNALS: [(Signal, &str, &str); 3] = [
    (Signal::Metrics, "/v1/metrics", "otlp_metrics"),
    (Signal::Traces, "/v1/traces", "otlp_spans"),
    (Signal::Logs, "/v1/logs", "otlp_logs"),
];

/// A request with items of these numbers. Each span has a trace of its own.
pub(crate) fn body(signal: Signal, numbers: Range<u64>) -> Vec<u8> {
    match signal {
        Signal::Metrics => {
            let points = numbers.map(|number| int(number as i64));
            let made: ExportMetricsServiceRequest = request(Vec::new(), "", [gauge("g", points)]);
            made.encode_to_vec()
        }
        Signal::Traces => {
            let span = |number: u64| Span {
                trace_id: trace_id(number),
                span_id: vec![1; 8],
                start_time_unix_nano: number,
                ..Span::default()
            };
            let scope = ScopeSpans {
                spans: numbers.map(span).collect(),
                ..ScopeSpans::default()
            };
            let resource = ResourceSpans {
                scope_spans: vec![scope],
                ..ResourceSpans::default()
            };
            let made = ExportTraceServiceRequest {
                resource_spans: vec![resource],
            };
            made.encode_to_vec()
        }
        Signal::Logs => {
            let record = |time_unix_nano| LogRecord {
                time_unix_nano,
                ..LogRecord::default()
            };
            let scope = ScopeLogs {
                log_records: numbers.map(record).collect(),
                ..ScopeLogs::default()
            };
            let resource = ResourceLogs {
                scope_logs: vec![scope],
                ..ResourceLogs::default()
            };
            let made = ExportLogsServiceRequest {
                resource_logs: vec![resource],
            };
            made.encode_to_vec()
        }
    }
}

/// The trace of the span with this number.
pub(crate) fn trace_id(number: u64) -> Vec<u8> {
    [[0xab; 8], number.to_be_bytes()].concat()
}

/// The numbers of the items of a request.
pub(crate) fn numbers(signal: Signal, body: &[u8]) -> Vec<u64> {
    match signal {
        Signal::Metrics => {
            let request = ExportMetricsServiceRequest::decode(body).expect("a request");
            let scopes = request
                .resource_metrics
                .into_iter()
                .flat_map(|all| all.scope_metrics);
            let data = scopes
                .flat_map(|all| all.metrics)
                .filter_map(|metric| metric.data);
            let points = data.flat_map(|data| match data {
                Data::Gauge(gauge) => gauge.data_points,
                other => panic!("{other:?}"),
            });
            let number = |value| match value {
                Some(Value::AsInt(number)) => number as u64,
                other => panic!("{other:?}"),
            };
            points.map(|point| number(point.value)).collect()
        }
        Signal::Traces => {
            let request = ExportTraceServiceRequest::decode(body).expect("a request");
            let scopes = request.resource_spans.into_iter().flat_map(|all| all.scope_spans);
            let spans = scopes.flat_map(|all| all.spans);
            spans.map(|span| span.start_time_unix_nano).collect()
        }
        Signal::Logs => {
            let request = ExportLogsServiceRequest::decode(body).expect("a request");
            let scopes = request.resource_logs.into_iter().flat_map(|all| all.scope_logs);
            let records = scopes.flat_map(|all| all.log_records);
            records.map(|record| record.time_unix_nano).collect()
        }
    }
}

/// Sends a request by OTLP/HTTP; the gateway must take it.
pub(crate) fn send(port: u16, signal: Signal, body: &[u8]) {
    send_with(port, signal, &[], body);
}

/// The same, with these headers.
pub(crate) fn send_with(port: u16, signal: Signal, headers: &[(&str, &str)], body: &[u8]) {
    let (_, path, _) = SIGNALS[signal as usize];
    let kind = [("content-type", "application/x-protobuf")];
    let headers = [&kind[..], headers].concat();
    let answer = http::request("POST", port, path, &headers, body).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Sends a request with items of these numbers.
pub(crate) fn send_items(port: u16, signal: Signal, numbers: Range<u64>) {
    send(port, signal, &body(signal, numbers));
}

/// The numbers of all items that a sink has, in their order.
pub(crate) fn arrived(sink: &OtlpSink, signal: Signal) -> Vec<u64> {
    let bodies: Vec<Vec<u8>> = match signal {
        Signal::Metrics => sink.metrics().iter().map(Message::encode_to_vec).collect(),
        Signal::Traces => sink.traces().iter().map(Message::encode_to_vec).collect(),
        Signal::Logs => sink.logs().iter().map(Message::encode_to_vec).collect(),
    };
    let mut all: Vec<u64> = bodies.iter().flat_map(|body| numbers(signal, body)).collect();
    all.sort_unstable();
    all
}

/// The items that an exporter has sent, as the gateway counts them.
pub(crate) fn sent_items(gateway: &Gateway, exporter: &str, signal: Signal) -> f64 {
    let name = match signal {
        Signal::Metrics => "otelcol_exporter_sent_metric_points",
        Signal::Traces => "otelcol_exporter_sent_spans",
        Signal::Logs => "otelcol_exporter_sent_log_records",
    };
    gateway.own_metric(name, &[&format!("exporter=\"{exporter}\"")])
}

/// The items that a receiver has accepted, as the gateway counts them.
pub(crate) fn accepted_items(gateway: &Gateway, receiver: &str, signal: Signal) -> f64 {
    let name = match signal {
        Signal::Metrics => "otelcol_receiver_accepted_metric_points",
        Signal::Traces => "otelcol_receiver_accepted_spans",
        Signal::Logs => "otelcol_receiver_accepted_log_records",
    };
    gateway.own_metric(name, &[&format!("receiver=\"{receiver}\"")])
}

/// The reloads of [`pass_during_reloads`].
pub(crate) const RELOADS: u64 = 3;

/// Sends numbered points to `port` while a gateway between it and the sink gets the configurations `config(1)`, `config(2)` and
/// so on. All of them arrive. A message whose receiver stops before its answer may arrive twice, so few points may do so too.
///
/// # Panics
/// If a point is lost, or if so many arrive again that a new receiver must have read from the beginning.
pub(crate) fn pass_during_reloads(port: u16, to: &Gateway, sink: &OtlpSink, config: impl Fn(u64) -> String) {
    const ITEMS: u64 = 10;
    const BETWEEN: u64 = 500;
    let mut sent = 0;
    let send_some = |sent: &mut u64| {
        send_items(port, Signal::Metrics, *sent..*sent + ITEMS);
        *sent += ITEMS;
    };
    let distinct = || -> BTreeSet<u64> { arrived(sink, Signal::Metrics).into_iter().collect() };
    for number in 1..=RELOADS {
        let before = sent + BETWEEN;
        while sent < before {
            send_some(&mut sent);
        }
        wait_until(SOON, "all points have arrived", || {
            distinct().len() as u64 == sent
        });
        to.reload_while(&config(number), || send_some(&mut sent));
    }
    send_some(&mut sent);
    wait_until(SOON, "all points have arrived after the reloads", || {
        distinct().len() as u64 == sent
    });
    assert!(distinct().into_iter().eq(0..sent));
    let repeated = arrived(sink, Signal::Metrics).len() as u64 - sent;
    println!("{repeated} of {sent} points have arrived again");
    // Each receiver that reads from the beginning would repeat all points before it.
    assert!(
        repeated < BETWEEN,
        "{repeated} of {sent} points have arrived again"
    );
}

/// Sends 1,000 items of each signal. They arrive once, and both gateways count them.
pub(crate) fn pass_all(
    port: u16,
    sink: &OtlpSink,
    sent: impl Fn(Signal) -> f64,
    accepted: impl Fn(Signal) -> f64,
) {
    const ITEMS: u64 = 1_000;
    for (signal, ..) in SIGNALS {
        for first in (0..ITEMS).step_by(50) {
            send_items(port, signal, first..first + 50);
        }
    }
    for (signal, ..) in SIGNALS {
        wait_until(SOON, "all items have arrived", || {
            arrived(sink, signal).len() as u64 >= ITEMS
        });
        assert_eq!(arrived(sink, signal), (0..ITEMS).collect::<Vec<_>>());
        for (who, count) in [
            ("exporter", &sent as &dyn Fn(Signal) -> f64),
            ("receiver", &accepted),
        ] {
            wait_until(SOON, &format!("the {who} counts them"), || {
                count(signal) == ITEMS as f64
            });
        }
    }
}
