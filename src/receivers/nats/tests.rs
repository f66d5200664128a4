// SPDX-License-Identifier: Apache-2.0

//! Options, and messages on their way to a sink. `tests/it/nats_transport/` uses a real server.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::logs::v1::ExportLogsServiceRequest;
use prost::Message;
use tidegate_nats::transport::{DeliverFrom, MessageKey, NatsMessageIn};

use super::*;
use crate::component::testing::{Sink, names_mistakes, options, problems};
use crate::net::{Coding, compress};
use crate::receivers::messages::testing::logs;
use crate::receivers::messages::{Taken, Why};

fn config(yaml: &str) -> NatsReceiverConfig {
    options(yaml).unwrap()
}

#[test]
fn each_signal_has_a_consumer_of_its_own() {
    assert_eq!(problems::<NatsReceiverConfig>("{}"), "");
    let config =
        config("{stream: otlp, logs: {subjects: [\"a.>\"], stream: b, durable: d}, deliver_policy: new}");
    let consumer = config.consumer(Signal::Metrics);
    assert_eq!(consumer.name, "tidegate-metrics");
    assert_eq!(consumer.subjects, ["otlp.metrics"]);
    assert_eq!(consumer.stream.as_deref(), Some("otlp"));
    assert_eq!(consumer.deliver, DeliverFrom::New);
    assert_eq!(
        (consumer.ack_wait, consumer.max_ack_pending),
        (Duration::from_secs(30), 1000)
    );
    let consumer = config.consumer(Signal::Logs);
    assert_eq!(consumer.name, "d");
    assert_eq!(consumer.subjects, ["a.>"]);
    assert_eq!(consumer.stream.as_deref(), Some("b"));
}

#[test]
fn mistakes_are_named() {
    names_mistakes::<NatsReceiverConfig>(&[
        ("{servers: [\"http://a\"]}", "is not a URL"),
        ("{logs: {subjects: [\"a b\"]}}", "is not a subject such as"),
        (
            "{metrics: {subjects: [a]}, logs: {subjects: [b, a]}}",
            "more than one signal",
        ),
        (
            "{metrics: {durable: a}, logs: {durable: a}}",
            "the same `durable`",
        ),
        ("{durable: a.b}", "has a space or one of"),
        ("{stream: \"\"}", "is empty, or has"),
        ("{ack_wait: 10ms}", "at least 1s"),
        ("{max_ack_pending: 0}", "0"),
        ("{max_fetch_size: 1KiB}", "between 64KiB and 512MiB"),
        ("{max_decompressed_size: 1GiB}", "between 64KiB and 512MiB"),
        (
            "{header_extraction: {extract_headers: true}}",
            "at least one header",
        ),
        ("{deliver_policy: newest}", "last"),
    ]);
}

fn message(payload: Vec<u8>, coding: Option<&str>) -> NatsMessageIn {
    NatsMessageIn {
        key: MessageKey {
            sequence: 7,
            published: 8,
        },
        subject: "otlp.logs".to_owned(),
        reply: "reply".into(),
        payload: Bytes::from(payload),
        content_encoding: coding.map(str::to_owned),
        headers: vec![("tenant".to_owned(), "a".to_owned())],
        bytes: 100,
    }
}

/// The way of log records to a sink.
fn context(sink: &Arc<Sink>, yaml: &str) -> SignalContext {
    let (_, links) = watch::channel(None);
    let cx = sink.receiver_context("nats");
    SignalContext::new(&config(yaml), &cx, sink.entry(Signal::Logs), links)
}

#[tokio::test]
async fn messages_pass_as_they_are_and_compressed() {
    let sink = Sink::new();
    let context = context(&sink, "{}");
    assert_eq!(context.take(&message(logs(3), None)).await, Taken::Yes);
    for coding in [Coding::Zstd, Coding::Gzip] {
        let packed = compress(coding, &logs(3)).unwrap();
        let taken = context.take(&message(packed, coding.header())).await;
        assert_eq!(taken, Taken::Yes);
    }
    for batch in sink.batches() {
        assert_eq!(batch.payload.encode().joined(), logs(3));
    }
    assert_eq!(sink.items(), 9);
}

#[tokio::test]
async fn messages_that_nobody_can_decode_have_a_reason() {
    let sink = Sink::new();
    let context = context(&sink, "{max_decompressed_size: 64KiB}");
    let bomb = compress(Coding::Zstd, &vec![0; 16 << 20]).unwrap();
    for (payload, coding, why) in [
        (b"\xff\xff".to_vec(), None, Why::Invalid),
        (Vec::new(), None, Why::Empty),
        (logs(1), Some("zstd"), Why::Invalid),
        (logs(1), Some("rot13"), Why::Invalid),
        (bomb, Some("zstd"), Why::TooLarge),
    ] {
        let taken = context.take(&message(payload, coding)).await;
        assert!(matches!(&taken, Taken::Never(is, _) if *is == why), "{taken:?}");
    }
    assert_eq!(sink.items(), 0);
}

#[tokio::test]
async fn wanted_headers_become_attributes_of_all_resources() {
    let sink = Sink::new();
    let context = context(
        &sink,
        "{header_extraction: {extract_headers: true, headers: [tenant, other]}}",
    );
    assert_eq!(context.take(&message(logs(1), None)).await, Taken::Yes);
    let bytes = sink.batches()[0].payload.encode().joined();
    let request = ExportLogsServiceRequest::decode(bytes).unwrap();
    let attributes = request.resource_logs[0].resource.clone().unwrap().attributes;
    assert_eq!(attributes.len(), 1);
    assert_eq!(attributes[0].key, "nats.header.tenant");
}

#[tokio::test]
async fn a_receiver_without_servers_starts_and_stops_in_time() {
    let sink = Sink::new();
    let config = Arc::new(config("{servers: [\"nats://127.0.0.1:1\"]}"));
    let receiver = NatsReceiver::new(config, &sink.receiver_context("nats"));
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
