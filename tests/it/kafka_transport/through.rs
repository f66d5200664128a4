// SPDX-License-Identifier: Apache-2.0

//! The `kafka` receiver: from a gateway through Kafka to another gateway, and what happens to messages that nobody can take.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};
use tidegate::batch::Signal;

use super::out::{NO_REPEAT, sent, writer};
use super::topic;
use crate::kit::kafka_broker::{KafkaBroker, PARTITIONS};
use crate::kit::numbered::{SIGNALS, accepted_items, arrived, body, pass_all, send_items};
use crate::kit::{Gateway, OtlpSink, SOON, free_port, wait_until};

/// A gateway from Kafka to a sink. Messages come again unless the sink has them.
pub(super) fn reader(broker: &KafkaBroker, sink: u16, options: &str) -> Gateway {
    reader_from(&broker.address(), sink, options)
}

/// The same, from this address of a broker.
pub(super) fn reader_from(address: &str, sink: u16, options: &str) -> Gateway {
    Gateway::start(&reader_config(address, sink, options))
}

/// The configuration of such a gateway.
pub(super) fn reader_config(address: &str, sink: u16, options: &str) -> String {
    let pipeline = |signal| format!("{signal}: {{receivers: [kafka], exporters: [otlp]}}");
    format!(
        "receivers:
  kafka: {{brokers: [\"{address}\"], initial_offset: earliest, message_marking: {{after: true}}, autocommit: {{interval: 100ms}}{options}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{sink}\", tls: {{insecure: true}}, sending_queue: {{wait_for_result: true}},
    retry_on_failure: {{initial_interval: 50ms, max_interval: 200ms}}}}
service: {{pipelines: {{{}}}}}
",
        ["metrics", "traces", "logs"].map(pipeline).join(", ")
    )
}

pub(super) fn accepted(gateway: &Gateway, signal: Signal) -> f64 {
    accepted_items(gateway, "kafka", signal)
}

fn skipped(gateway: &Gateway, reason: &str) -> f64 {
    let reason = format!("reason=\"{reason}\"");
    gateway.own_metric("tidegate_kafka_skipped_messages_total", &[&reason])
}

/// Creates the topics of all signals.
pub(super) fn topics(broker: &KafkaBroker) {
    for (_, _, name) in SIGNALS {
        topic::create(broker, name, &[]);
    }
}

#[test]
fn all_signals_pass_through_kafka_in_both_encodings() {
    let broker = KafkaBroker::start();
    for encoding in ["otlp_proto", "otlp_json"] {
        let block = |signal: &str, key: &str| {
            let topic = format!("{encoding}-{signal}");
            let topic = if key == "topics" {
                format!("[{topic}]")
            } else {
                topic
            };
            format!("{signal}: {{encoding: {encoding}, {key}: {topic}}}")
        };
        let blocks = |key| {
            ["metrics", "traces", "logs"]
                .map(|signal| block(signal, key))
                .join(", ")
        };
        for signal in ["metrics", "traces", "logs"] {
            topic::create(&broker, &format!("{encoding}-{signal}"), &[]);
        }
        let sink = OtlpSink::start();
        let options = "partition_traces_by_id: true, producer: {required_acks: all, compression: snappy}";
        let (from, port) = writer(&broker, &format!("{options}, {NO_REPEAT}, {}", blocks("topic")));
        let to = reader(
            &broker,
            sink.port(),
            &format!(", group_id: {encoding}, {}", blocks("topics")),
        );
        pass_all(
            port,
            &sink,
            |signal| sent(&from, signal),
            |signal| accepted(&to, signal),
        );
        assert_eq!(to.own_metric("tidegate_kafka_skipped_messages_total", &[]), 0.0);
        from.stop();
        to.stop();
    }
}

#[test]
fn messages_come_again_after_the_receiver_is_killed() {
    let broker = KafkaBroker::start();
    topics(&broker);
    let (from, port) = writer(&broker, "producer: {required_acks: all}");
    // Nobody listens there yet.
    let sink = free_port();
    let to = reader(&broker, sink, "");
    for batch in 0..20 {
        send_items(port, Signal::Logs, batch * 10..batch * 10 + 10);
    }
    wait_until(SOON, "all records are in Kafka", || {
        sent(&from, Signal::Logs) == 200.0
    });
    wait_until(SOON, "the receiver has messages", || {
        to.own_metric("otelcol_exporter_queue_size", &["exporter=\"otlp\""]) > 0.0
    });
    to.kill();
    let sink = OtlpSink::start_on(sink);
    let again = reader(&broker, sink.port(), "");
    let has_all = || {
        arrived(&sink, Signal::Logs)
            .into_iter()
            .collect::<BTreeSet<_>>()
            .len()
            == 200
    };
    wait_until(SOON, "all records have arrived", has_all);
    again.stop();
    // All of it is committed now.
    let count = arrived(&sink, Signal::Logs).len();
    let last = reader(&broker, sink.port(), "");
    send_items(port, Signal::Logs, 200..201);
    wait_until(SOON, "the new record has arrived", || {
        arrived(&sink, Signal::Logs).contains(&200)
    });
    assert_eq!(arrived(&sink, Signal::Logs).len(), count + 1);
    from.stop();
    last.stop();
}

#[test]
fn a_stop_loses_no_message_that_waits_for_the_pipelines() {
    const MESSAGES: u64 = 80;
    let broker = KafkaBroker::start();
    topics(&broker);
    let (from, port) = writer(&broker, "producer: {required_acks: all}");
    for number in 0..MESSAGES {
        send_items(port, Signal::Logs, number..number + 1);
    }
    wait_until(SOON, "all records are in Kafka", || {
        sent(&from, Signal::Logs) == MESSAGES as f64
    });
    // The receiver marks messages before the pipelines take them, and the exporter takes one at a time.
    let sink = free_port();
    let start = || {
        Gateway::start(&format!(
            "receivers:
  kafka: {{brokers: [\"{}\"], initial_offset: earliest}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{sink}\", tls: {{insecure: true}}, sending_queue: {{queue_size: 1, wait_for_result: true}}}}
service: {{pipelines: {{logs: {{receivers: [kafka], exporters: [otlp]}}}}}}
",
            broker.address()
        ))
    };
    let first = start();
    wait_until(SOON, "messages wait", || {
        first.own_metric("otelcol_receiver_refused_log_records", &["receiver=\"kafka\""]) > 0.0
    });
    first.stop();
    let sink = OtlpSink::start_on(sink);
    let second = start();
    // Each partition has one message that is marked and not delivered, and the exporter's queue had one.
    let least = MESSAGES as usize - PARTITIONS as usize - 1;
    wait_until(SOON, "all other messages have arrived", || {
        arrived(&sink, Signal::Logs).len() >= least
    });
    from.stop();
    second.stop();
}

#[test]
fn messages_that_nobody_can_decode_do_not_stop_their_partition() {
    let broker = KafkaBroker::start();
    topics(&broker);
    let good = |number| Some(body(Signal::Logs, number..number + 1));
    topic::write(
        &broker,
        "otlp_logs",
        &[good(1), Some(b"\xff\xff".to_vec()), None, good(2)],
    );
    // It is small in Kafka, and larger than the limit when it is decompressed.
    topic::write(&broker, "otlp_logs", &[Some(vec![0; 300 << 10])]);
    topic::write(&broker, "otlp_logs", &[good(3)]);
    let sink = OtlpSink::start();
    let to = reader(&broker, sink.port(), ", max_batch_size: 128KiB");
    wait_until(SOON, "all good messages have arrived", || {
        arrived(&sink, Signal::Logs) == [1, 2, 3]
    });
    wait_until(SOON, "the others are counted", || {
        [
            skipped(&to, "invalid"),
            skipped(&to, "empty"),
            skipped(&to, "batch"),
        ] == [1.0; 3]
    });
    to.stop();
}

#[test]
fn members_of_a_group_share_partitions_and_hand_them_over() {
    let broker = KafkaBroker::start();
    topics(&broker);
    let (from, port) = writer(&broker, "producer: {required_acks: all}");
    let sinks = [(); 2].map(|()| OtlpSink::start());
    let first = reader(&broker, sinks[0].port(), "");
    let mut next = 0;
    let mut send_some = |count: u64| {
        for _ in 0..count {
            send_items(port, Signal::Logs, next..next + 1);
            next += 1;
        }
        next
    };
    let arrived_in_all = || {
        let all = sinks.iter().flat_map(|sink| arrived(sink, Signal::Logs));
        all.collect::<BTreeSet<_>>().len() as u64
    };
    let total = send_some(20);
    wait_until(SOON, "the first member has all", || arrived_in_all() == total);
    let second = reader(&broker, sinks[1].port(), "");
    let mut total = total;
    wait_until(SOON, "the second member has messages too", || {
        total = send_some(PARTITIONS as u64);
        !arrived(&sinks[1], Signal::Logs).is_empty()
    });
    wait_until(SOON, "both have all", || arrived_in_all() == total);
    // It leaves the group, so the other one need not wait for the end of its session.
    first.stop();
    let total = send_some(20);
    wait_until(SOON, "the second member has all", || arrived_in_all() == total);
    from.stop();
    second.stop();
}

#[test]
fn a_partition_that_waits_does_not_hold_up_another_topic() {
    let broker = KafkaBroker::start();
    topics(&broker);
    let (from, port) = writer(&broker, "producer: {required_acks: all}");
    let sink = OtlpSink::start();
    let to = Gateway::start(&format!(
        "receivers:
  kafka: {{brokers: [\"{}\"], initial_offset: earliest, message_marking: {{after: true}}}}
exporters:
  otlp/dead: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}, sending_queue: {{queue_size: 1, wait_for_result: true}}}}
  otlp/live: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}
service:
  pipelines:
    logs: {{receivers: [kafka], exporters: [otlp/dead]}}
    metrics: {{receivers: [kafka], exporters: [otlp/live]}}
",
        broker.address(),
        free_port(),
        sink.port()
    ));
    for batch in 0..30 {
        send_items(port, Signal::Logs, batch..batch + 1);
    }
    wait_until(SOON, "logs are refused", || {
        to.own_metric("otelcol_receiver_refused_log_records", &["receiver=\"kafka\""]) > 0.0
    });
    send_items(port, Signal::Metrics, 0..10);
    wait_until(SOON, "all points have arrived", || {
        arrived(&sink, Signal::Metrics).len() == 10
    });
    from.stop();
    to.stop();
}

#[test]
fn a_receiver_stops_in_time_although_no_broker_answers() {
    let mut broker = KafkaBroker::start();
    topics(&broker);
    let (from, port) = writer(&broker, "producer: {required_acks: all}");
    let sink = OtlpSink::start();
    let to = reader(&broker, sink.port(), "");
    send_items(port, Signal::Logs, 0..1);
    wait_until(SOON, "the record has arrived", || {
        arrived(&sink, Signal::Logs) == [0]
    });
    broker.kill();
    let started = Instant::now();
    to.stop();
    assert!(
        started.elapsed() < Duration::from_secs(45),
        "{:?}",
        started.elapsed()
    );
    from.stop();
}
