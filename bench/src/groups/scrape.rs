// SPDX-License-Identifier: Apache-2.0

//! Programs that get series from a target or over OTLP and show them to a scraper: tidegate, and its peers as far as
//! they are on PATH. Every series counts between two feeds, of which there is one a second; processor time by itself and
//! with one scrape a second beside.

mod feed;
pub(super) mod subjects;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use crate::BenchError;
use crate::gateway::free_port;
use crate::http::Scraper;
use crate::process::Process;
use crate::report::{Budget, Row};
use crate::stats::Samples;
use crate::subject::on_path;
use feed::{Pusher, SERIES, ScrapeTarget};
use subjects::{Fed, OURSELVES, PEERS, Ports, ScrapeSubject};

const SECOND: Duration = Duration::from_secs(1);
/// Seconds of a window, and windows without and with scrapes.
const WINDOW: u32 = 8;
const WINDOWS: usize = 3;
/// A series that the Collector shows takes at least this multiple of what one of ours takes.
const COLLECTOR_TAKES: f64 = 10.0;

pub(super) fn run(tidegate: &Path) -> Result<Vec<Row>, BenchError> {
    let mut ours = Vec::new();
    for subject in &OURSELVES {
        ours.push(measure(subject, tidegate)?);
    }
    let mut rows: Vec<Row> = ours.iter().flat_map(|one| one.rows(None)).collect();
    let mut missing = Vec::new();
    for peer in &PEERS {
        let Some(binary) = on_path(peer.name) else {
            missing.push(peer.name);
            continue;
        };
        match measure(peer, &binary) {
            Ok(measured) => {
                let mut ours = ours.iter();
                rows.extend(measured.rows(ours.find(|one| one.subject.fed == peer.fed)));
            }
            Err(error) => println!("  omitted, {}: {error}", peer.name),
        }
    }
    missing.dedup();
    if !missing.is_empty() {
        println!("  not on PATH, omitted: {}", missing.join(", "));
    }
    Ok(rows)
}

/// The measurements of a subject.
struct ScrapeMeasurement {
    subject: &'static ScrapeSubject,
    /// Processor time a sample that it was fed, and a series that it showed, ns.
    taken: Samples,
    shown: Samples,
    memory_mib: f64,
    /// Without any series.
    empty_mib: f64,
}

impl ScrapeMeasurement {
    /// Its figures, and its cost of showing a series relative to tidegate fed in the same way.
    fn rows(&self, ours: Option<&Self>) -> Vec<Row> {
        let how = match self.subject.fed {
            Fed::Scraping => "scrapes",
            Fed::Otlp => "takes over OTLP",
        };
        let named = |what: &str| format!("{}, {how} {SERIES} series: {what}", self.subject.name);
        let of_a_series = (self.memory_mib - self.empty_mib) * f64::from(1 << 20) / SERIES as f64;
        let mut rows = vec![
            Row::median(named("processor time a sample"), self.taken.clone(), "ns"),
            Row::median(named("processor time a series shown"), self.shown.clone(), "ns"),
            Row::value(named("memory"), self.memory_mib, "MiB"),
            Row::value(named("memory a series"), of_a_series, "B"),
        ];
        rows.extend(ours.map(|ours| {
            let ratio = self.shown.median() / ours.shown.median();
            let row = Row::value(named("a series shown, against tidegate"), ratio, "x");
            if self.subject.is_collector() {
                row.budget(Budget::AtLeast(COLLECTOR_TAKES))
            } else {
                row
            }
        }));
        rows
    }
}

fn measure(subject: &'static ScrapeSubject, binary: &Path) -> Result<ScrapeMeasurement, BenchError> {
    let (target, target_port) = ScrapeTarget::serve()?;
    let ports = Ports {
        target: target_port,
        otlp: free_port()?,
        shown: free_port()?,
    };
    let directory = TempDir::new()?;
    let command = subject.command(binary, directory.path(), ports)?;
    let mut process = Process::start(command, directory)?;
    let mut scraper = process.wait_for(|| {
        let mut scraper = Scraper::connect(ports.shown, subject.path)?;
        scraper.get()?;
        Ok(scraper)
    })?;
    let pusher = match subject.fed {
        Fed::Scraping => None,
        Fed::Otlp => Some(process.wait_for(|| Pusher::connect(ports.otlp))?),
    };
    let mut feed = Feed { target, pusher };
    let empty_mib = process.memory_mib()?.0;
    feed.target.is_open.store(true, Relaxed);
    process.wait_for(|| {
        feed.push()?;
        let page = scraper.get()?;
        let shown = page.lines().filter(|line| line.starts_with("bench_")).count();
        match shown {
            SERIES => Ok(()),
            other => Err(format!("it shows {other} of {SERIES} series").into()),
        }
    })?;
    let (mut taken, mut shown) = (Vec::new(), Vec::new());
    for _ in 0..WINDOWS {
        let (cpu, samples) = window(&process, &mut feed, None)?;
        let a_sample = cpu / samples;
        let (cpu, samples) = window(&process, &mut feed, Some(&mut scraper))?;
        taken.push(a_sample);
        shown.push((cpu - a_sample * samples) / f64::from(WINDOW) / SERIES as f64);
    }
    Ok(ScrapeMeasurement {
        subject,
        taken: Samples::new(taken),
        shown: Samples::new(shown),
        memory_mib: process.memory_mib()?.0,
        empty_mib,
    })
}

/// Where the series of a program come from.
struct Feed {
    target: Arc<ScrapeTarget>,
    pusher: Option<Pusher>,
}

impl Feed {
    /// Pushes, unless the program scrapes by itself.
    fn push(&mut self) -> Result<(), BenchError> {
        self.pusher.as_mut().map_or(Ok(()), Pusher::push)
    }

    /// How often all series were fed.
    fn feeds(&self) -> u64 {
        match &self.pusher {
            Some(pusher) => pusher.feeds,
            None => self.target.asked.load(Relaxed),
        }
    }
}

/// Processor time in ns, and samples that were fed meanwhile; with a scraper, one scrape a second beside.
fn window(
    process: &Process,
    feed: &mut Feed,
    mut scraper: Option<&mut Scraper>,
) -> Result<(f64, f64), BenchError> {
    let (cpu, feeds, begun) = (process.cpu()?, feed.feeds(), Instant::now());
    for second in 1..=WINDOW {
        feed.push()?;
        if let Some(scraper) = &mut scraper {
            scraper.get()?;
        }
        // Looked at often, so that threads which end are not forgotten.
        process.cpu()?;
        std::thread::sleep((SECOND * second).saturating_sub(begun.elapsed()));
    }
    let fed = feed.feeds() - feeds;
    if fed == 0 {
        return Err("it does not scrape any more".into());
    }
    let cpu = process.cpu()? - cpu;
    Ok((cpu.as_nanos() as f64, fed as f64 * SERIES as f64))
}
