// SPDX-License-Identifier: Apache-2.0

//! More than passes. First 512 requests of 1,000 points at a time, as fast as they are taken: more bytes than the memory
//! limit allows. Then half of what passed, beside a destination that takes a tenth of that for a minute and recovers.
//!
//! Senders obey the answers and come back after the delay that the gateway gives. At the end nothing is under way, and what was
//! acknowledged must have arrived or be counted as dropped. Everything but the gateway shares the other core.

pub(super) mod crowd;
pub(super) mod slow;
mod subjects;

use std::path::Path;
use std::time::{Duration, Instant};

use crowd::{Answers, Crowd, CrowdShape};
use slow::SlowSink;
use subjects::{LIMIT_MIB, OverloadSubject, Running};

use crate::BenchError;
use crate::report::{Budget, Row};

const POINTS: usize = 1_000;
const SHAPE: CrowdShape = CrowdShape {
    connections: 8,
    in_flight: 64,
    points: POINTS,
};
/// After this time, programs that start slowly have started.
const WARM_UP: Duration = Duration::from_secs(2);
/// How long as much is sent as is taken.
const BURST: Duration = Duration::from_secs(6);
/// Of what passed in the burst this is offered later.
const OFFERED: f64 = 0.5;
/// Of what is offered the destination takes this.
const TAKEN: f64 = 0.1;
/// For how long it does so, with us and with others.
const STALL: [Duration; 2] = [Duration::from_secs(60), Duration::from_secs(20)];
/// How long the load goes on when it has recovered.
const RECOVERY: Duration = Duration::from_secs(3);
/// After this time, points that a subject holds are delivered.
const PATIENCE: Duration = Duration::from_secs(60);
/// Resident memory may be above its limit by so much.
const MARGIN: f64 = 1.1;

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = Vec::new();
    for subject in &subjects::all(binary) {
        match super::runtime()?.block_on(measure(subject)) {
            Ok(measured) => rows.extend(measured.rows(subject)),
            Err(error) if subject.is_peer => println!("  omitted, {}: {error}", subject.name),
            Err(error) => return Err(error),
        }
    }
    Ok(rows)
}

/// The outcome of all points.
struct OverloadMeasurement {
    /// Points a second in the burst, and the highest resident memory until its end, in MiB.
    passed: f64,
    burst_mib: f64,
    /// The highest resident memory in all, in MiB.
    peak_mib: f64,
    answers: Answers,
    /// Points.
    arrived: u64,
    dropped: u64,
    /// From the recovery to the last point of what was held.
    drained: Duration,
}

impl OverloadMeasurement {
    /// Points that were acknowledged, and neither arrived nor were counted as dropped.
    fn missing(&self) -> u64 {
        self.accepted().saturating_sub(self.arrived + self.dropped)
    }

    /// Points that arrived again, or were counted as dropped: their delivery was not known of.
    fn repeated(&self) -> u64 {
        (self.arrived + self.dropped).saturating_sub(self.accepted())
    }

    fn accepted(&self) -> u64 {
        self.answers.accepted * POINTS as u64
    }

    fn rows(&self, subject: &OverloadSubject) -> Vec<Row> {
        let named = |what: &str| format!("{}: {what}", subject.name);
        let limited = |row: Row| {
            if subject.is_limited {
                row.budget(Budget::AtMost(LIMIT_MIB * MARGIN))
            } else {
                row
            }
        };
        let ours = |row: Row, budget| if subject.is_peer { row } else { row.budget(budget) };
        let limit = subject.is_limited.then_some(LIMIT_MIB);
        let mut rows: Vec<Row> = limit
            .map(|mib| Row::value(named("memory limit"), mib, "MiB"))
            .into_iter()
            .collect();
        let [accepted, arrived, dropped] =
            [self.accepted(), self.arrived, self.dropped].map(|points| points as f64);
        rows.extend([
            Row::value(named("passed in the burst"), self.passed, "points/s"),
            limited(Row::value(
                named("peak memory in the burst"),
                self.burst_mib,
                "MiB",
            )),
            limited(Row::value(named("peak memory in all"), self.peak_mib, "MiB")),
            ours(
                Row::value(
                    named("refusals that say when to come back"),
                    self.answers.told as f64,
                    "",
                ),
                Budget::AtLeast(1.0),
            ),
            ours(
                Row::value(named("refusals that do not"), self.answers.untold as f64, ""),
                Budget::AtMost(0.0),
            ),
            Row::value(named("acknowledged"), accepted, "points"),
            Row::value(named("arrived"), arrived, "points"),
            Row::value(named("dropped and counted"), dropped, "points"),
            ours(
                Row::value(
                    named("acknowledged, but neither of both"),
                    self.missing() as f64,
                    "points",
                ),
                Budget::AtMost(0.0),
            ),
            Row::value(
                named("arrived once more than acknowledged"),
                self.repeated() as f64,
                "points",
            ),
            Row::value(
                named("until what was held had arrived"),
                self.drained.as_secs_f64(),
                "s",
            ),
        ]);
        rows
    }
}

async fn measure(subject: &OverloadSubject) -> Result<OverloadMeasurement, BenchError> {
    let sink = SlowSink::start().await?;
    let running = subject.start(sink.port)?;
    let crowd = Crowd::start(running.otlp, SHAPE, None).await?;
    tokio::time::sleep(WARM_UP).await;
    let (before, begun) = (sink.points(), Instant::now());
    tokio::time::sleep(BURST).await;
    let passed = (sink.points() - before) as f64 / begun.elapsed().as_secs_f64();
    let burst = crowd.finish().await;
    let burst_mib = running.process.memory_mib()?.1;
    if passed == 0.0 {
        return Err(format!("nothing passes {}: {burst:?}", subject.name).into());
    }
    sink.set_rate(Some(passed * OFFERED * TAKEN));
    let crowd = Crowd::start(running.otlp, SHAPE, Some(passed / POINTS as f64 * OFFERED)).await?;
    tokio::time::sleep(STALL[usize::from(subject.is_peer)]).await;
    sink.set_rate(None);
    let recovered = Instant::now();
    tokio::time::sleep(RECOVERY).await;
    let paced = crowd.finish().await;
    let drained = drain(&sink, &running, recovered).await?;
    let answers = burst.and(paced);
    if answers.unanswered > 0 {
        return Err(format!("{} requests got no answer", answers.unanswered).into());
    }
    Ok(OverloadMeasurement {
        passed,
        burst_mib,
        peak_mib: running.process.memory_mib()?.1,
        answers,
        arrived: sink.points(),
        dropped: running.dropped()?,
        drained,
    })
}

/// Waits until nothing is held and nothing more arrives; says when the last did.
async fn drain(sink: &SlowSink, running: &Running<'_>, since: Instant) -> Result<Duration, BenchError> {
    /// Of no arrival for so long.
    const QUIET: Duration = Duration::from_secs(2);
    let (mut seen, mut last) = (sink.points(), Instant::now());
    while last.elapsed() < QUIET || running.held()? > 0 {
        if last.elapsed() > PATIENCE {
            return Err(format!("it still holds {} points", running.held()?).into());
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        if sink.points() > seen {
            (seen, last) = (sink.points(), Instant::now());
        }
    }
    Ok(last - since)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_points_and_duplicates_are_counted_separately() {
        let measured = |arrived, dropped| OverloadMeasurement {
            passed: 1.0,
            burst_mib: 1.0,
            peak_mib: 1.0,
            answers: Answers {
                accepted: 3,
                ..Answers::default()
            },
            arrived,
            dropped,
            drained: Duration::ZERO,
        };
        let both = |arrived, dropped| {
            let measured = measured(arrived, dropped);
            (measured.missing(), measured.repeated())
        };
        assert_eq!(both(3000, 0), (0, 0));
        assert_eq!(both(1000, 2000), (0, 0));
        assert_eq!(both(1000, 0), (2000, 0));
        assert_eq!(both(4000, 0), (0, 1000));
    }
}
