// SPDX-License-Identifier: Apache-2.0

//! Reloads as the operator, the senders and the readers see them: what changes is applied, all else runs on, and nothing is
//! lost or doubled.

mod drains;
mod files;
mod listeners;
mod refusals;
mod requests;
mod sources;
mod state;

use super::kit::{Gateway, OtlpSink, SOON, free_port, http, wait_for, wait_until};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Points a request.
const POINTS: u64 = 5;

/// A sender that never opens a second connection: a connection that a reload cuts is an error.
struct Sender {
    stream: TcpStream,
    sent: u64,
}

impl Sender {
    fn connect(port: u16) -> Self {
        let stream = TcpStream::connect(("127.0.0.1", port)).expect("a listener");
        stream.set_read_timeout(Some(SOON)).expect("a timeout");
        Self { stream, sent: 0 }
    }

    /// Another connection. Its numbers follow those of this one, which stays open.
    fn reconnected(&self, port: u16) -> Self {
        Self {
            sent: self.sent,
            ..Self::connect(port)
        }
    }

    /// Sends gauges of the next numbers, and as many hits, and waits for the answer.
    fn send(&mut self) -> Result<(), String> {
        let body = request(self.sent..self.sent + POINTS);
        let head = format!(
            "POST /v1/metrics HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        let written = self.stream.write_all((head + &body).as_bytes());
        written.map_err(|error| format!("writing: {error}"))?;
        let status = self.answer()?;
        if status != 200 {
            return Err(format!("the answer is {status}"));
        }
        self.sent += POINTS;
        Ok(())
    }

    /// Reads an answer to its end. Returns its status.
    fn answer(&mut self) -> Result<u16, String> {
        let mut read = Vec::new();
        let mut byte = [0];
        while !read.ends_with(b"\r\n\r\n") {
            let count = self
                .stream
                .read(&mut byte)
                .map_err(|error| format!("reading: {error}"))?;
            if count == 0 {
                return Err("the connection was closed".to_owned());
            }
            read.push(byte[0]);
        }
        let head = String::from_utf8_lossy(&read).to_ascii_lowercase();
        let length = head
            .lines()
            .find_map(|line| line.strip_prefix("content-length: "));
        let length = length.map_or(0, |length| length.trim().parse().expect("a number"));
        let mut body = vec![0; length];
        self.stream
            .read_exact(&mut body)
            .map_err(|error| format!("reading: {error}"))?;
        let status = head.split(' ').nth(1).expect("a status line");
        Ok(status.parse().expect("a status"))
    }
}

fn request(numbers: std::ops::Range<u64>) -> String {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("a clock")
        .as_nanos();
    let hits = numbers.end - numbers.start;
    let points: Vec<_> = numbers
        .map(|number| format!(r#"{{"asInt":"{number}","timeUnixNano":"{now}"}}"#))
        .collect();
    format!(
        r#"{{"resourceMetrics":[{{"scopeMetrics":[{{"metrics":[
        {{"name":"n","gauge":{{"dataPoints":[{}]}}}},
        {{"name":"hits","sum":{{"aggregationTemporality":1,"isMonotonic":true,"dataPoints":[
            {{"asInt":"{hits}","timeUnixNano":"{now}"}}]}}}}]}}]}}]}}"#,
        points.join(",")
    )
}

/// The gauge of the last reload: 1 if its configuration runs, 0 if it was refused.
///
/// # Panics
/// If the gateway does not show it.
fn shown_success(gateway: &Gateway) -> f64 {
    const NAME: &str = "tidegate_config_reload_success";
    let page = gateway.own_metrics();
    assert!(page.lines().any(|line| line.starts_with(NAME)), "{page}");
    gateway.own_metric(NAME, &[])
}

/// A gateway whose configuration the test changes.
struct Live {
    gateway: Gateway,
    admin: u16,
}

impl Live {
    fn start(admin: u16, config: &str) -> Self {
        Self {
            gateway: Gateway::start(config),
            admin,
        }
    }

    /// The past reloads, newest first.
    fn reloads(&self) -> Vec<Value> {
        let answer = http::get(self.admin, "/api/v1/status/config").expect("an answer");
        let list = answer.json()["data"]["reloads"].take();
        serde_json::from_value(list).expect("a list")
    }

    /// The time of the start, in seconds since 1970, as `top` reads it.
    fn started(&self) -> f64 {
        let answer = http::get(self.admin, "/api/v1/status/graph").expect("an answer");
        answer.json()["data"]["started"].as_f64().expect("a number")
    }

    fn write(&self, config: &str) {
        fs::write(self.gateway.path("config.yaml"), config).expect("a file of the test");
    }

    /// Writes a configuration, sends SIGHUP, and returns the result of the reload.
    fn apply(&self, config: &str) -> Value {
        let last = self.reloads().first().cloned();
        self.write(config);
        self.gateway.signal(Signal::HUP);
        let result = wait_for(SOON, "the reload is over", || {
            let newest = self.reloads().first().cloned();
            newest.filter(|newest| Some(newest) != last.as_ref())
        });
        self.shows(&result);
        result
    }

    /// Checks that the gateway's own metrics show the result of the last reload.
    fn shows(&self, result: &Value) {
        let succeeded = result["success"].as_bool().expect("a result");
        let shown = shown_success(&self.gateway);
        assert_eq!(shown, f64::from(u8::from(succeeded)), "{result}");
    }

    /// The same for one that must run. Returns the lines about changes.
    fn applies(&self, config: &str) -> Vec<String> {
        let result = self.apply(config);
        assert_eq!(result["success"], true, "{result}\n{config}");
        assert_eq!(result["cause"], "SIGHUP");
        serde_json::from_value(result["changed"].clone()).expect("lines")
    }

    /// The same for one that must not run. Returns the error.
    fn refuses(&self, config: &str) -> String {
        let result = self.apply(config);
        assert_eq!(result["success"], false, "{result}\n{config}");
        result["error"].as_str().expect("an error").to_owned()
    }
}

/// The parts of a configuration that differ.
#[derive(Clone, Copy)]
struct Variant {
    /// Options of the exporter to the sink.
    exporter: &'static str,
    /// Options of the aggregate.
    aggregate: &'static str,
    /// Options of the page.
    page: &'static str,
    /// Processors before the exporter.
    processors: &'static str,
    /// More pipelines.
    pipelines: &'static str,
}

const BASE: Variant = Variant {
    exporter: "",
    aggregate: "interval: 1s",
    page: "",
    processors: "",
    pipelines: "",
};

const VARIANTS: [Variant; 6] = [
    Variant {
        processors: "attributes",
        ..BASE
    },
    Variant {
        exporter: "timeout: 7s",
        ..BASE
    },
    Variant {
        aggregate: "interval: 2s",
        processors: "attributes",
        ..BASE
    },
    Variant {
        page: "const_labels: {cluster: a}",
        ..BASE
    },
    Variant {
        pipelines: "metrics/more: {receivers: [otlp], exporters: [debug]}",
        exporter: "timeout: 9s",
        ..BASE
    },
    BASE,
];

#[derive(Clone, Copy)]
struct Ports {
    input: u16,
    admin: u16,
    page: u16,
}

fn ports() -> Ports {
    Ports {
        input: free_port(),
        admin: free_port(),
        page: free_port(),
    }
}

fn config(ports: Ports, sink: &str, variant: Variant) -> String {
    let Ports { input, admin, page } = ports;
    let Variant {
        exporter,
        aggregate,
        page: of_page,
        processors,
        pipelines,
    } = variant;
    format!(
        "extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  attributes: {{actions: [{{key: k, value: v, action: insert}}]}}
  aggregate:
    rules: [{{match: {{name: hits}}, instrument: counter, by: []}}]
    {aggregate}
exporters:
  debug: {{}}
  otlphttp: {{endpoint: \"{sink}\", {exporter}}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\", {of_page}}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: [{processors}], exporters: [otlphttp]}}
    metrics/page: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}
    {pipelines}
"
    )
}

/// The counter on the page, 0 if the page is without it; `None` while the page can't be read.
///
/// # Panics
/// If the page has the counter twice, or its value is not a whole number.
fn hits(page: u16) -> Option<u64> {
    let answer = http::get(page, "/metrics")
        .ok()
        .filter(|answer| answer.status == 200)?;
    let text = answer.text();
    let values = text.lines().filter_map(|line| line.strip_prefix("hits_total"));
    let values = values.filter(|rest| rest.starts_with([' ', '{']));
    let values: Vec<&str> = values.filter_map(|rest| rest.rsplit(' ').next()).collect();
    assert!(values.len() < 2, "{text}");
    let Some(value) = values.first() else {
        return Some(0);
    };
    let value: f64 = value.parse().expect("a number");
    assert_eq!(value.fract(), 0.0, "{text}");
    Some(value as u64)
}

/// How often each number arrived.
fn arrived(sink: &OtlpSink) -> BTreeMap<u64, usize> {
    let mut counts = BTreeMap::new();
    for point in sink.points_of("n") {
        *counts.entry(point.number() as u64).or_default() += 1;
    }
    counts
}

/// Whether all numbers below `sent` have arrived.
///
/// # Panics
/// If a number has arrived twice.
fn all_arrived(sink: &OtlpSink, sent: u64) -> bool {
    let arrived = arrived(sink);
    let doubled: Vec<_> = arrived.iter().filter(|(_, count)| **count != 1).collect();
    assert!(doubled.is_empty(), "numbers that arrived twice: {doubled:?}");
    arrived.len() as u64 == sent
}

#[test]
fn the_time_since_the_start_survives_reloads() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let live = Live::start(ports.admin, &config(ports, &sink.endpoint(), BASE));
    let started = live.started();
    for variant in &VARIANTS[..2] {
        live.applies(&config(ports, &sink.endpoint(), *variant));
        assert_eq!(live.started().to_bits(), started.to_bits());
    }
}

#[test]
fn reloads_under_load_lose_and_double_nothing_and_cut_no_connection() {
    let (ports, sink) = (ports(), OtlpSink::start());
    let of = |variant| config(ports, &sink.endpoint(), variant);
    let live = Live::start(ports.admin, &of(BASE));
    let over = Arc::new(AtomicBool::new(false));
    let is_over = over.clone();
    let sending = thread::spawn(move || {
        let mut sender = Sender::connect(ports.input);
        while !is_over.load(SeqCst) {
            sender.send().unwrap_or_else(|why| panic!("{why}"));
        }
        sender.sent
    });
    let is_over = over.clone();
    let reading = thread::spawn(move || {
        let mut last = 0;
        while !is_over.load(SeqCst) {
            if let Some(now) = hits(ports.page) {
                assert!(now >= last, "the counter fell from {last} to {now}");
                last = now;
            }
        }
        last
    });
    for _ in 0..3 {
        for variant in VARIANTS {
            let changes = live.applies(&of(variant));
            assert!(
                changes.iter().all(|line| !line.contains("receivers::")),
                "{changes:?}"
            );
            live.refuses("receivers: {otlp: {protocol: wrong}}");
        }
    }
    over.store(true, SeqCst);
    let sent = sending.join().expect("a sender without errors");
    assert!(reading.join().expect("a counter that does not fall") > 0);
    sink.wait_until("all arrived", |sink| all_arrived(sink, sent));
    wait_until(SOON, "the page has all hits", || hits(ports.page) == Some(sent));
    let gateway = &live.gateway;
    // Each request has one point of hits beside the numbers.
    let accepted = sent + sent / POINTS;
    assert_eq!(
        gateway.own_metric("otelcol_receiver_accepted_metric_points", &[]) as u64,
        accepted
    );
    assert_eq!(
        gateway.own_metric("tidegate_dropped_items_total", &["otlphttp"]),
        0.0
    );
    gateway.wait_for_idle();
    let delivered = gateway.own_metric(
        "tidegate_component_items_total",
        &["exporters::otlphttp", "flow=\"out\""],
    );
    assert_eq!(delivered as u64, accepted);
    assert!(all_arrived(&sink, sent), "no number came late");
    live.gateway.stop();
}
