// SPDX-License-Identifier: Apache-2.0

//! `tidegate tap` shows the data of a component, and neither slows nor loses it.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::ops::Range;
use std::os::unix::net::UnixDatagram;

use rustix::process::Signal;
use serde_json::Value;

use super::kit::gateway::tidegate;
use super::kit::process::Process;
use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_until};

/// The ports of a gateway, and the sink that it sends to.
struct Scene {
    input: u16,
    admin: u16,
    sink: OtlpSink,
}

impl Scene {
    fn new() -> Self {
        Self {
            input: free_port(),
            admin: free_port(),
            sink: OtlpSink::start(),
        }
    }

    /// A configuration with these options of `admin`. The processor adds the attribute `k` with this value.
    fn config(&self, of_admin: &str, value: &str) -> String {
        let Self { input, admin, sink } = self;
        format!(
            "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\", {of_admin}}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  attributes: {{actions: [{{key: k, value: {value}, action: insert}}]}}
exporters:
  otlphttp: {{endpoint: \"{}\"}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: [attributes], exporters: [otlphttp]}}
    logs: {{receivers: [otlp], exporters: [otlphttp]}}
",
            sink.endpoint()
        )
    }

    /// Starts `tidegate tap` with these arguments.
    fn tap(&self, arguments: &[&str]) -> Process {
        let endpoint = format!("127.0.0.1:{}", self.admin);
        let mut command = tidegate();
        command.arg("tap").args(arguments).args(["--endpoint", &endpoint]);
        Process::start("tidegate tap", &mut command)
    }

    fn post(&self, path: &str, body: &str) -> bool {
        let sent = http::post(self.input, path, "application/json", body.as_bytes());
        sent.is_ok_and(|answer| answer.status == 200)
    }

    /// Sends gauges of these numbers, each with an attribute of `bytes` bytes.
    fn send(&self, metric: &str, numbers: Range<usize>, bytes: usize) -> bool {
        let pad = "x".repeat(bytes);
        let point = |number| {
            format!(
                r#"{{"asInt":"{number}","timeUnixNano":"1","attributes":[
                {{"key":"pad","value":{{"stringValue":"{pad}"}}}}]}}"#
            )
        };
        let points: Vec<String> = numbers.map(point).collect();
        let body = format!(
            r#"{{"resourceMetrics":[{{"resource":{{"attributes":[
            {{"key":"service.name","value":{{"stringValue":"api"}}}}]}},"scopeMetrics":[{{"metrics":[
            {{"name":"{metric}","gauge":{{"dataPoints":[{}]}}}}]}}]}}]}}"#,
            points.join(",")
        );
        self.post("/v1/metrics", &body)
    }

    /// Sends two gauges and two log records.
    fn send_some(&self) -> bool {
        let logs = r#"{"resourceLogs":[{"scopeLogs":[{"logRecords":[
            {"severityText":"INFO","body":{"stringValue":"started"}},
            {"severityText":"ERROR","body":{"stringValue":"disk full"}}]}]}]}"#;
        self.send("load", 1..2, 1) && self.send("depth", 2..3, 1) && self.post("/v1/logs", logs)
    }

    /// The output of a tap with a limit, while data pass.
    fn tapped(&self, arguments: &[&str]) -> Vec<String> {
        let mut tap = self.tap(arguments);
        wait_until(SOON, "the tap has all items that it wants", || {
            self.send_some() && tap.status().is_some()
        });
        let status = tap.wait(SOON);
        assert_eq!(status.code(), Some(0), "{}", tap.stderr.text());
        tap.stdout.text().lines().map(str::to_owned).collect()
    }

    /// The output of a tap that the gateway refuses.
    fn refused(&self, arguments: &[&str]) -> String {
        let mut tap = self.tap(arguments);
        let status = tap.wait(SOON);
        assert_eq!(status.code(), Some(1), "{}", tap.stdout.text());
        tap.stderr.text()
    }
}

#[test]
fn a_tap_prints_items_as_text_and_as_json_by_their_labels() {
    let scene = Scene::new();
    let gateway = Gateway::start(&scene.config("tap: true", "v1"));
    let text = scene.tapped(&["attributes", "--where", "depth", "--limit", "2"]);
    assert_eq!(text, ["depth{k=v1, pad=x} 2"; 2]);
    let input = [
        "attributes",
        "--input",
        "--where",
        "name=~\"l.*\"",
        "--limit",
        "1",
    ];
    assert_eq!(scene.tapped(&input), ["load{pad=x} 1"]);
    let at_exporter = ["otlphttp", "--pipeline", "logs", "--where", "severity=\"ERROR\""];
    let json = scene.tapped(&[&at_exporter[..], &["--format", "json", "--limit", "1"]].concat());
    assert_eq!(json.len(), 1);
    let line: Value = serde_json::from_str(&json[0]).expect("JSON");
    let records = &line["resourceLogs"][0]["scopeLogs"][0]["logRecords"];
    assert_eq!(records[0]["body"]["stringValue"], "disk full");
    assert_eq!(records.as_array().map(Vec::len), Some(1));
    let at_receiver = [
        "otlp",
        "--where",
        "service_name=\"api\"",
        "--format",
        "json",
        "--limit",
        "1",
    ];
    let json = scene.tapped(&at_receiver);
    let line: Value = serde_json::from_str(&json[0]).expect("JSON");
    let resource = &line["resourceMetrics"][0]["resource"];
    assert_eq!(resource["attributes"][0]["key"], "service.name");
    gateway.stop();
}

#[test]
fn a_tap_that_reads_nothing_neither_slows_nor_loses_data() {
    const REQUESTS: usize = 60;
    const POINTS: usize = 500;
    let scene = Scene::new();
    let gateway = Gateway::start(&scene.config("tap: true, max_tap_items_per_second: 1000000", "v"));
    let mut tap = TcpStream::connect(("127.0.0.1", scene.admin)).expect("a listener");
    tap.set_read_timeout(Some(SOON)).expect("a timeout");
    let request = format!(
        "GET /api/v1/tap?component=otlphttp HTTP/1.1\r\nhost: 127.0.0.1:{}\r\n\r\n",
        scene.admin
    );
    tap.write_all(request.as_bytes()).expect("a connection");
    let (mut read, mut buffer) = (Vec::new(), vec![0; 64 << 10]);
    while !read.windows(4).any(|four| four == b"\r\n\r\n") {
        let count = tap.read(&mut buffer).expect("a head");
        assert!(count > 0);
        read.extend_from_slice(&buffer[..count]);
    }
    assert!(read.starts_with(b"HTTP/1.1 200"));
    for at in 0..REQUESTS {
        wait_until(SOON, "the request is taken", || {
            scene.send("n", at * POINTS..(at + 1) * POINTS, 1 << 10)
        });
    }
    let skipped = b"event: skipped\ndata: {\"batches\":";
    loop {
        let count = tap.read(&mut buffer).expect("the tap goes on");
        assert!(count > 0, "the stream ended without a number of skipped batches");
        let overlap = read.len().saturating_sub(skipped.len());
        read.drain(..overlap);
        read.extend_from_slice(&buffer[..count]);
        if read.windows(skipped.len()).any(|part| part == skipped) {
            break;
        }
    }
    let total = REQUESTS * POINTS;
    wait_until(SOON, "all points are sent", || {
        gateway.own_metric("otelcol_exporter_sent_metric_points", &["otlphttp"]) as usize == total
    });
    let arrived = scene.sink.points_of("n");
    let numbers: BTreeSet<usize> = arrived.iter().map(|point| point.number() as usize).collect();
    assert_eq!((arrived.len(), numbers.len()), (total, total));
    assert_eq!(gateway.own_metric("tidegate_dropped_items_total", &[]), 0.0);
    drop(tap);
    gateway.stop();
}

#[test]
fn a_tap_goes_on_after_a_reload_of_its_component_and_after_a_restart() {
    let scene = Scene::new();
    let gateway = Gateway::start(&scene.config("tap: true", "v1"));
    let mut tap = scene.tap(&["attributes", "--where", "load"]);
    let stdout = tap.stdout.clone();
    let shows = |value: &str| scene.send_some() && stdout.find(&format!("load{{k={value},")).is_some();
    tap.wait_until("it shows items", || shows("v1"));
    fs::write(gateway.path("config.yaml"), scene.config("tap: true", "v2")).expect("a file of the test");
    gateway.signal(Signal::HUP);
    tap.wait_until("it shows items of the new component", || shows("v2"));
    assert!(
        !tap.stderr.text().contains("connecting again"),
        "{}",
        tap.stderr.text()
    );
    gateway.stop();
    let gateway = Gateway::start(&scene.config("tap: true", "v3"));
    tap.wait_until("it shows items of the new gateway", || shows("v3"));
    assert!(tap.stderr.text().contains("connecting again"));
    gateway.stop();
}

#[test]
fn a_tap_needs_permission_and_a_component_that_runs() {
    let scene = Scene::new();
    let gateway = Gateway::start(&scene.config("", "v"));
    let answer = http::get(scene.admin, "/api/v1/tap?component=otlphttp").expect("an answer");
    assert_eq!(answer.status, 403);
    let said = scene.refused(&["otlphttp"]);
    assert!(said.contains("`tap: true`"), "{said}");
    gateway.stop();
    let scene = Scene::new();
    let gateway = Gateway::start(&scene.config("tap: true", "v"));
    let said = scene.refused(&["otlphtp"]);
    assert!(said.contains("did you mean `otlphttp`?"), "{said}");
    gateway.stop();
    let config = scene.config("tap: true", "v").replace(
        &format!("127.0.0.1:{}", scene.admin),
        &format!("0.0.0.0:{}", scene.admin),
    );
    let config = config.replace("[health_check, admin]", "[admin]");
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("config.yaml");
    fs::write(&path, config).expect("a file of the test");
    let output = tidegate().args(["validate", "--config"]).arg(&path).output();
    let output = output.expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("shows the contents of data"), "{said}");
}

#[test]
fn events_of_a_socket_are_shown_as_points() {
    let (admin, directory) = (free_port(), tempfile::tempdir().expect("a directory"));
    let socket = directory.path().join("statsd.sock");
    let gateway = Gateway::start(&format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\", tap: true}}}}
receivers: {{uds: {{datagram: {{path: {socket:?}}}}}}}
exporters: {{nop: }}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [uds], exporters: [nop]}}}}
"
    ));
    let endpoint = format!("127.0.0.1:{admin}");
    let mut command = tidegate();
    command.args(["tap", "uds", "--limit", "1", "--endpoint", &endpoint]);
    let mut tap = Process::start("tidegate tap", &mut command);
    let sender = UnixDatagram::unbound().expect("a socket");
    wait_until(SOON, "the tap shows an event", || {
        sender.send_to(b"hits:7|c", &socket).expect("taken");
        tap.status().is_some()
    });
    assert_eq!(tap.wait(SOON).code(), Some(0));
    let shown = tap.stdout.text();
    assert!(shown.starts_with("hits{") && shown.ends_with(" 7\n"), "{shown}");
    gateway.stop();
}
