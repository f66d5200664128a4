// SPDX-License-Identifier: Apache-2.0

//! Refused requests: the client gets the reason, and the gateway counts each of them once.

use super::kit::{Gateway, Ledgers, SOON, free_port, http, wait_until};
use std::thread;
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;

const LIMIT_MIB: u64 = 128;
const REFUSED: &str = "tidegate_requests_refused_total";
const MEMORY: &str = "tidegate_memory_refusals_total";
const WRITE: &str = "/api/v1/write";

struct Ports {
    otlp: u16,
    write: u16,
    admin: u16,
    page: u16,
    pprof: u16,
}

fn start() -> (Gateway, Ports) {
    let ports = Ports {
        otlp: free_port(),
        write: free_port(),
        admin: free_port(),
        page: free_port(),
        pprof: free_port(),
    };
    let gateway = Gateway::start(&format!(
        "
extensions:
  admin: {{endpoint: 127.0.0.1:{}}}
  pprof: {{endpoint: 127.0.0.1:{}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{}}}}}}}
  prometheusremotewrite: {{endpoint: 127.0.0.1:{}}}
processors: {{memory_limiter: {{check_interval: 1s, limit_mib: {LIMIT_MIB}}}}}
exporters: {{prometheus: {{endpoint: 127.0.0.1:{}}}}}
service:
  extensions: [health_check, admin, pprof]
  pipelines:
    metrics: {{receivers: [otlp, prometheusremotewrite], processors: [memory_limiter], exporters: [prometheus]}}
",
        ports.admin, ports.pprof, ports.otlp, ports.write, ports.page
    ));
    (gateway, ports)
}

/// The count of refusals by a component for a reason.
fn counted(gateway: &Gateway, component: &str, reason: &str) -> f64 {
    let component = format!("component=\"{component}\"");
    let reason = format!("reason=\"{reason}\"");
    gateway.own_metric(REFUSED, &[&component, &reason])
}

/// A request that is refused.
struct Bad<'a> {
    port: u16,
    method: &'a str,
    path: &'a str,
    headers: &'a [(&'a str, &'a str)],
    body: &'a [u8],
}

impl<'a> Bad<'a> {
    fn get(port: u16, path: &'a str) -> Self {
        Self {
            port,
            method: "GET",
            path,
            headers: &[],
            body: b"",
        }
    }

    fn post(port: u16, path: &'a str, headers: &'a [(&'a str, &'a str)]) -> Self {
        Self {
            method: "POST",
            headers,
            body: b"neither packed nor protobuf",
            ..Self::get(port, path)
        }
    }

    /// It has this answer, and is counted as this and nothing else.
    fn is_reported_and_counted(&self, gateway: &Gateway, status: u16, component: &str, reason: &str) {
        let before = (
            counted(gateway, component, reason),
            gateway.own_metric(REFUSED, &[]),
            gateway.own_metric(MEMORY, &[]),
        );
        let answer = http::request(self.method, self.port, self.path, self.headers, self.body);
        let answer = answer.expect("an answer");
        let what = format!("{} {} {component} {reason}", self.method, self.path);
        assert_eq!(answer.status, status, "{what}");
        // HTTP answers a head that it can't read by itself, and closes the connection before it says so.
        wait_until(SOON, &format!("{what} is counted"), || {
            counted(gateway, component, reason) == before.0 + 1.0
        });
        let after = (gateway.own_metric(REFUSED, &[]), gateway.own_metric(MEMORY, &[]));
        assert_eq!(after, (before.1 + 1.0, before.2), "{what}");
    }
}

#[test]
fn receivers_tell_and_count_what_they_refuse() {
    let (gateway, ports) = start();
    let (otlp, write) = (ports.otlp, ports.write);
    let protobuf = ("content-type", "application/x-protobuf");
    let coded = |coding| [protobuf, ("content-encoding", coding)];
    let refused = |request: Bad<'_>, status, component, reason| {
        request.is_reported_and_counted(&gateway, status, component, reason);
    };
    let of_otlp = |path, headers: &[(&str, &str)], status, reason| {
        refused(Bad::post(otlp, path, headers), status, "otlp", reason);
    };
    refused(Bad::get(otlp, "/v1/metrics"), 405, "otlp", "method");
    of_otlp("/v1/profiles", &[protobuf], 404, "path");
    of_otlp("/v1/logs", &[protobuf], 404, "path");
    of_otlp(
        "/v1/metrics",
        &[("content-type", "text/plain")],
        415,
        "media_type",
    );
    of_otlp("/v1/metrics", &coded("br"), 415, "coding");
    of_otlp("/v1/metrics", &coded("gzip"), 400, "body");

    let of_writes = |path, headers: &[(&str, &str)], status, reason| {
        let request = Bad::post(write, path, headers);
        refused(request, status, "prometheusremotewrite", reason);
    };
    refused(Bad::get(write, WRITE), 405, "prometheusremotewrite", "method");
    of_writes("/nothing", &coded("snappy"), 404, "path");
    of_writes(WRITE, &[("content-type", "application/json")], 415, "media_type");
    of_writes(WRITE, &coded("zstd"), 415, "coding");
    of_writes(WRITE, &coded("snappy"), 400, "body");

    // A body that can't be read is a failed item, as before, and nothing else.
    let all = gateway.own_metric(REFUSED, &[]);
    let answer = http::post(otlp, "/v1/metrics", protobuf.1, b"\x0a\xff").expect("an answer");
    assert_eq!(answer.status, 400);
    let failed = gateway.own_metric("otelcol_receiver_failed_metric_points", &[]);
    assert_eq!((failed, gateway.own_metric(REFUSED, &[])), (1.0, all));
    let ledgers = Ledgers::agreed(&gateway, ports.admin);
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("failed", 1)]);
    let writes = ledgers.of("receivers::prometheusremotewrite", "metrics");
    assert!(writes.is_empty(), "a refused request has no items: {writes:?}");
    gateway.stop();
}

#[test]
fn pages_tell_and_count_what_they_refuse() {
    let (gateway, ports) = start();
    let many = format!("/api/v1/query?query=1{}", "&a".repeat(1_000));
    let long = "x".repeat(17 << 10);
    let put = Bad {
        method: "PUT",
        ..Bad::get(ports.admin, "/api/v1/query")
    };
    let too_long = Bad {
        headers: &[("x-long", long.as_str())],
        ..Bad::get(ports.admin, "/api/v1/query?query=1")
    };
    for (request, status, component, reason) in [
        (Bad::get(ports.admin, "/nothing"), 404, "admin", "path"),
        (put, 405, "admin", "method"),
        (
            Bad::get(ports.admin, "/api/v1/query?query=("),
            400,
            "admin",
            "parameters",
        ),
        (Bad::get(ports.admin, &many), 413, "admin", "parameters"),
        (too_long, 431, "admin", "head"),
        (Bad::get(ports.page, "/nothing"), 404, "prometheus", "path"),
        (
            Bad::get(gateway.health_port(), "/nothing"),
            404,
            "health_check",
            "path",
        ),
        (
            Bad::get(gateway.telemetry_port(), "/nothing"),
            404,
            "telemetry",
            "path",
        ),
        (Bad::get(ports.pprof, "/nothing"), 404, "pprof", "path"),
    ] {
        request.is_reported_and_counted(&gateway, status, component, reason);
    }
    let profile = || {
        let answer = http::get(ports.pprof, "/debug/pprof/profile?seconds=5");
        answer.expect("an answer").status
    };
    let mut told = thread::scope(|scope| {
        let both = [(), ()].map(|()| scope.spawn(profile));
        both.map(|one| one.join().expect("no panic"))
    });
    told.sort_unstable();
    assert_eq!(told, [200, 503], "one at a time");
    assert_eq!(counted(&gateway, "pprof", "busy"), 1.0);
    gateway.stop();
}

/// Forms over HTTP/2 whose bodies do not come, with the largest heads that there are. Says what each was answered.
async fn silent_forms(port: u16, streams: usize) -> Vec<u16> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await;
    let handshake = h2::client::handshake(stream.expect("a connection")).await;
    let (client, connection) = handshake.expect("HTTP/2");
    tokio::spawn(connection);
    let mut waiting = Vec::new();
    for _ in 0..streams {
        // Many short fields take more memory than a long one, and less time to read.
        let mut request = ::http::Request::post(format!("http://127.0.0.1:{port}/api/v1/query"))
            .header("content-type", "application/x-www-form-urlencoded");
        for number in 0..400 {
            request = request.header(format!("x-{number}"), "x");
        }
        let request = request.body(());
        let mut client = client.clone().ready().await.expect("a stream");
        let sent = client.send_request(request.expect("a request"), false);
        waiting.push(sent.expect("it is sent"));
    }
    let mut told = Vec::new();
    for (answer, _body) in waiting {
        let answer = timeout(SOON, answer).await.expect("an answer in time");
        told.push(answer.expect("an answer").status().as_u16());
    }
    told
}

#[test]
fn heads_without_bodies_leave_memory_to_others() {
    const CONNECTIONS: usize = 20;
    const STREAMS: usize = 150;
    let (gateway, ports) = start();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime");
    let told = runtime.block_on(async {
        let mut connections = JoinSet::new();
        for _ in 0..CONNECTIONS {
            connections.spawn(silent_forms(ports.admin, STREAMS));
        }
        connections.join_all().await.concat()
    });
    let answered = |status: u16| told.iter().filter(|told| **told == status).count();
    let counted = |reason: &str| {
        let reason = format!("reason=\"{reason}\"");
        gateway.own_metric(MEMORY, &["component=\"admin\"", &reason]) as usize
    };
    let heads = counted("head");
    println!("{heads} of {} heads have no room", told.len());
    assert!(heads > 0 && heads < told.len());
    // A form that does not come gets 408 after 10 s, or 503 after one while memory is short.
    assert_eq!(answered(503), heads + counted("slow_body") + counted("body"));
    assert_eq!(answered(408), counted("idle_body"));
    assert_eq!(answered(503) + answered(408), told.len());
    let peak = gateway.memory_mib("VmHWM");
    assert!(peak < LIMIT_MIB + LIMIT_MIB / 10, "{peak} MiB");
    assert_eq!(gateway.health().expect("an answer").status, 200);
    drop(runtime);
    let long = "x".repeat(15 << 10);
    wait_until(SOON, "a large head has room again", || {
        let headers = [("x-long", long.as_str())];
        let answer = http::request("GET", ports.admin, "/api/v1/query?query=1", &headers, b"");
        answer.is_ok_and(|answer| answer.status == 200)
    });
    gateway.stop();
}
