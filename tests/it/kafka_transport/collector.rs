// SPDX-License-Identifier: Apache-2.0

//! The OpenTelemetry Collector at the other end of Kafka, both ways. `cargo xtask interop` builds it and runs these tests.

use krafka::consumer::ConsumerRecord;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::common::v1::{AnyValue, ArrayValue, KeyValue, KeyValueList};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::net::UnixDatagram;
use tidegate::batch::Signal;
use tidegate::batch::json::to_protobuf;

use super::out::{sent, writer};
use super::through::{accepted, reader};
use super::topic;
use crate::kit::go_collector::GoCollector;
use crate::kit::kafka_broker::KafkaBroker;
use crate::kit::numbered::{SIGNALS, arrived, body, numbers, send, send_with, trace_id};
use crate::kit::points::Point;
use crate::kit::{Gateway, OtlpSink, SOON, free_port, wait_until};

const ENCODINGS: [&str; 2] = ["otlp_proto", "otlp_json"];
const KINDS: [&str; 3] = ["metrics", "traces", "logs"];

/// The items of each signal.
const ITEMS: u64 = 500;

/// The options of all signals: their encoding, and their topics under this key.
fn signals(encoding: &str, key: &str, prefix: &str) -> String {
    let block = |kind: &str| {
        let topic = format!("{prefix}-{encoding}-{kind}");
        let topic = if key == "topics" {
            format!("[{topic}]")
        } else {
            topic
        };
        format!("{kind}: {{encoding: {encoding}, {key}: {topic}}}")
    };
    KINDS.map(block).join(", ")
}

/// Creates the topics of all signals.
fn topics(broker: &KafkaBroker, prefix: &str, encoding: &str) {
    for kind in KINDS {
        topic::create(broker, &format!("{prefix}-{encoding}-{kind}"), &[]);
    }
}

fn pipelines(receiver: &str, exporter: &str) -> String {
    let pipeline = |kind| format!("{kind}: {{receivers: [{receiver}], exporters: [{exporter}]}}");
    KINDS.map(pipeline).join(", ")
}

/// A Collector from OTLP to Kafka.
fn collector_writer(broker: &KafkaBroker, options: &str) -> GoCollector {
    let exporter = format!("  kafka: {{brokers: [\"{}\"], {options}}}", broker.address());
    GoCollector::start("", &exporter, &pipelines("otlp", "kafka"))
}

/// A gateway from OTLP over HTTP to a sink.
fn relay(sink: u16) -> (Gateway, u16) {
    let port = free_port();
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
exporters: {{otlp: {{endpoint: \"127.0.0.1:{sink}\", tls: {{insecure: true}}}}}}
service: {{pipelines: {{{}}}}}
",
        pipelines("otlp", "otlp")
    ));
    (gateway, port)
}

/// Waits until the sink has all items of all signals, once.
fn wait_for_all(sink: &OtlpSink, encoding: &str) {
    for (signal, ..) in SIGNALS {
        wait_until(SOON, &format!("{encoding}: all items have arrived"), || {
            arrived(sink, signal).len() as u64 >= ITEMS
        });
        assert_eq!(
            arrived(sink, signal),
            (0..ITEMS).collect::<Vec<_>>(),
            "{encoding}"
        );
    }
}

fn send_all(port: u16, headers: &[(&str, &str)]) {
    for (signal, ..) in SIGNALS {
        for first in (0..ITEMS).step_by(50) {
            send_with(port, signal, headers, &body(signal, first..first + 50));
        }
    }
}

/// Checks that each resource has the attributes that a receiver makes of these headers.
fn assert_has_headers(sink: &OtlpSink, signal: Signal, headers: &[(&str, &str)]) {
    let attribute = |(name, value): &(&str, &str)| {
        pair(
            &format!("kafka.header.{name}"),
            Value::StringValue((*value).to_owned()),
        )
    };
    let expected: Vec<KeyValue> = headers.iter().map(attribute).collect();
    for mut attributes in attributes_of_resources(sink, signal) {
        attributes.sort_by(|one, other| one.key.cmp(&other.key));
        assert_eq!(attributes, expected);
    }
}

#[test]
#[ignore = "needs a Collector: `cargo xtask interop`"]
fn the_collector_reads_what_the_gateway_writes() {
    let broker = KafkaBroker::start();
    for encoding in ENCODINGS {
        topics(&broker, "out", encoding);
        let sink = OtlpSink::start();
        let (relay, port) = relay(sink.port());
        let receiver = format!(
            "  kafka: {{brokers: [\"{}\"], group_id: {encoding}, initial_offset: earliest, {}, {}}}",
            broker.address(),
            "header_extraction: {extract_headers: true, headers: [site, x-tenant, x-user]}",
            signals(encoding, "topics", "out")
        );
        let exporter = format!("  otlphttp: {{endpoint: \"http://127.0.0.1:{port}\"}}");
        let collector = GoCollector::start(&receiver, &exporter, &pipelines("kafka", "otlphttp"));
        let options = format!(
            "producer: {{compression: zstd, required_acks: all}}, record_headers: [{{name: site, value: a}}], \
             include_metadata_keys: [x-tenant], {}",
            signals(encoding, "topic", "out")
        );
        let (gateway, port) = writer(&broker, &options);
        send_all(port, &[("x-tenant", "red"), ("x-user", "ada")]);
        wait_for_all(&sink, encoding);
        for (signal, ..) in SIGNALS {
            assert_eq!(sent(&gateway, signal), ITEMS as f64, "{encoding}");
            // No option makes `x-user` a header of messages.
            assert_has_headers(&sink, signal, &[("site", "a"), ("x-tenant", "red")]);
        }
        gateway.stop();
        drop(collector);
        relay.stop();
    }
}

/// The attributes of all resources that a sink has.
fn attributes_of_resources(sink: &OtlpSink, signal: Signal) -> Vec<Vec<KeyValue>> {
    let resources: Vec<Option<Resource>> = match signal {
        Signal::Metrics => {
            let all = sink.metrics().into_iter().flat_map(|all| all.resource_metrics);
            all.map(|one| one.resource).collect()
        }
        Signal::Traces => {
            let all = sink.traces().into_iter().flat_map(|all| all.resource_spans);
            all.map(|one| one.resource).collect()
        }
        Signal::Logs => {
            let all = sink.logs().into_iter().flat_map(|all| all.resource_logs);
            all.map(|one| one.resource).collect()
        }
    };
    let attributes = |resource: Option<Resource>| resource.unwrap_or_default().attributes;
    resources.into_iter().map(attributes).collect()
}

#[test]
#[ignore = "needs a Collector: `cargo xtask interop`"]
fn the_gateway_reads_what_the_collector_writes() {
    let broker = KafkaBroker::start();
    for encoding in ENCODINGS {
        topics(&broker, "in", encoding);
        let sink = OtlpSink::start();
        let options = format!(
            "producer: {{compression: snappy}}, record_headers: [{{name: site, value: a}}], {}",
            signals(encoding, "topic", "in")
        );
        let collector = collector_writer(&broker, &options);
        let options = format!(
            ", group_id: {encoding}, header_extraction: {{extract_headers: true, headers: [site]}}, {}",
            signals(encoding, "topics", "in")
        );
        let gateway = reader(&broker, sink.port(), &options);
        send_all(collector.port(), &[]);
        wait_for_all(&sink, encoding);
        for (signal, ..) in SIGNALS {
            assert_has_headers(&sink, signal, &[("site", "a")]);
            wait_until(SOON, "the receiver counts them", || {
                accepted(&gateway, signal) == ITEMS as f64
            });
        }
        assert_eq!(
            gateway.own_metric("tidegate_kafka_skipped_messages_total", &[]),
            0.0
        );
        drop(collector);
        gateway.stop();
    }
}

/// A gateway that publishes its totals in a topic, as a producer of a cluster.
fn producer(broker: &KafkaBroker, topic: &str) -> Gateway {
    Gateway::start(&format!(
        "extensions:
  cluster: {{name: test, engine: {{kafka: {{brokers: [\"{}\"], topic: {topic}}}}}}}
receivers:
  uds: {{datagram: {{path: statsd.sock}}}}
processors:
  aggregate: {{rules: [{{match: {{name: hits}}, by: []}}]}}
exporters:
  partials: {{cluster: cluster, producer: node-a, interval: 200ms}}
service:
  extensions: [health_check, cluster]
  pipelines:
    metrics: {{receivers: [uds], processors: [aggregate], exporters: [partials]}}
",
        broker.address()
    ))
}

#[test]
#[ignore = "needs a Collector: `cargo xtask interop`"]
fn the_collector_reads_the_pages_of_a_cluster() {
    const TOPIC: &str = "tidegate.pages";
    let broker = KafkaBroker::start();
    let producer = producer(&broker, TOPIC);
    let sender = UnixDatagram::unbound().expect("a socket");
    let hit = |count: u32| {
        let sent = sender.send_to(format!("hits:{count}|c").as_bytes(), producer.path("statsd.sock"));
        sent.expect("the gateway takes it");
    };
    hit(7);
    wait_until(SOON, "the topic has a page", || {
        producer.own_metric("tidegate_partials_stored_pages_total", &["exporter=\"partials\""]) > 1.0
    });
    let sink = OtlpSink::start();
    let (relay, port) = relay(sink.port());
    let receiver = format!(
        "  kafka: {{brokers: [\"{}\"], group_id: pages, initial_offset: earliest, metrics: {{topics: [{TOPIC}]}}}}",
        broker.address()
    );
    let exporter = format!("  otlphttp: {{endpoint: \"http://127.0.0.1:{port}\"}}");
    let pipeline = "metrics: {receivers: [kafka], exporters: [otlphttp]}";
    let collector = GoCollector::start(&receiver, &exporter, pipeline);
    let numbers = |sink: &OtlpSink| -> Vec<f64> {
        let points = sink.points_of("hits");
        points.iter().map(Point::number).collect()
    };
    sink.wait_until("the total arrives", |sink| numbers(sink).contains(&7.0));
    hit(5);
    sink.wait_until("the next total arrives", |sink| numbers(sink).contains(&12.0));
    assert!(numbers(&sink).iter().all(|number| [7.0, 12.0].contains(number)));
    drop(collector);
    producer.stop();
    relay.stop();
}

fn any(value: Value) -> AnyValue {
    AnyValue { value: Some(value) }
}

fn pair(key: &str, value: Value) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(any(value)),
        ..KeyValue::default()
    }
}

/// A resource for each number, with attributes of all types, not in order.
fn resource(number: u64) -> Resource {
    let list = ["a", "b"].map(|text| any(Value::StringValue(text.to_owned())));
    let nested = KeyValueList {
        values: vec![pair("y", Value::IntValue(-3)), pair("x", Value::BoolValue(false))],
    };
    let all = [
        pair("service.name", Value::StringValue(format!("service-{number}"))),
        pair("zone", Value::StringValue("ünïcode".to_owned())),
        pair("a.whole", Value::IntValue(number.cast_signed())),
        pair("half", Value::DoubleValue(0.5)),
        pair("flag", Value::BoolValue(number.is_multiple_of(2))),
        pair("bytes", Value::BytesValue(vec![0, 255, 7])),
        pair(
            "list",
            Value::ArrayValue(ArrayValue {
                values: list.to_vec(),
            }),
        ),
        pair("nested", Value::KvlistValue(nested)),
    ];
    // Some have fewer, and one has none.
    let attributes = all.into_iter().take(number as usize % 9).collect();
    Resource {
        attributes,
        ..Resource::default()
    }
}

/// A request with one item for each resource. Its number is that of the resource.
fn of_resources(signal: Signal, count: u64) -> Vec<u8> {
    match signal {
        Signal::Metrics => {
            let mut whole = ExportMetricsServiceRequest::default();
            for number in 0..count {
                let one = body(signal, number..number + 1);
                let one = ExportMetricsServiceRequest::decode(&one[..]).expect("a request");
                whole.resource_metrics.extend(one.resource_metrics);
                whole.resource_metrics[number as usize].resource = Some(resource(number));
            }
            whole.encode_to_vec()
        }
        _ => {
            let mut whole = ExportLogsServiceRequest::default();
            for number in 0..count {
                let one = body(Signal::Logs, number..number + 1);
                let one = ExportLogsServiceRequest::decode(&one[..]).expect("a request");
                whole.resource_logs.extend(one.resource_logs);
                whole.resource_logs[number as usize].resource = Some(resource(number));
            }
            whole.encode_to_vec()
        }
    }
}

/// A request with one log record for each trace. Some records have no trace.
fn of_traces(count: u64) -> Vec<u8> {
    let whole = body(Signal::Logs, 0..count);
    let mut whole = ExportLogsServiceRequest::decode(&whole[..]).expect("a request");
    let scopes = whole.resource_logs.iter_mut().flat_map(|all| &mut all.scope_logs);
    for record in scopes.flat_map(|all| &mut all.log_records) {
        let number = record.time_unix_nano;
        if !number.is_multiple_of(10) {
            record.trace_id = trace_id(number);
        }
    }
    whole.encode_to_vec()
}

/// Key and partition of each item. The gateway sends equal resources of a batch in one message, and the Collector does not.
/// Without a key, each client spreads messages as it likes.
type Items = BTreeMap<u64, Option<(Vec<u8>, i32)>>;

fn items(signal: Signal, encoding: &str, records: &[ConsumerRecord]) -> Items {
    let items = records.iter().flat_map(|record| {
        let value = record.value.clone().expect("a value");
        let value = match encoding {
            "otlp_json" => to_protobuf(signal, &value).expect("OTLP in JSON"),
            _ => value,
        };
        let key = record.key.as_ref();
        let found = key.map(|key| (key.to_vec(), record.partition));
        let numbers = numbers(signal, &value).into_iter();
        numbers.map(move |number| (number, found.clone()))
    });
    items.collect()
}

#[test]
#[ignore = "needs a Collector: `cargo xtask interop`"]
fn keys_and_partitions_are_those_of_the_collector() {
    assert_same_partitions("sarama_compat", "partition_logs_by_resource_attributes", || {
        of_resources(Signal::Logs, 60)
    });
}

#[test]
#[ignore = "needs a Collector: `cargo xtask interop`"]
fn partitions_by_murmur2_and_keys_of_logs_are_those_of_the_collector() {
    assert_same_partitions("murmur2", "partition_logs_by_trace_id", || of_traces(60));
}

/// Compares the gateway with the Collector. `of_logs` is the option for logs, and `logs` gives a request of them.
fn assert_same_partitions(hasher: &str, of_logs: &str, logs: fn() -> Vec<u8>) {
    let broker = KafkaBroker::start();
    for encoding in ENCODINGS {
        let options = |prefix: &str| {
            format!(
                "partition_traces_by_id: true, partition_metrics_by_resource_attributes: true, {of_logs}: true, \
                 record_partitioner: {{sticky_key: {{hasher: {hasher}}}}}, {}",
                signals(encoding, "topic", prefix)
            )
        };
        for prefix in ["theirs", "ours"] {
            topics(&broker, prefix, encoding);
        }
        let collector = collector_writer(&broker, &options("theirs"));
        let (gateway, port) = writer(&broker, &options("ours"));
        for (signal, kind) in [
            (Signal::Metrics, "metrics"),
            (Signal::Traces, "traces"),
            (Signal::Logs, "logs"),
        ] {
            let request = match signal {
                Signal::Metrics => of_resources(signal, 60),
                Signal::Traces => body(signal, 0..60),
                Signal::Logs => logs(),
            };
            send(collector.port(), signal, &request);
            send(port, signal, &request);
            let [theirs, ours] = ["theirs", "ours"].map(|prefix| {
                let topic = format!("{prefix}-{encoding}-{kind}");
                let records = topic::read(&broker, &topic, |records| {
                    items(signal, encoding, records).len() >= 60
                });
                items(signal, encoding, &records)
            });
            let keys: BTreeSet<_> = theirs.values().flatten().map(|(key, _)| key).collect();
            assert!(keys.len() > 50, "{encoding}, {kind}: {} keys", keys.len());
            assert_eq!(ours, theirs, "{encoding}, {kind}");
        }
        drop(collector);
        gateway.stop();
    }
}
