// SPDX-License-Identifier: Apache-2.0

//! Queries beside a Prometheus 3 that is sent the same samples: 50,000 counters and some histograms a second to both, by
//! OTLP to us and by remote write to it, and between two requests the same queries to both in turns. Both must give the
//! same answers.

mod answers;
mod written;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use answers::{Likeness, compare};
use opentelemetry_proto::tonic::metrics::v1::HistogramDataPoint;
use prost::Message;
use tempfile::TempDir;
use tidegate_requests::{attribute, counter, histogram, int, request};
use written::Written;

use crate::BenchError;
use crate::gateway::free_port;
use crate::groups::instant::{self, QueriedGateway};
use crate::http::Scraper;
use crate::process::Process;
use crate::report::{Budget, Row};
use crate::stats::Samples;

const SERIES: usize = 50_000;
const HISTOGRAMS: usize = 1000;
const BOUNDS: [f64; 9] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5];
/// Requests before the first query, one a second.
const REQUESTS: u64 = 50;
/// Seconds of a range query, with a step of one.
const STEPS: u64 = 40;
const RUNS: usize = 15;
/// After this time, both have finished the work on a request that they answered.
const SETTLE: Duration = Duration::from_millis(250);
/// No query begins so shortly before the next request.
const BEFORE_NEXT: Duration = Duration::from_millis(200);
/// Of the time that Prometheus takes.
const RATIO: f64 = 0.8;
const ONE_OF_MANY_MS: f64 = 0.5;
const ONE_OF_MANY: &str = "one of many";
const INSTANT: &str = "instant";
/// The service, which is the job of its series.
const JOB: &str = "bench";
/// Where the test environment has a Prometheus 3.
const PROGRAM: &str = "debian-unstable/usr/bin/prometheus";

/// A rate over ten seconds sees a request more or less.
const RATES: Likeness = Likeness::Near(0.25);
/// All buckets grow alike: their shares hardly depend on the moment.
const SHARES: Likeness = Likeness::Near(0.01);

/// Names of rows, queries, and how alike their answers are.
const QUERIES: [(&str, &str, Likeness); 7] = [
    ("sum", "sum(load_total)", Likeness::Equal),
    ("sum by label", "sum by (zone) (load_total)", Likeness::Equal),
    (
        "sum of rates by label",
        "sum by (zone) (rate(load_total[10s]))",
        RATES,
    ),
    ("topk", "topk(5, load_total)", Likeness::Ranks),
    ("filter", "count(load_total > 100)", Likeness::Equal),
    (
        "quantile of histograms",
        "histogram_quantile(0.99, sum by (le) (rate(latency_bucket[10s])))",
        SHARES,
    ),
    (ONE_OF_MANY, "load_total{series=\"s77\"}", Likeness::Equal),
];

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let Some(program) = program() else {
        let cure = "set TIDEGATE_TESTENV to the test environment that `cargo xtask setup` makes";
        return Ok(vec![Row::note("queries beside Prometheus 3", cure)]);
    };
    let subject = instant::start(binary)?;
    let port = free_port()?;
    let mut prometheus = start(&program, port)?;
    prometheus.wait_for(|| Scraper::connect(port, "/-/ready")?.get().map(drop))?;
    let mut feed = Feed::start(&subject, port)?;
    for _ in 0..REQUESTS {
        feed.wait_and_send()?;
    }
    let ports = [subject.admin, port];
    let mut rows = Vec::new();
    for (name, text, likeness) in QUERIES {
        let query: String = text.bytes().map(|byte| format!("%{byte:02x}")).collect();
        for is_range in [false, true] {
            let asked = BesideQuery {
                query: &query,
                is_range,
            };
            let of_query = |error: BenchError| format!("{text} ({}): {error}", asked.kind());
            // The first answer makes what later ones find.
            let [ours, theirs] = asked.answers(&mut feed, ports).map_err(of_query)?;
            compare(&ours.text, &theirs.text, likeness)
                .map_err(|why| format!("the answers to {text} ({}) differ: {why}", asked.kind()))?;
            let times = asked.times(&mut feed, ports).map_err(of_query)?;
            rows.extend(rows_of(name, asked.kind(), &times));
        }
    }
    Ok(rows)
}

/// A query, for one instant or a range.
struct BesideQuery<'a> {
    /// As it stands in a URL.
    query: &'a str,
    is_range: bool,
}

struct QueryAnswer {
    text: String,
    /// The duration, in ms.
    took: f64,
}

impl BesideQuery<'_> {
    fn kind(&self) -> &'static str {
        if self.is_range { "range" } else { INSTANT }
    }

    /// The durations of the query for us and for Prometheus, in ms, by round.
    fn times(&self, feed: &mut Feed, ports: [u16; 2]) -> Result<Vec<[f64; 2]>, BenchError> {
        let times = (0..RUNS).map(|_| Ok(self.answers(feed, ports)?.map(|answer| answer.took)));
        times.collect()
    }

    /// Our answer and that of Prometheus. No samples come between them.
    fn answers(&self, feed: &mut Feed, [ours, theirs]: [u16; 2]) -> Result<[QueryAnswer; 2], BenchError> {
        feed.keep_up()?;
        let Self { query, is_range } = self;
        let end = now() as f64 / 1e3;
        let start = end - STEPS as f64;
        let path = if *is_range {
            format!("/api/v1/query_range?query={query}&start={start}&end={end}&step=1")
        } else {
            // Of the newest values: a time that has passed sees samples of our past.
            format!("/api/v1/query?query={query}")
        };
        Ok([answer(ours, &path)?, answer(theirs, &path)?])
    }
}

fn answer(port: u16, path: &str) -> Result<QueryAnswer, BenchError> {
    // The connection is there before.
    let mut asker = Scraper::connect(port, "/-/ready")?;
    asker.get()?;
    asker.ask_for(path);
    let begun = Instant::now();
    let text = asker.get()?;
    let took = begun.elapsed().as_secs_f64() * 1e3;
    if text.contains("\"value") {
        Ok(QueryAnswer {
            text: text.to_owned(),
            took,
        })
    } else {
        Err(format!("an empty answer to {path}: {text}").into())
    }
}

fn rows_of(name: &str, kind: &str, times: &[[f64; 2]]) -> [Row; 3] {
    let title = |what: &str| format!("{kind} query of {SERIES} series, {name}: {what}");
    let of = |at: usize| Samples::new(times.iter().map(|both| both[at]));
    let ours = Row::median(title("tidegate"), of(0), "ms");
    let ours = match (name, kind) {
        (ONE_OF_MANY, INSTANT) => ours.budget(Budget::AtMost(ONE_OF_MANY_MS)),
        _ => ours,
    };
    let theirs = Row::median(title("Prometheus 3"), of(1), "ms");
    let ratios = Samples::new(times.iter().map(|[ours, theirs]| ours / theirs));
    let ratio = Row::median(title("of Prometheus's time"), ratios, "x");
    [ours, theirs, ratio.budget(Budget::AtMost(RATIO))]
}

fn program() -> Option<PathBuf> {
    let directory = PathBuf::from(std::env::var_os("TIDEGATE_TESTENV")?);
    Some(directory.join(PROGRAM)).filter(|program| program.exists())
}

fn start(program: &PathBuf, port: u16) -> Result<Process, BenchError> {
    let directory = TempDir::new()?;
    let config = directory.path().join("prometheus.yml");
    std::fs::write(&config, "{}")?;
    let mut command = Command::new(program);
    command
        .arg(format!("--config.file={}", config.display()))
        .arg(format!("--storage.tsdb.path={}", directory.path().display()))
        .arg(format!("--web.listen-address=127.0.0.1:{port}"))
        .args(["--web.enable-remote-write-receiver", "--log.level=error"]);
    Process::start(command, directory)
}

/// Milliseconds since 1970.
fn now() -> u64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| since.as_millis() as u64)
}

/// Sends the same to both, once a second.
struct Feed {
    ours: Scraper,
    theirs: Scraper,
    written: Written,
    /// When the counters began.
    began: u64,
    round: u64,
    next: Instant,
}

impl Feed {
    fn start(subject: &QueriedGateway, theirs: u16) -> Result<Self, BenchError> {
        Ok(Self {
            ours: Scraper::connect(subject.otlp, "/")?,
            theirs: Scraper::connect(theirs, "/")?,
            written: Written::default(),
            began: now(),
            round: 0,
            next: Instant::now(),
        })
    }

    /// Sends the next request when it is due, unless there is time for a query before.
    fn keep_up(&mut self) -> Result<(), BenchError> {
        if Instant::now() + BEFORE_NEXT >= self.next {
            self.wait_and_send()?;
        }
        Ok(())
    }

    fn wait_and_send(&mut self) -> Result<(), BenchError> {
        const PROTOBUF: &str = "application/x-protobuf";
        std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
        // Where a request takes longer than a second, the next one is late.
        self.next = (self.next + Duration::from_secs(1)).max(Instant::now());
        self.round += 1;
        let now = now();
        self.written.clear();
        let body = body((self.began, now), self.round, &mut self.written);
        self.ours.post("/v1/metrics", PROTOBUF, &body)?;
        self.theirs
            .post("/api/v1/write", PROTOBUF, &self.written.body(now)?)?;
        std::thread::sleep(SETTLE);
        Ok(())
    }
}

/// All counters and histograms, each risen by a number of its own; the same as they are written remotely.
fn body((began, now): (u64, u64), round: u64, written: &mut Written) -> Vec<u8> {
    const MILLISECOND: u64 = 1_000_000;
    let grown = |series: usize| round * (series as u64 % 97 + 1);
    let counters = (0..SERIES).map(|series| {
        let mut point = int(grown(series) as i64);
        point.start_time_unix_nano = began * MILLISECOND;
        point.time_unix_nano = now * MILLISECOND;
        let labels = [
            ("node", format!("n{}", series / 100)),
            ("series", format!("s{series}")),
            ("zone", format!("z{}", series % 10)),
        ];
        written.push("load_total", None, &labels, grown(series) as f64);
        point.attributes = labels.map(|(name, value)| attribute(name, value)).into();
        point
    });
    let counter = counter("load", counters.collect::<Vec<_>>());
    let histograms = (0..HISTOGRAMS).map(|series| {
        let counts: Vec<u64> = (0..=BOUNDS.len()).map(|bucket| grown(series + bucket)).collect();
        let labels = [("series", format!("s{series}"))];
        let mut running = 0;
        for (at, count) in counts.iter().enumerate() {
            running += count;
            let bound = BOUNDS.get(at).map_or_else(|| "+Inf".to_owned(), f64::to_string);
            written.push("latency_bucket", Some(&bound), &labels, running as f64);
        }
        written.push("latency_count", None, &labels, running as f64);
        written.push("latency_sum", None, &labels, grown(series) as f64);
        HistogramDataPoint {
            attributes: labels.map(|(name, value)| attribute(name, value)).into(),
            start_time_unix_nano: began * MILLISECOND,
            time_unix_nano: now * MILLISECOND,
            count: running,
            sum: Some(grown(series) as f64),
            bucket_counts: counts,
            explicit_bounds: BOUNDS.to_vec(),
            ..HistogramDataPoint::default()
        }
    });
    let histogram = histogram("latency", histograms.collect::<Vec<_>>());
    let resource = vec![attribute("service.name", JOB)];
    request(resource, "", [counter, histogram]).encode_to_vec()
}
