// SPDX-License-Identifier: Apache-2.0

//! The exporter and the receiver with a user and TLS.

use super::out::{NO_REPEAT, sent, writer_to};
use super::through::{accepted, reader_from};
use super::topic;
use crate::kit::OtlpSink;
use crate::kit::kafka_broker::{KafkaBroker, PASSWORD, USER};
use crate::kit::numbered::{SIGNALS, pass_all};

#[test]
fn all_signals_pass_through_kafka_with_scram_over_tls() {
    let broker = KafkaBroker::start_secure();
    for (_, _, name) in SIGNALS {
        topic::create(&broker, name, &[]);
    }
    let user = format!("{{mechanism: SCRAM-SHA-512, username: {USER}, password: {PASSWORD}}}");
    let security = format!(
        "tls: {{ca_file: {:?}}}, auth: {{sasl: {user}}}",
        broker.authority()
    );
    let (address, sink) = (broker.secure_address(), OtlpSink::start());
    let options = format!("producer: {{required_acks: all}}, {NO_REPEAT}, {security}");
    let (from, port) = writer_to(&address, &options);
    let to = reader_from(&address, sink.port(), &format!(", {security}"));
    pass_all(
        port,
        &sink,
        |signal| sent(&from, signal),
        |signal| accepted(&to, signal),
    );
    from.stop();
    to.stop();
}
