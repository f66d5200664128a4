// SPDX-License-Identifier: Apache-2.0

//! Options of clients.

use super::super::kit::http_peer::Reply;
use super::super::kit::proxy::{Fault, Proxy};
use super::*;
use std::time::Duration;

#[test]
fn the_authority_is_what_the_server_is_called() {
    let (sink, port) = (OtlpSink::start(), free_port());
    let exporter = format!(
        "endpoint: \"{}\", authority: \"otlp.example.com:443\"",
        sink.endpoint()
    );
    let gateway = gateway(port, "", "otlp", &exporter);
    send(port);
    sink.wait_until("the record", |sink| sink.logs().len() == 1);
    assert_eq!(sink.headers()[0]["x-authority"], "otlp.example.com:443");
    gateway.stop();
}

#[test]
fn keepalive_finds_a_dead_connection_long_before_the_timeout() {
    let sink = OtlpSink::start();
    let proxy = Proxy::start(sink.port(), Fault::None);
    let options = format!(
        "endpoint: \"http://127.0.0.1:{}\", keepalive: {{time: 1s, timeout: 5s}}",
        proxy.port()
    );
    finds_a_dead_connection(&proxy, free_port(), "otlp", &options);
}

/// An exporter that delivers through `proxy` with these options opens another connection when one dies, long before its
/// requests time out.
fn finds_a_dead_connection(proxy: &Proxy, port: u16, exporter: &str, options: &str) {
    let options = format!("{options}, timeout: 120s, retry_on_failure: {{initial_interval: 20ms}}");
    let gateway = gateway(port, "", exporter, &options);
    let sent = || gateway.own_metric("otelcol_exporter_sent_log_records", &[]);
    send(port);
    wait_until(SOON, "the connection works", || sent() == 1.0);
    proxy.freeze();
    send(port);
    wait_until(SOON, "the record is delivered by another connection", || {
        sent() == 2.0
    });
    assert_eq!(proxy.connections(), 2);
    gateway.stop();
}

#[test]
fn force_attempt_http2_chooses_the_version_where_the_server_has_both() {
    let secure = Secure::start();
    for (options, counts) in [
        ("", [0.0, 1.0]),
        ("force_attempt_http2: true", [0.0, 2.0]),
        ("force_attempt_http2: false", [1.0, 2.0]),
    ] {
        let port = free_port();
        let to = secure.port;
        let exporter =
            format!("endpoint: \"https://127.0.0.1:{to}\", tls: {{insecure_skip_verify: true}}, {options}");
        let gateway = gateway(port, "", "otlphttp", &exporter);
        send(port);
        let seen = || [secure.requests("1.1"), secure.requests("2")];
        wait_until(SOON, "the request", || seen() == counts);
        gateway.stop();
    }
    secure.gateway.stop();
}

#[test]
fn http2_pings_find_a_dead_connection_long_before_the_timeout() {
    let secure = Secure::start();
    let proxy = Proxy::start(secure.port, Fault::None);
    let options = format!(
        "endpoint: \"https://127.0.0.1:{}\", tls: {{insecure_skip_verify: true}}, http2_read_idle_timeout: 1s, \
         http2_ping_timeout: 5s",
        proxy.port()
    );
    finds_a_dead_connection(&proxy, free_port(), "otlphttp", &options);
    wait_until(SOON, "one of them is counted twice", || {
        secure.requests("2") == 3.0
    });
    secure.gateway.stop();
}

#[test]
fn a_client_opens_as_many_connections_as_it_may_and_keeps_them_if_it_may() {
    // Longer than a busy machine takes to send the next request.
    let slow = Reply {
        delay: Duration::from_millis(500),
        ..Reply::default()
    };
    for (options, busiest, connections) in [
        ("max_conns_per_host: 1", 1..=1, 1..=3),
        ("max_conns_per_host: 3", 2..=3, 2..=5),
        ("max_conns_per_host: 1, disable_keep_alives: true", 1..=1, 6..=6),
    ] {
        let (peer, port) = (HttpPeer::answering(slow.clone()), free_port());
        let exporter = format!("endpoint: \"http://127.0.0.1:{}\", {options}", peer.port());
        let gateway = gateway(port, "", "otlphttp", &exporter);
        (0..6).for_each(|_| send(port));
        let sent = || gateway.own_metric("otelcol_exporter_sent_log_records", &[]);
        wait_until(SOON, "all are answered", || sent() == 6.0);
        assert!(busiest.contains(&peer.busiest()), "{options}: {}", peer.busiest());
        let last = peer
            .seen()
            .iter()
            .map(|seen| seen.connection)
            .max()
            .expect("requests");
        assert!(connections.contains(&last), "{options}: {last}");
        gateway.stop();
    }
}

#[test]
fn requests_go_through_the_proxy_and_cookies_do_not_come_back() {
    let cookie = Reply {
        headers: "set-cookie: session=1; Path=/\r\n",
        ..Reply::default()
    };
    let (peer, port) = (HttpPeer::answering(cookie), free_port());
    let exporter = format!(
        "endpoint: \"http://otlp.example:4318\", proxy_url: \"http://ada:secret@127.0.0.1:{}\", cookies: {{enabled: true}}",
        peer.port()
    );
    let gateway = gateway(port, "", "otlphttp", &exporter);
    for count in 1..=2 {
        send(port);
        wait_until(SOON, "the request", || peer.seen().len() == count);
    }
    for seen in peer.seen() {
        assert_eq!(seen.line, "POST http://otlp.example:4318/v1/logs HTTP/1.1");
        assert!(
            seen.headers.contains("proxy-authorization: basic "),
            "{}",
            seen.headers
        );
        assert!(!seen.headers.contains("\ncookie:"), "{}", seen.headers);
    }
    let said = gateway.stop();
    assert!(
        said.contains("cookies") && said.contains("accepted without effect"),
        "{said}"
    );
    assert!(!said.contains("secret"), "{said}");
}

#[test]
fn the_level_of_compression_makes_requests_smaller() {
    let records: Vec<_> = (0..3000_u64)
        .map(|n| {
            format!(
                r#"{{"body":{{"stringValue":"{:x} {}"}}}}"#,
                n.wrapping_mul(0x9e37_79b9_7f4a_7c15),
                n % 7
            )
        })
        .collect();
    let body = format!(
        r#"{{"resourceLogs":[{{"scopeLogs":[{{"logRecords":[{}]}}]}}]}}"#,
        records.join(",")
    );
    let size = |compression: &str| {
        let (peer, port) = (HttpPeer::start(), free_port());
        let exporter = format!("endpoint: \"http://127.0.0.1:{}\", {compression}", peer.port());
        let gateway = gateway(port, "", "otlphttp", &exporter);
        let answer = http::post(port, "/v1/logs", "application/json", body.as_bytes()).expect("an answer");
        assert_eq!(answer.status, 200);
        wait_until(SOON, "the request", || peer.seen().len() == 1);
        gateway.stop();
        peer.seen()[0].body.len()
    };
    for (coding, fast, best) in [("gzip", 1, 9), ("zstd", 1, 19)] {
        let [fast, best] = [fast, best].map(|level| {
            size(&format!(
                "compression: {coding}, compression_params: {{level: {level}}}"
            ))
        });
        assert!(best < fast, "{coding}: {best} {fast}");
    }
}
