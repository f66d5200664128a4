//! Queries beside a Prometheus 3 that is sent the same samples: one request of 50,000 counters a second to both, then
//! the same queries to both in turns.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use prost::Message;
use tempfile::TempDir;
use tidegate_requests::{attribute, counter, int, request};

use crate::Error;
use crate::gateway::free_port;
use crate::groups::instant::Subject;
use crate::http::Scraper;
use crate::process::Process;
use crate::report::{Budget, Row};
use crate::stats::Samples;

const SERIES: usize = 50_000;
/// Requests, one a second.
const REQUESTS: u64 = 60;
/// Seconds of a range query, with a step of one.
const STEPS: u64 = 40;
const RUNS: usize = 9;
/// Of the time that Prometheus takes.
const RATIO: f64 = 0.8;
const ONE_OF_MANY_MS: f64 = 0.5;
/// Where the test environment has a Prometheus 3.
const PROGRAM: &str = "debian-unstable/usr/bin/prometheus";

/// Names of rows, and queries.
const QUERIES: [(&str, &str); 5] = [
    ("sum", "sum(load_total)"),
    ("sum of rates by label", "sum by (zone) (rate(load_total[10s]))"),
    ("topk", "topk(5, load_total)"),
    ("filter", "count(load_total > 100)"),
    ("one of many", "load_total{series=\"s77\"}"),
];

/// A connection to either, for any query.
struct Asked {
    port: u16,
}

impl Asked {
    /// Milliseconds that an answer takes.
    fn time(&self, path: &str) -> Result<f64, Error> {
        let mut asker = Scraper::connect(self.port, path)?;
        asker.get()?;
        let begun = Instant::now();
        asker.get()?;
        Ok(begun.elapsed().as_secs_f64() * 1e3)
    }
}

pub(super) fn run(subject: &Subject) -> Result<Vec<Row>, Error> {
    let Some(program) = program() else {
        let cure = "set TIDEGATE_TESTENV to the test environment that `cargo xtask setup` makes";
        return Ok(vec![Row::note("queries beside Prometheus 3", cure)]);
    };
    let port = free_port()?;
    let mut prometheus = start(&program, port)?;
    prometheus.wait_for(|| Scraper::connect(port, "/-/ready")?.get().map(drop))?;
    feed(subject.otlp, port)?;
    let end = seconds();
    let (ours, theirs) = (Asked { port: subject.admin }, Asked { port });
    let mut rows = Vec::new();
    for (name, query) in QUERIES {
        let query: String = query.bytes().map(|byte| format!("%{byte:02x}")).collect();
        let start = end - STEPS;
        for (kind, path) in [
            ("instant", format!("/api/v1/query?query={query}&time={end}")),
            (
                "range",
                format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=1"),
            ),
        ] {
            let times = (0..RUNS).map(|_| Ok((ours.time(&path)?, theirs.time(&path)?)));
            let times: Vec<(f64, f64)> = times.collect::<Result<_, Error>>()?;
            let of = |of: fn(&(f64, f64)) -> f64| Samples::new(times.iter().map(of));
            let title = format!("{kind} query of {SERIES} series, {name}");
            let mine = Row::median(format!("{title}: tidegate"), of(|times| times.0), "ms");
            rows.push(match (name, kind) {
                ("one of many", "instant") => mine.budget(Budget::AtMost(ONE_OF_MANY_MS)),
                _ => mine,
            });
            rows.push(Row::median(
                format!("{title}: Prometheus 3"),
                of(|times| times.1),
                "ms",
            ));
            let ratio = Row::median(
                format!("{title}: of Prometheus's time"),
                of(|times| times.0 / times.1),
                "times",
            );
            rows.push(ratio.budget(Budget::AtMost(RATIO)));
        }
    }
    Ok(rows)
}

fn program() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("TIDEGATE_TESTENV")?);
    Some(directory.join(PROGRAM)).filter(|program| program.exists())
}

fn start(program: &PathBuf, port: u16) -> Result<Process, Error> {
    let directory = TempDir::new()?;
    let config = directory.path().join("prometheus.yml");
    std::fs::write(&config, "{}")?;
    let mut command = Command::new(program);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", directory.path().display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--web.enable-otlp-receiver", "--log.level=error"]);
    Process::start(command, directory)
}

fn seconds() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_secs())
}

/// Sends the same to both, once a second.
fn feed(ours: u16, theirs: u16) -> Result<(), Error> {
    let began = seconds() * 1_000_000_000;
    let mut senders = [
        (Scraper::connect(ours, "/")?, "/v1/metrics"),
        (Scraper::connect(theirs, "/")?, "/api/v1/otlp/v1/metrics"),
    ];
    let begun = Instant::now();
    for round in 1..=REQUESTS {
        let body = body(began, round);
        for (sender, path) in &mut senders {
            sender.post(path, "application/x-protobuf", &body)?;
        }
        let next = Duration::from_secs(round);
        std::thread::sleep(next.saturating_sub(begun.elapsed()));
    }
    Ok(())
}

/// All counters, each risen by a number of its own.
fn body(began: u64, round: u64) -> Vec<u8> {
    let now = seconds() * 1_000_000_000;
    let points = (0..SERIES).map(|series| {
        let mut point = int((round * (series as u64 % 97 + 1)) as i64);
        point.start_time_unix_nano = began;
        point.time_unix_nano = now;
        point.attributes = vec![
            attribute("series", format!("s{series}")),
            attribute("zone", format!("z{}", series % 10)),
            attribute("node", format!("n{}", series / 100)),
        ];
        point
    });
    let resource = vec![attribute("service.name", "bench")];
    request(resource, "", [counter("load", points)]).encode_to_vec()
}
