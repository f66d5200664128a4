// SPDX-License-Identifier: Apache-2.0

//! The counts of processors under the Collector's names: they match the sender's answers and the sink's data.

use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_until};
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs, SeverityNumber};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use prost::Message;
use tidegate_requests::{attribute, gauge, int, request};

/// Path, and the last words of the counters of `memory_limiter` and `filter`.
const SIGNALS: [(&str, &str, &str); 3] = [
    ("/v1/metrics", "metric_points", "datapoints"),
    ("/v1/traces", "spans", "spans"),
    ("/v1/logs", "log_records", "logs"),
];

/// A request of a signal with items of these names, by its place in [`SIGNALS`].
fn body(signal: usize, resource: Vec<KeyValue>, names: &[&str]) -> Vec<u8> {
    let of = || {
        Some(Resource {
            attributes: resource.clone(),
            ..Resource::default()
        })
    };
    let names = names.iter().map(|name| (*name).to_owned());
    match signal {
        0 => {
            let metrics = names.map(|name| gauge(name, [int(1)]));
            let made: ExportMetricsServiceRequest = request(resource, "", metrics);
            made.encode_to_vec()
        }
        1 => {
            let spans = names.map(|name| Span {
                name,
                trace_id: vec![1; 16],
                span_id: vec![1; 8],
                ..Span::default()
            });
            let scope_spans = vec![ScopeSpans {
                spans: spans.collect(),
                ..ScopeSpans::default()
            }];
            let resource_spans = vec![ResourceSpans {
                resource: of(),
                scope_spans,
                ..ResourceSpans::default()
            }];
            ExportTraceServiceRequest { resource_spans }.encode_to_vec()
        }
        _ => {
            let log_records = names.map(|severity_text| LogRecord {
                severity_number: SeverityNumber::Info as i32,
                severity_text,
                ..LogRecord::default()
            });
            let scope_logs = vec![ScopeLogs {
                log_records: log_records.collect(),
                ..ScopeLogs::default()
            }];
            let resource_logs = vec![ResourceLogs {
                resource: of(),
                scope_logs,
                ..ResourceLogs::default()
            }];
            ExportLogsServiceRequest { resource_logs }.encode_to_vec()
        }
    }
}

/// Items that a sink received, by signal.
fn received(sink: &OtlpSink) -> [usize; 3] {
    let spans = sink.traces().into_iter().flat_map(|all| all.resource_spans);
    let spans = spans.flat_map(|all| all.scope_spans).flat_map(|all| all.spans);
    let logs = sink.logs().into_iter().flat_map(|all| all.resource_logs);
    let logs = logs
        .flat_map(|all| all.scope_logs)
        .flat_map(|all| all.log_records);
    [sink.points().len(), spans.count(), logs.count()]
}

fn start(receiver: u16, sink: u16, processors: &str, name: &str) -> Gateway {
    let pipeline =
        |signal| format!("{signal}: {{receivers: [otlp], processors: [{name}], exporters: [otlp]}}");
    Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\"}}}}}}}}
processors: {processors}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{sink}\", compression: none, tls: {{insecure: true}},
    retry_on_failure: {{initial_interval: 20ms, max_interval: 100ms}}}}
service: {{pipelines: {{{}}}}}
",
        ["metrics", "traces", "logs"].map(pipeline).join(", ")
    ))
}

/// Sends a request; the status of its answer.
fn send(receiver: u16, signal: usize, body: &[u8]) -> u16 {
    let (path, ..) = SIGNALS[signal];
    let answer = http::post(receiver, path, "application/x-protobuf", body);
    answer.expect("an answer").status
}

fn counters(gateway: &Gateway, name: impl Fn(usize) -> String, label: &str) -> [usize; 3] {
    std::array::from_fn(|signal| gateway.own_metric(&name(signal), &[label]) as usize)
}

#[test]
fn a_memory_limiter_counts_as_senders_and_the_sink_see_it() {
    /// The memory that the process may take beyond that at the start, in MiB.
    const ROOM: u64 = 24;
    let (receiver, sink) = (free_port(), free_port());
    let idle = start(receiver, sink, "{batch: {}}", "batch");
    let resident = idle.memory_mib("VmRSS");
    idle.stop();
    // Measured at the start only; from then on what is held counts.
    let limit = resident + ROOM;
    let limiter =
        format!("{{memory_limiter: {{check_interval: 1h, limit_mib: {limit}, spike_limit_mib: 1}}}}");
    let gateway = start(receiver, sink, &limiter, "memory_limiter");
    let (mut taken, mut refused, mut turned_away) = ([0; 3], [0; 3], 0);
    // No server receives, so accepted data is held. The gateway refuses a large body without room before it reads
    // it, and a body that grows in decompression before that.
    let names = ["a", "b", "c"];
    for round in 0..40 {
        for signal in 0..3 {
            let items = &names[..=signal];
            let ballast = "x".repeat(if round % 2 == 0 { 2_000_000 } else { 20 });
            let plain = body(signal, vec![attribute("ballast", ballast)], items);
            let is_packed = round % 4 == 0;
            let (status, refusals) = if is_packed {
                (send_packed(receiver, signal, &plain), refusals(&gateway))
            } else {
                (send(receiver, signal, &plain), refusals(&gateway))
            };
            match status {
                200 => taken[signal] += items.len(),
                503 if refusals > turned_away => turned_away = refusals,
                503 => refused[signal] += items.len(),
                other => panic!("{other}"),
            }
        }
    }
    let counted = |what: &str| {
        let name = |signal: usize| format!("otelcol_processor_memory_limiter_{what}_{}", SIGNALS[signal].1);
        counters(&gateway, name, "processor=\"memory_limiter\"")
    };
    assert_eq!((counted("accepted"), counted("refused")), (taken, refused));
    assert!(
        taken.iter().all(|items| *items > 0) && turned_away > 0,
        "{taken:?} {refused:?} {turned_away}"
    );
    let sink = OtlpSink::start_on(sink);
    wait_until(SOON, "what was taken arrives", || received(&sink) == taken);
    let sent = |signal: usize| format!("otelcol_exporter_sent_{}", SIGNALS[signal].1);
    wait_until(SOON, "what was taken is sent", || {
        counters(&gateway, sent, "exporter=\"otlp\"") == taken
    });
    // There is room again.
    for (signal, taken) in taken.iter_mut().enumerate() {
        assert_eq!(send(receiver, signal, &body(signal, Vec::new(), &["a"])), 200);
        *taken += 1;
    }
    wait_until(SOON, "the rest arrives", || received(&sink) == taken);
    assert_eq!((counted("accepted"), counted("refused")), (taken, refused));
    gateway.stop();
}

/// Requests that the receiver refused itself.
fn refusals(gateway: &Gateway) -> usize {
    gateway.own_metric("tidegate_otlp_memory_refusals_total", &["receiver=\"otlp\""]) as usize
}

fn send_packed(receiver: u16, signal: usize, body: &[u8]) -> u16 {
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut packed, body).expect("memory");
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "gzip"),
    ];
    let packed = packed.finish().expect("memory");
    let answer = http::request("POST", receiver, SIGNALS[signal].0, &headers, &packed);
    answer.expect("an answer").status
}

#[test]
fn a_filter_counts_what_goes_and_the_sink_receives_the_rest() {
    let (receiver, sink) = (free_port(), OtlpSink::start());
    let filter = "{filter: {
  metrics: {exclude: {match_type: strict, metric_names: [b]}},
  spans: {exclude: {match_type: strict, span_names: [b]}},
  logs: {exclude: {match_type: strict, severity_texts: [b]}}}}";
    let gateway = start(receiver, sink.port(), filter, "filter");
    let (mut gone, mut kept) = ([0; 3], [0; 3]);
    for (signal, names) in [
        (0, &["a", "b", "b"][..]),
        (1, &["b", "a", "c", "b", "b"]),
        (2, &["a", "a", "b"]),
        (0, &["b"]),
        (1, &["a"]),
        (2, &["b", "b", "b", "b"]),
    ] {
        assert_eq!(send(receiver, signal, &body(signal, Vec::new(), names)), 200);
        let filtered = names.iter().filter(|name| **name == "b").count();
        gone[signal] += filtered;
        kept[signal] += names.len() - filtered;
    }
    wait_until(SOON, "what stays arrives", || received(&sink) == kept);
    let name = |signal: usize| format!("otelcol_processor_filter_{}_filtered", SIGNALS[signal].2);
    assert_eq!(counters(&gateway, name, "filter=\"filter\""), gone);
    let sent = |signal: usize| format!("otelcol_exporter_sent_{}", SIGNALS[signal].1);
    wait_until(SOON, "what stays is sent", || {
        counters(&gateway, sent, "exporter=\"otlp\"") == kept
    });
    gateway.stop();
}
