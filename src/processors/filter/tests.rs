// SPDX-License-Identifier: Apache-2.0

//! The items that stay and those that the processor drops, of every signal and in every form.

use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::logs::v1::{LogRecord, ResourceLogs, ScopeLogs};
use opentelemetry_proto::tonic::resource::v1::Resource;
use opentelemetry_proto::tonic::trace::v1::{ResourceSpans, ScopeSpans, Span};
use proptest::prelude::*;
use prost::Message;
use tidegate_engine::{Data, Instrument, Value};

use super::*;
use crate::batch::wire::check;
use crate::component::testing::{Sink, settings};
use crate::processors::testing::{encoded, events, kind, point, processor_context};

struct Bench {
    sink: Arc<Sink>,
    ledger: Arc<Ledger>,
    filter: Arc<dyn Processor>,
}

impl Bench {
    fn new(signal: Signal, yaml: &str) -> Self {
        Self::try_new(signal, yaml).unwrap()
    }

    fn try_new(signal: Signal, yaml: &str) -> Result<Self, String> {
        let sink = Sink::new();
        let (mut cx, _, ledger) = processor_context("filter", &sink);
        cx.signal = signal;
        let filter =
            (FACTORY.build)(&settings::<FilterConfig>(yaml), cx).map_err(|error| error.to_string())?;
        Ok(Self { sink, ledger, filter })
    }

    fn push(&self, batch: Batch) -> Vec<Batch> {
        let before = self.sink.batches().len();
        self.filter.push(batch).unwrap();
        self.sink.batches().split_off(before)
    }

    fn filtered(&self) -> u64 {
        self.ledger.balance().dropped[Reason::Filtered as usize]
    }
}

fn text(value: &str) -> AnyValue {
    AnyValue {
        value: Some(any_value::Value::StringValue(value.to_owned())),
    }
}

fn pair(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(text(value)),
        ..Default::default()
    }
}

fn resource(service: &str) -> Option<Resource> {
    Some(Resource {
        attributes: vec![pair("service.name", service)],
        ..Default::default()
    })
}

fn scope(name: &str) -> Option<InstrumentationScope> {
    Some(InstrumentationScope {
        name: name.to_owned(),
        version: "1.2".to_owned(),
        ..Default::default()
    })
}

/// (service, scope, severity, severity text, body) of each record, each in a resource of its own.
type Record = (&'static str, &'static str, i32, &'static str, &'static str);

fn logs(records: &[Record]) -> Batch {
    let resource_logs = records
        .iter()
        .map(|(service, library, severity_number, severity_text, body)| {
            let record = LogRecord {
                severity_number: *severity_number,
                severity_text: (*severity_text).to_owned(),
                body: Some(text(body)),
                attributes: vec![pair("k", body)],
                ..Default::default()
            };
            ResourceLogs {
                resource: resource(service),
                scope_logs: vec![ScopeLogs {
                    scope: scope(library),
                    log_records: vec![record],
                    ..Default::default()
                }],
                ..Default::default()
            }
        });
    let request = ExportLogsServiceRequest {
        resource_logs: resource_logs.collect(),
    };
    Batch::new(check(Signal::Logs, request.encode_to_vec().into()).unwrap())
}

/// Bodies of the records of batches.
fn bodies(batches: &[Batch]) -> Vec<String> {
    let mut bodies = Vec::new();
    for batch in batches {
        let Payload::Encoded(encoded) = &batch.payload else {
            panic!("logs are encoded")
        };
        for part in &encoded.parts {
            let request = ExportLogsServiceRequest::decode(part.bytes.clone()).unwrap();
            let scopes = request.resource_logs.into_iter().flat_map(|logs| logs.scope_logs);
            for record in scopes.flat_map(|scope| scope.log_records) {
                match record.body.and_then(|body| body.value) {
                    Some(any_value::Value::StringValue(body)) => bodies.push(body),
                    other => panic!("{other:?}"),
                }
            }
        }
    }
    bodies
}

const RECORDS: [Record; 4] = [
    ("api", "http", 9, "INFO", "ok"),
    ("api", "http", 17, "ERROR", "broken"),
    ("batch", "jobs", 0, "", "unknown"),
    ("batch", "jobs", 13, "WARN", "slow"),
];

#[test]
fn log_records_are_selected_by_all_that_they_have() {
    let cases: [(&str, &[&str]); 11] = [
        ("exclude: {log_bodies: [ok]}", &["broken", "unknown", "slow"]),
        ("include: {severity_number: {min: WARN}}", &["broken", "slow"]),
        (
            "include: {log_severity_number: {min: 13, match_undefined: true}}",
            &["broken", "unknown", "slow"],
        ),
        ("include: {severity_texts: [INFO, WARN]}", &["ok", "slow"]),
        (
            "include: {match_type: regexp, bodies: ['^(ok|slow)$']}",
            &["ok", "slow"],
        ),
        ("exclude: {services: [api]}", &["unknown", "slow"]),
        (
            "exclude: {resources: [{key: service.name, value: batch}]}",
            &["ok", "broken"],
        ),
        (
            "include: {libraries: [{name: jobs, version: '1.2'}]}",
            &["unknown", "slow"],
        ),
        ("include: {libraries: [{name: jobs, version: '1.3'}]}", &[]),
        (
            "include: {record_attributes: [{key: k, value: broken}]}",
            &["broken"],
        ),
        (
            "include: {services: [batch]}, exclude: {severity_texts: [WARN]}",
            &["unknown"],
        ),
    ];
    for (rules, expected) in cases {
        let bench = Bench::new(Signal::Logs, &format!("logs: {{{rules}}}"));
        assert_eq!(bodies(&bench.push(logs(&RECORDS))), expected, "{rules}");
        assert_eq!(
            bench.filtered(),
            (RECORDS.len() - expected.len()) as u64,
            "{rules}"
        );
    }
}

#[test]
fn spans_are_selected_by_name_and_kind() {
    let span = |name: &str, kind: i32| Span {
        name: name.to_owned(),
        kind,
        ..Default::default()
    };
    let request = ExportTraceServiceRequest {
        resource_spans: vec![ResourceSpans {
            scope_spans: vec![ScopeSpans {
                spans: vec![span("get", 2), span("get", 3), span("put", 2)],
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    let batch = Batch::new(check(Signal::Traces, request.encode_to_vec().into()).unwrap());
    let rules = "spans: {include: {span_names: [get], span_kinds: [SPAN_KIND_SERVER]}}";
    let kept = Bench::new(Signal::Traces, rules).push(batch.clone());
    assert_eq!(kept.iter().map(Batch::items).collect::<Vec<_>>(), [1]);
    let none = Bench::new(
        Signal::Traces,
        "traces: {exclude: {match_type: regexp, span_names: ['.']}}",
    );
    assert!(none.push(batch).is_empty(), "what is emptied goes no further");
    assert_eq!(none.filtered(), 3);
}

#[test]
fn metrics_are_selected_alike_on_the_wire_decoded_and_as_events() {
    let rules = "metrics: {exclude: {match_type: regexp, metric_names: ['^drop']}}";
    let bench = Bench::new(Signal::Metrics, rules);
    let wire = bench.push(Batch::new(encoded(&[("drop_a", 1), ("keep", 2), ("drop_b", 3)])));
    assert_eq!(wire.iter().map(Batch::items).sum::<usize>(), 1);

    let gauge = |name| point(name, Data::Gauge, &[], Value::Int(1));
    let points = Points {
        points: vec![gauge("drop_a"), gauge("keep")].into(),
    };
    let decoded = bench.push(Batch::new(points));
    let Payload::Points(left) = &decoded[0].payload else {
        panic!("points stay points")
    };
    assert_eq!(
        left.points
            .iter()
            .map(|point| &*point.series.metric.name)
            .collect::<Vec<_>>(),
        ["keep"]
    );

    let kinds = vec![
        kind("drop_a", Instrument::Counter, &[]),
        kind("keep", Instrument::Counter, &[]),
    ];
    let measured = bench.push(Batch::new(events("a", kinds, &[(0, 1), (1, 2), (0, 3), (1, 4)])));
    let Payload::Events(left) = &measured[0].payload else {
        panic!("events stay events")
    };
    assert_eq!(
        (&left.kinds, &left.values),
        (&vec![1, 1], &Values::U64(vec![2, 4]))
    );
    assert_eq!(bench.filtered(), 2 + 1 + 2);
}

#[test]
fn what_nothing_is_cut_from_is_not_copied() {
    let bench = Bench::new(Signal::Metrics, "metrics: {exclude: {metric_names: [other]}}");
    let request = encoded(&[("keep", 1)]);
    let bytes = request.parts[0].bytes.clone();
    let passed = bench.push(Batch::new(request));
    let Payload::Encoded(left) = &passed[0].payload else {
        panic!("wire stays wire")
    };
    assert_eq!(left.parts[0].bytes.as_ptr(), bytes.as_ptr());

    let measured = events("a", vec![kind("keep", Instrument::Counter, &[])], &[(0, 1)]);
    let batch = Batch::new(measured);
    let Payload::Events(before) = batch.payload.clone() else {
        unreachable!()
    };
    let passed = bench.push(batch);
    let Payload::Events(after) = &passed[0].payload else {
        panic!("events stay events")
    };
    assert!(Arc::ptr_eq(&before, after));
}

#[test]
fn what_means_nothing_to_the_signal_is_refused() {
    let refused = |signal, yaml| Bench::try_new(signal, yaml).err().expect("it is refused");
    let of_logs = refused(Signal::Logs, "logs: {include: {span_names: [a]}}");
    assert!(
        of_logs.contains("include::span_names does not apply to logs"),
        "{of_logs}"
    );
    let of_metrics = refused(Signal::Metrics, "metrics: {exclude: {severity_texts: [a]}}");
    assert!(
        of_metrics.contains("exclude::log_severity_texts does not apply to metrics"),
        "{of_metrics}"
    );
}

proptest! {
    #[test]
    fn on_the_wire_as_in_a_plain_loop(
        chosen in prop::collection::vec(0..RECORDS.len(), 0..12),
        min in 1..24_i32,
        undefined in any::<bool>(),
        service in prop::sample::select(vec!["api", "batch", "none"]),
    ) {
        let records: Vec<Record> = chosen.into_iter().map(|at| RECORDS[at]).collect();
        let bench = Bench::new(
            Signal::Logs,
            &format!(
                "logs: {{include: {{severity_number: {{min: {min}, match_undefined: {undefined}}}}}, \
                 exclude: {{services: [{service}]}}}}"
            ),
        );
        let stays = |(of, _, severity, ..): &&Record| {
            let severe = if *severity == 0 { undefined } else { *severity >= min };
            severe && *of != service
        };
        let expected: Vec<&str> = records.iter().filter(stays).map(|record| record.4).collect();
        prop_assert_eq!(bodies(&bench.push(logs(&records))), expected);
    }
}

#[test]
fn rejected_items_are_reported_to_the_sender() {
    for (action, reported) in [("reject", 1), ("drop", 0)] {
        let yaml =
            format!("{{action: {action}, metrics: {{exclude: {{match_type: strict, metric_names: [b]}}}}}}");
        let bench = Bench::new(Signal::Metrics, &yaml);
        let batch = Batch::new(encoded(&[("a", 1), ("b", 1)]));
        let outcome = bench.filter.push(batch).unwrap();
        assert_eq!((outcome.rejected_items, bench.filtered()), (reported, 1));
        assert_eq!(
            outcome.message.contains("does not take them"),
            reported == 1,
            "{}",
            outcome.message
        );
    }
}

/// One metric in each resource: (env, name, tier).
fn fleet() -> Batch {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    use opentelemetry_proto::tonic::metrics::v1::{ResourceMetrics, ScopeMetrics};
    let tier = KeyValue {
        key: "tier".to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::IntValue(42)),
        }),
        ..Default::default()
    };
    let metrics = |env: &str| ResourceMetrics {
        resource: Some(Resource {
            attributes: vec![pair("env", env), tier.clone()],
            ..Default::default()
        }),
        scope_metrics: vec![ScopeMetrics {
            metrics: ["a", "b"]
                .map(|name| tidegate_requests::gauge(name, vec![tidegate_requests::int(1)]))
                .into(),
            ..Default::default()
        }],
        ..Default::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: ["x", "y"].map(metrics).into(),
    };
    Batch::new(check(Signal::Metrics, request.encode_to_vec().into()).unwrap())
}

/// `env/name` of all metrics of batches.
fn names(batches: &[Batch]) -> Vec<String> {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    let mut names = Vec::new();
    for batch in batches {
        let Payload::Encoded(encoded) = &batch.payload else {
            panic!("wire stays wire")
        };
        let request = ExportMetricsServiceRequest::decode(encoded.joined()).unwrap();
        for resource in request.resource_metrics {
            let attributes = &resource.resource.as_ref().unwrap().attributes;
            let Some(any_value::Value::StringValue(env)) = &attributes[0].value.as_ref().unwrap().value
            else {
                panic!("env is a string")
            };
            for metric in resource.scope_metrics.iter().flat_map(|scope| &scope.metrics) {
                names.push(format!("{env}/{}", metric.name));
            }
        }
    }
    names
}

#[test]
fn names_and_resources_exclude_each_by_itself_and_include_together() {
    let x = "resource_attributes: [{key: env, value: x}]";
    let cases: [(&str, &[&str]); 6] = [
        (&format!("exclude: {{metric_names: [a], {x}}}"), &["y/b"]),
        (&format!("exclude: {{{x}}}"), &["y/a", "y/b"]),
        (&format!("include: {{metric_names: [a], {x}}}"), &["x/a"]),
        (
            "exclude: {match_type: regexp, metric_names: ['^a$'], resource_attributes: [{key: env, value: '^x'}]}",
            &["y/b"],
        ),
        // A type of its own: 42 is not "42" when values are compared, but its text matches.
        ("include: {resource_attributes: [{key: tier, value: '42'}]}", &[]),
        (
            "include: {match_type: regexp, resource_attributes: [{key: tier, value: '^42$'}]}",
            &["x/a", "x/b", "y/a", "y/b"],
        ),
    ];
    for (rules, expected) in cases {
        let bench = Bench::new(Signal::Metrics, &format!("metrics: {{{rules}}}"));
        assert_eq!(names(&bench.push(fleet())), expected, "{rules}");
    }
    let same = Bench::new(
        Signal::Metrics,
        "metrics: {exclude: {resource_attributes: [{key: tier, value: 42}]}}",
    );
    assert!(same.push(fleet()).is_empty());
}

#[test]
fn metrics_without_points_pass_unless_their_name_is_excluded() {
    use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
    let request = || {
        let mut request = ExportMetricsServiceRequest::decode(match fleet().payload {
            Payload::Encoded(encoded) => encoded.joined(),
            _ => unreachable!(),
        })
        .unwrap();
        let metrics = &mut request.resource_metrics[0].scope_metrics[0].metrics;
        metrics.push(tidegate_requests::gauge("empty", Vec::new()));
        metrics.push(tidegate_requests::gauge("a.empty", Vec::new()));
        Batch::new(check(Signal::Metrics, request.encode_to_vec().into()).unwrap())
    };
    let bench = Bench::new(
        Signal::Metrics,
        "metrics: {exclude: {match_type: regexp, metric_names: ['^a']}}",
    );
    assert_eq!(names(&bench.push(request())), ["x/b", "x/empty", "y/b"]);
    assert_eq!(bench.filtered(), 2);
}
