//! How long a small request waits at most while a million series are held, scraped, emitted, expired and snapshotted.
//!
//! A probe is due every millisecond, whatever became of the one before, and its wait ends with its acknowledgement:
//! a gateway that stands still pays for every probe of that time. One in eight brings a series that was never seen. What
//! the host does to us is told apart: a thread of high priority on each core notes when it was not run.

mod probe;

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use probe::{Probe, Wait};

use crate::Error;
use crate::gateway::{Gateway, free_port};
use crate::http::Scraper;
use crate::report::{Budget, Row};
use crate::selection;
use crate::series::{self, Request};
use crate::stalls::{self, Stalls};
use crate::stats::Samples;

const SERIES: usize = 1_000_000;
const BUDGET_MS: f64 = 10.0;
/// How long a phase is.
const PHASE: Duration = Duration::from_secs(8);
/// Series that nobody feeds any more go after this.
const EXPIRY: Duration = Duration::from_secs(20);
/// The last have gone this long after that.
const GONE: Duration = Duration::from_secs(6);

type Job = fn(&Path, &mut [Request]) -> Result<Vec<Row>, Error>;

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, Error> {
    let mut requests = series::requests(SERIES);
    let jobs: [(&str, Job); 3] = [("held", held), ("expired", expired), ("snapshotted", snapshotted)];
    let mut rows = Vec::new();
    for (_, job) in jobs
        .into_iter()
        .filter(|(name, _)| selection::get().has_job("pauses", name))
    {
        rows.extend(job(binary, &mut requests)?);
    }
    Ok(rows)
}

/// Nothing happens; everything is scraped again and again; everything is emitted to an exporter that can't read tables.
fn held(binary: &Path, requests: &mut [Request]) -> Result<Vec<Row>, Error> {
    let aggregate = "interval: 3s";
    let subject = Subject::start(binary, aggregate, "", ", debug", requests)?;
    let mut rows = subject.phase("held and emitted every 3 s", || lasting(PHASE))?;
    let mut scraper = subject.gateway.scraper()?;
    let mut scrapes = 0;
    rows.extend(subject.phase("scraped again and again", || {
        let begun = Instant::now();
        while begun.elapsed() < PHASE {
            scraper.get()?;
            scrapes += 1;
        }
        Ok(())
    })?);
    rows.push(Row::value(
        "scraped again and again: scrapes",
        f64::from(scrapes),
        "",
    ));
    Ok(rows)
}

/// Nobody feeds the million any more, and they go.
fn expired(binary: &Path, requests: &mut [Request]) -> Result<Vec<Row>, Error> {
    let aggregate = format!("interval: 1h, expiry: {}s", EXPIRY.as_secs());
    let subject = Subject::start(binary, &aggregate, "", "", requests)?;
    let rows = subject.phase("expired", || lasting(EXPIRY + GONE))?;
    let left = subject.gateway.scraper()?.get()?.lines().count();
    if left > SERIES / 10 {
        return Err(format!("{left} lines are left of {SERIES} series").into());
    }
    Ok(rows)
}

/// All of them are fed again and again into a state that is kept on disk, so that snapshots are due.
fn snapshotted(binary: &Path, requests: &mut [Request]) -> Result<Vec<Row>, Error> {
    let aggregate = "interval: 1h, storage: file_storage";
    let subject = Subject::start(binary, aggregate, "file_storage", "", requests)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let feeding = scope.spawn(|| {
            let mut to = Scraper::connect(subject.otlp, "/")?;
            let mut value = 2;
            while !over.load(Relaxed) {
                series::push(requests, &mut to, value)?;
                value += 1;
            }
            Ok::<_, Error>(value - 2)
        });
        let rows = subject.phase("kept on disk, fed again and again", || lasting(2 * PHASE));
        over.store(true, Relaxed);
        let rounds = feeding.join().map_err(|_| "the feed panicked")??;
        let mut rows = rows?;
        rows.push(Row::value(
            "kept on disk, fed again and again: points",
            rounds as f64 * SERIES as f64,
            "",
        ));
        Ok(rows)
    })
}

/// Nothing but time passes.
fn lasting(time: Duration) -> Result<(), Error> {
    thread::sleep(time);
    Ok(())
}

/// A gateway that holds a million series.
struct Subject {
    gateway: Gateway,
    otlp: u16,
    _directory: tempfile::TempDir,
}

impl Subject {
    /// With these options of `aggregate`, this extension and these exporters beside Prometheus's.
    fn start(
        binary: &Path,
        aggregate: &str,
        extension: &str,
        exporters: &str,
        requests: &mut [Request],
    ) -> Result<Self, Error> {
        let otlp = free_port()?;
        let directory = tempfile::TempDir::new_in(std::env::current_dir()?.join("target"))?;
        let config = format!(
            "extensions: {{file_storage: {{directory: {:?}}}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{otlp}'}}}}}}}}
processors: {{aggregate: {{rules: [{{match: {{name: 'bench.*'}}}}], max_series: 2000000, {aggregate}}}}}
exporters: {{prometheus: {{endpoint: '127.0.0.1:PORT'}}, debug: }}
service:
  extensions: [{extension}]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus{exporters}]}}}}
",
            directory.path()
        );
        let mut gateway = Gateway::start_on_all_cores(binary, &config)?;
        gateway.first_scrape()?;
        series::push(requests, &mut gateway.connect(otlp)?, 1)?;
        Ok(Self {
            gateway,
            otlp,
            _directory: directory,
        })
    }

    /// What probes waited while `meanwhile` lasted.
    fn phase(&self, name: &str, meanwhile: impl FnOnce() -> Result<(), Error>) -> Result<Vec<Row>, Error> {
        let stalls = Stalls::watch_all()?;
        let probe = Probe::start(self.otlp)?;
        let done = meanwhile();
        let waits = probe.finish()?;
        let stalls = stalls.finish();
        done?;
        Ok(rows(name, &waits, &stalls))
    }
}

fn rows(name: &str, waits: &[Wait], stalls: &[stalls::Stall]) -> Vec<Row> {
    let ms = |duration: Duration| duration.as_secs_f64() * 1e3;
    let all = Samples::new(waits.iter().map(|wait| ms(wait.acknowledged - wait.due)));
    let own = waits
        .iter()
        .map(|wait| ms(stalls::outside(stalls, wait.due, wait.acknowledged)));
    let own = Samples::new(own);
    let longest = stalls
        .iter()
        .map(|(from, to)| *to - *from)
        .max()
        .unwrap_or_default();
    let named = |what: &str| format!("{name}: {what}");
    vec![
        Row::value(named("a request waits, p50"), all.median(), "ms"),
        Row::value(
            named(&format!("p99.9 of {}", all.count())),
            all.quantile(0.999),
            "ms",
        ),
        Row::value(named("longest"), all.max(), "ms"),
        Row::value(
            named("longest without what the host stood still"),
            own.max(),
            "ms",
        )
        .budget(Budget::AtMost(BUDGET_MS)),
        Row::value(named("the host stood still at most"), ms(longest), "ms"),
    ]
}
