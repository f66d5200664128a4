// SPDX-License-Identifier: Apache-2.0

//! A healthy destination beside a dead one: its throughput and delay, against those when it is alone.

use std::path::Path;
use std::time::Duration;

use tempfile::TempDir;

use super::rounds::{self, Figure};
use crate::BenchError;
use crate::gateway::{self, free_port};
use crate::otlp::{Load, OtlpSink};
use crate::process::Process;
use crate::report::{Budget, Row};
use crate::stats::Samples;

const POINTS: usize = 100;
const A_SECOND: u32 = 1_000;
const WARM_UP: Duration = Duration::from_millis(1500);
const WINDOW: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// The destinations beside the healthy one.
const BESIDE: [(&str, Option<&str>); 3] = [
    ("alone", None),
    (
        "beside a dead one that drops",
        Some("queue_size: 100, on_full: drop"),
    ),
    (
        "beside a dead one with a queue on disk",
        Some("storage: file_storage, storage_mode: spill, queue_size: 100"),
    ),
];

const FIGURES: [Figure<OutageMeasurement>; 4] = [
    Figure {
        what: "points a second",
        unit: "/s",
        of: |measured| measured.points_per_second,
        against: Some(("points against alone", Some(Budget::AtLeast(0.95)))),
    },
    Figure {
        what: "age on arrival, median",
        unit: "ms",
        of: |measured| measured.p50_ms,
        against: Some(("median age against alone", Some(Budget::AtMost(1.05)))),
    },
    Figure {
        what: "age on arrival, p99",
        unit: "ms",
        of: |measured| measured.p99_ms,
        against: None,
    },
    Figure {
        what: "resident memory",
        unit: "MiB",
        of: |measured| measured.memory_mib,
        against: None,
    },
];

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    rounds::rows(ROUNDS, &BESIDE, &FIGURES, |beside| {
        super::runtime()?.block_on(measure(binary, beside))
    })
}

struct OutageMeasurement {
    points_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    memory_mib: f64,
}

async fn measure(binary: &Path, beside: Option<&str>) -> Result<OutageMeasurement, BenchError> {
    let (sink, port) = (OtlpSink::start().await?, free_port()?);
    let process = start(binary, port, sink.port, beside)?;
    let load = Load::at_rate(port, POINTS, A_SECOND).await?;
    tokio::time::sleep(WARM_UP).await;
    sink.take_ages_ms();
    let before = sink.points();
    tokio::time::sleep(WINDOW).await;
    let passed = sink.points() - before;
    let ages = Samples::new(sink.take_ages_ms());
    if load.refused() > 0 {
        let how = beside.unwrap_or("alone");
        return Err(format!("{how}: {} requests were refused", load.refused()).into());
    }
    if let Some(why) = load.failure() {
        return Err(format!("requests failed: {why}").into());
    }
    let memory_mib = process.memory_mib()?.0;
    // It would try to deliver what it holds for the dead one.
    process.kill();
    Ok(OutageMeasurement {
        points_per_second: passed as f64 / WINDOW.as_secs_f64(),
        p50_ms: ages.median(),
        p99_ms: ages.quantile(0.99),
        memory_mib,
    })
}

fn start(binary: &Path, from: u16, to: u16, beside: Option<&str>) -> Result<Process, BenchError> {
    let directory = TempDir::new_in(std::env::current_dir()?.join("target"))?;
    let (dead, used) = match beside {
        None => (String::new(), ""),
        // No server listens on port 1.
        Some(queue) => (
            format!(
                "  otlp/dead: {{endpoint: \"127.0.0.1:1\", tls: {{insecure: true}}, sending_queue: {{{queue}}}}}\n"
            ),
            ", otlp/dead",
        ),
    };
    let yaml = format!(
        "extensions: {{file_storage: {{directory: {:?}, max_size: 256MiB}}}}
receivers: {{otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{from}\"}}}}}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{to}\", tls: {{insecure: true}}, compression: none}}
{dead}service:
  extensions: [file_storage]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp{used}]}}}}
",
        directory.path()
    );
    let command = gateway::command(binary, directory.path(), &yaml)?;
    Process::start(command, directory)
}
