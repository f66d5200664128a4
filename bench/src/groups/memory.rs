// SPDX-License-Identifier: Apache-2.0

//! The memory of a counter series that a whole gateway holds and exposes: fed over OTLP/HTTP, scraped as text, its
//! values changed, scraped again. Resident memory against that of the same gateway before it knew any series. Then the
//! same with `admin`, after a query that has looked at every series. Peers that take OTLP and show Prometheus's text
//! are measured where they are on PATH.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::scrape::subjects::{Fed, OURSELVES, PEERS, Ports, ScrapeSubject, WITH_ADMIN};
use crate::BenchError;
use crate::gateway::free_port;
use crate::http::Scraper;
use crate::process::Process;
use crate::report::{Budget, Row};
use crate::selection;
use crate::series;
use crate::subject::on_path;

/// Series, and what each may take, in bytes; not of all there is a budget.
const SIZES: [(usize, Option<f64>); 3] = [(10_000, None), (100_000, None), (1_000_000, Some(350.0))];
/// The limit of the memory of each series that queries have looked at, in bytes.
const ASKED: f64 = 1000.0;
/// A query that looks at all.
const QUERY: &str = "/api/v1/query?query=count(%7B__name__=~%22bench_.%2B%22%7D)";
/// The number with which peers are measured.
const BESIDE: usize = 100_000;
/// Of what a series takes elsewhere it may take this with us.
const SHARE: f64 = 0.2;
/// After this time, the gateway has released the memory of pages and requests.
const SETTLE: Duration = Duration::from_secs(3);

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    let ourselves = OURSELVES.iter().find(|subject| subject.fed == Fed::Otlp);
    let subject = ourselves.ok_or("nothing that takes OTLP")?;
    let mut taken = Vec::new();
    let asked = selection::get();
    for (count, budget) in SIZES.into_iter().filter(|_| asked.has_subject(subject.name)) {
        let measured = measure(subject, binary, count)?;
        taken.push((count, measured.a_series));
        rows.extend(measured.rows("tidegate", count, budget));
    }
    let of = |wanted: usize| {
        taken
            .iter()
            .find(|(count, _)| *count == wanted)
            .map(|(_, bytes)| *bytes)
    };
    if let (Some((_, few)), Some((_, many))) = (taken.first(), taken.last()) {
        rows.push(Row::value(
            "a series of most against one of fewest",
            many / few,
            "x",
        ));
    }
    if asked.has_subject(WITH_ADMIN.name) {
        let measured = measure(&WITH_ADMIN, binary, BESIDE)?;
        rows.extend(measured.rows(WITH_ADMIN.name, BESIDE, Some(ASKED)));
    }
    let peers = PEERS.iter().filter(|peer| peer.fed == Fed::Otlp);
    for peer in peers.filter(|peer| asked.has_subject(peer.name)) {
        let Some(binary) = on_path(peer.name) else {
            continue;
        };
        match measure(peer, &binary, BESIDE) {
            Ok(measured) => {
                let ours = of(BESIDE).unwrap_or(f64::NAN) / measured.a_series;
                rows.extend(measured.rows(peer.name, BESIDE, None));
                let name = format!("a series against one of {}, of {BESIDE}", peer.name);
                rows.push(Row::value(name, ours, "x").budget(Budget::AtMost(SHARE)));
            }
            Err(error) => println!("  omitted, {}: {error}", peer.name),
        }
    }
    Ok(rows)
}

/// Memory of one program.
struct MemoryMeasurement {
    /// In MiB: without series, with them, at the peak.
    empty: f64,
    full: f64,
    peak: f64,
    /// In bytes.
    a_series: f64,
}

impl MemoryMeasurement {
    fn rows(&self, name: &str, series: usize, budget: Option<f64>) -> Vec<Row> {
        let named = |what: &str| format!("{name}, {series} series: {what}");
        let a_series = Row::value(named("a series held and exposed"), self.a_series, "B");
        vec![
            Row::value(named("without any"), self.empty, "MiB"),
            Row::value(named("resident"), self.full, "MiB"),
            Row::value(named("peak, with a page under way"), self.peak, "MiB"),
            match budget {
                Some(bytes) => a_series.budget(Budget::AtMost(bytes)),
                None => a_series,
            },
        ]
    }
}

fn measure(subject: &ScrapeSubject, binary: &Path, count: usize) -> Result<MemoryMeasurement, BenchError> {
    let ports = Ports {
        target: free_port()?,
        otlp: free_port()?,
        shown: free_port()?,
    };
    let directory = TempDir::new()?;
    let command = subject.command(binary, directory.path(), ports)?;
    let mut process = Process::start(command, directory)?;
    // A connection a page: between two of them goes more time than servers wait.
    let page = || Ok::<_, BenchError>(Scraper::connect(ports.shown, subject.path)?.get()?.to_owned());
    process.wait_for(page)?;
    let mut feed = process.wait_for(|| Scraper::connect(ports.otlp, "/"))?;
    std::thread::sleep(SETTLE);
    let empty = process.memory_mib()?.0;
    let mut requests = series::requests(count);
    for value in 1..=3 {
        series::push(&mut requests, &mut feed, value)?;
        let page = page()?;
        let shown = page.lines().filter(|line| line.starts_with("bench_")).count();
        if shown != count {
            return Err(format!("it shows {shown} of {count} series").into());
        }
    }
    if subject.name == WITH_ADMIN.name {
        let answer = Scraper::connect(ports.target, QUERY)?.get()?.to_owned();
        if !answer.contains(&format!("\"{count}\"")) {
            return Err(format!("it counts other series than {count}: {answer}").into());
        }
    }
    std::thread::sleep(SETTLE);
    let (full, peak) = process.memory_mib()?;
    let a_series = (full - empty) * f64::from(1 << 20) / count as f64;
    process.kill();
    Ok(MemoryMeasurement {
        empty,
        full,
        peak,
        a_series,
    })
}
