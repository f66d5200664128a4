// SPDX-License-Identifier: Apache-2.0

//! A long run under everything at once, that looks for what short tests can't see: memory that grows, events that
//! vanish, counters that fall.
//!
//! Agents come, restart with other versions and go; OTLP clients push by HTTP and gRPC to a peer that is down a third of the
//! time; StatsD lines arrive, and the gateway scrapes its own metrics. At the end every event that was in a ring and every
//! StatsD line must have been served, every point that was pushed must have been delivered, and memory must have stayed
//! where it was. Meanwhile, no counter may fall or end, on the page and among the gateway's own metrics.
//!
//! With reloads, the configuration of rings, OTLP and scrapes changes 100 times a minute meanwhile. The connection of the
//! client with HTTP may not be cut, and no request that is open during a reload may wait long for its answer.

mod answers;
mod counters;
mod load;
mod peer;
mod reloads;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use crate::BenchError;
use crate::gateway::{Gateway, free_port};
use crate::groups::agents;
use crate::http;
use crate::progress::LongTask;
use answers::AnswerTimes;
use counters::WatchedPages;
use load::{Agents, Pushes};
use peer::Peer;

/// Between two looks at memory.
const LOOK: Duration = Duration::from_secs(5);
/// Between two looks at all counters.
const COUNTER_LOOK: Duration = Duration::from_millis(500);
/// With reloads, the longest time until a page answers and has all its counters. A listener that changes closes for some
/// milliseconds, and its successor answers when all components of its page run.
const RELOAD_PATIENCE: Duration = Duration::from_secs(5);
/// Memory is compared from this part of the run on: tables, pools and the allocator have their size by then.
const WARM: f64 = 0.3;
/// The most growth of memory after that.
const GROWTH_MIB: f64 = 6.0;
/// After this time, the contents of queues and rings at the end are delivered.
const DRAIN: Duration = Duration::from_secs(30);
/// The counter of the transfers of all rings.
const TRANSFERS: &str = "nixl_node_tx_requests_num_total";
/// The most that the p99 of answers to OTLP requests during reloads may be, in milliseconds.
const ANSWER_MS: f64 = 50.0;

const CONFIG: &str = r#"
receivers:
  nixl: {directories: ["RINGS"]}
  otlp: {protocols: {http: {endpoint: "127.0.0.1:OTLP"}, grpc: {endpoint: "127.0.0.1:GRPC"}}}
  uds: {datagram: {path: "RINGS/.statsd.sock"}}
  prometheus:
    config:
      scrape_configs: [{job_name: gateway, scrape_interval: 1s, static_configs: [{targets: ["127.0.0.1:OWN"]}]}]
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 512}
  aggregate: {rules: nixl}
  composite:
    composites:
      - {name: xfer_time_avg, metric: agent_xfer_time, function: avg, window: 10s, by: [agent_name]}
exporters:
  nop: {}
  prometheus: {endpoint: "127.0.0.1:PORT"}
  otlphttp:
    endpoint: "http://127.0.0.1:PEER"
    compression: none
    retry_on_failure: {initial_interval: 50ms, max_interval: 500ms, max_elapsed_time: 0s}
service:
  telemetry:
    logs: {level: error}
    metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: OWN}}}}]}
  pipelines:
    metrics/rings: {receivers: [nixl, uds], processors: [memory_limiter, composite, aggregate], exporters: [prometheus]}
    metrics/pushed: {receivers: [otlp], processors: [memory_limiter], exporters: [otlphttp]}
    metrics/scraped: {receivers: [prometheus], processors: [memory_limiter], exporters: [nop]}
"#;

/// Runs for `time` and fails on the first thing that is not as it should be.
pub(crate) fn run(binary: &Path, time: Duration, with_reloads: bool) -> Result<(), BenchError> {
    let directory = agents::directory()?;
    let peer = Peer::start()?;
    let (own, otlp, grpc) = (free_port()?, free_port()?, free_port()?);
    let statsd = directory.path().join(".statsd.sock");
    let config = CONFIG
        .replace("RINGS", &directory.path().display().to_string())
        .replace("PEER", &peer.port().to_string())
        .replace("OTLP", &otlp.to_string())
        .replace("GRPC", &grpc.to_string())
        .replace("OWN", &own.to_string());
    let mut gateway = Gateway::start(binary, &config)?;
    gateway.first_scrape()?;
    let patience = if with_reloads {
        RELOAD_PATIENCE
    } else {
        Duration::ZERO
    };
    let own_metrics = http::Scraper::connect(own, "/metrics")?;
    let mut pages = WatchedPages::new(gateway.scraper()?, own_metrics, patience);
    let end = Instant::now() + time;
    let has_failed = AtomicBool::new(false);
    let over = || Instant::now() >= end || has_failed.load(Relaxed);
    let looks = thread::scope(|scope| {
        let agents = scope.spawn(|| Agents::new(directory.path())?.run(over));
        let pushes = scope.spawn(|| Pushes::new(otlp).run(over));
        let pushes_by_grpc = scope.spawn(|| load::push_by_grpc(grpc, over));
        let lines = scope.spawn(|| load::send_lines(&statsd, over));
        let reloading = with_reloads.then(|| scope.spawn(|| reloads::run(&gateway, &config, own, over)));
        let looks = check_until(&gateway, &mut pages, end);
        has_failed.store(looks.is_err(), Relaxed);
        let written = agents.join().map_err(|_| "the agents panicked")?;
        let pushed = pushes.join().map_err(|_| "the client with HTTP panicked")?;
        let by_grpc = pushes_by_grpc
            .join()
            .map_err(|_| "the client with gRPC panicked")?;
        let lines = lines.join().map_err(|_| "the client with StatsD panicked")?;
        let reloaded = reloading.map(|reloading| reloading.join().map_err(|_| "the reloads panicked"));
        let reloaded = reloaded.transpose()?;
        // What was seen on the pages is the cause of what follows from it.
        let looks = looks?;
        Ok::<_, BenchError>((looks, written?, pushed?, by_grpc?, lines?, reloaded.transpose()?))
    })?;
    let (looks, written, pushed, by_grpc, datagrams, reloaded) = looks;
    let (points_by_grpc, pushed) = (by_grpc.points, pushed.and(by_grpc));
    let sent = Delivered {
        transfers: written.requests,
        points: pushed.points,
        lines: datagrams,
        times: datagrams,
    };
    wait_for_delivery(&mut pages, &peer, sent)?;
    let growth = growth(&looks);
    println!("ran {} s", time.as_secs());
    println!(
        "rings: {} events written, {} found their ring full, {} restarts, {} agents gone",
        written.events, written.lost, written.restarts, written.gone
    );
    println!(
        "pushed: {} points in {} requests, {points_by_grpc} points of them by gRPC; {} refused and sent again",
        pushed.points, pushed.requests, pushed.refused
    );
    println!("statsd: {} lines in {datagrams} datagrams", 2 * datagrams);
    println!(
        "counters: {} series on two pages, none fell or ended",
        pages.count()
    );
    println!(
        "peer: {} requests taken, {} rejected",
        peer.taken(),
        peer.refused()
    );
    println!(
        "resident memory: {:.1} MiB at {:.0} %, {:+.1} MiB after",
        looks[warm(&looks)],
        WARM * 100.0,
        growth
    );
    let periods = reloaded.as_ref().map(|reloaded| reloaded.periods.as_slice());
    let answers = AnswerTimes::sort(&pushed.exchanges, periods.unwrap_or_default());
    if let Some(reloaded) = &reloaded {
        println!(
            "answers to OTLP requests during reloads: {}",
            answers::figures(&answers.during)
        );
        println!(
            "answers to OTLP requests outside reloads: {}",
            answers::figures(&answers.outside)
        );
        println!(
            "reloads: {} applied, {} refused; the longest took {:?}",
            reloaded.applied,
            reloaded.refused,
            reloaded.longest()
        );
    } else {
        println!("answers to OTLP requests: {}", answers::figures(&answers.outside));
    }
    balanced(&mut http::Scraper::connect(own, "/metrics")?)?;
    if reloaded.is_some() {
        answers.check(ANSWER_MS)?;
    }
    if growth <= GROWTH_MIB {
        Ok(())
    } else {
        Err(format!("memory grew by {growth:.1} MiB: {looks:?}").into())
    }
}

/// Resident memory at every look, in MiB; every scrape must be answered, and no counter may fall or end.
fn check_until(gateway: &Gateway, pages: &mut WatchedPages, end: Instant) -> Result<Vec<f64>, BenchError> {
    let mut memory = Vec::new();
    let mut due = Instant::now() + LOOK;
    let seen = Arc::new((AtomicU64::new(0), AtomicU64::new(0)));
    let shown = seen.clone();
    let _progress = LongTask::new("soak")
        .expected(end.saturating_duration_since(Instant::now()))
        .begin(move || {
            let (transfers, mib) = (shown.0.load(Relaxed), shown.1.load(Relaxed));
            format!("{transfers} transfers served, {mib} MiB resident")
        });
    while Instant::now() < end {
        thread::sleep(COUNTER_LOOK.min(end.saturating_duration_since(Instant::now())));
        pages.look()?;
        seen.0.store(pages.sum(TRANSFERS) as u64, Relaxed);
        let now = Instant::now();
        if now >= due.min(end) {
            due += LOOK;
            let resident = gateway.process().memory_mib()?.0;
            memory.push(resident);
            seen.1.store(resident as u64, Relaxed);
        }
    }
    Ok(memory)
}

/// What was put in, or what has come out.
#[derive(Debug, PartialEq)]
struct Delivered {
    /// Transfers of the rings.
    transfers: u64,
    /// Points of OTLP.
    points: u64,
    /// Lines of StatsD counters.
    lines: u64,
    /// Lines of StatsD timers.
    times: u64,
}

/// Waits until everything has arrived.
fn wait_for_delivery(pages: &mut WatchedPages, peer: &Peer, sent: Delivered) -> Result<(), BenchError> {
    peer.stay_up();
    let deadline = Instant::now() + DRAIN;
    loop {
        pages.look()?;
        let arrived = Delivered {
            transfers: pages.sum(TRANSFERS) as u64,
            points: peer.points(),
            lines: pages.sum("soak_lines_total") as u64,
            times: pages.sum("soak_time_milliseconds_count") as u64,
        };
        if arrived == sent {
            return Ok(());
        }
        if Instant::now() > deadline {
            return Err(format!("sent: {sent:?}; arrived: {arrived:?}").into());
        }
        thread::sleep(Duration::from_millis(100));
    }
}

fn warm(looks: &[f64]) -> usize {
    ((looks.len() as f64 * WARM) as usize).min(looks.len() - 1)
}

/// How much more memory the most of the last third of the run is than the most of what came before it.
fn growth(looks: &[f64]) -> f64 {
    let settled = &looks[warm(looks)..];
    let (first, last) = settled.split_at(settled.len() / 2);
    let most = |looks: &[f64]| looks.iter().copied().fold(0.0, f64::max);
    most(last) - most(if first.is_empty() { last } else { first })
}

/// Nothing may be held for long once all is delivered.
fn balanced(own: &mut http::Scraper) -> Result<(), BenchError> {
    let deadline = Instant::now() + LOOK;
    loop {
        let page = own.get()?;
        let held = http::sum(page, "tidegate_held_items");
        let dropped = http::sum(page, "tidegate_dropped_items_total");
        match (held, dropped) {
            (0.0, 0.0) => return Ok(()),
            // The gateway may be scraping its own page.
            (_, 0.0) if Instant::now() < deadline => thread::sleep(Duration::from_millis(20)),
            _ => return Err(format!("{held} items are held and {dropped} were dropped").into()),
        }
    }
}
