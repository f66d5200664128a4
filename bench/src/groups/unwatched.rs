// SPDX-License-Identifier: Apache-2.0

//! What `admin` and the gateway's own metrics cost while no client asks for them, against a gateway without them. Then, what an
//! open tap of the receiver costs, against none. The points are those of `growth`: OTLP/HTTP into `aggregate`, shown by the
//! `prometheus` exporter.

use std::io::{self, BufRead, BufReader, Write};
use std::net::{Shutdown, TcpStream};
use std::path::Path;
use std::thread::{self, JoinHandle};
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
/// The least bytes that a tap shows in a window. An item has some hundred of them, and a tap shows 1,000 items a second.
const SHOWN: u64 = 10_000;
/// The most that the watched parts may cost: the noise of a run.
const MOST: f64 = 1.05;

#[derive(Clone, Copy)]
struct Watched {
    has_admin: bool,
    has_own_metrics: bool,
    tap: Option<TapClient>,
}

/// What the client of an open tap does.
#[derive(Clone, Copy)]
enum TapClient {
    /// It reads all that comes.
    Reads,
    /// It reads nothing after the head of the answer.
    Waits,
}

/// All parts, and no client.
const ALL: Watched = Watched {
    has_admin: true,
    has_own_metrics: true,
    tap: None,
};

const SETUPS: [(&str, Watched); 3] = [
    (
        "without",
        Watched {
            has_admin: false,
            has_own_metrics: false,
            tap: None,
        },
    ),
    (
        "with own metrics",
        Watched {
            has_admin: false,
            ..ALL
        },
    ),
    ("with own metrics, `admin`, its history and tap", ALL),
];

const TAPS: [(&str, Watched); 3] = [
    ("no tap is open", ALL),
    (
        "an open tap that is read",
        Watched {
            tap: Some(TapClient::Reads),
            ..ALL
        },
    ),
    (
        "an open tap that is not read",
        Watched {
            tap: Some(TapClient::Waits),
            ..ALL
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
    MEMORY,
];

/// The processor time has no budget, because a tap decodes and writes up to `max_tap_items_per_second` items (1,000).
const TAP_FIGURES: [Figure<UnwatchedMeasurement>; 3] = [
    Figure {
        what: "processor time of a point",
        unit: "ns",
        of: |measured| measured.cost_ns,
        against: Some(("processor time against no tap", None)),
    },
    Figure {
        what: "acknowledged points",
        unit: "/s",
        of: |measured| measured.points_a_second,
        against: Some(("acknowledged points against no tap", None)),
    },
    MEMORY,
];

const MEMORY: Figure<UnwatchedMeasurement> = Figure {
    what: "resident memory",
    unit: "MiB",
    of: |measured| measured.memory_mib,
    against: None,
};

struct UnwatchedMeasurement {
    cost_ns: f64,
    points_a_second: f64,
    memory_mib: f64,
}

/// An open tap of what the receiver takes.
struct OpenTap {
    stream: TcpStream,
    /// Returns the number of bytes that it read.
    reading: Option<JoinHandle<io::Result<u64>>>,
}

impl OpenTap {
    fn open(port: u16, client: TapClient) -> Result<Self, BenchError> {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        let request =
            format!("GET /api/v1/tap?component=receivers::otlp HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\n\r\n");
        stream.write_all(request.as_bytes())?;
        let mut status = String::new();
        BufReader::new(&stream).read_line(&mut status)?;
        if !status.contains(" 200 ") {
            return Err(format!("the tap: {}", status.trim()).into());
        }
        let reading = match client {
            TapClient::Waits => None,
            TapClient::Reads => {
                let mut copy = stream.try_clone()?;
                Some(thread::spawn(move || io::copy(&mut copy, &mut io::sink())))
            }
        };
        Ok(Self { stream, reading })
    }

    /// Closes it. One that was read must have shown something.
    fn close(self) -> Result<(), BenchError> {
        // The gateway may have closed one that was not read.
        let _ = self.stream.shutdown(Shutdown::Both);
        let Some(reading) = self.reading else {
            return Ok(());
        };
        let bytes = reading.join().map_err(|_| "the client of the tap panicked")??;
        if bytes < SHOWN {
            return Err(format!("the tap showed only {bytes} bytes").into());
        }
        Ok(())
    }
}

pub(super) fn run(binary: &Path) -> Result<Vec<Row>, BenchError> {
    let mut rows = rounds::rows(ROUNDS, &SETUPS, &FIGURES, |watched| measure(binary, watched))?;
    rows.extend(rounds::rows(ROUNDS, &TAPS, &TAP_FIGURES, |watched| {
        measure(binary, watched)
    })?);
    Ok(rows)
}

fn measure(binary: &Path, watched: Watched) -> Result<UnwatchedMeasurement, BenchError> {
    let (otlp, admin_port) = (free_port()?, free_port()?);
    let admin = match watched.has_admin {
        true => format!("admin: {{endpoint: '127.0.0.1:{admin_port}', tap: true}}"),
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
    let tap = watched.tap.map(|client| OpenTap::open(admin_port, client));
    let tap = tap.transpose()?;
    let (cpu, begun, before) = (gateway.process().cpu()?, Instant::now(), value);
    while begun.elapsed() < WINDOW {
        value += 1;
        series::push(&mut requests, &mut sender, value)?;
    }
    let seconds = begun.elapsed().as_secs_f64();
    let points = (value - before) as f64 * SERIES as f64;
    let measured = UnwatchedMeasurement {
        cost_ns: (gateway.process().cpu()? - cpu).as_nanos() as f64 / points,
        points_a_second: points / seconds,
        memory_mib: gateway.process().memory_mib()?.0,
    };
    tap.map_or(Ok(()), OpenTap::close)?;
    Ok(measured)
}
