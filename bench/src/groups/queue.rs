// SPDX-License-Identifier: Apache-2.0

//! A queue on disk against one in memory, at requests of 1,000 points over gRPC. Then the queue that spills, beside a
//! destination that stands still, and how fast it is read back when the destination comes back. Everything but the
//! gateway shares the other core.

use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::overload::crowd::{Crowd, CrowdShape};
use super::overload::slow::SlowSink;
use super::rounds::{self, Figure};
use crate::BenchError;
use crate::gateway::{self, free_port};
use crate::otlp::{Load, OtlpSink};
use crate::process::Process;
use crate::report::{Budget, Row};

const POINTS: usize = 1_000;
const IN_FLIGHT: usize = 16;
const WARM_UP: Duration = Duration::from_millis(800);
const WINDOW: Duration = Duration::from_millis(1500);
const ROUNDS: usize = 7;
/// The least throughput by the disk, as a share of that in memory.
const SHARE: f64 = 0.6;
/// How long the destination stands still.
const STILL: Duration = Duration::from_secs(8);
/// Nothing has arrived for so long: there is no more.
const QUIET: Duration = Duration::from_secs(7);
/// Points a second of one that as good as never answers.
const STANDS_STILL: f64 = 0.001;

/// Queues, and how they are configured.
const QUEUES: [(&str, &str); 3] = [
    ("in memory", ""),
    ("on disk", "storage: file_storage"),
    (
        "in memory, room on disk",
        "storage: file_storage, storage_mode: spill",
    ),
];
/// The figures of a window.
const FIGURES: [Figure<Passed>; 2] = [
    Figure {
        what: "points a second",
        unit: "/s",
        of: |passed| passed.points_per_second,
        against: Some(("points a second against memory", Some(Budget::AtLeast(SHARE)))),
    },
    Figure {
        what: "processor time a million points",
        unit: "s",
        of: |passed| passed.cpu_per_million,
        against: Some(("processor time against memory", None)),
    },
];
/// Little memory, so that the disk is what holds.
const SPILL: &str = "storage: file_storage, storage_mode: spill, max_bytes: 32MiB";

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = rounds::rows(ROUNDS, &QUEUES, &FIGURES, |queue| {
        super::runtime()?.block_on(pass(binary, queue))
    })?;
    rows.extend(super::runtime()?.block_on(spill(binary))?);
    Ok(rows)
}

/// The items that passed in a window, and their cost.
struct Passed {
    points_per_second: f64,
    cpu_per_million: f64,
}

async fn pass(binary: &Path, queue: &str) -> Result<Passed, BenchError> {
    let (sink, port) = (OtlpSink::start().await?, free_port()?);
    let process = start(binary, port, sink.port, queue)?;
    let load = Load::full(port, POINTS, IN_FLIGHT).await?;
    tokio::time::sleep(WARM_UP).await;
    let (before, cpu, begun) = (sink.points(), process.cpu()?, Instant::now());
    tokio::time::sleep(WINDOW).await;
    let points = (sink.points() - before) as f64;
    if points == 0.0 {
        return Err(format!("nothing passes: {:?}", load.failure()).into());
    }
    let passed = Passed {
        points_per_second: points / begun.elapsed().as_secs_f64(),
        cpu_per_million: (process.cpu()? - cpu).as_secs_f64() * 1e6 / points,
    };
    process.kill();
    Ok(passed)
}

/// The speed at which a gateway accepts data while the destination is stopped, and at which it reads the data back.
async fn spill(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let (sink, port) = (SlowSink::start().await?, free_port()?);
    sink.set_rate(Some(STANDS_STILL));
    let process = start(binary, port, sink.port, SPILL)?;
    let shape = CrowdShape {
        connections: 1,
        in_flight: IN_FLIGHT,
        points: POINTS,
    };
    let crowd = Crowd::start(port, shape, None).await?;
    tokio::time::sleep(STILL).await;
    let answers = crowd.finish().await;
    let taken = answers.accepted * POINTS as u64;
    let memory = process.memory_mib()?.1;
    sink.set_rate(None);
    let before = sink.points();
    // Retries wait for their time first.
    let mut seen = Vec::new();
    let mut last = Instant::now();
    while last.elapsed() < QUIET {
        tokio::time::sleep(Duration::from_millis(10)).await;
        let arrived = sink.points() - before;
        if seen.last().is_none_or(|(_, known)| *known < arrived) {
            last = Instant::now();
            seen.push((last, arrived));
        }
    }
    let (arrived, rate) = drained(&seen);
    if sink.points() < taken {
        return Err(format!("{} of {taken} points arrived", sink.points()).into());
    }
    Ok(vec![
        Row::value(
            "beside one that stands still: points a second taken",
            taken as f64 / STILL.as_secs_f64(),
            "/s",
        ),
        Row::value("beside one that stands still: taken", taken as f64, "points"),
        Row::value(
            "beside one that stands still: refused",
            (answers.told + answers.untold) as f64,
            "requests",
        ),
        Row::value("beside one that stands still: peak memory", memory, "MiB"),
        Row::value("read back", arrived as f64, "points"),
        Row::value("read back and delivered", rate, "points/s"),
    ])
}

/// How much arrived, and at which rate where it went fastest for half of it: from a quarter to three.
fn drained(seen: &[(Instant, u64)]) -> (u64, f64) {
    let all = seen.last().map_or(0, |(_, arrived)| *arrived);
    let at = |part: u64| seen.iter().find(|(_, arrived)| *arrived * 4 >= all * part);
    match (at(1), at(3)) {
        (Some((from, few)), Some((to, most))) if to > from => {
            (all, (most - few) as f64 / (*to - *from).as_secs_f64())
        }
        _ => (all, f64::NAN),
    }
}

fn start(binary: &Path, from: u16, to: u16, queue: &str) -> Result<Process, BenchError> {
    let directory = TempDir::new_in(std::env::current_dir()?.join("target"))?;
    let yaml = format!(
        "extensions: {{file_storage: {{directory: {:?}, fsync: interval, fsync_interval: 100ms, max_size: 4GiB}}}}
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{from}\"}}}}}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{to}\", tls: {{insecure: true}}, compression: none, retry_on_failure: {{initial_interval: 1s, max_interval: 1s}}, sending_queue: {{{queue}}}}}
service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}
",
        directory.path()
    );
    let command = gateway::command(binary, directory.path(), &yaml)?;
    Process::start(command, directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_the_middle_half() {
        let begin = Instant::now();
        let seen = [(0, 0), (1000, 100), (2000, 500), (3000, 1000), (9000, 1200)];
        let seen = seen.map(|(ms, arrived)| (begin + Duration::from_millis(ms), arrived));
        // From 500 (a quarter of 1,200 and more) to 1,000 (three quarters and more) in a second.
        assert_eq!(drained(&seen), (1200, 500.0));
        assert_eq!(drained(&[]).0, 0);
    }
}
