// SPDX-License-Identifier: Apache-2.0

//! Listeners that move from component to component.

use super::*;

#[test]
fn a_listener_moves_and_a_receiver_goes() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let live = Live::start(ports.admin, &of(BASE));
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    let moved = free_port();
    let lines = live.applies(&of(BASE).replace(
        &format!("127.0.0.1:{}", ports.input),
        &format!("127.0.0.1:{moved}"),
    ));
    assert_eq!(lines, ["rebuilt receivers::otlp"]);
    assert!(TcpStream::connect(("127.0.0.1", ports.input)).is_err());
    let mut sender = sender.reconnected(moved);
    sender.send().expect("an answer");
    // Another id takes the port over.
    let renamed = of(BASE)
        .replace("  otlp: {protocols", "  otlp/renamed: {protocols")
        .replace("receivers: [otlp]", "receivers: [otlp/renamed]")
        .replace(
            &format!("127.0.0.1:{}", ports.input),
            &format!("127.0.0.1:{moved}"),
        );
    let lines = live.applies(&renamed);
    assert_eq!(
        lines,
        ["added receivers::otlp/renamed", "removed receivers::otlp"]
    );
    let mut sender = sender.reconnected(moved);
    sender.send().expect("an answer");
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    wait_until(SOON, "the page has all hits", || {
        hits(ports.page) == Some(sender.sent)
    });
    // What the removed receiver counted stays.
    let gateway = &live.gateway;
    let accepted =
        |receiver: &str| gateway.own_metric("otelcol_receiver_accepted_metric_points", &[receiver]) as u64;
    let all = accepted("receiver=\"otlp\"") + accepted("receiver=\"otlp/renamed\"");
    assert_eq!(all, sender.sent + sender.sent / POINTS);
    live.gateway.stop();
}

#[test]
fn ports_move_between_components_of_different_types() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let live = Live::start(ports.admin, &plain);
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    // A receiver and an exporter exchange their ports.
    let exchanged = Ports {
        input: ports.page,
        page: ports.input,
        ..ports
    };
    let lines = live.applies(&config(exchanged, &sink.endpoint(), BASE));
    assert_eq!(
        lines,
        ["rebuilt exporters::prometheus", "rebuilt receivers::otlp"]
    );
    let mut sender = sender.reconnected(exchanged.input);
    sender.send().expect("an answer");
    wait_until(SOON, "the page has all hits", || {
        hits(exchanged.page) == Some(sender.sent)
    });
    // The port of an extension goes to a receiver, and back.
    let port = free_port();
    let zpages = plain
        .replace(
            "extensions: {admin",
            &format!("extensions: {{zpages: {{endpoint: \"127.0.0.1:{port}\"}}, admin"),
        )
        .replace("[health_check, admin]", "[health_check, admin, zpages]");
    let second =
        format!("receivers:\n  otlp/b: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}\n");
    let receiver = plain.replace("receivers:\n", &second).replace(
        "metrics: {receivers: [otlp]",
        "metrics: {receivers: [otlp, otlp/b]",
    );
    live.applies(&zpages);
    let shows = || http::get(port, "/debug/servicez").is_ok_and(|answer| answer.status == 200);
    assert!(shows());
    let lines = live.applies(&receiver);
    assert_eq!(lines, ["added receivers::otlp/b", "removed extensions::zpages"]);
    Sender::connect(port).send().expect("an answer");
    live.applies(&zpages);
    assert!(shows());
    live.gateway.stop();
}

#[test]
fn a_receiver_with_one_port_for_both_protocols_reloads() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let plain = config(ports, &sink.endpoint(), BASE);
    let http = format!("http: {{endpoint: \"127.0.0.1:{}\"}}", ports.input);
    let both = format!("{}, {http}", http.replace("http:", "grpc:"));
    let shared = plain.replace(&http, &both);
    assert_ne!(shared, plain);
    let live = Live::start(ports.admin, &shared);
    let mut sender = Sender::connect(ports.input);
    sender.send().expect("an answer");
    let lines = live.applies(&shared);
    assert!(lines.is_empty(), "{lines:?}");
    sender.send().expect("the old connection");
    let limited = both.replace("http: {", "http: {max_request_body_size: 9MiB, ");
    let changed = shared.replace(&both, &limited);
    assert_eq!(live.applies(&changed), ["rebuilt receivers::otlp"]);
    let mut sender = sender.reconnected(ports.input);
    sender.send().expect("the new listener");
    sink.wait_until("all arrived", |sink| all_arrived(sink, sender.sent));
    live.gateway.stop();
}
