// SPDX-License-Identifier: Apache-2.0

//! Reloads of a `nats` receiver while messages come.

use super::out::writer;
use super::stream;
use super::through::{reader, reader_config};
use crate::kit::OtlpSink;
use crate::kit::nats_server::NatsServer;
use crate::kit::numbered::{RELOADS, pass_during_reloads};

#[test]
fn a_reload_of_the_receiver_keeps_its_durable_and_loses_nothing() {
    // Messages that the server sends while the receiver stops come after this time.
    const OPTIONS: &str = ", ack_wait: 5s";
    let server = NatsServer::start();
    stream::create(&server);
    let sink = OtlpSink::start();
    let (from, port) = writer(&server, "");
    let to = reader(&server, sink.port(), OPTIONS);
    pass_during_reloads(port, &to, &sink, |number| {
        let options = format!("{OPTIONS}, max_in_flight: {}", 1 + number);
        reader_config(&server, sink.port(), &options)
    });
    assert_eq!(to.own_metric("tidegate_nats_skipped_messages_total", &[]), 0.0);
    from.stop();
    let log = to.stop();
    let rebuilt = log.matches("rebuilt receivers::nats").count() as u64;
    assert_eq!(rebuilt, RELOADS, "{log}");
}
