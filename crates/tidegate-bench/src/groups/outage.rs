//! A healthy destination beside a dead one: what it gets, and how late, against when it is alone. The runs take turns,
//! so that what else the machine does falls on both alike.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use crate::Error;
use crate::gateway::free_port;
use crate::otlp::{Load, Sink};
use crate::process::Process;
use crate::report::{Budget, Row};
use crate::stats::Samples;

const POINTS: usize = 100;
const A_SECOND: u32 = 1_000;
const WARM_UP: Duration = Duration::from_millis(1500);
const WINDOW: Duration = Duration::from_secs(2);
const ROUNDS: usize = 5;

/// What stands beside the healthy destination.
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

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, Error> {
    let mut results: [Vec<Measured>; BESIDE.len()] = Default::default();
    for _ in 0..ROUNDS {
        for (results, (_, beside)) in results.iter_mut().zip(BESIDE) {
            results.push(super::runtime()?.block_on(measure(binary, beside))?);
        }
    }
    let mut rows = Vec::new();
    let alone = &results[0];
    for ((name, beside), measured) in BESIDE.iter().zip(&results) {
        let column = |of: fn(&Measured) -> f64| Samples::new(measured.iter().map(of));
        // Each run against the run alone of its own round.
        let ratio = |of: fn(&Measured) -> f64| {
            Samples::new(measured.iter().zip(alone).map(|(one, alone)| of(one) / of(alone)))
        };
        rows.push(Row::median(
            format!("{name}: points a second"),
            column(|m| m.points_per_second),
            "/s",
        ));
        rows.push(Row::median(
            format!("{name}: age on arrival, median"),
            column(|m| m.p50_ms),
            "ms",
        ));
        rows.push(Row::median(
            format!("{name}: age on arrival, p99"),
            column(|m| m.p99_ms),
            "ms",
        ));
        rows.push(Row::median(
            format!("{name}: resident memory"),
            column(|m| m.memory_mib),
            "MiB",
        ));
        if beside.is_some() {
            let throughput = ratio(|m| m.points_per_second);
            rows.push(
                Row::median(format!("{name}: points against alone"), throughput, "x")
                    .budget(Budget::AtLeast(0.95)),
            );
            let age = ratio(|m| m.p50_ms);
            rows.push(
                Row::median(format!("{name}: median age against alone"), age, "x")
                    .budget(Budget::AtMost(1.05)),
            );
        }
    }
    Ok(rows)
}

struct Measured {
    points_per_second: f64,
    p50_ms: f64,
    p99_ms: f64,
    memory_mib: f64,
}

async fn measure(binary: &Path, beside: Option<&str>) -> Result<Measured, Error> {
    let (sink, port) = (Sink::start().await?, free_port()?);
    let process = start(binary, port, sink.port, beside)?;
    let load = Load::paced(port, POINTS, A_SECOND).await?;
    tokio::time::sleep(WARM_UP).await;
    sink.take_ages_ms();
    let before = sink.points();
    tokio::time::sleep(WINDOW).await;
    let passed = sink.points() - before;
    let ages = Samples::new(sink.take_ages_ms());
    if load.refused() > 0 {
        return Err(format!("{} requests were refused", load.refused()).into());
    }
    if let Some(why) = load.failure() {
        return Err(format!("requests failed: {why}").into());
    }
    let memory_mib = process.memory_mib()?.0;
    // It would try to deliver what it holds for the dead one.
    process.kill();
    Ok(Measured {
        points_per_second: passed as f64 / WINDOW.as_secs_f64(),
        p50_ms: ages.median(),
        p99_ms: ages.quantile(0.99),
        memory_mib,
    })
}

fn start(binary: &Path, from: u16, to: u16, beside: Option<&str>) -> Result<Process, Error> {
    let directory = TempDir::new_in(std::env::current_dir()?.join("target"))?;
    let (dead, used) = match beside {
        None => (String::new(), ""),
        // Nobody listens on port 1.
        Some(queue) => (
            format!(
                "  otlp/dead: {{endpoint: \"127.0.0.1:1\", tls: {{insecure: true}}, sending_queue: {{{queue}}}}}\n"
            ),
            ", otlp/dead",
        ),
    };
    let yaml = format!(
        "extensions: {{file_storage: {{directory: {:?}, max_size: 64MiB}}}}
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
    let path = directory.path().join("config.yaml");
    std::fs::write(&path, yaml)?;
    let mut command = Command::new(binary);
    command.args(["run", "--config"]).arg(path);
    Process::start(command, directory)
}
