// SPDX-License-Identifier: Apache-2.0

//! The cost of a point and of an event as the number of series grows. Points come over OTLP/HTTP in requests of up to
//! 5,000, each series in the same order every time, as exporters send them, into `aggregate`, whose table Prometheus's
//! exporter shows. Events come out of rings of version 4, of which a thousand are as many as a node can have; with more
//! series than that the engine takes them in by itself, in turns with a bare loop that adds the same values to as many
//! counters: of a million that waits for memory too, ten times as long as of a thousand.
//!
//! On one core the gateway has it to itself, and the load is on another. On all cores the load shares them: processor
//! time is still the gateway's own, but its caches and turns are not.

use std::path::Path;
use std::time::{Duration, Instant};

use tidegate_ring::Layout;

use super::{agents, engine, ring};
use crate::BenchError;
use crate::gateway::{Gateway, free_port};
use crate::http::Scraper;
use crate::picture::{Picture, PlotLine};
use crate::report::{Budget, Row};
use crate::series::{self, SeriesRequest};
use crate::stats::Samples;

const SIZES: [usize; 4] = [1_000, 10_000, 100_000, 1_000_000];
/// Agents whose events come out of rings, and slots and events a turn of each ring.
const AGENTS: [usize; 2] = [100, 1_000];
const CAPACITY: u64 = 4_096;
const TURN: usize = 1_024;
/// A window is at least so long, and every series is fed at least once in it.
const WINDOW: Duration = Duration::from_millis(700);
const WINDOWS: usize = 3;
const ENGINE_RUNS: usize = 7;
/// The number of series at which an event may cost this.
const EVENTS_AT: usize = 100_000;
const EVENT_NS: f64 = 25.0;
/// The limit of the cost of a point with a million series, relative to a thousand.
const GROWTH: f64 = 2.0;
/// The limit of the cost of an event with a million series, relative to a bare addition.
const BARE: f64 = 2.5;
/// The curves, beside what is said of them.
const PICTURE: &str = "docs/growth.svg";

/// Where gateways are started, as people call it.
type Start = fn(&Path, &str) -> Result<Gateway, BenchError>;
const PLACES: [(&str, Start, usize); 2] = [
    ("one core", Gateway::start, 1),
    ("all cores", Gateway::start_on_all_cores, 2),
];

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let (mut rows, mut lines) = (Vec::new(), Vec::new());
    for place in PLACES {
        let mut curve = Vec::new();
        for count in SIZES {
            let measured = points(binary, place, count)?;
            let named = |what: &str| format!("point, {}, {count} series: {what}", place.0);
            curve.push((count as f64, measured.cost_ns.min()));
            rows.push(Row::median(named("processor time"), measured.cost_ns, "ns"));
            rows.push(Row::median(named("a second, as driven"), measured.rate, "/s"));
        }
        let name = format!("point, {}", place.0);
        finish(&name, Some(GROWTH), curve, &mut rows, &mut lines);
    }
    let mut curve = Vec::new();
    for count in AGENTS {
        let (series, cost) = events(binary, count)?;
        curve.push((series as f64, cost.min()));
        let name = format!("event of a ring, one core, {series} series of {count} agents: processor time");
        rows.push(Row::median(name, cost, "ns"));
    }
    lines.push(PlotLine {
        name: "event of a ring, one core".to_owned(),
        points: curve,
    });
    in_the_engine(&mut rows, &mut lines);
    draw(&lines)?;
    Ok(rows)
}

fn in_the_engine(rows: &mut Vec<Row>, lines: &mut Vec<PlotLine>) {
    const NAMES: [&str; 2] = ["event in the engine", "bare addition to a counter"];
    let mut curves = [Vec::new(), Vec::new()];
    for count in SIZES {
        let engine::Dense { event, bare, .. } = engine::dense(count, ENGINE_RUNS);
        for ((name, curve), cost) in NAMES.into_iter().zip(&mut curves).zip([event, bare]) {
            curve.push((count as f64, cost.min()));
            let row = Row::median(format!("{name}, {count} series: processor time"), cost, "ns");
            rows.push(match (name == NAMES[0], count) {
                (true, EVENTS_AT) => row.budget(Budget::AtMost(EVENT_NS)),
                _ => row,
            });
        }
    }
    if let [Some((_, event)), Some((_, bare))] = curves.each_ref().map(|curve| curve.last()) {
        let row = Row::value(format!("{}: 1M series against bare", NAMES[0]), event / bare, "x");
        rows.push(row.budget(Budget::AtMost(BARE)));
    }
    for (name, curve) in NAMES.into_iter().zip(curves) {
        finish(name, None, curve, rows, lines);
    }
}

/// Says how much a million cost of what a thousand cost, of the lowest values, and keeps the line.
fn finish(
    name: &str,
    budget: Option<f64>,
    curve: Vec<(f64, f64)>,
    rows: &mut Vec<Row>,
    lines: &mut Vec<PlotLine>,
) {
    if let (Some((_, few)), Some((_, many))) = (curve.first(), curve.last()) {
        let row = Row::value(format!("{name}: 1M series against 1k"), many / few, "x");
        rows.push(match budget {
            Some(most) => row.budget(Budget::AtMost(most)),
            None => row,
        });
    }
    lines.push(PlotLine {
        name: name.to_owned(),
        points: curve,
    });
}

fn draw(lines: &[PlotLine]) -> Result<(), BenchError> {
    let picture = Picture {
        title: "Processor time of a point and of an event, by series",
        x: "series",
        y: "ns",
        lines,
    };
    // Outside the repository there are no docs, and no picture.
    if Path::new(PICTURE).parent().is_some_and(Path::is_dir) {
        std::fs::write(PICTURE, picture.svg())?;
    }
    Ok(())
}

struct GrowthMeasurement {
    cost_ns: Samples,
    rate: Samples,
}

fn points(
    binary: &Path,
    (_, start, connections): (&str, Start, usize),
    count: usize,
) -> Result<GrowthMeasurement, BenchError> {
    let otlp = free_port()?;
    let config = format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{otlp}'}}}}}}}}
processors: {{aggregate: {{rules: [{{match: {{name: 'bench.*'}}}}], max_series: 2000000}}}}
exporters: {{prometheus: {{endpoint: '127.0.0.1:PORT'}}}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}}}
"
    );
    let mut gateway = start(binary, &config)?;
    gateway.first_scrape()?;
    let mut requests = series::requests(count);
    let mut senders: Vec<Scraper> = (0..connections)
        .map(|_| gateway.connect(otlp))
        .collect::<Result<_, _>>()?;
    let mut value = 0;
    let mut round = |requests: &mut [SeriesRequest]| {
        value += 1;
        feed(requests, &mut senders, value)
    };
    round(&mut requests)?;
    let shown = gateway
        .scraper()?
        .get()?
        .lines()
        .filter(|line| line.starts_with("bench_"))
        .count();
    if shown != count {
        return Err(format!("it shows {shown} of {count} series").into());
    }
    round(&mut requests)?;
    let (mut costs, mut rates) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        let (cpu, begun, mut points) = (gateway.process().cpu()?, Instant::now(), 0.0);
        while begun.elapsed() < WINDOW {
            round(&mut requests)?;
            points += count as f64;
        }
        rates.push(points / begun.elapsed().as_secs_f64());
        costs.push((gateway.process().cpu()? - cpu).as_nanos() as f64 / points);
    }
    Ok(GrowthMeasurement {
        cost_ns: Samples::new(costs),
        rate: Samples::new(rates),
    })
}

/// Every request once, each sender its share.
fn feed(requests: &mut [SeriesRequest], senders: &mut [Scraper], value: u64) -> Result<(), BenchError> {
    let share = requests.len().div_ceil(senders.len());
    std::thread::scope(|scope| {
        let shares = requests.chunks_mut(share).zip(senders);
        let sending: Vec<_> = shares
            .map(|(requests, sender)| scope.spawn(move || series::push(requests, sender, value)))
            .collect();
        sending
            .into_iter()
            .try_for_each(|sent| sent.join().unwrap_or_else(|_| Err("a sender panicked".into())))
    })
}

/// Series that `count` agents make, and what an event of theirs costs.
fn events(binary: &Path, count: usize) -> Result<(usize, Samples), BenchError> {
    let directory = agents::directory()?;
    let rings = agents::rings(directory.path(), "rank_", count, Layout::V4, CAPACITY)?;
    let gateway = agents::gateway(binary, directory.path())?;
    let windows = ring::saturate(&gateway, rings, CAPACITY, TURN)?;
    let page = gateway.scraper()?.get()?.to_owned();
    let series = page.lines().filter(|line| line.starts_with("agent_")).count();
    let costs = Samples::new(windows.iter().map(ring::RingWindow::ns_per_event));
    Ok((series, costs))
}
