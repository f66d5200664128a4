// SPDX-License-Identifier: Apache-2.0

//! Options, and messages on their way to a sink. `tests/it/kafka_transport/` uses a real broker.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message;
use tidegate_kafka::transport::{IncomingMessage, PartitionKey};

use super::*;
use crate::batch::{Batch, TelemetryEncoding, json};
use crate::component::testing::{Sink, names_mistakes, options, problems};
use crate::component::{Consumer, Entry, EntryCounts, Flow, Limit, Refused};
use crate::receivers::messages::testing::logs;
use crate::receivers::messages::{Taken, Why};

fn config(yaml: &str) -> KafkaReceiverConfig {
    options(yaml).unwrap()
}

#[test]
fn the_defaults_are_those_of_the_collector() {
    let config = config("{}");
    assert_eq!(config.group_id, "otel-collector");
    assert_eq!(config.client_id, "otel-collector");
    let topics = Signal::ALL.map(|signal| config.topics(signal).join(","));
    assert_eq!(topics, ["otlp_metrics", "otlp_spans", "otlp_logs"]);
    assert_eq!(config.session_timeout, Duration::from_secs(10));
    assert_eq!(config.heartbeat_interval, Duration::from_secs(3));
    assert!(!config.group(Vec::new()).from_beginning);
    assert!(config.autocommit.enable && !config.message_marking.after);
}

#[test]
fn a_default_that_loses_data_is_warned_about_with_its_cure() {
    let default = problems::<KafkaReceiverConfig>("{}");
    assert!(default.contains("a crash loses them"), "{default}");
    assert!(default.contains("message_marking: {after: true}"), "{default}");
    assert_eq!(
        problems::<KafkaReceiverConfig>("{message_marking: {after: true}}"),
        ""
    );
}

#[test]
fn old_topics_are_read_and_the_options_of_a_signal_win() {
    let config = config(
        "{topic: all, encoding: otlp_json, logs: {topics: [a, b], encoding: otlp_proto}, traces: {topic: t}}",
    );
    assert_eq!(config.topics(Signal::Logs), ["a", "b"]);
    assert_eq!(config.topics(Signal::Traces), ["t"]);
    assert_eq!(config.topics(Signal::Metrics), ["all"]);
    assert_eq!(config.encoding(Signal::Logs), TelemetryEncoding::OtlpProto);
    assert_eq!(config.encoding(Signal::Metrics), TelemetryEncoding::OtlpJson);
}

#[test]
fn mistakes_are_named() {
    names_mistakes::<KafkaReceiverConfig>(&[
        ("{brokers: [kafka]}", "is not a host and a port"),
        ("{logs: {topics: [\"^a\"]}}", "logs: `topic`: `^a`"),
        ("{logs: {topics: [a], topic: b}}", "either `topics` or `topic`"),
        ("{heartbeat_interval: 10s}", "less than `session_timeout`"),
        ("{max_batch_size: 1KiB}", "between 64KiB and 512MiB"),
        ("{group_id: \"\"}", "must not be empty"),
        ("{group_rebalance_strategies: [sticky]}", "cooperative-sticky"),
        (
            "{header_extraction: {extract_headers: true}}",
            "at least one header",
        ),
        ("{initial_offset: newest}", "latest"),
    ]);
}

#[test]
fn a_topic_of_two_signals_is_an_error() {
    let config = config("{topic: all}");
    let error = MessageDecoder::new(&config, &Sink::new().receiver_context("kafka"))
        .err()
        .unwrap();
    assert!(error.contains("more than one signal"), "{error}");
}

fn message(topic: &str, value: Option<Vec<u8>>) -> IncomingMessage {
    IncomingMessage {
        place: PartitionKey {
            topic: topic.into(),
            partition: 0,
        },
        offset: 7,
        epoch: None,
        value: value.map(Bytes::from),
        headers: vec![("tenant".to_owned(), Some(Bytes::from_static(b"a")))],
        bytes: 100,
    }
}

fn decoder(sink: &Arc<Sink>, yaml: &str) -> MessageDecoder {
    MessageDecoder::new(&config(yaml), &sink.receiver_context("kafka")).unwrap()
}

#[tokio::test]
async fn protobuf_passes_as_it_is_and_json_is_converted() {
    let sink = Sink::new();
    let decoder = decoder(&sink, "{metrics: {encoding: otlp_json}}");
    let taken = decoder.take(&message("otlp_logs", Some(logs(3)))).await;
    assert_eq!(taken, Taken::Yes);
    assert_eq!(sink.batches()[0].payload.encode().joined(), logs(3));
    let text = br#"{"resourceMetrics":[{"scopeMetrics":[{"metrics":[{"name":"n","gauge":{"dataPoints":[{"asInt":"4"}]}}]}]}]}"#;
    let taken = decoder.take(&message("otlp_metrics", Some(text.to_vec()))).await;
    assert_eq!(taken, Taken::Yes);
    let points = sink.batches()[1].payload.encode().joined();
    assert_eq!(points, json::to_protobuf(Signal::Metrics, text).unwrap());
}

#[tokio::test]
async fn a_batch_does_not_stay_in_memory_with_its_message() {
    let sink = Sink::new();
    let decoder = decoder(&sink, "{}");
    let mut batch = vec![0; 1 << 20];
    batch.extend(logs(3));
    let mut message = message("otlp_logs", None);
    let batch = Bytes::from(batch);
    message.value = Some(batch.slice(1 << 20..));
    assert_eq!(decoder.take(&message).await, Taken::Yes);
    drop(message);
    assert_eq!(sink.items(), 3);
    assert!(batch.is_unique());
}

#[tokio::test]
async fn a_message_that_nobody_can_decode_is_skipped_with_its_reason() {
    let sink = Sink::new();
    let decoder = decoder(&sink, "{metrics: {encoding: otlp_json}}");
    for (topic, value, why) in [
        ("otlp_logs", Some(b"\xff\xff".to_vec()), Why::Invalid),
        ("otlp_metrics", Some(b"{".to_vec()), Why::Invalid),
        ("otlp_logs", None, Why::Empty),
        ("otlp_logs", Some(Vec::new()), Why::Empty),
        ("unknown", Some(logs(1)), Why::Invalid),
    ] {
        let taken = decoder.take(&message(topic, value)).await;
        assert!(matches!(&taken, Taken::Never(is, _) if *is == why), "{taken:?}");
    }
    assert_eq!(sink.items(), 0);
}

#[tokio::test]
async fn a_message_waits_while_the_pipelines_or_the_memory_refuse() {
    let sink = Sink::new();
    let cx = sink.receiver_context("kafka");
    let memory = cx.base.shared.memory.clone();
    let decoder = MessageDecoder::new(&config("{}"), &cx).unwrap();
    sink.refuse(1);
    let message = message("otlp_logs", Some(logs(2)));
    assert!(matches!(decoder.take(&message).await, Taken::Later(..)));
    assert_eq!(decoder.take(&message).await, Taken::Yes);
    memory.add_limit(Limit::of(1 << 20));
    memory.note(1 << 20);
    assert!(matches!(decoder.take(&message).await, Taken::Later(..)));
    memory.note(0);
    assert_eq!(decoder.take(&message).await, Taken::Yes);
    assert_eq!(sink.items(), 4);
}

/// A consumer with a bug.
struct Panicking;

impl Consumer for Panicking {
    fn admit(&self, _: &Batch, _: &mut Flow) -> Result<(), Refused> {
        panic!("expected")
    }

    fn consume(&self, _: Batch, _: &mut Flow) {}
}

#[tokio::test]
async fn a_panic_ends_only_its_message() {
    let mut cx = Sink::new().receiver_context("kafka");
    cx.entries = Signal::ALL.map(|signal| {
        Some(Entry::new(
            signal,
            Arc::new(Panicking),
            Arc::<EntryCounts>::default(),
        ))
    });
    let decoder = MessageDecoder::new(&config("{}"), &cx).unwrap();
    for _ in 0..2 {
        let taken = decoder.take(&message("otlp_logs", Some(logs(1)))).await;
        assert!(matches!(taken, Taken::Never(Why::Invalid, _)), "{taken:?}");
    }
}

#[tokio::test]
async fn wanted_headers_become_attributes_of_all_resources() {
    let sink = Sink::new();
    let decoder = decoder(
        &sink,
        "{header_extraction: {extract_headers: true, headers: [tenant, other]}}",
    );
    assert_eq!(
        decoder.take(&message("otlp_logs", Some(logs(1)))).await,
        Taken::Yes
    );
    let bytes = sink.batches()[0].payload.encode().joined();
    let request = ExportLogsServiceRequest::decode(bytes).unwrap();
    let attributes = request.resource_logs[0].resource.clone().unwrap().attributes;
    assert_eq!(attributes.len(), 1);
    assert_eq!(attributes[0].key, "kafka.header.tenant");
    assert!(format!("{:?}", attributes[0].value).contains("\"a\""));
}

#[tokio::test]
async fn a_header_that_many_resources_multiply_needs_memory() {
    let sink = Sink::new();
    let cx = sink.receiver_context("kafka");
    cx.base.shared.memory.add_limit(Limit::of(64 << 20));
    let yaml = "{header_extraction: {extract_headers: true, headers: [tenant]}}";
    let decoder = MessageDecoder::new(&config(yaml), &cx).unwrap();
    // Equal fields, one after another, are the resources of one request.
    let mut message = message("otlp_logs", Some(logs(1).repeat(1_000)));
    message.headers = vec![("tenant".to_owned(), Some(vec![b'a'; 256 << 10].into()))];
    let taken = decoder.take(&message).await;
    assert!(matches!(taken, Taken::Never(Why::Memory, _)), "{taken:?}");
    message.headers.clear();
    assert_eq!(decoder.take(&message).await, Taken::Yes);
    assert_eq!(sink.items(), 1_000);
}

#[tokio::test]
async fn a_receiver_without_brokers_starts_and_stops_in_time() {
    let sink = Sink::new();
    let config = Arc::new(config(
        "{brokers: [\"127.0.0.1:1\"], message_marking: {after: true}}",
    ));
    let receiver = KafkaReceiver::new(config, &sink.receiver_context("kafka")).unwrap();
    receiver.start().await.unwrap();
    tokio::time::sleep(Duration::from_millis(50)).await;
    let started = Instant::now();
    receiver.stop(started + Duration::from_secs(60)).await;
    assert!(
        started.elapsed() < Duration::from_secs(20),
        "{:?}",
        started.elapsed()
    );
}
