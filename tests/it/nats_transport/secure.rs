// SPDX-License-Identifier: Apache-2.0

//! The exporter and the receiver with a user and TLS.

use super::out::{sent, writer};
use super::stream;
use super::through::{accepted, reader};
use crate::kit::OtlpSink;
use crate::kit::nats_server::{NatsServer, PASSWORD, USER};
use crate::kit::numbered::pass_all;

#[test]
fn all_signals_pass_through_nats_with_a_user_over_tls() {
    let mut server = NatsServer::start();
    stream::create(&server);
    let authority = server.secure();
    let options =
        format!(", tls: {{ca_file: {authority:?}}}, auth: {{username: {USER}, password: {PASSWORD}}}");
    // An acknowledgement after the time-out would repeat a message.
    let (from, port) = writer(&server, &format!("{options}, timeout: 1m"));
    let sink = OtlpSink::start();
    let to = reader(&server, sink.port(), &options);
    pass_all(
        port,
        &sink,
        |signal| sent(&from, signal),
        |signal| accepted(&to, signal),
    );
    from.stop();
    to.stop();
}
