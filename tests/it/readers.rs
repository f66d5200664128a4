// SPDX-License-Identifier: Apache-2.0

//! Readers that ask for much, hang up, read nothing or sleep: senders, autoscalers and probes do not feel them.

use super::kit::http::Response;
use super::kit::keda::Keda;
use super::kit::query_api::percent_encode;
use super::kit::{Gateway, SOON, free_port, http, wait_until};
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use prost::Message;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use tidegate_requests::{attribute, gauge, int, request};

/// Series of `m`. Each takes some 200 bytes of an answer.
const SERIES: usize = 20_000;
const REQUESTS: usize = 10;
/// The memory limit of unread answers.
const BUDGET: usize = 16 << 20;
/// The memory limit of the gateway.
const LIMIT_MIB: u64 = 256;
/// A probe or an autoscaler gives up after this.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The longest that one answer may take. The build for tests is slow, and other tests have the processor too.
const AT_WORST: Duration = Duration::from_secs(20);
const NESTED: &str = "max_over_time(max_over_time(max_over_time(count(m)[10m:1s])[10m:1s])[10m:1s])";

struct Ports {
    otlp: u16,
    admin: u16,
    page: u16,
}

/// A gateway with `series` series of the metric `m` and a memory limit.
fn start(series: usize, limit_mib: u64) -> (Gateway, Ports) {
    let ports = Ports {
        otlp: free_port(),
        admin: free_port(),
        page: free_port(),
    };
    let gateway = Gateway::start(&format!(
        "
extensions:
  admin: {{endpoint: 127.0.0.1:{}, query: {{max_samples: 2000000, max_answer_bytes: 16MiB}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{}}}}}}}}}
processors: {{memory_limiter: {{check_interval: 100ms, limit_mib: {limit_mib}}}}}
exporters: {{prometheus: {{endpoint: 127.0.0.1:{}}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [memory_limiter], exporters: [prometheus]}}}}
",
        ports.admin, ports.otlp, ports.page
    ));
    for part in 0..REQUESTS {
        let points = (0..series / REQUESTS).map(|at| {
            let mut point = int(1);
            let text = format!("{part}-{at}-{}", "x".repeat(80));
            point.attributes = vec![attribute("name", text)];
            point
        });
        assert_eq!(push(ports.otlp, "m", points.collect()), 200);
    }
    (gateway, ports)
}

fn push(port: u16, name: &str, points: Vec<NumberDataPoint>) -> u16 {
    let resource = vec![attribute("service.name", "reader-test".to_owned())];
    let body = request(resource, "", [gauge(name, points)]).encode_to_vec();
    let answer = http::post(port, "/v1/metrics", "application/x-protobuf", &body);
    answer.expect("an answer").status
}

fn ask(port: u16, query: &str) -> String {
    format!(
        "GET /api/v1/query?query={} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n",
        percent_encode(query)
    )
}

fn query(port: u16, query: &str) -> (u16, serde_json::Value) {
    let answer = answer(port, query);
    (answer.status, answer.json())
}

fn answer(port: u16, query: &str) -> Response {
    let path = format!("/api/v1/query?query={}", percent_encode(query));
    http::get(port, &path).expect("an answer")
}

/// A heavy query has its answer, or is refused in one of the ways that there are.
fn is_answered_or_refused(answer: &Response) {
    let (json, why) = (answer.json(), answer.text());
    match (answer.status, json["errorType"].as_str()) {
        // At first the series have no past, and a subquery sees nothing of them.
        (200, None) => assert!(json["data"]["result"].is_array(), "{why}"),
        (422, Some("execution")) => assert!(why.contains("reads more than 2000000 samples"), "{why}"),
        (503, Some("timeout")) => {}
        (503, Some("unavailable")) => assert!(answer.header("retry-after").is_some(), "{why}"),
        _ => panic!("{}: {why}", answer.status),
    }
}

/// How long it takes.
fn timed<T>(what: impl FnOnce() -> T) -> (T, Duration) {
    let begun = Instant::now();
    (what(), begun.elapsed())
}

#[test]
fn heavy_queries_and_hang_ups_hold_up_neither_autoscalers_nor_the_present() {
    let (gateway, ports) = start(SERIES / 4, LIMIT_MIB);
    assert_eq!(push(ports.otlp, "depth", vec![int(7)]), 200);
    let mut keda = Keda::at(ports.admin);
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        // Some wait for what they asked, again and again; others hang up at once.
        for _ in 0..8 {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    is_answered_or_refused(&answer(ports.admin, NESTED));
                }
            });
        }
        scope.spawn(|| {
            while !over.load(Relaxed) {
                for _ in 0..16 {
                    let mut stream = TcpStream::connect(("127.0.0.1", ports.admin)).expect("a connection");
                    stream
                        .write_all(ask(ports.admin, NESTED).as_bytes())
                        .expect("it reads");
                }
                thread::sleep(Duration::from_millis(100));
            }
        });
        let begun = Instant::now();
        let mut took: [Vec<Duration>; 3] = Default::default();
        while begun.elapsed() < Duration::from_secs(6) {
            let ((status, answer), one) = timed(|| query(ports.admin, "1"));
            assert_eq!((status, &answer["data"]["result"][1]), (200, &json!("1")));
            let by_query = [("query", "sum(depth)"), ("target", "10")];
            let (value, scaler) = timed(|| keda.metric(&by_query));
            assert_eq!(value, Ok(7.0));
            let (health, probe) = timed(|| gateway.health().expect("an answer").status);
            assert_eq!(health, 200);
            for (all, one) in took.iter_mut().zip([one, scaler, probe]) {
                all.push(one);
            }
        }
        over.store(true, Relaxed);
        for (face, all) in ["query", "KEDA", "health"].iter().zip(&mut took) {
            all.sort();
            let (median, worst) = (all[all.len() / 2], all[all.len() - 1]);
            println!("{face}: {median:?}, at worst {worst:?} of {}", all.len());
            assert!(
                median < AT_ONCE && worst < AT_WORST,
                "{face}: {median:?}, {worst:?}"
            );
        }
    });
    // No client waits any more: all places are free soon.
    wait_until(SOON, "a heavy query is computed", || {
        query(ports.admin, "max_over_time(depth[1m:1s])").0 == 200
    });
    gateway.stop();
}

#[test]
fn unread_answers_stop_no_sender() {
    const READERS: usize = 100;
    let (gateway, ports) = start(SERIES, LIMIT_MIB);
    // The first look at new series takes seconds in a build for tests, and more if other tests run.
    wait_until(SOON, "the series are read", || {
        query(ports.admin, "count(m)").0 == 200
    });
    let readers: Vec<TcpStream> = (0..READERS)
        .map(|_| {
            let mut stream = TcpStream::connect(("127.0.0.1", ports.admin)).expect("a connection");
            set_socket_recv_buffer_size(&stream, 4096).expect("a small buffer");
            let all = ask(ports.admin, "{__name__=~\".+\"}");
            stream.write_all(all.as_bytes()).expect("it reads");
            stream
        })
        .collect();
    let begun = Instant::now();
    let mut sent = 0;
    while begun.elapsed() < Duration::from_secs(6) {
        sent += 1;
        assert_eq!(
            push(ports.otlp, "depth", vec![int(sent)]),
            200,
            "a sender is refused"
        );
        // It may wait while another query reads every series.
        let (status, answer) = query(ports.admin, "depth");
        let shown = &answer["data"]["result"][0]["value"][1];
        assert_eq!((status, shown), (200, &json!(sent.to_string())));
        let (answer, took) = timed(|| query(ports.admin, "1"));
        assert_eq!(answer.0, 200);
        assert!(took < AT_WORST, "{took:?}");
        // Readers get their turns.
        thread::sleep(Duration::from_millis(100));
    }
    println!("{sent} requests; peak {} MiB", gateway.memory_mib("VmHWM"));
    // Each has the beginning of an answer or a refusal; none has nothing. The system takes some MiB of each answer, which
    // the gateway holds no longer.
    let mut heads = readers.iter().map(status);
    let answered = heads.by_ref().filter(|status| *status == 200).count();
    let refused = READERS - answered;
    println!("{refused} of {READERS} refused");
    let length = answer(ports.admin, "count(m)").body.len();
    assert!(length < 1024, "short answers have room");
    assert!((1..READERS).contains(&answered), "{answered} answered");
    drop(readers);
    let peak = gateway.memory_mib("VmHWM");
    assert!(peak < LIMIT_MIB, "{peak} MiB");
    gateway.stop();
}

/// The status of an answer whose body is not read. Nothing but an answer or a refusal is one.
fn status(mut stream: &TcpStream) -> u16 {
    stream.set_read_timeout(Some(SOON)).expect("a time limit");
    let mut head = [0; 12];
    stream.read_exact(&mut head).expect("an answer");
    match &head {
        b"HTTP/1.1 200" => 200,
        b"HTTP/1.1 503" => 503,
        other => panic!("{}", String::from_utf8_lossy(other)),
    }
}

#[test]
fn answers_beyond_their_budget_are_refused_and_counted() {
    // The system takes 4 MiB of an answer at most; the whole of it has room until the rest is taken, too.
    // In a build for tests this many series alone take more than half of the usual limit. Queries would then be refused
    // for memory.
    let (gateway, ports) = start(2 * SERIES, 2 * LIMIT_MIB);
    let all = "{__name__=~\".+\"}";
    // On a busy machine the first query, which learns all series, may take longer than a query may.
    wait_until(SOON, "all series are learnt", || {
        answer(ports.admin, "count(m)").status == 200
    });
    let whole = answer(ports.admin, all);
    assert_eq!(whole.status, 200, "{}", whole.text());
    let fit = BUDGET / whole.body.len();
    assert!((2..4).contains(&fit), "{} bytes", whole.body.len());
    let begin = || {
        let mut stream = TcpStream::connect(("127.0.0.1", ports.admin)).expect("a connection");
        set_socket_recv_buffer_size(&stream, 4096).expect("a small buffer");
        let all = ask(ports.admin, all);
        stream.write_all(all.as_bytes()).expect("it reads");
        let is_answered = status(&stream) == 200;
        is_answered.then_some(stream)
    };
    let unread: Vec<TcpStream> = (0..10).map_while(|_| begin()).collect();
    assert_eq!(unread.len(), fit);
    let counted = || gateway.own_metric("tidegate_answers_refused_total", &["component=\"admin\""]);
    assert_eq!(counted(), 1.0, "the one that found no room");
    for refused in 2..=4 {
        let answer = answer(ports.admin, all);
        assert_eq!((answer.status, answer.header("retry-after")), (503, Some("1")));
        assert_eq!(answer.json()["errorType"], "unavailable");
        assert_eq!(counted(), f64::from(refused));
        let short = self::answer(ports.admin, "count(m)");
        let room = "short answers have room of their own";
        assert_eq!(short.status, 200, "{room}: {}", short.text());
    }
    let late = || gateway.own_metric("tidegate_queries_refused_total", &["reason=\"timeout\""]);
    let before = late();
    let path = format!("/api/v1/query?timeout=1ms&query={}", percent_encode(all));
    let refused = http::get(ports.admin, &path).expect("an answer");
    assert_eq!(
        (refused.status, &refused.json()["errorType"]),
        (503, &json!("timeout"))
    );
    assert_eq!(late(), before + 1.0, "each is counted once");
    drop(unread);
    wait_until(SOON, "there is room again", || {
        answer(ports.admin, all).status == 200
    });
    gateway.stop();
}

/// A request over HTTP/2: GET / of localhost.
const OVER_HTTP_2: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\
    \x00\x00\x00\x04\x00\x00\x00\x00\x00\
    \x00\x00\x0e\x01\x05\x00\x00\x00\x01\x82\x84\x86\x41\x09localhost";

#[test]
fn sleeping_connections_do_not_switch_off_the_health_check() {
    let (gateway, ports) = start(REQUESTS, LIMIT_MIB);
    // More than there are places, and what is asked beside them.
    for (port, count, path) in [
        (gateway.health_port(), 530, "/"),
        (ports.admin, 530, "/api/v1/query?query=1"),
        (ports.page, 80, "/metrics"),
    ] {
        let mut sleepers = Vec::new();
        for _ in 0..count {
            let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
            stream.write_all(OVER_HTTP_2).expect("it is sent");
            sleepers.push(stream);
        }
        // Then all of them sleep. A connection that did something a moment ago is not sent away yet.
        thread::sleep(Duration::from_secs(4));
        let (answer, took) = timed(|| http::get(port, path));
        assert_eq!(answer.expect("an answer").status, 200, "{path}");
        assert!(took < AT_WORST, "{took:?}");
        drop(sleepers);
    }
    gateway.stop();
}

#[test]
fn a_page_of_another_name_can_not_be_read_from_a_browser() {
    let (gateway, ports) = start(SERIES, LIMIT_MIB);
    let get = |port: u16, host: &str| {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
        let answer = http::request_over(stream, "GET", "/metrics", &[("host", host)], b"");
        answer.expect("an answer")
    };
    for (port, component, status) in [
        (gateway.health_port(), "health_check", 404),
        (gateway.telemetry_port(), "telemetry", 200),
        (ports.admin, "admin", 404),
        (ports.page, "prometheus", 200),
    ] {
        let refused = get(port, "evil.example");
        assert_eq!(refused.status, 403);
        assert!(refused.text().contains("`allowed_hosts`"), "{}", refused.text());
        assert_eq!(get(port, "localhost").status, status, "{component}");
        let component = format!("component=\"{component}\"");
        let counted = gateway.own_metric(
            "tidegate_requests_refused_total",
            &["reason=\"host\"", &component],
        );
        assert_eq!(counted, 1.0, "{component}");
    }
    let point = json!({"resourceMetrics": []}).to_string();
    let headers = [("host", "gateway.example"), ("content-type", "application/json")];
    let stream = TcpStream::connect(("127.0.0.1", ports.otlp)).expect("a connection");
    let sent = http::request_over(stream, "POST", "/v1/metrics", &headers, point.as_bytes());
    assert_eq!(sent.expect("an answer").status, 200, "senders use any name");
    gateway.stop();
}
