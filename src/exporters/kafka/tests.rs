// SPDX-License-Identifier: Apache-2.0

//! Options, and messages that are too large. `tests/it/kafka_transport.rs` uses a real broker.

use std::time::Duration;

use tidegate_kafka::transport::RequiredAcks;

use super::*;
use crate::batch::json;
use crate::component::testing::{problems, settings};
use crate::exporters::testing::{Bench, names_mistakes, points, values};

fn config(options: &str) -> KafkaExporterConfig {
    (*settings::<KafkaExporterConfig>(options).get::<KafkaExporterConfig>()).clone()
}

#[test]
fn the_defaults_are_those_of_the_collector() {
    let config = config("{}");
    assert_eq!(config.brokers, ["localhost:9092"]);
    assert_eq!(config.client_id, "otel-collector");
    let topics = Signal::ALL.map(|signal| config.topic(signal).to_owned());
    assert_eq!(topics, ["otlp_metrics", "otlp_spans", "otlp_logs"]);
    assert_eq!(config.encoding(Signal::Logs), TelemetryEncoding::OtlpProto);
    assert_eq!(config.producer.required_acks.0, RequiredAcks::Leader);
    assert_eq!(config.producer_options().max_batch_bytes, 1_000_000);
    assert_eq!(config.timeout, Duration::from_secs(5));
    assert_eq!(problems::<KafkaExporterConfig>("{}"), "");
}

#[test]
fn the_options_of_a_signal_win_over_the_old_ones() {
    let options = "{topic: all, encoding: otlp_json, traces: {topic: spans, encoding: otlp_proto}}";
    let config = config(options);
    assert_eq!(config.topic(Signal::Traces), "spans");
    assert_eq!(config.encoding(Signal::Traces), TelemetryEncoding::OtlpProto);
    assert_eq!(config.topic(Signal::Logs), "all");
    assert_eq!(config.encoding(Signal::Logs), TelemetryEncoding::OtlpJson);
    assert!(
        problems::<KafkaExporterConfig>(options).contains("deprecated"),
        "{}",
        problems::<KafkaExporterConfig>(options)
    );
}

#[test]
fn mistakes_are_named() {
    names_mistakes(
        &FACTORY,
        &[
            ("{brokers: []}", "at least one broker"),
            ("{logs: {topic: \"a b\"}}", "logs: `topic`: `a b`"),
            ("{logs: {encoding: raw}}", "otlp_proto"),
            ("{producer: {compression: brotli}}", "zstd"),
            (
                "{producer: {compression: snappy, compression_params: {level: 3}}}",
                "no level 3",
            ),
            ("{producer: {required_acks: 2}}", "not one of 0, 1, -1 and all"),
            ("{producer: {max_message_bytes: 10}}", "between 1KiB and 512MiB"),
            ("{topic_from_attribute: x}", "use an exporter for each topic"),
            (
                "{metrics: {topic_from_metadata_key: x}}",
                "use an exporter for each topic",
            ),
            ("{record_partitioner: {least_backup: {}}}", "round_robin"),
            ("{auth: {kerberos: {}}}", "`sasl`"),
            (
                "{auth: {sasl: {mechanism: PLAIN, username: u}}}",
                "needs `username` and `password`",
            ),
            (
                "{partition_logs_by_trace_id: true, partition_logs_by_resource_attributes: true}",
                "can't be combined",
            ),
            ("{record_headers: [{name: site}]}", "`value` must be specified"),
            ("{timeout: 0s}", "greater than zero"),
            ("{only_leader: cluster}", "not a cluster extension"),
        ],
    );
}

#[test]
fn settings_that_risk_data_or_secrets_are_warned_about() {
    let acks = problems::<KafkaExporterConfig>("{producer: {required_acks: 0}}");
    assert!(acks.contains("lose it silently"), "{acks}");
    let plain = problems::<KafkaExporterConfig>("{auth: {plain_text: {username: u, password: hunter2}}}");
    assert!(
        plain.contains("shows the secret") && !plain.contains("hunter2"),
        "{plain}"
    );
    let insecure = problems::<KafkaExporterConfig>(
        "{tls: {insecure: true}, auth: {plain_text: {username: u, password: p}}}",
    );
    assert!(insecure.contains("shows the secret"), "{insecure}");
    assert_eq!(
        problems::<KafkaExporterConfig>("{tls: {}, auth: {plain_text: {username: u, password: p}}}"),
        ""
    );
    let all = config("{producer: {required_acks: -1}}");
    assert_eq!(all.producer.required_acks.0, RequiredAcks::All);
}

/// The messages that a writer makes of a batch, and the progress that says what was lost.
async fn exported(options: &str, items: i64) -> (Vec<OutgoingMessage>, Outcome) {
    let writer = KafkaWriter::new(&config(options), Arc::default());
    let export = ExportRequest::new(points(items));
    let progress = writer.progress(&export).await.unwrap();
    let headers = writer.headers(&export);
    let mut messages = Vec::new();
    while let Some((number, piece)) = progress.next() {
        match writer.make(Signal::Metrics, piece, &headers).await {
            Made::Message(message) => {
                messages.push(message);
                progress.taken(number);
            }
            Made::TooLarge(_) => progress.halve(number, usize::MAX, Reason::Limit, String::new()),
            Made::Broken(why) => panic!("{why}"),
        }
    }
    (messages, progress.outcome(None))
}

#[tokio::test]
async fn a_batch_is_one_message_with_the_bytes_that_came_in() {
    let batch = points(3);
    let (messages, _) = exported("{}", 3).await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].value, batch.payload.encode().joined());
    assert_eq!((&*messages[0].topic, &messages[0].key), ("otlp_metrics", &None));
}

#[tokio::test]
async fn headers_of_messages_are_a_map_or_a_list_that_repeats_a_name() {
    let list = "[{name: site, value: a}, {name: site, value: b}, {name: zone, value: 1}]";
    for (headers, expected) in [
        ("{site: a}", &[("site", "a")][..]),
        (list, &[("site", "a"), ("site", "b"), ("zone", "1")][..]),
    ] {
        let (messages, _) = exported(&format!("{{record_headers: {headers}}}"), 1).await;
        let sent = messages[0].headers.iter();
        let sent: Vec<_> = sent.map(|(name, value)| (name.as_str(), &value[..])).collect();
        let expected = expected.iter().map(|(name, value)| (*name, value.as_bytes()));
        assert_eq!(sent, expected.collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn a_large_batch_becomes_messages_below_the_limit() {
    for encoding in ["otlp_proto", "otlp_json"] {
        let options = format!("{{metrics: {{encoding: {encoding}}}, producer: {{max_message_bytes: 1KiB}}}}");
        let (messages, outcome) = exported(&options, 200).await;
        assert!(messages.len() > 2);
        assert!(
            messages
                .iter()
                .all(|message| message.value.len() + FRAME_BYTES <= 1024)
        );
        assert!(outcome.error().is_none(), "{outcome:?}");
        let numbers = messages.iter().flat_map(|message| match encoding {
            "otlp_json" => values(&json::to_protobuf(Signal::Metrics, &message.value).unwrap()),
            _ => values(&message.value),
        });
        assert_eq!(numbers.collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
    }
}

#[tokio::test]
async fn data_waits_for_brokers_that_are_not_there() {
    let options = "brokers: [\"127.0.0.1:1\"], timeout: 500ms";
    let bench = Bench::start(&FACTORY, options).await;
    bench.push(points(2));
    tokio::time::sleep(Duration::from_millis(100)).await;
    let balance = bench.ledgers[0].balance();
    assert_eq!((balance.left, balance.dropped.iter().sum::<u64>()), (0, 0));
    bench
        .exporter
        .stop(Instant::now() + Duration::from_millis(300))
        .await;
    let balance = bench.ledgers[0].balance();
    assert_eq!(balance.dropped[Reason::Shutdown as usize], 2);
}
