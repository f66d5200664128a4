// SPDX-License-Identifier: Apache-2.0

//! The `nats` receiver: from a gateway through NATS to another gateway, and messages that nobody can take.

use std::time::{Duration, Instant};
use tidegate::batch::Signal;

use super::out::{sent, writer};
use super::stream;
use crate::kit::nats_server::NatsServer;
use crate::kit::numbered::{accepted_items, arrived, body, pass_all, send_items};
use crate::kit::{Gateway, OtlpSink, SOON, free_port, wait_until};

/// A gateway from NATS to a sink. A message is answered when the sink has it.
pub(super) fn reader(server: &NatsServer, sink: u16, options: &str) -> Gateway {
    Gateway::start(&reader_config(server, sink, options))
}

/// The configuration of such a gateway.
pub(super) fn reader_config(server: &NatsServer, sink: u16, options: &str) -> String {
    let pipeline = |signal| format!("{signal}: {{receivers: [nats], exporters: [otlp]}}");
    format!(
        "receivers:
  nats: {{servers: [\"{}\"]{options}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{sink}\", tls: {{insecure: true}}, sending_queue: {{wait_for_result: true}},
    retry_on_failure: {{initial_interval: 50ms, max_interval: 200ms}}}}
service: {{pipelines: {{{}}}}}
",
        server.url(),
        ["metrics", "traces", "logs"].map(pipeline).join(", ")
    )
}

pub(super) fn accepted(gateway: &Gateway, signal: Signal) -> f64 {
    accepted_items(gateway, "nats", signal)
}

fn skipped(gateway: &Gateway, reason: &str) -> f64 {
    let reason = format!("reason=\"{reason}\"");
    gateway.own_metric("tidegate_nats_skipped_messages_total", &[&reason])
}

fn all(count: u64) -> Vec<u64> {
    (0..count).collect()
}

#[test]
fn all_signals_pass_through_nats_in_both_encodings() {
    let server = NatsServer::start();
    stream::create(&server);
    for (encoding, compression) in [("otlp_proto", "zstd"), ("otlp_json", "gzip")] {
        let blocks = |key: &str, open: &str, close: &str| {
            let block = |signal: &str| {
                format!("{signal}: {{encoding: {encoding}, {key}: {open}otlp.{encoding}.{signal}{close}}}")
            };
            ["metrics", "traces", "logs"].map(block).join(", ")
        };
        let sink = OtlpSink::start();
        let options = format!(", compression: {compression}, {}", blocks("subject", "", ""));
        let (from, port) = writer(&server, &options);
        let options = format!(", durable: {encoding}, {}", blocks("subjects", "[", "]"));
        let to = reader(&server, sink.port(), &options);
        pass_all(
            port,
            &sink,
            |signal| sent(&from, signal),
            |signal| accepted(&to, signal),
        );
        assert_eq!(to.own_metric("tidegate_nats_skipped_messages_total", &[]), 0.0);
        from.stop();
        to.stop();
    }
}

#[test]
fn counters_are_exact_after_the_server_is_killed() {
    let mut server = NatsServer::start();
    stream::create(&server);
    let sink = OtlpSink::start();
    let (from, port) = writer(&server, "");
    // On a busy machine, the receiver extends the time of a message late.
    let to = reader(&server, sink.port(), ", ack_wait: 10s");
    for batch in 0..300_u64 {
        if batch == 100 {
            server.kill();
        }
        if batch == 150 {
            server.restart();
        }
        send_items(port, Signal::Logs, batch * 10..batch * 10 + 10);
    }
    wait_until(SOON, "all records have arrived", || {
        arrived(&sink, Signal::Logs).len() >= 3_000
    });
    wait_until(SOON, "the server has all answers", || {
        stream::logs_consumer(&server).is_some_and(|info| info.num_ack_pending == 0 && info.num_pending == 0)
    });
    assert_eq!(arrived(&sink, Signal::Logs), all(3_000));
    assert_eq!(accepted(&to, Signal::Logs), 3_000.0);
    wait_until(SOON, "the exporter counts them", || {
        sent(&from, Signal::Logs) == 3_000.0
    });
    from.stop();
    to.stop();
}

#[test]
fn messages_come_again_after_the_receiver_is_killed() {
    let server = NatsServer::start();
    stream::create(&server);
    let (from, port) = writer(&server, "");
    // Nobody listens there yet.
    let sink = free_port();
    let to = reader(&server, sink, ", ack_wait: 2s");
    for batch in 0..20 {
        send_items(port, Signal::Logs, batch * 10..batch * 10 + 10);
    }
    wait_until(SOON, "the receiver has messages", || {
        to.own_metric("otelcol_exporter_queue_size", &["exporter=\"otlp\""]) > 0.0
    });
    to.kill();
    let sink = OtlpSink::start_on(sink);
    let again = reader(&server, sink.port(), "");
    wait_until(SOON, "all records have arrived", || {
        arrived(&sink, Signal::Logs) == all(200)
    });
    again.stop();
    // All of it is answered now.
    let last = reader(&server, sink.port(), "");
    send_items(port, Signal::Logs, 200..201);
    wait_until(SOON, "the new record has arrived", || {
        arrived(&sink, Signal::Logs).contains(&200)
    });
    assert_eq!(arrived(&sink, Signal::Logs), all(201));
    from.stop();
    last.stop();
}

#[test]
fn gateways_with_one_durable_share_its_messages() {
    let server = NatsServer::start();
    stream::create(&server);
    let (from, port) = writer(&server, "");
    let sinks = [(); 2].map(|()| OtlpSink::start());
    let readers = [0, 1].map(|at: usize| reader(&server, sinks[at].port(), ""));
    let mut next = 0;
    wait_until(SOON, "both have messages", || {
        for _ in 0..20 {
            send_items(port, Signal::Logs, next..next + 1);
            next += 1;
        }
        sinks.iter().all(|sink| !arrived(sink, Signal::Logs).is_empty())
    });
    let both = || {
        let mut both: Vec<u64> = sinks
            .iter()
            .flat_map(|sink| arrived(sink, Signal::Logs))
            .collect();
        both.sort_unstable();
        both
    };
    wait_until(SOON, "both have all", || both().len() as u64 >= next);
    assert_eq!(both(), all(next), "each message went to one of them");
    from.stop();
    readers.into_iter().for_each(|reader| drop(reader.stop()));
}

#[test]
fn messages_that_nobody_can_decode_are_counted_and_do_not_block() {
    let server = NatsServer::start();
    stream::create(&server);
    let good = |number| (body(Signal::Logs, number..number + 1), None);
    // It is small in NATS, and larger than the limit when it is decompressed.
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).expect("zstd");
    let messages = [
        good(1),
        (b"\xff\xff".to_vec(), None),
        (Vec::new(), None),
        (bomb, Some("zstd")),
        (b"no frame".to_vec(), Some("gzip")),
        good(2),
    ];
    stream::write(&server, "otlp.logs", &messages);
    let sink = OtlpSink::start();
    let options =
        ", max_decompressed_size: 1MiB, header_extraction: {extract_headers: true, headers: [tenant]}";
    let to = reader(&server, sink.port(), options);
    wait_until(SOON, "all good messages have arrived", || {
        arrived(&sink, Signal::Logs) == [1, 2]
    });
    wait_until(SOON, "the others are counted", || {
        [
            skipped(&to, "invalid"),
            skipped(&to, "empty"),
            skipped(&to, "too_large"),
        ] == [2.0, 1.0, 1.0]
    });
    let failed = to.own_metric("otelcol_receiver_failed_log_records", &["receiver=\"nats\""]);
    assert_eq!(failed, 3.0);
    let resource = sink.logs()[0].resource_logs[0]
        .resource
        .clone()
        .expect("a resource");
    assert_eq!(resource.attributes[0].key, "nats.header.tenant");
    wait_until(SOON, "none of them comes again", || {
        stream::logs_consumer(&server).is_some_and(|info| info.num_ack_pending == 0)
    });
    to.stop();
}

#[test]
fn a_message_with_malformed_headers_does_not_stop_the_others() {
    let server = NatsServer::start();
    stream::create(&server);
    let sink = OtlpSink::start();
    let to = reader(&server, sink.port(), ", ack_wait: 10s");
    for number in 0..3 {
        stream::write_malformed(&server, "otlp.logs");
        stream::write(
            &server,
            "otlp.logs",
            &[(body(Signal::Logs, number..number + 1), None)],
        );
    }
    wait_until(SOON, "all good messages have arrived", || {
        arrived(&sink, Signal::Logs) == [0, 1, 2]
    });
    to.stop();
}

#[test]
fn an_absent_stream_is_named_and_read_when_it_is_there() {
    let server = NatsServer::start();
    let sink = OtlpSink::start();
    let mut to = reader(&server, sink.port(), "");
    to.wait_for_log("no stream takes the subject `otlp.logs`: create one, or set `stream`");
    stream::create(&server);
    stream::write(&server, "otlp.logs", &[(body(Signal::Logs, 0..3), None)]);
    wait_until(SOON, "all records have arrived", || {
        arrived(&sink, Signal::Logs) == [0, 1, 2]
    });
    to.stop();
}

#[test]
fn a_stop_gives_messages_that_wait_back_at_once() {
    const MESSAGES: u64 = 80;
    let server = NatsServer::start();
    stream::create(&server);
    let messages: Vec<_> = (0..MESSAGES)
        .map(|number| (body(Signal::Logs, number..number + 1), None))
        .collect();
    stream::write(&server, "otlp.logs", &messages);
    // Nobody listens there yet. The server would deliver the messages again after an hour.
    let sink = free_port();
    let first = reader(&server, sink, ", ack_wait: 1h");
    wait_until(SOON, "the receiver has messages", || {
        stream::logs_consumer(&server).is_some_and(|info| info.num_ack_pending > 1)
    });
    first.stop();
    let sink = OtlpSink::start_on(sink);
    let second = reader(&server, sink.port(), "");
    wait_until(SOON, "all messages have arrived", || {
        arrived(&sink, Signal::Logs) == all(MESSAGES)
    });
    second.stop();
}

#[test]
fn messages_do_not_come_again_while_the_pipelines_are_slow() {
    let server = NatsServer::start();
    stream::create(&server);
    stream::write(&server, "otlp.logs", &[(body(Signal::Logs, 0..3), None)]);
    let sink = free_port();
    // On a busy machine, the receiver extends the time of a message late.
    let to = reader(&server, sink, ", ack_wait: 5s");
    let begin = Instant::now();
    wait_until(SOON, "the time of the message is over several times", || {
        begin.elapsed() > Duration::from_secs(12)
            && stream::logs_consumer(&server).is_some_and(|info| info.num_ack_pending == 1)
    });
    let info = stream::logs_consumer(&server).expect("a consumer");
    assert_eq!((info.num_redelivered, info.delivered.consumer_sequence), (0, 1));
    let sink = OtlpSink::start_on(sink);
    wait_until(SOON, "all records have arrived", || {
        arrived(&sink, Signal::Logs) == [0, 1, 2]
    });
    to.stop();
}

#[test]
fn a_signal_that_waits_does_not_hold_up_another() {
    let server = NatsServer::start();
    stream::create(&server);
    let sink = OtlpSink::start();
    let to = Gateway::start(&format!(
        "receivers:
  nats: {{servers: [\"{}\"]}}
exporters:
  otlp/dead: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}, sending_queue: {{queue_size: 1, wait_for_result: true}}}}
  otlp/live: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}
service:
  pipelines:
    logs: {{receivers: [nats], exporters: [otlp/dead]}}
    metrics: {{receivers: [nats], exporters: [otlp/live]}}
",
        server.url(),
        free_port(),
        sink.port()
    ));
    let logs: Vec<_> = (0..30)
        .map(|number| (body(Signal::Logs, number..number + 1), None))
        .collect();
    stream::write(&server, "otlp.logs", &logs);
    wait_until(SOON, "logs wait", || {
        stream::logs_consumer(&server).is_some_and(|info| info.num_ack_pending > 1)
    });
    stream::write(&server, "otlp.metrics", &[(body(Signal::Metrics, 0..10), None)]);
    wait_until(SOON, "all points have arrived", || {
        arrived(&sink, Signal::Metrics).len() == 10
    });
    to.stop();
}

#[test]
fn a_receiver_stops_in_time_although_no_server_answers() {
    let mut server = NatsServer::start();
    stream::create(&server);
    let sink = OtlpSink::start();
    let to = reader(&server, sink.port(), "");
    stream::write(&server, "otlp.logs", &[(body(Signal::Logs, 0..1), None)]);
    wait_until(SOON, "the record has arrived", || {
        arrived(&sink, Signal::Logs) == [0]
    });
    server.kill();
    let started = Instant::now();
    to.stop();
    assert!(
        started.elapsed() < Duration::from_secs(45),
        "{:?}",
        started.elapsed()
    );
}
