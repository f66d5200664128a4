// SPDX-License-Identifier: Apache-2.0

//! What `admin` and the gateway's own metrics cost while no client asks for them, against a gateway without them. The points
//! are those of `growth`: OTLP/HTTP into `aggregate`, shown by the `prometheus` exporter.

use std::path::Path;
use std::time::{Duration, Instant};

use super::rounds::{self, Figure};
use crate::BenchError;
use crate::gateway::{Gateway, free_port};
use crate::report::{Budget, Row};
use crate::series;

const SERIES: usize = 1_000;
/// Requests with all series before the measurement.
const WARM_UP: u64 = 100;
const WINDOW: Duration = Duration::from_secs(1);
const ROUNDS: usize = 15;
/// The most that the watched parts may cost: the noise of a run.
const MOST: f64 = 1.05;

#[derive(Clone, Copy)]
struct Watched {
    has_admin: bool,
    has_own_metrics: bool,
}

const SETUPS: [(&str, Watched); 3] = [
    (
        "without",
        Watched {
            has_admin: false,
            has_own_metrics: false,
        },
    ),
    (
        "with own metrics",
        Watched {
            has_admin: false,
            has_own_metrics: true,
        },
    ),
    (
        "with own metrics, `admin`, its history and tap",
        Watched {
            has_admin: true,
            has_own_metrics: true,
        },
    ),
];

const FIGURES: [Figure<UnwatchedMeasurement>; 2] = [
    Figure {
        what: "processor time of a point",
        unit: "ns",
        of: |measured| measured.cost_ns,
        against: Some(("processor time against without", Some(Budget::AtMost(MOST)))),
    },
    Figure {
        what: "resident memory",
        unit: "MiB",
        of: |measured| measured.memory_mib,
        against: None,
    },
];

struct UnwatchedMeasurement {
    cost_ns: f64,
    memory_mib: f64,
}

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    rounds::rows(ROUNDS, &SETUPS, &FIGURES, |watched| measure(binary, watched))
}

fn measure(binary: &Path, watched: Watched) -> Result<UnwatchedMeasurement, BenchError> {
    let otlp = free_port()?;
    let admin = match watched.has_admin {
        true => format!("admin: {{endpoint: '127.0.0.1:{}', tap: true}}", free_port()?),
        false => String::new(),
    };
    let own_metrics = match watched.has_own_metrics {
        true => format!("{{address: '127.0.0.1:{}'}}", free_port()?),
        false => "{level: none}".to_owned(),
    };
    let used = if watched.has_admin { "admin" } else { "" };
    let config = format!(
        "extensions: {{{admin}}}
receivers: {{otlp: {{protocols: {{http: {{endpoint: '127.0.0.1:{otlp}'}}}}}}}}
processors: {{aggregate: {{rules: [{{match: {{name: 'bench.*'}}}}]}}}}
exporters: {{prometheus: {{endpoint: '127.0.0.1:PORT'}}}}
service:
  extensions: [{used}]
  telemetry: {{metrics: {own_metrics}}}
  pipelines: {{metrics: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}}}
"
    );
    let mut gateway = Gateway::start(binary, &config)?;
    gateway.first_scrape()?;
    let mut requests = series::requests(SERIES);
    let mut sender = gateway.connect(otlp)?;
    let mut value = 0;
    while value < WARM_UP {
        value += 1;
        series::push(&mut requests, &mut sender, value)?;
    }
    let (cpu, begun, before) = (gateway.process().cpu()?, Instant::now(), value);
    while begun.elapsed() < WINDOW {
        value += 1;
        series::push(&mut requests, &mut sender, value)?;
    }
    let points = (value - before) as f64 * SERIES as f64;
    Ok(UnwatchedMeasurement {
        cost_ns: (gateway.process().cpu()? - cpu).as_nanos() as f64 / points,
        memory_mib: gateway.process().memory_mib()?.0,
    })
}
