// SPDX-License-Identifier: Apache-2.0

//! Reloads of a `kafka` receiver while messages come.

use super::out::{NO_REPEAT, writer};
use super::through::{reader, reader_config, topics};
use crate::kit::OtlpSink;
use crate::kit::kafka_broker::KafkaBroker;
use crate::kit::numbered::{RELOADS, pass_during_reloads};

#[test]
fn a_reload_of_the_receiver_goes_on_at_its_offsets_and_loses_nothing() {
    let broker = KafkaBroker::start();
    topics(&broker);
    let sink = OtlpSink::start();
    let (from, port) = writer(&broker, &format!("producer: {{required_acks: all}}, {NO_REPEAT}"));
    let to = reader(&broker, sink.port(), "");
    pass_during_reloads(port, &to, &sink, |number| {
        let options = format!(", max_elements_per_item: {}", 60_000 + number);
        reader_config(&broker.address(), sink.port(), &options)
    });
    assert_eq!(to.own_metric("tidegate_kafka_skipped_messages_total", &[]), 0.0);
    from.stop();
    let log = to.stop();
    let rebuilt = log.matches("rebuilt receivers::kafka").count() as u64;
    assert_eq!(rebuilt, RELOADS, "{log}");
}
