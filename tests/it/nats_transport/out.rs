// SPDX-License-Identifier: Apache-2.0

//! The `nats` exporter: the messages of the stream, read by another client.

use async_nats::HeaderValue;
use async_nats::jetstream::message::StreamMessage;
use async_nats::jetstream::stream::Config;
use std::collections::BTreeSet;
use tidegate::batch::Signal;
use tidegate::batch::json::to_protobuf;

use super::stream;
use crate::kit::nats_server::NatsServer;
use crate::kit::numbered::{SIGNALS, body, numbers, send_items, send_with, sent_items};
use crate::kit::{Gateway, SOON, free_port, wait_until};

/// A gateway from OTLP to NATS, and the port of its receiver, which keeps the headers `x-tenant` and `x-user`.
pub(super) fn writer(server: &NatsServer, options: &str) -> (Gateway, u16) {
    let receiver = free_port();
    let pipeline = |signal| format!("{signal}: {{receivers: [otlp], exporters: [nats]}}");
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{receiver}\", include_metadata: [x-tenant, x-user]}}}}}}
exporters:
  nats: {{servers: [\"{}\"], retry_on_failure: {{initial_interval: 50ms, max_interval: 200ms}}{options}}}
service: {{pipelines: {{{}}}}}
",
        server.url(),
        ["metrics", "traces", "logs"].map(pipeline).join(", ")
    ));
    (gateway, receiver)
}

pub(super) fn sent(gateway: &Gateway, signal: Signal) -> f64 {
    sent_items(gateway, "nats", signal)
}

/// The numbers in messages of a signal, sorted.
fn numbers_of(signal: Signal, messages: &[StreamMessage]) -> Vec<u64> {
    let mut all: Vec<u64> = messages
        .iter()
        .flat_map(|message| numbers(signal, &message.payload))
        .collect();
    all.sort_unstable();
    all
}

#[test]
fn each_request_is_a_message_in_the_subject_of_its_signal() {
    let server = NatsServer::start();
    stream::create(&server);
    let options = ", headers: {site: a}, include_metadata_keys: [x-tenant, x-absent]";
    let (gateway, port) = writer(&server, options);
    let subjects = ["otlp.metrics", "otlp.traces", "otlp.logs"];
    for ((signal, ..), subject) in SIGNALS.into_iter().zip(subjects) {
        let whole = body(signal, 0..100);
        send_with(port, signal, &[("x-tenant", "red"), ("x-user", "ada")], &whole);
        wait_until(SOON, "its own metric counts them", || {
            sent(&gateway, signal) == 100.0
        });
        let messages = stream::messages(&server);
        let message = messages.last().expect("a message");
        assert_eq!(message.payload, whole, "the bytes stay");
        assert_eq!(message.subject.as_str(), subject);
        let header = |name: &str| message.headers.get(name).map(HeaderValue::as_str);
        assert_eq!((header("site"), header("x-tenant")), (Some("a"), Some("red")));
        assert_eq!(header("x-user"), None, "the exporter does not include it");
        assert!(header("Nats-Msg-Id").is_some());
    }
    gateway.stop();
}

#[test]
fn an_absent_stream_is_named_with_its_cure_and_loses_nothing() {
    let server = NatsServer::start();
    let (mut gateway, port) = writer(&server, "");
    send_items(port, Signal::Logs, 0..3);
    gateway.wait_for_log("no stream takes the subject `otlp.logs`: create one");
    stream::create(&server);
    wait_until(SOON, "all records are sent", || {
        sent(&gateway, Signal::Logs) == 3.0
    });
    assert_eq!(numbers_of(Signal::Logs, &stream::messages(&server)), [0, 1, 2]);
    gateway.stop();
}

#[test]
fn the_exporter_creates_its_stream_if_it_is_asked_to() {
    let server = NatsServer::start();
    let options = ", stream: {name: otlp, max_age: 1h}, logs: {encoding: otlp_json}";
    let (gateway, port) = writer(&server, options);
    send_items(port, Signal::Logs, 0..3);
    wait_until(SOON, "all records are sent", || {
        sent(&gateway, Signal::Logs) == 3.0
    });
    let messages = stream::messages(&server);
    let read = to_protobuf(Signal::Logs, &messages[0].payload).expect("OTLP in JSON");
    assert_eq!(numbers(Signal::Logs, &read), [0, 1, 2]);
    gateway.stop();
}

#[test]
fn a_stream_with_a_lower_limit_gets_smaller_messages_without_duplicates() {
    let server = NatsServer::start();
    let config = Config {
        name: stream::STREAM.to_owned(),
        subjects: vec!["otlp.>".to_owned()],
        max_message_size: 2_000,
        ..Config::default()
    };
    stream::create_with(&server, config);
    let (gateway, port) = writer(&server, ", max_message_size: 8KiB");
    send_items(port, Signal::Logs, 0..3_000);
    wait_until(SOON, "all records are sent", || {
        sent(&gateway, Signal::Logs) == 3_000.0
    });
    let messages = stream::messages(&server);
    assert_eq!(
        numbers_of(Signal::Logs, &messages),
        (0..3_000).collect::<Vec<_>>()
    );
    gateway.stop();
}

#[test]
fn nothing_is_lost_or_doubled_when_the_server_is_killed() {
    let mut server = NatsServer::start();
    stream::create(&server);
    let (gateway, port) = writer(&server, "");
    for batch in 0..300_u64 {
        if batch == 100 {
            server.kill();
        }
        if batch == 200 {
            server.restart();
        }
        send_items(port, Signal::Logs, batch * 10..batch * 10 + 10);
    }
    wait_until(SOON, "all records are sent", || {
        sent(&gateway, Signal::Logs) == 3_000.0
    });
    let failed = gateway.own_metric("otelcol_exporter_send_failed_log_records", &[]);
    assert_eq!(failed, 0.0);
    let messages = stream::messages(&server);
    assert_eq!(
        numbers_of(Signal::Logs, &messages),
        (0..3_000).collect::<Vec<_>>()
    );
    let ids: BTreeSet<_> = messages
        .iter()
        .map(|message| {
            message
                .headers
                .get("Nats-Msg-Id")
                .expect("an id")
                .as_str()
                .to_owned()
        })
        .collect();
    assert_eq!(ids.len(), messages.len());
    gateway.stop();
}
