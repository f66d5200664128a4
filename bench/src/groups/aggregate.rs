// SPDX-License-Identifier: Apache-2.0

//! OTLP in, attributes grouped away, Prometheus out: all processor time of the process a point, scraped once a second
//! while it takes what it can. Counters of one source go on, each point later than the last and one more.

use std::path::Path;
use std::time::{Duration, Instant};

use super::otlp::jobs::{Job, Limit};
use super::otlp::rows;
use super::otlp::turns::{LoadWindow, SubjectMeasurement, own_cpu};
use crate::BenchError;
use crate::http::{Scraper, sum};
use crate::otlp::drive::Totals;
use crate::otlp::request::{PointKind, name};
use crate::otlp::{Compression, Driver, Plan, Protocol};
use crate::report::Row;
use crate::selection;
use crate::subject::{self, Started, Subject, SubjectRole};

const JOB: Job = Job {
    name: "aggregate",
    task: "aggregate",
    plan: Plan {
        protocol: Protocol::Grpc,
        compression: Compression::None,
        kind: PointKind::Sum,
        points: POINTS,
        connections: 4,
        in_flight: 4,
        distinct: 32,
        counts_on: true,
    },
    edit: None,
    limits: &[Limit::Cpu(450.0), Limit::Against("otelcol", 0.2)],
};

/// Points a request, and series that are shown: only servers, which are grouped away, tell requests apart.
const POINTS: usize = 1_000;
const METRICS: usize = POINTS / 10;

const WARM_UP: Duration = Duration::from_secs(2);
const WINDOW: Duration = Duration::from_secs(4);
const ROUNDS: usize = 5;
const SCRAPES: Duration = Duration::from_secs(1);

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let asked = selection::get();
    let (subjects, missing) = subject::all(binary)?;
    let mut omitted = missing;
    let mut contenders = Vec::new();
    let runtime = super::runtime()?;
    for subject in subjects.iter().filter(|subject| asked.has_subject(&subject.name)) {
        match runtime.block_on(Contender::start(subject)) {
            Ok(contender) => contenders.push(contender),
            Err(error) if subject.role == SubjectRole::Ours && subject.config(JOB.task).is_ok() => {
                return Err(error);
            }
            Err(error) => omitted.push(format!("{}: {error}", subject.name)),
        }
    }
    for _ in 0..ROUNDS {
        for contender in &mut contenders {
            runtime.block_on(contender.window(asked.window.unwrap_or(WINDOW)))?;
        }
    }
    let measured: Vec<SubjectMeasurement<'_>> = contenders
        .into_iter()
        .map(Contender::finish)
        .collect::<Result<_, _>>()?;
    let mut rows = rows::notes(&JOB, &measured, omitted)?;
    rows.extend(rows::rows(&JOB, &measured));
    Ok(rows)
}

/// A running subject that takes points and shows a page.
struct Contender<'a> {
    measured: SubjectMeasurement<'a>,
    started: Started,
    driver: Driver,
    scraper: Option<Scraper>,
}

impl<'a> Contender<'a> {
    async fn start(subject: &'a Subject) -> Result<Self, BenchError> {
        let config = subject.config(JOB.task)?;
        let mut started = subject.start(&config, 0)?;
        let driver = tokio::select! {
            driver = Driver::connect(started.port, JOB.plan) => driver?,
            why = started.process.ended() => return Err(why),
        };
        tokio::time::sleep(Duration::from_millis(500)).await;
        let idle_mib = started.process.memory_mib()?.0;
        driver.saturate(selection::get().window.unwrap_or(WARM_UP)).await;
        let mut scraper = Scraper::connect(started.shown, "/metrics")?;
        check(subject, &driver, scraper.get()?)?;
        Ok(Self {
            measured: SubjectMeasurement {
                subject,
                windows: Vec::new(),
                idle_mib,
                peak_mib: 0.0,
                paced_peak_mib: None,
                ages: Vec::new(),
                lost: 0.0,
                totals: Totals::default(),
            },
            started,
            driver,
            scraper: Some(scraper),
        })
    }

    async fn window(&mut self, window: Duration) -> Result<(), BenchError> {
        let scraper = self.scraper.take().ok_or("it can't be scraped any more")?;
        let (cpu, own, begun) = (self.started.process.cpu()?, own_cpu(), Instant::now());
        let before = self.driver.totals().acknowledged;
        // In a thread of its own: a scraper waits for whole pages.
        let scraping = tokio::task::spawn_blocking(move || scrape(scraper, begun + window));
        self.driver.saturate(window).await;
        let took = begun.elapsed().as_secs_f64();
        let load_share = (own_cpu() - own).as_secs_f64() / took * 100.0;
        self.scraper = Some(scraping.await??);
        let points = (self.driver.totals().acknowledged - before) as f64 * POINTS as f64;
        if points == 0.0 {
            let why = self.driver.failure().unwrap_or_default();
            return Err(format!("{} takes nothing any more: {why}", self.measured.subject.name).into());
        }
        self.measured.windows.push(LoadWindow {
            cpu_ns: (self.started.process.cpu()? - cpu).as_nanos() as f64 / points,
            rate: points / took,
            load_share,
        });
        Ok(())
    }

    fn finish(mut self) -> Result<SubjectMeasurement<'a>, BenchError> {
        let mut scraper = self.scraper.take().ok_or("it can't be scraped any more")?;
        let totals = self.driver.totals();
        Ok(SubjectMeasurement {
            peak_mib: self.started.process.memory_mib()?.1,
            // A gateway that aggregates shows every point that it acknowledged. Other subjects are not asked.
            lost: match self.measured.subject.role {
                SubjectRole::Ours => (totals.acknowledged * POINTS as u64) as f64 - total(scraper.get()?),
                _ => 0.0,
            },
            totals,
            ..self.measured
        })
    }
}

/// Pages once a second, until then.
fn scrape(mut scraper: Scraper, end: Instant) -> Result<Scraper, BenchError> {
    loop {
        scraper.get()?;
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(scraper);
        }
        std::thread::sleep(left.min(SCRAPES));
    }
}

/// The measurement requires that all subjects show the same.
fn check(subject: &Subject, driver: &Driver, page: &str) -> Result<(), BenchError> {
    let shown = page.lines().filter(|line| line.starts_with("bench_")).count();
    if shown != POINTS {
        let why = driver.failure().unwrap_or_default();
        return Err(format!("it shows {shown} series, not {POINTS}: {why}").into());
    }
    let expected = (driver.totals().acknowledged * POINTS as u64) as f64;
    match total(page) {
        total if subject.role == SubjectRole::Ours && total != expected => {
            Err(format!("its counters add up to {total}, not {expected}").into())
        }
        _ => Ok(()),
    }
}

/// The sum of all counters of a page.
fn total(page: &str) -> f64 {
    let names = (0..METRICS).map(|metric| name(metric).replace('.', "_") + "_total");
    names.map(|name| sum(page, &name)).sum()
}
