// SPDX-License-Identifier: Apache-2.0

//! A gateway that sends to another which lets in only whom it knows.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;

use prost::Message;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use tidegate_requests::{attribute, gauge, int, request};

use super::kit::{Gateway, Ledgers, OtlpSink, SOON, free_port, http, wait_until};

/// Takes OTLP with these authenticators and hands it to a sink.
fn guarded(grpc: u16, http: u16, sink: &OtlpSink) -> Gateway {
    Gateway::start(&format!(
        "extensions:
  bearertokenauth: {{tokens: [old-token, s3cr3t-token]}}
  basicauth/server: {{htpasswd: {{inline: \"ada:s3cr3t-word\"}}}}
receivers:
  otlp:
    protocols:
      grpc: {{endpoint: \"127.0.0.1:{grpc}\", auth: {{authenticator: bearertokenauth}}}}
      http: {{endpoint: \"127.0.0.1:{http}\", auth: {{authenticator: basicauth/server}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}
service:
  extensions: [health_check, bearertokenauth, basicauth/server]
  pipelines:
    logs: {{receivers: [otlp], exporters: [otlp]}}
",
        sink.port()
    ))
}

/// Takes OTLP/HTTP from any sender and sends it on over both protocols, with credentials.
fn sender(own: u16, admin: u16, grpc: u16, http: u16, token: &str, password: &str) -> Gateway {
    Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
  bearertokenauth: {{token: {token}}}
  basicauth/client: {{client_auth: {{username: ada, password: {password}}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{own}\"}}}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{grpc}\", tls: {{insecure: true}}, auth: {{authenticator: bearertokenauth}}}}
  otlphttp: {{endpoint: \"http://127.0.0.1:{http}\", auth: {{authenticator: basicauth/client}}}}
service:
  extensions: [health_check, admin, bearertokenauth, basicauth/client]
  pipelines:
    logs: {{receivers: [otlp], exporters: [otlp, otlphttp]}}
"
    ))
}

const LOG: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO"}]}]}]}"#;

fn send(port: u16) {
    let answer = http::post(port, "/v1/logs", "application/json", LOG).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

#[test]
fn only_known_senders_are_let_in_and_secrets_appear_nowhere() {
    let sink = OtlpSink::start();
    let (grpc, http_port, own, other) = (free_port(), free_port(), free_port(), free_port());
    let guarded = guarded(grpc, http_port, &sink);

    let answer = http::post(http_port, "/v1/logs", "application/json", LOG).expect("an answer");
    assert_eq!(answer.status, 401);
    assert!(
        answer
            .header("www-authenticate")
            .is_some_and(|value| value.starts_with("Basic "))
    );
    assert_eq!(answer.json()["code"], 16, "UNAUTHENTICATED");
    let refused = || {
        let labels = ["component=\"otlp\"", "reason=\"wrong\""];
        guarded.own_metric("tidegate_unauthenticated_requests_total", &labels)
    };
    assert_eq!(refused(), 1.0);

    let admins = [free_port(), free_port()];
    let known = sender(own, admins[0], grpc, http_port, "s3cr3t-token", "s3cr3t-word");
    send(own);
    sink.wait_until("both ways in are open to who is known", |sink| {
        sink.logs().len() == 2
    });

    let unknown = sender(other, admins[1], grpc, http_port, "wr0ng-token", "wr0ng-word");
    send(other);
    // Both ends of both ways in agree on what was let in and what was not.
    for (gateway, admin, fate) in [
        (&known, admins[0], "out"),
        (&unknown, admins[1], "dropped rejected"),
    ] {
        let ledgers = Ledgers::at_rest(gateway, admin);
        assert_eq!(ledgers.of("receivers::otlp", "logs"), [("accepted", 1)]);
        for exporter in ["exporters::otlp", "exporters::otlphttp"] {
            let mut expected = [("in", 1), (fate, 1)];
            expected.sort_unstable();
            assert_eq!(ledgers.of(exporter, "logs"), expected, "{exporter}");
        }
    }
    assert_eq!(refused(), 3.0, "each attempt of the unknown one counts once");
    assert_eq!(sink.logs().len(), 2);
    let accepted = guarded.own_metric("otelcol_receiver_accepted_log_records", &[]);
    assert_eq!(accepted, 2.0);

    for gateway in [guarded, known, unknown] {
        let said = gateway.stop();
        for secret in ["s3cr3t", "wr0ng"] {
            assert!(!said.contains(secret), "{said}");
        }
    }
}

#[test]
fn a_tenant_s_name_travels_with_its_data_and_never_with_another_s() {
    let sink = OtlpSink::start();
    let own = free_port();
    let gateway = Gateway::start(&format!(
        "extensions:
  headers_setter: {{headers: [{{key: x-scope-orgid, from_context: x-tenant, default_value: nobody}}]}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{own}\", include_metadata: [x-tenant]}}}}}}
processors:
  batch: {{timeout: 3s}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}, auth: {{authenticator: headers_setter}}}}
service:
  extensions: [health_check, headers_setter]
  pipelines:
    logs: {{receivers: [otlp], processors: [batch], exporters: [otlp]}}
",
        sink.port()
    ));
    for tenant in ["red", "blue", "red", ""] {
        let mut headers = vec![("content-type", "application/json")];
        if !tenant.is_empty() {
            headers.push(("x-tenant", tenant));
        }
        let answer = http::request("POST", own, "/v1/logs", &headers, LOG).expect("an answer");
        assert_eq!(answer.status, 200, "{}", answer.text());
    }
    sink.wait_until("every tenant's data arrived", |sink| sink.logs().len() == 3);
    let tenants = sink.headers().into_iter().map(|headers| {
        let tenant = headers["x-scope-orgid"].to_str().expect("text");
        tenant.to_owned()
    });
    let records = sink.logs().into_iter().map(|request| {
        let scopes = request.resource_logs.into_iter().flat_map(|of| of.scope_logs);
        scopes.map(|scope| scope.log_records.len()).sum::<usize>()
    });
    let mut all: Vec<_> = tenants.zip(records).collect();
    all.sort();
    let expected = [("blue", 1), ("nobody", 1), ("red", 2)];
    assert_eq!(
        all,
        expected.map(|(tenant, records)| (tenant.to_owned(), records))
    );
    gateway.stop();
}

/// The first line of the answer to a reader that keeps its connection, and the connection.
fn watch(port: u16, credentials: &str) -> (String, BufReader<TcpStream>) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.set_read_timeout(Some(SOON)).expect("a time limit");
    write!(
        stream,
        "GET /api/v1/composites/depth/watch HTTP/1.1\r\nhost: localhost\r\nauthorization: {credentials}\r\n\r\n"
    )
    .expect("a request");
    let mut answer = BufReader::new(stream);
    let mut status = String::new();
    answer.read_line(&mut status).expect("an answer");
    (status, answer)
}

const GREEDY: &str = "Basic Z3JlZWR5Om9uZQ==";
const MODEST: &str = "Basic bW9kZXN0OnR3bw==";
const TWO_USERS: &str = "basicauth: {htpasswd: {inline: \"greedy:one\\nmodest:two\"}}";

#[test]
fn a_user_with_many_watches_leaves_places_in_any_spelling_of_its_name() {
    const OF_ONE: usize = 128;
    let admin = free_port();
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\", auth: {{authenticator: basicauth}}}}
  {TWO_USERS}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{}\"}}}}}}
processors:
  composite: {{composites: [{{name: depth, metric: queue, function: last, across: sum}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, basicauth, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [composite], exporters: [prometheus]}}}}
",
        free_port(),
        free_port()
    ));
    let greedy = [GREEDY, "bASIC  Z3JlZWR5Om9uZQ=="];
    let mut watching = Vec::new();
    for number in 0..OF_ONE {
        let (status, kept) = watch(admin, greedy[number % greedy.len()]);
        assert!(status.starts_with("HTTP/1.1 200"), "{number}: {status}");
        watching.push(kept);
    }
    let refused = || gateway.own_metric("tidegate_queries_refused_total", &["reason=\"client_watching\""]);
    for (credentials, counted) in greedy.into_iter().zip([1.0, 2.0]) {
        let (status, _) = watch(admin, credentials);
        assert!(status.starts_with("HTTP/1.1 503"), "{status}");
        assert_eq!(refused(), counted);
    }
    let modest = watch(admin, MODEST);
    assert!(modest.0.starts_with("HTTP/1.1 200"), "{}", modest.0);
    for credentials in [greedy[0], MODEST] {
        let asked = http::request(
            "GET",
            admin,
            "/api/v1/query?query=1",
            &[("authorization", credentials)],
            b"",
        );
        assert_eq!(
            asked.expect("an answer").status,
            200,
            "queries have places of their own"
        );
    }
    assert_eq!(gateway.health().expect("an answer").status, 200);
    assert_eq!(refused(), 2.0);
    drop(watching);
    wait_until(SOON, "places are free again", || {
        watch(admin, greedy[0]).0.starts_with("HTTP/1.1 200")
    });
    gateway.kill();
}

/// Opens a scrape and reads its status, but not its page.
fn scrape_unread(port: u16, credentials: &str) -> (String, TcpStream) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    set_socket_recv_buffer_size(&stream, 4096).expect("a small buffer");
    stream.set_read_timeout(Some(SOON)).expect("a time limit");
    write!(
        stream,
        "GET /metrics HTTP/1.1\r\nhost: localhost\r\nauthorization: {credentials}\r\n\r\n"
    )
    .expect("a request");
    let mut status = [0; 12];
    stream.read_exact(&mut status).expect("an answer");
    (String::from_utf8_lossy(&status).into_owned(), stream)
}

#[test]
fn a_scraper_that_reads_nothing_leaves_pages_to_others() {
    const SERIES: usize = 2_000;
    let (page, otlp) = (free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  {TWO_USERS}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\", auth: {{authenticator: basicauth}}}}
service:
  extensions: [health_check, basicauth]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
"
    ));
    let points = (0..SERIES).map(|number| {
        let mut point = int(1);
        let text = format!("{number}-{}", "x".repeat(4 << 10));
        point.attributes = vec![attribute("text", text)];
        point
    });
    let body = request(Vec::new(), "", [gauge("level", points.collect::<Vec<_>>())]).encode_to_vec();
    let sent = http::post(otlp, "/v1/metrics", "application/x-protobuf", &body);
    assert_eq!(sent.expect("an answer").status, 200);

    let refusals = || gateway.own_metric("tidegate_answers_refused_total", &["component=\"prometheus\""]);
    let mut unread = Vec::new();
    loop {
        let (status, kept) = scrape_unread(page, GREEDY);
        if status == "HTTP/1.1 503" {
            break;
        }
        assert_eq!((status.as_str(), refusals()), ("HTTP/1.1 200", 0.0));
        unread.push(kept);
        assert!(unread.len() < 200, "nothing is refused");
    }
    assert_eq!(refusals(), 1.0);
    let read = || http::request("GET", page, "/metrics", &[("authorization", MODEST)], b"");
    let whole = read().expect("an answer");
    assert_eq!(whole.status, 200);
    let shown = whole
        .text()
        .lines()
        .filter(|line| line.starts_with("level{"))
        .count();
    assert_eq!(shown, SERIES);
    assert_eq!(gateway.health().expect("an answer").status, 200);
    assert_eq!(scrape_unread(page, GREEDY).0, "HTTP/1.1 503");
    assert_eq!(refusals(), 2.0);
    drop(unread);
    wait_until(SOON, "a place is free again", || {
        scrape_unread(page, GREEDY).0 == "HTTP/1.1 200"
    });
    gateway.stop();
}
