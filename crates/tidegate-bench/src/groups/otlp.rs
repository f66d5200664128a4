//! Points a second and processor time a point, of a gateway between a load and a sink. Neither compresses. Everything
//! but the gateway shares the other core.

mod subjects;

use std::path::Path;
use std::time::{Duration, Instant};

use subjects::Subject;

use crate::Error;
use crate::otlp::{Load, Sink};
use crate::process::Process;
use crate::report::Row;
use crate::stats::Samples;

/// Points a request, and how many requests are under way at once: about as many bytes, where many are small.
const SHAPES: [(usize, usize); 5] = [(1, 64), (10, 64), (100, 64), (1_000, 16), (8_000, 4)];
const WARM_UP: Duration = Duration::from_millis(1500);
const WINDOW: Duration = Duration::from_millis(1500);
const WINDOWS: usize = 3;

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, Error> {
    let subjects = subjects::all(binary);
    let mut rows = Vec::new();
    for (points, in_flight) in SHAPES {
        for subject in &subjects {
            // Anew for each shape: what one leaves behind is no burden of the next.
            match super::runtime()?.block_on(measure(subject, points, in_flight)) {
                Ok(measured) => rows.extend(measured.rows(subject.name, points)),
                Err(error) if subject.is_peer => println!("  left out, {points} a request: {error}"),
                Err(error) => return Err(error),
            }
        }
    }
    Ok(rows)
}

/// What passed in the windows of a run.
struct Measured {
    points_per_second: Samples,
    cpu_per_million: Samples,
    memory_mib: f64,
    refused: u64,
}

impl Measured {
    fn rows(self, subject: &str, points: usize) -> Vec<Row> {
        let named = |what: &str| format!("{subject}, {points} a request: {what}");
        let mut rows = vec![
            Row::median(
                named("processor time a million points"),
                self.cpu_per_million,
                "s",
            ),
            Row::median(named("points a second"), self.points_per_second, "/s"),
            Row::value(named("peak memory"), self.memory_mib, "MiB"),
        ];
        if self.refused > 0 {
            rows.push(Row::value(
                named("refused and sent again"),
                self.refused as f64,
                "",
            ));
        }
        rows
    }
}

async fn measure(subject: &Subject, points: usize, in_flight: usize) -> Result<Measured, Error> {
    let sink = Sink::start().await?;
    let (process, port) = subject.start(sink.port)?;
    let load = Load::full(port, points, in_flight).await?;
    tokio::time::sleep(WARM_UP).await;
    let (mut rates, mut costs) = (Vec::new(), Vec::new());
    let mut last = look(&sink, &process)?;
    for _ in 0..WINDOWS {
        tokio::time::sleep(WINDOW).await;
        let now = look(&sink, &process)?;
        let passed = (now.0 - last.0) as f64 * points as f64;
        if passed == 0.0 {
            let why = load.failure().unwrap_or_else(|| "no request fails".to_owned());
            return Err(format!(
                "nothing of {points} a request comes out of {}: {why}, {} refused",
                subject.name,
                load.refused()
            )
            .into());
        }
        rates.push(passed / (now.2 - last.2).as_secs_f64());
        costs.push((now.1 - last.1).as_secs_f64() * 1e6 / passed);
        last = now;
    }
    Ok(Measured {
        points_per_second: Samples::new(rates),
        cpu_per_million: Samples::new(costs),
        memory_mib: process.memory_mib()?.1,
        refused: load.refused(),
    })
}

fn look(sink: &Sink, process: &Process) -> Result<(u64, Duration, Instant), Error> {
    Ok((sink.requests(), process.cpu()?, Instant::now()))
}
