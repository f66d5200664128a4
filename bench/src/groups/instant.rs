// SPDX-License-Identifier: Apache-2.0

//! How soon a query, a reader of composites and a watcher know of an event.
//!
//! As for `age`, but asked in PromQL; then single reads of a composite beside 100,000 series; then crossings of a
//! threshold, from the event in the ring to the line in the watcher's stream.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_ring::{Event, Layout, Writer};

use super::age::{PROBE_KIND, PROBE_METRIC, of_probe};
use super::agents;
use crate::BenchError;
use crate::gateway::{Gateway, free_port};
use crate::http::Scraper;
use crate::otlp::request::{PointKind, RequestShape};
use crate::report::{Budget, Row};
use crate::stalls::Stalls;
use crate::stats::Samples;

const EVENTS: usize = 10_000;
/// Load beside the probe: its name, what eight agents flush every 10 ms each, and the budget of p99.
const LOADS: [(&str, usize, f64); 2] = [("idle", 0, 20.0), ("100k events/s", 125, 50.0)];
/// Series beside the composite that is read, in requests of this number of points.
const SERIES: usize = 100_000;
const REQUEST_POINTS: usize = 10_000;
const READS: usize = 10_000;
const CROSSINGS: usize = 500;
const CROSSING_BUDGET_MS: f64 = 30.0;
const PATIENCE: Duration = Duration::from_secs(10);
/// Until a gateway on one core has counted a million new series.
const LONGEST_COUNT: Duration = Duration::from_secs(60);

/// A gateway with everything that is asked here.
pub(super) struct QueriedGateway {
    _gateway: Gateway,
    pub(super) admin: u16,
    pub(super) otlp: u16,
    rings: tempfile::TempDir,
}

pub(super) fn start(binary: &Path) -> Result<QueriedGateway, BenchError> {
    let rings = agents::directory()?;
    let (admin, otlp) = (free_port()?, free_port()?);
    let config = format!(
        r#"
extensions:
  admin: {{endpoint: "127.0.0.1:{admin}"}}
receivers:
  nixl: {{directories: ["{}"]}}
  otlp: {{protocols: {{http: {{endpoint: "127.0.0.1:{otlp}"}}}}}}
processors:
  composite:
    composites:
      - {{name: probe, metric: agent_memory_deregistered, function: last, across: pool, window: 60s}}
  aggregate: {{rules: [nixl, {{match: {{name: "bench.*"}}}}, {{match: {{name: "load"}}}}, {{match: {{name: "latency"}}}}], max_series: 2000000}}
exporters:
  prometheus: {{endpoint: "127.0.0.1:PORT"}}
service:
  extensions: [admin]
  telemetry: {{metrics: {{address: "127.0.0.1:0"}}}}
  pipelines:
    metrics: {{receivers: [nixl, otlp], processors: [composite, aggregate], exporters: [prometheus]}}
"#,
        rings.path().display()
    );
    let mut gateway = Gateway::start(binary, &config)?;
    gateway.first_scrape()?;
    Ok(QueriedGateway {
        _gateway: gateway,
        admin,
        otlp,
        rings,
    })
}

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for (name, flush, budget) in LOADS {
        let subject = start(binary)?;
        let path = format!("/api/v1/query?query=sum({PROBE_METRIC})%20or%20vector(0)");
        let mut asker = Scraper::connect(subject.admin, &path)?;
        let look = move || number(asker.get()?);
        let stalls = Stalls::watch()?;
        let ages = of_probe(subject.rings.path(), flush, EVENTS, look)?;
        rows.extend(stood_still(name, stalls));
        rows.extend([
            Row::value(format!("query, {name}: p50"), ages.median(), "ms"),
            Row::value(
                format!("query, {name}: p99 of {}", ages.count()),
                ages.quantile(0.99),
                "ms",
            )
            .budget(Budget::AtMost(budget)),
        ]);
    }
    let subject = start(binary)?;
    fill(&subject, SERIES)?;
    let reads = reads(&subject)?;
    rows.extend([
        Row::value("composite over HTTP, 100k series: p50", reads.median(), "µs"),
        Row::value(
            "composite over HTTP, 100k series: p99",
            reads.quantile(0.99),
            "µs",
        ),
    ]);
    let stalls = Stalls::watch()?;
    let crossings = crossings(&subject)?;
    rows.extend(stood_still("crossing", stalls));
    rows.extend([
        Row::value("crossing in a watcher's stream: p50", crossings.median(), "ms"),
        Row::value(
            "crossing in a watcher's stream: p99",
            crossings.quantile(0.99),
            "ms",
        )
        .budget(Budget::AtMost(CROSSING_BUDGET_MS)),
        Row::value("crossing in a watcher's stream: latest", crossings.max(), "ms"),
    ]);
    Ok(rows)
}

/// The effect of the host on the measurement: how often, and for how long at most, it stopped the gateway's core.
fn stood_still(name: &str, stalls: Stalls) -> [Row; 2] {
    let stalls = stalls.finish();
    let longest = stalls.iter().map(|(from, to)| *to - *from).max();
    [
        Row::value(
            format!("{name}: the host stopped the gateway's core"),
            stalls.len() as f64,
            "times",
        ),
        Row::value(
            format!("{name}: the longest of these"),
            longest.unwrap_or_default().as_secs_f64() * 1e3,
            "ms",
        ),
    ]
}

/// The single number of an answer.
fn number(answer: &str) -> Result<f64, BenchError> {
    let answer: serde_json::Value = serde_json::from_str(answer)?;
    let text = answer["data"]["result"][0]["value"][1].as_str();
    Ok(text.ok_or("an answer without a number")?.parse()?)
}

/// Pushes points of `series` series.
pub(super) fn fill(subject: &QueriedGateway, series: usize) -> Result<(), BenchError> {
    let points = series.min(REQUEST_POINTS);
    for source in 0..series / points {
        // Each from a source of its own: several under one identity would be one source to queries.
        let shape = RequestShape {
            kind: PointKind::Mixed,
            points,
            source,
            seed: 0,
        };
        let body = shape.encode();
        let mut stream = TcpStream::connect(("127.0.0.1", subject.otlp))?;
        write!(
            stream,
            "POST /v1/metrics HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-type: application/x-protobuf\r\ncontent-length: {}\r\n\r\n",
            body.len()
        )?;
        stream.write_all(&body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        if !answer.starts_with(b"HTTP/1.1 200") {
            return Err(String::from_utf8_lossy(&answer).into());
        }
    }
    // The first look at a million new series may take longer than a query may.
    let begun = Instant::now();
    loop {
        match counted(subject) {
            Ok(counted) if counted as usize >= series => return Ok(()),
            Ok(counted) => return Err(format!("{counted} series instead of {series}").into()),
            Err(error) if begun.elapsed() > LONGEST_COUNT => return Err(error),
            Err(_) => {}
        }
    }
}

/// How many series queries know.
fn counted(subject: &QueriedGateway) -> Result<u64, BenchError> {
    let mut counter = Scraper::connect(subject.admin, "/api/v1/status/tsdb")?;
    let status: serde_json::Value = serde_json::from_str(counter.get()?)?;
    let counted = status["data"]["headStats"]["numSeries"].as_u64();
    counted.ok_or_else(|| format!("no count of series: {status}").into())
}

fn reads(subject: &QueriedGateway) -> Result<Samples, BenchError> {
    let mut reader = Scraper::connect(subject.admin, "/api/v1/composites/probe")?;
    let mut times = Vec::with_capacity(READS);
    for _ in 0..READS {
        let begun = Instant::now();
        reader.get()?;
        times.push(begun.elapsed().as_secs_f64() * 1e6);
    }
    Ok(Samples::new(times))
}

fn event(value: u64) -> Event {
    Event {
        kind: PROBE_KIND,
        value,
        timestamp_us: 0,
    }
}

fn crossings(subject: &QueriedGateway) -> Result<Samples, BenchError> {
    let mut ring = Writer::create(subject.rings.path().join("probe"), Layout::V4, 4096)?;
    ring.push_all(&[event(1)]);
    let stream = TcpStream::connect(("127.0.0.1", subject.admin))?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut stream = BufReader::new(stream);
    let path = "/api/v1/composites/probe/watch?above=500&clear=500";
    write!(stream.get_mut(), "GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n")?;
    let mut times = Vec::with_capacity(CROSSINGS);
    for crossing in 0..=CROSSINGS {
        let is_up = crossing % 2 == 0;
        let begun = Instant::now();
        ring.push_all(&[event(if is_up { 1000 } else { 1 })]);
        let wanted = if is_up {
            "\"state\":\"crossed\""
        } else {
            "\"state\":\"cleared\""
        };
        let mut line = String::new();
        while !line.contains(wanted) {
            line.clear();
            if stream.read_line(&mut line)? == 0 {
                return Err("the stream has ended".into());
            }
        }
        // The first one waits for the ring to be found.
        if crossing > 0 {
            times.push(begun.elapsed().as_secs_f64() * 1e3);
        }
        // At another moment of the gateway's tick each time.
        std::thread::sleep(Duration::from_micros(3_000 + 137 * (crossing as u64 % 97)));
    }
    Ok(Samples::new(times))
}
