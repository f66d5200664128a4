// SPDX-License-Identifier: Apache-2.0

//! How long a small request waits at most while a million series are held, scraped, emitted, expired and snapshotted.
//!
//! A probe is due every millisecond, whatever became of those before, and its wait ends with its acknowledgement: a
//! gateway that stands still pays for every probe of that time. One in eight brings a series that was never seen. Pauses
//! by the host are counted separately: a thread of high priority on each core notes when it did not run.

mod probe;

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use probe::{Probe, Wait};

use crate::BenchError;
use crate::gateway::{Gateway, free_port};
use crate::http::Scraper;
use crate::report::{Budget, Row};
use crate::selection;
use crate::series::{self, SeriesRequest};
use crate::stalls::{self, Stalls};
use crate::stats::Samples;

const SERIES: usize = 1_000_000;
/// In milliseconds.
const BUDGET: Option<Budget> = Some(Budget::AtMost(10.0));
/// How long a phase is.
const PHASE: Duration = Duration::from_secs(6);
/// A gateway that took less of a core than that share for so long is at rest. The work that a million new series leave
/// behind is not part of any phase.
const RESTS: Duration = Duration::from_millis(500);
const AT_REST: f64 = 0.05;
/// It is by then.
const PATIENCE: Duration = Duration::from_secs(10);
/// Series without new points expire after this time.
const EXPIRY: Duration = Duration::from_secs(20);
/// The last have gone this long after that.
const GONE: Duration = Duration::from_secs(6);

/// Segments so large that no snapshot is due, and those of a storage that says nothing of them.
const NONE_DUE: &str = "1GiB";
const BY_DEFAULT: &str = "16MiB";
/// How often to look for a snapshot.
const LOOK: Duration = Duration::from_millis(20);

type PauseJob = fn(&Path, &mut [SeriesRequest]) -> Result<Vec<Row>, BenchError>;

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut requests = series::requests(SERIES);
    let jobs: [(&str, PauseJob); 3] = [("held", held), ("expired", expired), ("snapshotted", snapshotted)];
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
fn held(binary: &Path, requests: &mut [SeriesRequest]) -> Result<Vec<Row>, BenchError> {
    let aggregate = "interval: 3s";
    let subject = LoadedGateway::start(binary, aggregate, None, ", debug", requests)?;
    let mut rows = subject.phase("held and emitted every 3 s", BUDGET, || lasting(PHASE))?;
    let mut scraper = subject.gateway.scraper()?;
    let mut scrapes = 0;
    rows.extend(subject.phase("scraped again and again", BUDGET, || {
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

/// The million series get no more points, and expire.
fn expired(binary: &Path, requests: &mut [SeriesRequest]) -> Result<Vec<Row>, BenchError> {
    let aggregate = format!("interval: 1h, expiry: {}s", EXPIRY.as_secs());
    let subject = LoadedGateway::start(binary, &aggregate, None, "", requests)?;
    let rows = subject.phase("expired", BUDGET, || lasting(EXPIRY + GONE))?;
    let left = subject.gateway.scraper()?.get()?.lines().count();
    if left > SERIES / 10 {
        return Err(format!("{left} lines are left of {SERIES} series").into());
    }
    Ok(rows)
}

/// All of them are fed again and again into a state that is kept on disk: first without a snapshot, then with one after
/// the other, as it is by default.
fn snapshotted(binary: &Path, requests: &mut [SeriesRequest]) -> Result<Vec<Row>, BenchError> {
    let mut rows = fed(
        binary,
        requests,
        "on disk and fed, no snapshots",
        NONE_DUE,
        PHASE,
        None,
    )?;
    rows.extend(fed(
        binary,
        requests,
        "on disk and fed, snapshots",
        BY_DEFAULT,
        2 * PHASE,
        BUDGET,
    )?);
    Ok(rows)
}

fn fed(
    binary: &Path,
    requests: &mut [SeriesRequest],
    name: &str,
    segment_size: &str,
    time: Duration,
    budget: Option<Budget>,
) -> Result<Vec<Row>, BenchError> {
    let aggregate = "interval: 1h, storage: file_storage";
    let subject = LoadedGateway::start(binary, aggregate, Some(segment_size), "", requests)?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let feeding = scope.spawn(|| {
            let mut to = Scraper::connect(subject.otlp, "/")?;
            let (mut value, begun) = (2, Instant::now());
            while !over.load(Relaxed) {
                series::push(requests, &mut to, value)?;
                value += 1;
            }
            let points = (value - 2) as f64 * SERIES as f64;
            Ok::<_, BenchError>(points / begun.elapsed().as_secs_f64())
        });
        let mut snapshots = 0;
        let rows = subject.phase(name, budget, || {
            snapshots = subject.snapshots(time)?;
            Ok(())
        });
        over.store(true, Relaxed);
        let rate = feeding.join().map_err(|_| "the feed panicked")??;
        let (_, peak) = subject.gateway.process().memory_mib()?;
        let mut rows = rows?;
        rows.extend([
            Row::value(format!("{name}: points"), rate, "/s"),
            Row::value(format!("{name}: snapshots"), f64::from(snapshots), ""),
            Row::value(format!("{name}: resident at most"), peak, "MiB"),
        ]);
        Ok(rows)
    })
}

/// Nothing but time passes.
fn lasting(time: Duration) -> Result<(), BenchError> {
    thread::sleep(time);
    Ok(())
}

/// A gateway that holds a million series.
struct LoadedGateway {
    gateway: Gateway,
    otlp: u16,
    directory: tempfile::TempDir,
}

impl LoadedGateway {
    /// With these options of `aggregate`, a storage with segments of this size and these exporters beside Prometheus's.
    fn start(
        binary: &Path,
        aggregate: &str,
        segment_size: Option<&str>,
        exporters: &str,
        requests: &mut [SeriesRequest],
    ) -> Result<Self, BenchError> {
        let otlp = free_port()?;
        let directory = tempfile::TempDir::new_in(std::env::current_dir()?.join("target"))?;
        let extension = segment_size.map_or("", |_| "file_storage");
        let segment_size = segment_size.unwrap_or(BY_DEFAULT);
        let config = format!(
            "extensions: {{file_storage: {{directory: {:?}, segment_size: {segment_size}}}}}
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
        let subject = Self {
            gateway,
            otlp,
            directory,
        };
        subject.wait_until_idle()?;
        Ok(subject)
    }

    fn wait_until_idle(&self) -> Result<(), BenchError> {
        let begun = Instant::now();
        while begun.elapsed() < PATIENCE {
            let before = self.gateway.process().cpu()?;
            thread::sleep(RESTS);
            let took = self.gateway.process().cpu()?.saturating_sub(before);
            if took < RESTS.mul_f64(AT_REST) {
                return Ok(());
            }
        }
        Err("the gateway does not come to rest".into())
    }

    /// How many snapshots there are in a time.
    fn snapshots(&self, time: Duration) -> Result<u32, BenchError> {
        let (begun, mut last, mut seen) = (Instant::now(), None, 0);
        while begun.elapsed() < time {
            for log in std::fs::read_dir(self.directory.path())? {
                // None yet, or between two names.
                let now = std::fs::metadata(log?.path().join("state")).map(|state| state.ino());
                let before = now.as_ref().ok().and_then(|now| last.replace(*now));
                seen += u32::from(now.is_ok_and(|now| before.is_some_and(|before| before != now)));
            }
            thread::sleep(LOOK);
        }
        Ok(seen)
    }

    /// The waits of probes while `meanwhile` lasted.
    fn phase(
        &self,
        name: &str,
        budget: Option<Budget>,
        meanwhile: impl FnOnce() -> Result<(), BenchError>,
    ) -> Result<Vec<Row>, BenchError> {
        let stalls = Stalls::watch_all()?;
        let probe = Probe::start(self.otlp)?;
        let done = meanwhile();
        let waits = probe.finish()?;
        let stalls = stalls.finish();
        done?;
        Ok(rows(name, budget, &waits, &stalls))
    }
}

fn rows(name: &str, budget: Option<Budget>, waits: &[Wait], stalls: &[stalls::Stall]) -> Vec<Row> {
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
    let without_host = Row::value(
        named("longest without what the host stood still"),
        own.max(),
        "ms",
    );
    vec![
        Row::value(named("a request waits, p50"), all.median(), "ms"),
        Row::value(
            named(&format!("p99.9 of {}", all.count())),
            all.quantile(0.999),
            "ms",
        ),
        Row::value(named("longest"), all.max(), "ms"),
        budget
            .into_iter()
            .fold(without_host, |row, budget| row.budget(budget)),
        Row::value(named("the host stood still at most"), ms(longest), "ms"),
    ]
}
