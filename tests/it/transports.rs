// SPDX-License-Identifier: Apache-2.0

//! Options of servers and clients: what the peer sees of them.

use super::kit::http_peer::Reply;
use super::kit::proxy::{Fault, Proxy};
use super::kit::{Gateway, HttpPeer, OtlpSink, SOON, free_port, http, wait_until};
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const LOG: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO"}]}]}]}"#;

/// Takes logs by HTTP with these options of the server, and hands them to an exporter.
fn gateway(port: u16, server: &str, kind: &str, exporter: &str) -> Gateway {
    with_processors(port, server, "{}", "", kind, exporter)
}

fn with_processors(
    port: u16,
    server: &str,
    processors: &str,
    named: &str,
    kind: &str,
    exporter: &str,
) -> Gateway {
    Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\", {server}}}}}}}}}
processors: {processors}
exporters: {{{kind}: {{{exporter}}}}}
service:
  telemetry: {{metrics: {{level: detailed}}}}
  pipelines: {{logs: {{receivers: [otlp], processors: [{named}], exporters: [{kind}]}}}}
"
    ))
}

fn send(port: u16) {
    let answer = http::post(port, "/v1/logs", "application/json", LOG).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

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

/// What comes until the server closes.
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
    stream.write_all(&raw("", LOG.len(), &LOG[..10])).expect("sent");
    let began = Instant::now();
    let answer = read_all(&mut stream);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    let counted = gateway.own_metric("tidegate_memory_refusals_total", &["reason=\"idle_body\""]);
    assert_eq!(counted as usize, 1);
    let took = began.elapsed();
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
    let answers = |write_timeout: &str| {
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
        std::thread::sleep(Duration::from_millis(1500));
        let answers = read_all(&mut stream).matches("HTTP/1.1 200 ").count();
        writer.join().expect("it ends");
        let cut = gateway.own_metric("tidegate_connections_ended_total", &["reason=\"stalled\""]);
        gateway.stop();
        (answers, cut)
    };
    assert_eq!(answers("write_timeout: 0s,"), (REQUESTS, 0.0), "no limit");
    let (came, cut) = answers("write_timeout: 300ms,");
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
        "endpoint: \"http://127.0.0.1:{}\", keepalive: {{time: 1s, timeout: 1s}}",
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

/// A gateway that takes OTLP/HTTP over TLS, and says what its clients speak.
struct Secure {
    gateway: Gateway,
    port: u16,
    _files: TempDir,
}

impl Secure {
    fn start() -> Self {
        let files = TempDir::new().expect("a temporary directory");
        let (certificate, key) = (files.path().join("cert.pem"), files.path().join("key.pem"));
        let pair = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).expect("a certificate");
        fs::write(&certificate, pair.cert.pem()).expect("written");
        fs::write(&key, pair.signing_key.serialize_pem()).expect("written");
        let port = free_port();
        let server = format!("tls: {{cert_file: {certificate:?}, key_file: {key:?}}}");
        let gateway = gateway(port, &server, "nop", "");
        Self {
            gateway,
            port,
            _files: files,
        }
    }

    /// Requests that came in a version of HTTP.
    fn requests(&self, version: &str) -> f64 {
        let version = format!("network_protocol_version=\"{version}\"");
        self.gateway.own_metric(
            "http_server_request_duration_count",
            &[&version, "url_scheme=\"https\""],
        )
    }
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
         http2_ping_timeout: 1s",
        proxy.port()
    );
    finds_a_dead_connection(&proxy, free_port(), "otlphttp", &options);
    assert_eq!(secure.requests("2"), 3.0, "one of them twice");
    secure.gateway.stop();
}

#[test]
fn a_client_opens_as_many_connections_as_it_may_and_keeps_them_if_it_may() {
    let slow = Reply {
        delay: Duration::from_millis(100),
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

/// A gauge in a scope with a schema.
const METRICS: &str = r#"{"resourceMetrics":[{"scopeMetrics":[{"schemaUrl":"https://schema/1","scope":{"name":"lib"},
"metrics":[{"name":"level","gauge":{"dataPoints":[{"asInt":"7","timeUnixNano":"TIME"}]}}]}]}]}"#;

#[test]
fn the_label_of_the_scope_s_schema_can_be_left_out() {
    for (option, is_there) in [("", true), ("scope_schema_url: false", false)] {
        let (peer, port, page) = (HttpPeer::start(), free_port(), free_port());
        let gateway = Gateway::start(&format!(
            "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\", {option}}}
  prometheusremotewrite: {{endpoint: \"http://127.0.0.1:{}/write\", {option}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus, prometheusremotewrite]}}}}}}
",
            peer.port()
        ));
        let now = std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_nanos();
        let body = METRICS.replace("TIME", &now.to_string());
        let answer = http::post(port, "/v1/metrics", "application/json", body.as_bytes()).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
        wait_until(SOON, "the write", || !peer.seen().is_empty());
        let shown = http::get(page, "/metrics").expect("a page").text();
        let line = shown
            .lines()
            .find(|line| line.starts_with("level{"))
            .expect("the gauge");
        assert!(line.contains("otel_scope_name=\"lib\""), "{line}");
        assert_eq!(
            line.contains("otel_scope_schema_url=\"https://schema/1\""),
            is_there,
            "{line}"
        );
        let written = snap::raw::Decoder::new()
            .decompress_vec(&peer.seen()[0].body)
            .expect("snappy");
        let written = String::from_utf8_lossy(&written);
        assert!(written.contains("otel_scope_name"));
        assert_eq!(written.contains("otel_scope_schema_url"), is_there);
        gateway.stop();
    }
}
