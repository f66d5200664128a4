// SPDX-License-Identifier: Apache-2.0

//! Peers that choose how much memory and time a small request costs: the gateway stays within its limit, answers its
//! health check, and serves the peers that send what they announce.

mod limits;
mod sizes;

use super::kit::{Gateway, SOON, free_port, http, wait_until};
use opentelemetry_proto::tonic::metrics::v1::{AggregationTemporality, NumberDataPoint, metric};
use prost::Message;
use std::io::Write;
use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::SeqCst};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tidegate_requests::{attribute, counter, gauge, int, request};

const LIMIT_MIB: u64 = 256;
/// The most resident memory at any time: a tenth more than the limit.
const MAX_MIB: u64 = LIMIT_MIB + LIMIT_MIB / 10;
/// How long the health check may take beside it all, in the median. The machine of a test has other work.
const HEALTHY: Duration = Duration::from_secs(1);
/// How long one of the health checks may take. A busy machine runs nothing for some seconds.
const ALIVE: Duration = Duration::from_secs(20);

struct Ports {
    otlp: u16,
    page: u16,
}

fn start() -> (Gateway, Ports) {
    let ports = Ports {
        otlp: free_port(),
        page: free_port(),
    };
    let gateway = Gateway::start(&format!(
        "
receivers:
  otlp: {{protocols: {{http: {{endpoint: 127.0.0.1:{}, max_request_body_size: 64MiB}}}}}}
processors:
  memory_limiter: {{check_interval: 1s, limit_mib: {LIMIT_MIB}}}
  aggregate: {{rules: [{{match: {{name: \"*\"}}}}]}}
exporters:
  prometheus: {{endpoint: 127.0.0.1:{}}}
service:
  pipelines:
    metrics: {{receivers: [otlp], processors: [memory_limiter, aggregate], exporters: [prometheus]}}
",
        ports.otlp, ports.page
    ));
    (gateway, ports)
}

/// The load beside an attack.
struct Beside {
    ends: AtomicBool,
    sent: AtomicUsize,
    accepted: AtomicUsize,
}

impl Beside {
    const fn new() -> Self {
        Self {
            ends: AtomicBool::new(false),
            sent: AtomicUsize::new(0),
            accepted: AtomicUsize::new(0),
        }
    }

    /// Adds one to a counter again and again.
    fn send<'s>(&'s self, scope: &'s Scope<'s, '_>, port: u16) -> ScopedJoinHandle<'s, ()> {
        scope.spawn(move || {
            while !self.ends.load(SeqCst) {
                let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
                let point = NumberDataPoint {
                    time_unix_nano: now.as_nanos() as u64,
                    start_time_unix_nano: now.as_nanos() as u64 - 1,
                    ..int(1)
                };
                let mut metric = counter("honest", [point]);
                if let Some(metric::Data::Sum(sum)) = &mut metric.data {
                    sum.aggregation_temporality = AggregationTemporality::Delta.into();
                }
                let ballast = attribute("ballast", "x".repeat(90_000));
                let body = request(vec![ballast], "", [metric]).encode_to_vec();
                self.sent.fetch_add(1, SeqCst);
                let answer = http::post(port, "/v1/metrics", "application/x-protobuf", &body);
                if answer.expect("an answer").status == 200 {
                    self.accepted.fetch_add(1, SeqCst);
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    }

    /// How long each health check took, in order of length.
    fn probe<'s>(
        &'s self,
        scope: &'s Scope<'s, '_>,
        gateway: &'s Gateway,
    ) -> ScopedJoinHandle<'s, Vec<Duration>> {
        scope.spawn(move || {
            let mut took = Vec::new();
            while !self.ends.load(SeqCst) {
                let asked = Instant::now();
                assert_eq!(gateway.health().expect("an answer").status, 200);
                took.push(asked.elapsed());
                std::thread::sleep(Duration::from_millis(10));
            }
            took.sort();
            took
        })
    }
}

/// An attack with an honest sender and a health check beside it. Gives the share of the sender's requests that was accepted.
fn under(attack: impl FnOnce(u16), gateway: &Gateway, ports: &Ports) -> f64 {
    let beside = Beside::new();
    let checks = std::thread::scope(|scope| {
        let sending = beside.send(scope, ports.otlp);
        let probing = beside.probe(scope, gateway);
        attack(ports.otlp);
        beside.ends.store(true, SeqCst);
        sending.join().expect("it is answered");
        probing.join().expect("it is answered")
    });
    let (sent, accepted) = (beside.sent.load(SeqCst), beside.accepted.load(SeqCst));
    let peak = gateway.memory_mib("VmHWM");
    let (median, worst) = (checks[checks.len() / 2], checks[checks.len() - 1]);
    println!("peak {peak} MiB, health check {median:?}, {worst:?} at most, {accepted} of {sent} accepted");
    assert!(peak <= MAX_MIB, "{peak} MiB");
    assert!(median < HEALTHY && worst < ALIVE, "{median:?}, {worst:?}");
    wait_until(SOON, "the page shows what was accepted", || {
        let page = http::get(ports.page, "/metrics").expect("a page").text();
        let lines = page.lines().filter(|line| line.starts_with("honest_total"));
        let shown: f64 = lines
            .filter_map(|line| line.rsplit(' ').next()?.parse::<f64>().ok())
            .sum();
        shown == accepted as f64
    });
    accepted as f64 / sent as f64
}

fn post_packed(port: u16, coding: &str, body: &[u8]) -> u16 {
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", coding),
    ];
    let answer = http::request("POST", port, "/v1/metrics", &headers, body).expect("an answer");
    answer.status
}

fn zstd(body: &[u8]) -> Vec<u8> {
    zstd::bulk::compress(body, 3).expect("memory")
}

/// A request of points, each with `each` attributes without content.
fn empty_attributes(points: usize, each: usize) -> Vec<u8> {
    let point = NumberDataPoint {
        attributes: vec![Default::default(); each],
        ..int(1)
    };
    request(Vec::new(), "", [gauge("attack", vec![point; points])]).encode_to_vec()
}

fn refusals(gateway: &Gateway, reason: &str) -> usize {
    let labels = ["receiver=\"otlp\"", &format!("reason=\"{reason}\"")];
    gateway.own_metric("tidegate_memory_refusals_total", &labels) as usize
}

/// Refused log requests. Which part of a request finds no memory first depends on what other requests hold: its head, its
/// body or its decoded form, or the processor.
fn refused_logs(gateway: &Gateway) -> usize {
    let by_limiter = gateway.own_metric(
        "otelcol_processor_memory_limiter_refused_log_records",
        &["processor=\"memory_limiter\""],
    );
    let by_receiver = gateway.own_metric("tidegate_memory_refusals_total", &["receiver=\"otlp\""]);
    (by_limiter + by_receiver) as usize
}

#[test]
fn a_few_kilobytes_that_decode_to_gigabytes_cost_their_sender_an_answer() {
    let (gateway, ports) = start();
    let one_point = zstd(&empty_attributes(1, 4_000_000));
    let many_points = zstd(&empty_attributes(60, 60_000));
    let empty_points = zstd(&empty_attributes(2_000_000, 0));
    assert!(one_point.len() < 5_000, "{}", one_point.len());
    let mut statuses = Vec::new();
    let accepted = under(
        |port| {
            for _ in 0..2 {
                for body in [&one_point, &many_points, &empty_points] {
                    statuses.push(post_packed(port, "zstd", body));
                }
            }
        },
        &gateway,
        &ports,
    );
    println!("{statuses:?}");
    // The one point is rejected, the others would never fit.
    let expected = [200, 413, 413].repeat(2);
    assert_eq!(statuses, expected);
    assert_eq!(refusals(&gateway, "never_fits"), 4);
    let too_large = zstd(&vec![0; 65 << 20]);
    assert_eq!(post_packed(ports.otlp, "zstd", &too_large), 413);
    assert_eq!(refusals(&gateway, "too_large"), 1);
    assert!(accepted >= 0.95, "{accepted}");
    gateway.stop();
}

#[test]
fn bodies_that_unpack_to_more_than_there_is_are_refused_before_they_do() {
    const BODIES: usize = 20;
    let (gateway, ports) = start();
    let ballast = attribute("ballast", "x".repeat(63 << 20));
    let body = request(vec![ballast], "", [gauge("attack", [int(1)])]).encode_to_vec();
    let mut packed = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    packed.write_all(&body).expect("memory");
    let packed = packed.finish().expect("memory");
    drop(body);
    let busy = AtomicUsize::new(0);
    under(
        |port| {
            std::thread::scope(|scope| {
                for _ in 0..BODIES {
                    scope.spawn(|| match post_packed(port, "gzip", &packed) {
                        // Alone, it is unpacked; its decoded form would never fit.
                        200 | 413 => {}
                        503 => drop(busy.fetch_add(1, SeqCst)),
                        other => panic!("status {other}"),
                    });
                }
            });
        },
        &gateway,
        &ports,
    );
    let counted: usize = ["admission", "body", "slow_body", "unpacking", "decoding", "work"]
        .map(|reason| refusals(&gateway, reason))
        .iter()
        .sum();
    println!("{busy:?} of {BODIES} are refused, {counted} are counted");
    assert!(busy.load(SeqCst) > 0 && counted >= busy.load(SeqCst));
    gateway.stop();
}

#[test]
fn promises_that_are_not_kept_keep_nobody_out() {
    const PROMISES: usize = 400;
    let (gateway, ports) = start();
    let accepted = under(
        |port| {
            let promise = |at: usize| {
                let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
                let head = "POST /v1/metrics HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: 60000000\r\n\r\n";
                stream.write_all(head.as_bytes()).expect("it reads");
                // Some send a beginning, which earns them patience.
                let beginning = vec![0x0a; 60_000 * (at % 3)];
                let _ = stream.write_all(&beginning);
                stream
            };
            let mut promises: Vec<_> = (0..PROMISES).map(promise).collect();
            std::thread::sleep(Duration::from_secs(3));
            // Now all of them want to send at once.
            let piece = vec![0x0a; 1 << 20];
            let until = Instant::now() + Duration::from_secs(6);
            for stream in &mut promises {
                stream.set_nonblocking(true).expect("a socket option");
            }
            while Instant::now() < until {
                for stream in &mut promises {
                    let _ = stream.write(&piece);
                }
            }
            drop(promises);
        },
        &gateway,
        &ports,
    );
    assert!(accepted >= 0.9, "{accepted}");
    let lost = refusals(&gateway, "slow_body") + refusals(&gateway, "body");
    assert!(lost > 0, "some of them lost their room");
    wait_until(SOON, "memory falls back", || {
        gateway.memory_mib("VmRSS") < LIMIT_MIB / 2
    });
    gateway.stop();
}
