// SPDX-License-Identifier: Apache-2.0

//! Options, and messages that are too large. `tests/it/nats_transport/` uses a real server.

use super::*;
use crate::batch::json;
use crate::component::Reason;
use crate::component::testing::settings;
use crate::exporters::testing::{Bench, names_mistakes, points, values};
use crate::net::decompress;

fn config(options: &str) -> NatsExporterConfig {
    (*settings::<NatsExporterConfig>(options).get::<NatsExporterConfig>()).clone()
}

#[test]
fn signals_have_subjects_and_encodings_of_their_own() {
    let config = config("{logs: {subject: a.b, encoding: otlp_json}}");
    let subjects = Signal::ALL.map(|signal| config.subject(signal).to_owned());
    assert_eq!(subjects, ["otlp.metrics", "otlp.traces", "a.b"]);
    assert_eq!(config.encoding(Signal::Logs), TelemetryEncoding::OtlpJson);
    assert_eq!(config.encoding(Signal::Metrics), TelemetryEncoding::OtlpProto);
    assert_eq!(
        (config.max_in_flight.get(), config.timeout),
        (256, Duration::from_secs(5))
    );
}

#[test]
fn mistakes_are_named() {
    names_mistakes(
        &FACTORY,
        &[
            ("{servers: []}", "at least one server"),
            ("{servers: [\"nats://u:p@a\"]}", "`username` and `password`"),
            ("{auth: {username: u}}", "must be set together"),
            ("{auth: {token: t, nkey: n}}", "only one of"),
            ("{tls: {cert_file: c}}", "`cert_file` and `key_file`"),
            (
                "{logs: {subject: \"a b\"}}",
                "is not a subject such as `otlp.logs`",
            ),
            ("{logs: {subject: \"otlp.*\"}}", "is not a subject"),
            ("{logs: {encoding: raw}}", "otlp_proto"),
            ("{compression: snappy}", "zstd"),
            ("{max_message_size: 10}", "between 1KiB and 64MiB"),
            (
                "{headers: {Nats-Msg-Id: x}}",
                "set by the exporter or by the server",
            ),
            ("{headers: {\"a b\": x}}", "NATS allows no such header"),
            (
                "{headers: [{name: a, value: x}, {name: Nats-Msg-Id, value: x}]}",
                "headers[1]: `Nats-Msg-Id` is set by the exporter or by the server",
            ),
            ("{jetstream: false}", "no server confirms a message"),
            ("{subject: otlp}", "set it in `metrics`, `traces` and `logs`"),
            ("{stream: {name: a.b}}", "has a space or one of"),
            ("{stream: {replicas: 9}}", "between 1 and 5"),
            ("{stream: {max_age: 1m}}", "must be at most `max_age`"),
            ("{timeout: 0s}", "greater than zero"),
            ("{only_leader: cluster}", "not a cluster extension"),
        ],
    );
}

/// The messages that a writer makes of a batch, and the outcome.
async fn exported(options: &str, items: i64, most: usize) -> (Vec<NatsMessageOut>, Outcome) {
    let writer = NatsWriter::new(&config(options), "nats".into(), Arc::default());
    let export = ExportRequest::new(points(items));
    let progress = writer.progress(&export).await.unwrap();
    let headers = writer.headers(&export);
    let mut messages = Vec::new();
    while let Some((number, part)) = progress.next() {
        match writer.prepare(Signal::Metrics, part, &headers, most).await {
            PreparedMessage::Ready(message) => {
                messages.push(message);
                progress.taken(number);
            }
            PreparedMessage::TooLarge(_) => progress.halve(number, most, Reason::Limit, "large".to_owned()),
            PreparedMessage::Broken(why) => panic!("{why}"),
        }
    }
    (messages, progress.outcome(None))
}

#[tokio::test]
async fn a_batch_is_one_message_with_the_bytes_that_came_in() {
    let batch = points(3);
    let (messages, _) = exported("{headers: {site: a}}", 3, 1 << 20).await;
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].payload, batch.payload.encode().joined());
    assert_eq!(messages[0].subject, "otlp.metrics");
    assert_eq!(messages[0].headers, [("site".to_owned(), "a".to_owned())]);
}

#[tokio::test]
async fn headers_in_a_list_may_repeat_a_name() {
    let options = "{headers: [{name: site, value: a}, {name: site, value: b}]}";
    let (messages, _) = exported(options, 1, 1 << 20).await;
    let expected = [("site", "a"), ("site", "b")].map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(messages[0].headers, expected);
}

#[tokio::test]
async fn a_large_batch_becomes_messages_below_the_limit() {
    for encoding in ["otlp_proto", "otlp_json"] {
        let options = format!("{{metrics: {{encoding: {encoding}}}}}");
        let (messages, outcome) = exported(&options, 200, 1024).await;
        assert!(messages.len() > 2);
        let bytes =
            |message: &NatsMessageOut| message.payload.len() + header_bytes(&message.id, &message.headers);
        assert!(messages.iter().all(|message| bytes(message) <= 1024));
        assert!(outcome.error().is_none(), "{outcome:?}");
        let numbers = messages.iter().flat_map(|message| match encoding {
            "otlp_json" => values(&json::to_protobuf(Signal::Metrics, &message.payload).unwrap()),
            _ => values(&message.payload),
        });
        assert_eq!(numbers.collect::<Vec<_>>(), (0..200).collect::<Vec<_>>());
        let ids: std::collections::BTreeSet<_> = messages.iter().map(|message| &message.id).collect();
        assert_eq!(ids.len(), messages.len(), "each message has its own id");
    }
}

#[tokio::test]
async fn an_item_that_is_too_large_alone_is_dropped_with_a_reason() {
    let (messages, outcome) = exported("{}", 1, 100).await;
    assert!(messages.is_empty());
    let Outcome::Parts(parts) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (parts.losses[0].items, parts.losses[0].reason),
        (1, Reason::Limit)
    );
}

#[tokio::test]
async fn compressed_messages_name_their_encoding() {
    for (name, coding) in [("zstd", Coding::Zstd), ("gzip", Coding::Gzip)] {
        let options = format!("{{compression: {name}}}");
        let (messages, _) = exported(&options, 500, 1 << 20).await;
        assert_eq!(
            messages[0].headers,
            [("Content-Encoding".to_owned(), name.to_owned())]
        );
        let unpacked = decompress(coding, messages[0].payload.clone(), 1 << 20)
            .await
            .unwrap();
        assert!(messages[0].payload.len() < unpacked.len());
        assert_eq!(unpacked, points(500).payload.encode().joined());
    }
}

#[tokio::test]
async fn data_waits_for_servers_that_are_not_there() {
    let bench = Bench::start(&FACTORY, "servers: [\"nats://127.0.0.1:1\"]").await;
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
