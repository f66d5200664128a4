// SPDX-License-Identifier: Apache-2.0

//! The `kafka` exporter: what stands in the topics, read by another client.

use bytes::Bytes;
use krafka::consumer::ConsumerRecord;
use std::collections::BTreeMap;
use tidegate::batch::Signal;
use tidegate::batch::json::to_protobuf;

use super::topic;
use crate::kit::kafka_broker::{KafkaBroker, PARTITIONS};
use crate::kit::numbered::{SIGNALS, body, numbers, send, send_items, send_with, sent_items, trace_id};
use crate::kit::{Gateway, SOON, free_port, wait_until};

/// The exporter repeats a message only if its acknowledgement takes longer, which it does not even on a busy machine.
pub(super) const NO_REPEAT: &str = "timeout: 1m";

/// A gateway from OTLP to Kafka, and the port of its receiver, which keeps the headers `x-tenant` and `x-user`.
pub(super) fn writer(broker: &KafkaBroker, options: &str) -> (Gateway, u16) {
    writer_to(&broker.address(), options)
}

/// The same, to this address of a broker.
pub(super) fn writer_to(address: &str, options: &str) -> (Gateway, u16) {
    let receiver = free_port();
    let pipeline = |signal| format!("{signal}: {{receivers: [otlp], exporters: [kafka]}}");
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\", include_metadata: [x-tenant, x-user]}}}}}}
exporters:
  kafka: {{brokers: [\"{address}\"], retry_on_failure: {{initial_interval: 50ms, max_interval: 200ms}}, {options}}}
service: {{pipelines: {{{}}}}}
",
        ["metrics", "traces", "logs"].map(pipeline).join(", ")
    ));
    (gateway, receiver)
}

/// The numbers in messages, sorted.
fn numbers_of(signal: Signal, records: &[ConsumerRecord]) -> Vec<u64> {
    let value = |record: &ConsumerRecord| record.value.clone().expect("a value");
    let mut all: Vec<u64> = records
        .iter()
        .flat_map(|record| numbers(signal, &value(record)))
        .collect();
    all.sort_unstable();
    all
}

pub(super) fn sent(gateway: &Gateway, signal: Signal) -> f64 {
    sent_items(gateway, "kafka", signal)
}

#[test]
fn each_request_is_a_message_in_the_topic_of_its_signal() {
    let broker = KafkaBroker::start();
    let (gateway, port) = writer(&broker, NO_REPEAT);
    for (signal, _, name) in SIGNALS {
        let whole = body(signal, 0..100);
        send(port, signal, &whole);
        let records = topic::read(&broker, name, |records| !records.is_empty());
        assert_eq!(records.len(), 1);
        assert_eq!(records[0].value.as_deref(), Some(&whole[..]), "the bytes stay");
        assert_eq!(records[0].key, None);
        wait_until(SOON, "its own metric counts them", || {
            sent(&gateway, signal) == 100.0
        });
    }
    gateway.stop();

    let options = "encoding: otlp_json, topic: json, producer: {compression: zstd, required_acks: all}";
    let (gateway, port) = writer(&broker, options);
    send_items(port, Signal::Logs, 0..3);
    let records = topic::read(&broker, "json", |records| !records.is_empty());
    let value = records[0].value.clone().expect("a value");
    let read = to_protobuf(Signal::Logs, &value).expect("OTLP in JSON");
    assert_eq!(numbers(Signal::Logs, &read), [0, 1, 2]);
    gateway.stop();
}

#[test]
fn messages_have_fixed_headers_and_chosen_ones_of_their_sender() {
    let broker = KafkaBroker::start();
    let options = "include_metadata_keys: [x-tenant, x-absent], record_headers: {site: a, rack: b}";
    let (gateway, port) = writer(&broker, &format!("{options}, {NO_REPEAT}"));
    let header =
        |name: &str, value: &'static str| (name.to_owned(), Some(Bytes::from_static(value.as_bytes())));
    let fixed = [header("site", "a"), header("rack", "b")];
    let of_sender = [header("x-tenant", "red"), header("x-tenant", "blue")];
    let expected = BTreeMap::from([(0, [&fixed[..], &of_sender[..]].concat()), (1, fixed.to_vec())]);
    for (signal, _, name) in SIGNALS {
        let headers = [("x-tenant", "red"), ("x-user", "ada"), ("x-tenant", "blue")];
        send_with(port, signal, &headers, &body(signal, 0..1));
        send_items(port, signal, 1..2);
        let records = topic::read(&broker, name, |records| records.len() >= 2);
        let found: BTreeMap<_, _> = records
            .iter()
            .map(|record| {
                let value = record.value.as_deref().expect("a value");
                (numbers(signal, value)[0], record.headers.clone())
            })
            .collect();
        assert_eq!(found, expected, "{name}");
    }
    gateway.stop();
}

#[test]
fn a_trace_goes_to_the_partition_of_its_id_as_in_the_collector() {
    let broker = KafkaBroker::start();
    topic::create(&broker, "otlp_spans", &[]);
    let (gateway, port) = writer(&broker, &format!("partition_traces_by_id: true, {NO_REPEAT}"));
    send_items(port, Signal::Traces, 0..40);
    let records = topic::read(&broker, "otlp_spans", |records| records.len() >= 40);
    assert_eq!(numbers_of(Signal::Traces, &records), (0..40).collect::<Vec<_>>());
    for record in &records {
        let value = record.value.clone().expect("a value");
        let trace = trace_id(numbers(Signal::Traces, &value)[0]);
        let key: String = trace.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(record.key_str(), Some(&*key));
        // FNV-1a, as a signed number.
        let hash = key.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
            (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
        });
        assert_eq!(record.partition, (hash.cast_signed() % PARTITIONS).abs());
    }
    gateway.stop();
}

#[test]
fn a_topic_with_a_lower_limit_gets_smaller_messages_without_duplicates() {
    let broker = KafkaBroker::start();
    topic::create(&broker, "otlp_logs", &[("max.message.bytes", "2000")]);
    let (gateway, port) = writer(
        &broker,
        &format!("producer: {{max_message_bytes: 8KiB}}, {NO_REPEAT}"),
    );
    send_items(port, Signal::Logs, 0..3_000);
    wait_until(SOON, "all records are sent", || {
        sent(&gateway, Signal::Logs) == 3_000.0
    });
    let records = topic::read(&broker, "otlp_logs", |records| {
        numbers_of(Signal::Logs, records).len() >= 3_000
    });
    assert_eq!(numbers_of(Signal::Logs, &records), (0..3_000).collect::<Vec<_>>());
    gateway.stop();
}

#[test]
fn small_messages_that_share_a_batch_beyond_the_limit_arrive() {
    const SPANS: u64 = 800;
    let broker = KafkaBroker::start();
    topic::create(&broker, "otlp_spans", &[("max.message.bytes", "2000")]);
    // Each trace is a message. The producer joins those of a partition to batches of about 16 KiB.
    let (gateway, port) = writer(&broker, &format!("partition_traces_by_id: true, {NO_REPEAT}"));
    send_items(port, Signal::Traces, 0..SPANS);
    wait_until(SOON, "all spans are sent", || {
        sent(&gateway, Signal::Traces) == SPANS as f64
    });
    let failed = gateway.own_metric("otelcol_exporter_send_failed_spans", &[]);
    assert_eq!(failed, 0.0);
    let records = topic::read(&broker, "otlp_spans", |records| {
        numbers_of(Signal::Traces, records).len() as u64 >= SPANS
    });
    assert_eq!(
        numbers_of(Signal::Traces, &records),
        (0..SPANS).collect::<Vec<_>>()
    );
    gateway.stop();
}

#[test]
fn nothing_is_lost_when_the_broker_is_killed_while_data_is_sent() {
    let mut broker = KafkaBroker::start();
    let (gateway, port) = writer(&broker, "producer: {required_acks: all}");
    for batch in 0..300_u64 {
        if batch == 100 {
            broker.kill();
        }
        if batch == 200 {
            broker.restart();
        }
        send_items(port, Signal::Logs, batch * 10..batch * 10 + 10);
    }
    wait_until(SOON, "all records are sent", || {
        sent(&gateway, Signal::Logs) == 3_000.0
    });
    let failed = gateway.own_metric("otelcol_exporter_send_failed_log_records", &[]);
    assert_eq!(failed, 0.0);
    let records = topic::read(&broker, "otlp_logs", |records| {
        let mut all = numbers_of(Signal::Logs, records);
        all.dedup();
        all.len() >= 3_000
    });
    let mut all = numbers_of(Signal::Logs, &records);
    all.dedup();
    assert_eq!(all, (0..3_000).collect::<Vec<_>>());
    gateway.stop();
}
