// SPDX-License-Identifier: Apache-2.0

//! gRPC clients that send the path of the socket as `:authority`: those of C-core, in Python and C++.

use super::kit::{Gateway, OtlpSink, Script, testenv};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use prost::Message;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;
use tidegate_requests::{counter, request};

const METHOD: &str = "/opentelemetry.proto.collector.metrics.v1.MetricsService/Export";
const CALLS: usize = 3;

/// A gateway that takes OTLP at one socket, over gRPC alone or with HTTP, and hands it to a sink.
struct Hop {
    gateway: Gateway,
    sink: OtlpSink,
    socket: String,
}

impl Hop {
    fn start() -> Self {
        let sink = OtlpSink::start();
        let gateway = Gateway::start(&format!(
            "receivers: {{otlp: {{protocols: {{grpc: {{endpoint: 'unix:otlp.sock'}}}}}}}}
exporters: {{otlp: {{endpoint: '{}', compression: none, tls: {{insecure: true}}}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}}}
",
            sink.endpoint()
        ));
        let socket = gateway.path("otlp.sock").display().to_string();
        Self {
            gateway,
            sink,
            socket,
        }
    }

    /// The counts of the receiver and of the sink agree.
    fn check(self, points: usize, requests: usize) {
        let counted = |name: &str| {
            self.gateway
                .own_metric(&format!("otelcol_{name}_metric_points"), &[])
        };
        self.sink
            .wait_until("all points arrive", |sink| sink.points().len() >= points);
        assert_eq!(self.sink.points().len(), points);
        assert_eq!(self.sink.attempts(), requests);
        assert_eq!(counted("receiver_accepted"), points as f64);
        assert_eq!(counted("receiver_refused") + counted("receiver_failed"), 0.0);
        self.gateway.stop();
    }
}

fn one_point() -> Vec<u8> {
    let point = otlp::NumberDataPoint {
        time_unix_nano: 1_700_000_000_000_000_000,
        value: Some(otlp::number_data_point::Value::AsInt(1)),
        ..otlp::NumberDataPoint::default()
    };
    request(Vec::new(), "", [counter("calls", [point])]).encode_to_vec()
}

/// The client in C++, compiled once.
fn cpp_client() -> &'static Path {
    static CLIENT: LazyLock<(TempDir, PathBuf)> = LazyLock::new(|| {
        let directory = TempDir::new().expect("a directory");
        let program = directory.path().join("grpc_push");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cpp/grpc_push.cc");
        let mut compiler = Command::new(std::env::var_os("CXX").unwrap_or("c++".into()));
        compiler
            .arg("-std=c++17")
            .arg("-I")
            .arg(testenv("grpc-cpp").join("usr/include"))
            .arg(source)
            .arg("-o")
            .arg(&program)
            .arg("-L")
            .arg(libraries())
            .args(["-Wl,--copy-dt-needed-entries", "-lgrpc++", "-lgrpc", "-lgpr"])
            .env("LD_LIBRARY_PATH", libraries());
        assert!(compiler.status().expect("a C++ compiler").success());
        (directory, program)
    });
    &CLIENT.1
}

/// Where Debian has libraries: below the name of the architecture.
fn libraries() -> PathBuf {
    let directories = fs::read_dir(testenv("grpc-cpp").join("usr/lib")).expect("the part is installed");
    let found = directories
        .filter_map(|entry| Some(entry.ok()?.path()))
        .find(|path| path.join("libgrpc++.so").exists());
    found.expect("the library is there")
}

/// Sends a point several times over one channel.
fn push_by_cpp(socket: &str, authority: &str) {
    let mut client = Command::new(cpp_client())
        .args([&format!("unix:{socket}"), METHOD, &CALLS.to_string(), authority])
        .env("LD_LIBRARY_PATH", libraries())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the client starts");
    let mut input = client.stdin.take().expect("it is piped");
    input.write_all(&one_point()).expect("it is read");
    drop(input);
    let output = client.wait_with_output().expect("the client ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), CALLS.to_string());
}

#[test]
fn grpcio_is_served_at_a_unix_socket() {
    let hop = Hop::start();
    let calls = Script::new("grpc_push.py")
        .args(["--endpoint", &format!("unix:{}", hop.socket)])
        .args(["--calls", &CALLS.to_string(), "--method", METHOD]);
    let answers = calls
        .text_from(&one_point())
        .unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(answers.trim(), CALLS.to_string());
    hop.check(CALLS, CALLS);
}

#[test]
fn the_python_sdk_is_served_at_a_unix_socket() {
    let hop = Hop::start();
    let report = Script::new("otel_push.py")
        .args([
            "--protocol",
            "grpc",
            "--endpoint",
            &format!("unix:{}", hop.socket),
        ])
        .args(["--compression", "gzip", "--flushes", "2"])
        .json();
    let metrics = report["metrics"].as_array().expect("metrics");
    let points = metrics
        .iter()
        .map(|metric| metric["points"].as_array().expect("points").len());
    hop.check(2 * points.sum::<usize>(), 2);
}

#[test]
fn a_client_in_cpp_is_served_at_a_unix_socket() {
    let hop = Hop::start();
    // Newer releases of the library choose this; the 1.51 of Debian 12 would send `localhost`.
    let authority = hop.socket.trim_start_matches('/').replace('/', "%2F");
    push_by_cpp(&hop.socket, &authority);
    hop.check(CALLS, CALLS);
}

#[test]
fn a_path_that_is_not_encoded_is_served_too() {
    let hop = Hop::start();
    push_by_cpp(&hop.socket, &hop.socket);
    hop.check(CALLS, CALLS);
}

/// HTTP/1.1 and gRPC share the port of `http`.
#[test]
fn http_1_is_served_at_a_unix_socket_as_before() {
    let sink = OtlpSink::start();
    let gateway = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: 'unix:otlp.sock'}}}}}}}}
exporters: {{otlp: {{endpoint: '{}', compression: none, tls: {{insecure: true}}}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}}}
",
        sink.endpoint()
    ));
    let mut stream = std::os::unix::net::UnixStream::connect(gateway.path("otlp.sock")).expect("it listens");
    let body = one_point();
    let head = format!(
        "POST /v1/metrics HTTP/1.1\r\nhost: %2Fotlp.sock\r\ncontent-type: application/x-protobuf\r\n\
         content-length: {}\r\nconnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).expect("it is read");
    stream.write_all(&body).expect("it is read");
    let answer = std::io::read_to_string(stream).expect("it answers");
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    sink.wait_until("the point arrives", |sink| sink.points().len() == 1);
    assert_eq!(
        gateway.own_metric("otelcol_receiver_accepted_metric_points", &[]),
        1.0
    );
    gateway.stop();
}
