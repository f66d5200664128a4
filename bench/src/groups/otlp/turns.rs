// SPDX-License-Identifier: Apache-2.0

//! Subjects of a job run beside one another and take turns: load comes to one at a time, in windows, over several
//! rounds, so that what the machine does meanwhile falls on all alike.

use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};

use super::jobs::Job;
use crate::BenchError;
use crate::otlp::drive::Totals;
use crate::otlp::{Driver, FRAME, OtlpSink, Plan};
use crate::selection;
use crate::stats::Samples;
use crate::subject::{Started, Subject, SubjectRole};

/// How long things take.
#[derive(Clone, Copy)]
pub(super) struct LoadTimes {
    pub(super) window: Duration,
    /// At full load.
    pub(super) rounds: usize,
    /// At half of it.
    pub(super) paced_rounds: usize,
}

/// A phase of the turn of every subject.
#[derive(Clone, Copy)]
enum LoadPhase {
    WarmUp(Duration),
    Saturate(Duration),
    Pace(Duration),
}

impl LoadTimes {
    fn steps(self) -> impl Iterator<Item = LoadPhase> {
        let full = std::iter::repeat_n(LoadPhase::Saturate(self.window), self.rounds);
        let paced = std::iter::repeat_n(LoadPhase::Pace(self.window), self.paced_rounds);
        [LoadPhase::WarmUp(self.window)]
            .into_iter()
            .chain(full)
            .chain(paced)
    }
}

/// Points under way count as lost when nothing has arrived for so long.
const STALL: Duration = Duration::from_secs(2);
/// Between looks.
const LOOK: Duration = Duration::from_millis(1);
/// A load that is later than this, p99, measures itself.
const LATE_MS: f64 = 2.0;
/// After the start, before idle memory is read.
const SETTLE: Duration = Duration::from_millis(500);

/// The measurements of a subject in one job.
pub(in crate::groups) struct SubjectMeasurement<'a> {
    pub(in crate::groups) subject: &'a Subject,
    pub(in crate::groups) windows: Vec<LoadWindow>,
    pub(in crate::groups) idle_mib: f64,
    /// Resident memory at its highest, idle and at full load.
    pub(in crate::groups) peak_mib: f64,
    /// The same with half load behind it, where requests that a stall of the machine has made late come all at once.
    pub(in crate::groups) paced_peak_mib: Option<f64>,
    /// Milliseconds at half the rate that it takes, p50 and p99 of each window; of those whose requests arrive stamped.
    pub(in crate::groups) ages: Vec<(f64, f64)>,
    /// Points that were acknowledged and did not arrive; below 0 of those that came twice.
    pub(in crate::groups) lost: f64,
    pub(in crate::groups) totals: Totals,
}

/// The measurements of a window at full load.
#[derive(Clone, Copy, Debug)]
pub(in crate::groups) struct LoadWindow {
    /// Processor time a point that arrived, ns.
    pub(in crate::groups) cpu_ns: f64,
    /// Points that arrived a second.
    pub(in crate::groups) rate: f64,
    /// How much of its core the load had, %.
    pub(in crate::groups) load_share: f64,
}

impl fmt::Display for SubjectMeasurement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let median = |of: fn(&LoadWindow) -> f64| Samples::new(self.windows.iter().map(of)).median();
        write!(
            f,
            "{:20} {:7.0} ns a point {:9.0} points/s, load {:3.0} %, {:5.1} to {:5.1} MiB, lost {}, refused {}, failed {}",
            self.subject.name,
            median(|window| window.cpu_ns),
            median(|window| window.rate),
            median(|window| window.load_share),
            self.idle_mib,
            self.peak_mib,
            self.lost,
            self.totals.refused,
            self.totals.failed,
        )?;
        let ages = self
            .ages
            .iter()
            .map(|(p50, p99)| format!("; {p50:.2}, {p99:.2} ms"));
        f.write_str(&ages.collect::<String>())
    }
}

/// Measures all that can do the job; the others are named with their reasons.
pub(super) async fn measure<'a>(
    job: &Job,
    subjects: &'a [Subject],
    times: LoadTimes,
) -> Result<(Vec<SubjectMeasurement<'a>>, Vec<String>), BenchError> {
    let (mut contenders, mut omitted) = (Vec::new(), Vec::new());
    for subject in subjects {
        let started = match subject.config(job.task) {
            Ok(config) => Contender::start(job, subject, &config).await,
            Err(why) => {
                omitted.push(format!("{}: {why}", subject.name));
                continue;
            }
        };
        keep(subject, started, &mut contenders, &mut omitted)?;
    }
    tokio::time::sleep(SETTLE).await;
    for step in times.steps() {
        for mut contender in std::mem::take(&mut contenders) {
            let subject = contender.measured.subject;
            let taken = contender.take(step, job).await.map(|()| contender);
            keep(subject, taken, &mut contenders, &mut omitted)?;
        }
    }
    let measured = contenders.into_iter().map(Contender::finish).collect();
    Ok((measured, omitted))
}

/// Leaves a subject that fails out of the rest, unless it is tidegate.
fn keep<'a>(
    subject: &Subject,
    contender: Result<Contender<'a>, BenchError>,
    contenders: &mut Vec<Contender<'a>>,
    omitted: &mut Vec<String>,
) -> Result<(), BenchError> {
    match contender {
        Ok(contender) => contenders.push(contender),
        Err(error) if subject.role == SubjectRole::Ours => {
            return Err(format!("{}: {error}", subject.name).into());
        }
        Err(error) => omitted.push(format!("{}: {error}", subject.name)),
    }
    Ok(())
}

/// A running subject between its load and its sink.
struct Contender<'a> {
    measured: SubjectMeasurement<'a>,
    /// Points of a request that are to arrive.
    kept: u64,
    started: Started,
    sink: OtlpSink,
    driver: Driver,
}

impl<'a> Contender<'a> {
    async fn start(job: &Job, subject: &'a Subject, config: &Path) -> Result<Self, BenchError> {
        let plan = match (selection::get().kind, &job.edit) {
            (Some(kind), None) => Plan { kind, ..job.plan },
            _ => job.plan,
        };
        let sink = OtlpSink::serve(job.plan.protocol, subject.frame.unwrap_or(FRAME)).await?;
        let mut started = subject.start(config, sink.port)?;
        let driver = tokio::select! {
            driver = Driver::connect(started.port, plan) => driver?,
            why = started.process.ended() => return Err(why),
        };
        Ok(Self {
            measured: SubjectMeasurement {
                subject,
                windows: Vec::new(),
                idle_mib: 0.0,
                peak_mib: 0.0,
                paced_peak_mib: None,
                ages: Vec::new(),
                lost: 0.0,
                totals: Totals::default(),
            },
            kept: job.kept(),
            started,
            sink,
            driver,
        })
    }

    async fn take(&mut self, step: LoadPhase, job: &Job) -> Result<(), BenchError> {
        match step {
            LoadPhase::WarmUp(time) => self.warm_up(job, time).await,
            LoadPhase::Saturate(window) => self.saturate(window).await,
            LoadPhase::Pace(window) => self.send_at_half_rate(window).await,
        }
    }

    /// Full load, and a look at what arrives: a subject that does less than its job is not measured.
    async fn warm_up(&mut self, job: &Job, time: Duration) -> Result<(), BenchError> {
        self.measured.idle_mib = self.started.process.memory_mib()?.0;
        self.driver.saturate(time).await;
        self.drain().await;
        let request = self.sink.last_request().ok_or_else(|| {
            let why = self.driver.failure();
            format!(
                "nothing comes out of it: {}",
                why.unwrap_or_else(|| "no request fails".to_owned())
            )
        })?;
        if self.sink.bad() > 0 {
            return Err("its output can't be read".into());
        }
        let has = |text: &str| {
            request
                .windows(text.len())
                .any(|window| window == text.as_bytes())
        };
        match &job.edit {
            Some(edit) if !has(edit.put_in) || has(edit.taken_out) => {
                Err("it does not edit as configured".into())
            }
            Some(_) if self.sink.points() < self.expected() => Err(format!(
                "{} points came out of it, not {}",
                self.sink.points(),
                self.expected()
            )
            .into()),
            _ => Ok(()),
        }
    }

    /// A window at full load, until everything has arrived.
    async fn saturate(&mut self, window: Duration) -> Result<(), BenchError> {
        let (cpu, points, begun) = (self.started.process.cpu()?, self.sink.points(), Instant::now());
        let own = own_cpu();
        self.driver.saturate(window).await;
        let load_share = (own_cpu() - own).as_secs_f64() / begun.elapsed().as_secs_f64() * 100.0;
        self.drain().await;
        let arrived = (self.sink.points() - points) as f64;
        let last = self.sink.last_arrival().filter(|last| *last > begun);
        let Some(last) = last.filter(|_| arrived > 0.0) else {
            let why = self.driver.failure().unwrap_or_default();
            return Err(format!(
                "nothing comes out of {} any more: {why}",
                self.measured.subject.name
            )
            .into());
        };
        self.measured.windows.push(LoadWindow {
            cpu_ns: (self.started.process.cpu()? - cpu).as_nanos() as f64 / arrived,
            rate: arrived / (last - begun).as_secs_f64(),
            load_share,
        });
        self.measured.peak_mib = self.started.process.memory_mib()?.1;
        Ok(())
    }

    /// A window at half the rate that it takes.
    async fn send_at_half_rate(&mut self, window: Duration) -> Result<(), BenchError> {
        let rates = Samples::new(self.measured.windows.iter().map(|window| window.rate));
        self.sink.take_ages_ms();
        let a_second = rates.median() / 2.0 / self.kept as f64;
        let late = Samples::new(self.driver.send_at_rate(a_second, window).await?);
        self.drain().await;
        self.measured.paced_peak_mib = Some(self.started.process.memory_mib()?.1);
        let ages = self.sink.take_ages_ms();
        if !ages.is_empty() && late.quantile(0.99) < LATE_MS {
            let ages = Samples::new(ages);
            self.measured.ages.push((ages.median(), ages.quantile(0.99)));
        }
        Ok(())
    }

    fn expected(&self) -> u64 {
        self.driver.totals().acknowledged * self.kept
    }

    /// Waits for what is on its way.
    async fn drain(&self) {
        let (mut last, mut when) = (self.sink.points(), Instant::now());
        while last < self.expected() && when.elapsed() < STALL {
            tokio::time::sleep(LOOK).await;
            if self.sink.points() != last {
                (last, when) = (self.sink.points(), Instant::now());
            }
        }
    }

    fn finish(self) -> SubjectMeasurement<'a> {
        SubjectMeasurement {
            lost: self.expected() as f64 - self.sink.points() as f64,
            totals: self.driver.totals(),
            ..self.measured
        }
    }
}

/// Processor time of this process so far.
pub(in crate::groups) fn own_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let (seconds, nanos) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    Duration::from_secs(seconds) + Duration::from_nanos(nanos)
}
