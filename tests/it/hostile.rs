// SPDX-License-Identifier: Apache-2.0

//! A gateway on a hostile network: it serves throughout, and its memory stays bounded.

use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_until};
use rand::rngs::SmallRng;
use rand::{Rng, SeedableRng};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};

const IDLE: usize = 5_000;
const SLOW: usize = 200;
const MUTATED: usize = 100_000;
/// The memory that the kernel and the gateway need for 5,200 connections and a body of 64 MiB at a time.
const MAX_MEMORY_MIB: u64 = 400;
const LOG: &[u8] = br#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[{"severityText":"INFO","body":{"stringValue":"x"}}]}]}]}"#;

/// As many files as the system lets us have; the gateway inherits it.
fn raise_file_limit() -> usize {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    let _ = setrlimit(Resource::Nofile, raised);
    let files = getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(files).unwrap_or(usize::MAX)
}

fn serves(port: u16) {
    let answer = http::post(port, "/v1/logs", "application/json", LOG).expect("an answer");
    assert_eq!(answer.status, 200, "{}", answer.text());
}

/// Much of nothing, packed; larger than the receiver's limit when unpacked.
fn bomb() -> Vec<u8> {
    let mut packed = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::fast());
    let zeros = vec![0; 1 << 20];
    for _ in 0..80 {
        packed.write_all(&zeros).expect("memory");
    }
    packed.finish().expect("memory")
}

/// One request after the other on a connection; gives the status of each.
struct Client(TcpStream);

impl Client {
    fn connect(port: u16) -> Self {
        Self(TcpStream::connect(("127.0.0.1", port)).expect("a connection"))
    }

    fn post(&mut self, body: &[u8]) -> u16 {
        let head = format!(
            "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        self.0
            .write_all(&[head.as_bytes(), body].concat())
            .expect("it reads");
        let mut answer = Vec::new();
        let mut buffer = [0; 4096];
        loop {
            let read = self.0.read(&mut buffer).expect("it answers");
            assert!(read > 0, "the gateway closed the connection");
            answer.extend_from_slice(&buffer[..read]);
            let text = String::from_utf8_lossy(&answer).to_ascii_lowercase();
            let Some((head, _)) = text.split_once("\r\n\r\n") else {
                continue;
            };
            let length = head
                .lines()
                .find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.map_or(0, |length| length.trim().parse().expect("a length"));
            if answer.len() >= head.len() + 4 + length {
                return head
                    .split(' ')
                    .nth(1)
                    .expect("a status")
                    .parse()
                    .expect("a number");
            }
        }
    }
}

/// Changes, cuts or repeats some bytes.
fn mutated(body: &[u8], rng: &mut SmallRng) -> Vec<u8> {
    let mut body = body.to_vec();
    for _ in 0..rng.random_range(1..4) {
        let at = rng.random_range(0..body.len());
        match rng.random_range(0..3) {
            0 => body[at] = rng.random(),
            1 => body.truncate(at.max(1)),
            _ => body.insert(at, rng.random()),
        }
    }
    body
}

#[test]
fn idle_slow_and_broken_clients_neither_stop_it_nor_fill_it() {
    const SEED: u64 = 7;
    println!("seed {SEED}");
    let idle = IDLE.min(raise_file_limit().saturating_sub(2_000) / 2);
    let (sink, port, grpc) = (OtlpSink::start(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}, grpc: {{endpoint: \"127.0.0.1:{grpc}\"}}}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{}\", tls: {{insecure: true}}}}
service:
  pipelines:
    logs: {{receivers: [otlp], exporters: [otlp]}}
",
        sink.port()
    ));
    let connect = |port: u16| TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    let silent: Vec<_> = (0..idle)
        .map(|at| connect(if at % 2 == 0 { port } else { grpc }))
        .collect();
    serves(port);
    let slow: Vec<_> = (0..SLOW)
        .map(|at| {
            let mut stream = connect(port);
            let head = "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
            let begun = match at % 2 {
                0 => head.to_owned(),
                _ => format!("{head}content-length: 60000000\r\n\r\n{{\"resourceLogs\":"),
            };
            stream.write_all(begun.as_bytes()).expect("it reads");
            stream
        })
        .collect();
    serves(port);
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "deflate"),
    ];
    let answer = http::request("POST", port, "/v1/logs", &headers, &bomb()).expect("an answer");
    assert_eq!(answer.status, 413, "{}", answer.text());

    let wire = tidegate::batch::json::to_protobuf(tidegate::batch::Signal::Logs, LOG).expect("a request");
    let (mut client, mut rng) = (Client::connect(port), SmallRng::seed_from_u64(SEED));
    let mut refused = 0;
    for _ in 0..MUTATED {
        match client.post(&mutated(&wire, &mut rng)) {
            200 => {}
            400 => refused += 1,
            other => panic!("status {other}"),
        }
    }
    assert!(refused > MUTATED / 4, "{refused} of {MUTATED} are refused");
    serves(port);
    let peak = gateway.memory_mib("VmHWM");
    println!("peak {peak} MiB");
    assert!(peak < MAX_MEMORY_MIB, "{peak} MiB");
    drop((silent, slow));
    gateway.stop();
}

/// A connection from an address of this machine.
fn connect_from(address: Ipv4Addr, port: u16) -> TcpStream {
    use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};
    // Programs that other tests start must not keep the connection open.
    let flags = SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, flags, None).expect("a socket");
    bind(&socket, &SocketAddrV4::new(address, 0)).expect("an address of this machine");
    connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).expect("a connection");
    socket.into()
}

/// The status of a request that leaves the connection open; `None`: it was closed without an answer.
fn status_over(mut stream: &TcpStream) -> Option<u16> {
    let head = "POST /v1/logs HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n", LOG.len());
    let mut line = [0; 12];
    stream.write_all(request.as_bytes()).ok()?;
    stream.write_all(LOG).ok()?;
    stream.read_exact(&mut line).ok()?;
    let line = std::str::from_utf8(&line).expect("a status line");
    Some(line["HTTP/1.1 ".len()..].parse().expect("a status"))
}

#[test]
fn one_address_does_not_have_the_connections_of_others() {
    let port = free_port();
    let mut gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\", max_connections_per_peer: 3}}}}}}
exporters: {{nop: {{}}}}
service: {{pipelines: {{logs: {{receivers: [otlp], exporters: [nop]}}}}}}
"
    ));
    let endpoint = format!("endpoint=\"127.0.0.1:{port}\"");
    let refused_connections =
        |gateway: &Gateway| gateway.own_metric("tidegate_connections_refused_total", &[&endpoint]);
    let (first, second) = (Ipv4Addr::LOCALHOST, Ipv4Addr::new(127, 0, 0, 2));
    let of_first: Vec<TcpStream> = (0..3).map(|_| connect_from(first, port)).collect();
    for stream in &of_first {
        assert_eq!(status_over(stream), Some(200));
    }
    assert_eq!(refused_connections(&gateway), 0.0);
    for _ in 0..2 {
        assert_eq!(status_over(&connect_from(first, port)), None, "it has its share");
    }
    for _ in 0..3 {
        assert_eq!(
            status_over(&connect_from(second, port)),
            Some(200),
            "another has its own"
        );
    }
    assert_eq!(refused_connections(&gateway), 2.0);
    let line = gateway.wait_for_log("the address has too many connections");
    assert!(line.contains("127.0.0.1") && line.contains("most=3"), "{line}");
    drop(of_first);
    wait_until(SOON, "the first address has room again", || {
        status_over(&connect_from(first, port)) == Some(200)
    });
    gateway.stop();
}
