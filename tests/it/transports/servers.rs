// SPDX-License-Identifier: Apache-2.0

//! Options of servers.

use super::*;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

/// A request as bytes, of which the body may be missing.
fn raw(headers: &str, length: usize, body: &[u8]) -> Vec<u8> {
    let head = format!(
        "POST /v1/logs HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n{headers}content-length: {length}\r\n\r\n"
    );
    [head.as_bytes(), body].concat()
}

fn connect(port: u16) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("a socket option");
    stream
}

/// Reads until the server closes the connection.
fn read_all(stream: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    // A reset after what came is an end too.
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

#[test]
fn read_timeout_ends_a_request_that_does_not_come() {
    let port = free_port();
    let gateway = gateway(port, "read_timeout: 300ms", "nop", "");
    let mut stream = connect(port);
    let began = Instant::now();
    stream.write_all(&raw("", LOG.len(), &LOG[..10])).expect("sent");
    let answer = read_all(&mut stream);
    let took = began.elapsed();
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let counted = gateway.own_metric("tidegate_memory_refusals_total", &["reason=\"idle_body\""]);
    assert_eq!(counted as usize, 1);
    assert!(
        took >= Duration::from_millis(250) && took < Duration::from_secs(10),
        "{took:?}"
    );
    send(port);
    assert_eq!(
        gateway.own_metric("otelcol_receiver_accepted_log_records", &[]),
        1.0
    );
    gateway.stop();
}

#[test]
fn write_timeout_cuts_a_client_that_takes_no_answers() {
    /// More answers than the buffers between us hold.
    const REQUESTS: usize = 1500;
    let large = "x".repeat(20_000);
    let answers = |write_timeout: &str, is_limited: bool| {
        let port = free_port();
        let server = format!("{write_timeout} response_headers: {{x-large: {large}}}");
        let gateway = gateway(port, &server, "nop", "");
        let mut stream = connect(port);
        let mut writing = stream.try_clone().expect("a socket");
        let request = raw("", LOG.len(), LOG);
        let last = raw("connection: close\r\n", LOG.len(), LOG);
        let writer = std::thread::spawn(move || {
            for _ in 1..REQUESTS {
                if writing.write_all(&request).is_err() {
                    return;
                }
            }
            let _ = writing.write_all(&last);
        });
        // Nothing is taken for longer than the timeout.
        let cut = || gateway.own_metric("tidegate_connections_ended_total", &["reason=\"stalled\""]);
        if is_limited {
            wait_until(SOON, "the connection is cut", || cut() == 1.0);
        } else {
            std::thread::sleep(Duration::from_millis(1500));
        }
        let answers = read_all(&mut stream).matches("HTTP/1.1 200 ").count();
        writer.join().expect("it ends");
        let cut = cut();
        gateway.stop();
        (answers, cut)
    };
    assert_eq!(answers("write_timeout: 0s,", false), (REQUESTS, 0.0), "no limit");
    let (came, cut) = answers("write_timeout: 300ms,", true);
    assert!(came < REQUESTS, "{came} answers came all the same");
    assert_eq!(cut, 1.0, "it is counted");
}

#[test]
fn without_keep_alives_a_connection_serves_one_request() {
    for (server, answers, says_so) in [("", 2, false), ("keep_alives_enabled: false", 1, true)] {
        let port = free_port();
        let gateway = gateway(port, server, "nop", "");
        let mut stream = connect(port);
        let two = [
            raw("", LOG.len(), LOG),
            raw("connection: close\r\n", LOG.len(), LOG),
        ]
        .concat();
        stream.write_all(&two).expect("sent");
        let answer = read_all(&mut stream);
        assert_eq!(answer.matches("HTTP/1.1 200 ").count(), answers, "{answer}");
        let first = answer.split("\r\n\r\n").next().expect("an answer");
        assert_eq!(first.contains("connection: close"), says_so, "{first}");
        gateway.stop();
    }
}

#[test]
fn compression_algorithms_says_which_codings_are_taken() {
    let port = free_port();
    let gateway = gateway(port, "compression_algorithms: [\"\", zstd]", "nop", "");
    send(port);
    let zstd = zstd::encode_all(LOG, 1).expect("in memory");
    for (coding, body, status) in [("zstd", &zstd[..], 200), ("gzip", LOG, 415), ("snappy", LOG, 415)] {
        let headers = [("content-type", "application/json"), ("content-encoding", coding)];
        let answer = http::request("POST", port, "/v1/logs", &headers, body).expect("an answer");
        assert_eq!(answer.status, status, "{coding}: {}", answer.text());
    }
    gateway.stop();
}

#[test]
fn from_context_puts_a_header_of_the_request_into_an_attribute() {
    let (sink, port) = (OtlpSink::start(), free_port());
    let processors =
        "{attributes: {actions: [{key: tenant, action: insert, from_context: metadata.x-tenant}]}}";
    let gateway = with_processors(
        port,
        "include_metadata: true",
        processors,
        "attributes",
        "otlp",
        &format!("endpoint: \"{}\"", sink.endpoint()),
    );
    let headers = [("content-type", "application/json"), ("X-Tenant", "red")];
    let answer = http::request("POST", port, "/v1/logs", &headers, LOG).expect("an answer");
    assert_eq!(answer.status, 200);
    send(port);
    // Requests that wait behind each other are sent as one.
    let tenants = |sink: &OtlpSink| -> Vec<String> {
        let requests = sink.logs();
        let resources = requests.iter().flat_map(|request| &request.resource_logs);
        let records = resources.map(|resource| &resource.scope_logs[0].log_records[0]);
        records.map(|record| format!("{:?}", record.attributes)).collect()
    };
    sink.wait_until("both records", |sink| tenants(sink).len() == 2);
    // Two consumers of the queue may send them in either order.
    let mut tenants = tenants(&sink);
    tenants.sort_by_key(|attributes| std::cmp::Reverse(attributes.len()));
    assert!(
        tenants[0].contains("tenant") && tenants[0].contains("red"),
        "{tenants:?}"
    );
    assert_eq!(tenants[1], "[]", "a request without the header");
    gateway.stop();
}

#[test]
fn a_handshake_that_fails_is_counted() {
    let secure = Secure::start();
    let mut stream = connect(secure.port);
    stream.write_all(b"GET / HTTP/1.1\r\n\r\n").expect("sent");
    let answer = read_all(&mut stream);
    assert!(!answer.starts_with("HTTP"), "{answer}");
    let endpoint = format!("endpoint=\"127.0.0.1:{}\"", secure.port);
    let labels = ["reason=\"tls\"", &endpoint];
    wait_until(SOON, "it is counted", || {
        let counted = secure
            .gateway
            .own_metric("tidegate_connections_ended_total", &labels);
        counted == 1.0
    });
    secure.gateway.stop();
}
