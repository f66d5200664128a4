// SPDX-License-Identifier: Apache-2.0

//! Where an attack takes place: a gateway with everything that may be attacked, its ports, and its configuration.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::wire::{self, HttpAnswer, Tally};
use crate::BenchError;
use crate::gateway::free_port;
use crate::http::Scraper;
use crate::process::Process;

/// The limit of the memory limiter.
pub(super) const LIMIT_MIB: f64 = 256.0;

/// The memory limit of the Collector's Go runtime: 80 % of the limit, as the page of its memory limiter advises.
pub(super) const GO_MEMORY: &str = "205MiB";

/// Open files that the gateway may have, as usual.
const DESCRIPTORS: u32 = 1024;

/// The parts of a gateway's configuration that other gateways do not have. They are text of YAML, in which the names of
/// [`Ports`] stand for ports and `DIR` for a directory; lists of names begin with a comma.
#[derive(Clone, Copy)]
pub(super) struct Setup {
    /// Options of OTLP/HTTP after its endpoint.
    pub(super) http: &'static str,
    /// Receivers, a line each, and their names.
    pub(super) receivers: (&'static str, &'static str),
    /// Processors after the memory limiter.
    pub(super) processors: (&'static str, &'static str),
    pub(super) exporters: (&'static str, &'static str),
    pub(super) extensions: (&'static str, &'static str),
    /// Headers of the honest sender.
    pub(super) honest: &'static str,
    /// Whether the gateway can't raise the number of its open files.
    pub(super) few_descriptors: bool,
}

impl Setup {
    /// OTLP to Prometheus.
    pub(super) const PLAIN: Self = Self {
        http: "",
        receivers: ("", ""),
        processors: ("", ""),
        exporters: ("", ""),
        extensions: ("", ""),
        honest: "",
        few_descriptors: false,
    };

    /// With an aggregate that keeps the host and forgets it soon.
    pub(super) const AGGREGATE: Self = Self {
        processors: (
            "  aggregate: {expiry: 10s, rules: [{match: {name: '*'}, by: [host]}]}",
            ", aggregate",
        ),
        ..Self::PLAIN
    };

    /// With remote writes.
    pub(super) const WRITE: Self = Self {
        receivers: (
            "  prometheusremotewrite: {endpoint: '127.0.0.1:WRITE'}",
            ", prometheusremotewrite",
        ),
        ..Self::PLAIN
    };
}

/// Bodies may be larger than this little memory allows by default, or most attacks would end there.
const CONFIG: &str = "
receivers:
  otlp:
    protocols:
      grpc: {endpoint: '127.0.0.1:GRPC', max_recv_msg_size_mib: 64}
      http: {endpoint: '127.0.0.1:OTLP', max_request_body_size: 67108864<http>}
<receivers>
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 256}
<processors>
exporters:
  prometheus: {endpoint: '127.0.0.1:PAGE'}
<exporters>
extensions:
  health_check: {endpoint: '127.0.0.1:HEALTH'}
  admin: {endpoint: '127.0.0.1:ADMIN'}
<extensions>
service:
  extensions: [health_check, admin<extending>]
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: OWN}}}}]}}
  pipelines:
    metrics:
      receivers: [otlp<receiving>]
      processors: [memory_limiter<processing>]
      exporters: [prometheus<exporting>]
";

/// The same for the OpenTelemetry Collector; it has no `admin`, and what it says of itself is not looked at.
const OF_THE_COLLECTOR: &str = "
receivers:
  otlp:
    protocols:
      grpc: {endpoint: '127.0.0.1:GRPC', max_recv_msg_size_mib: 64}
      http: {endpoint: '127.0.0.1:OTLP', max_request_body_size: 67108864}
processors:
  memory_limiter: {check_interval: 1s, limit_mib: 256}
exporters:
  prometheus: {endpoint: '127.0.0.1:PAGE'}
extensions:
  health_check: {endpoint: '127.0.0.1:HEALTH'}
service:
  extensions: [health_check]
  telemetry: {metrics: {level: none}}
  pipelines: {metrics: {receivers: [otlp], processors: [memory_limiter], exporters: [prometheus]}}
";

/// Ports of a gateway and of what is beside it.
#[derive(Clone, Copy)]
pub(super) struct Ports {
    pub(super) otlp: u16,
    pub(super) grpc: u16,
    pub(super) page: u16,
    pub(super) health: u16,
    pub(super) admin: u16,
    pub(super) own: u16,
    pub(super) write: u16,
    /// A target that is scraped and good, one that is not, a destination.
    pub(super) good: u16,
    pub(super) evil: u16,
    pub(super) sink: u16,
}

impl Ports {
    fn new() -> Result<Self, BenchError> {
        Ok(Self {
            otlp: free_port()?,
            grpc: free_port()?,
            page: free_port()?,
            health: free_port()?,
            admin: free_port()?,
            own: free_port()?,
            write: free_port()?,
            good: free_port()?,
            evil: free_port()?,
            sink: free_port()?,
        })
    }

    fn named(self) -> [(&'static str, u16); 10] {
        [
            ("OTLP", self.otlp),
            ("GRPC", self.grpc),
            ("PAGE", self.page),
            ("HEALTH", self.health),
            ("ADMIN", self.admin),
            ("OWN", self.own),
            ("WRITE", self.write),
            ("GOOD", self.good),
            ("EVIL", self.evil),
            ("SINK", self.sink),
        ]
    }
}

/// How much of an attack is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Size {
    Full,
    /// A second or so, against a debug binary.
    Small,
}

/// The program that is attacked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttackedProgram {
    Tidegate,
    Collector,
}

/// A running gateway.
pub(super) struct AttackedGateway {
    pub(super) ports: Ports,
    pub(super) size: Size,
    /// Sockets are in it.
    pub(super) directory: PathBuf,
    pub(super) process: Process,
}

impl AttackedGateway {
    /// Starts a gateway on all cores, and waits until all of it serves.
    pub(super) fn start(
        binary: &Path,
        role: AttackedProgram,
        setup: &Setup,
        size: Size,
    ) -> Result<Self, BenchError> {
        let directory = TempDir::new()?;
        let ports = Ports::new()?;
        let path = directory.path().to_owned();
        let config = path.join("config.yaml");
        std::fs::write(&config, configuration(role, setup, ports, &path))?;
        let kind = if setup.few_descriptors { "" } else { "S" };
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                &format!("ulimit -{kind}n {DESCRIPTORS}; exec \"$0\" \"$@\""),
            ])
            .arg(binary);
        match role {
            AttackedProgram::Tidegate => command.arg("run"),
            AttackedProgram::Collector => command.env("GOMEMLIMIT", GO_MEMORY),
        };
        command.arg("--config").arg(config).current_dir(&path);
        let mut process = Process::start_on_all_cores(command, directory)?;
        let served: &[u16] = match role {
            AttackedProgram::Tidegate => &[
                ports.page,
                ports.health,
                ports.admin,
                ports.own,
                ports.otlp,
                ports.grpc,
            ],
            AttackedProgram::Collector => &[ports.page, ports.health, ports.otlp, ports.grpc],
        };
        for port in served {
            process.wait_for(|| wire::connected(wire::HONEST, *port, PATIENCE).map(drop))?;
        }
        Ok(Self {
            ports,
            size,
            directory: path,
            process,
        })
    }

    /// A figure of the attack: in full, or small.
    pub(super) fn pick<T>(&self, full: T, small: T) -> T {
        match self.size {
            Size::Full => full,
            Size::Small => small,
        }
    }

    /// The duration of an attack that has no end of its own.
    pub(super) fn time(&self) -> Duration {
        self.pick(Duration::from_secs(12), Duration::from_millis(700))
    }

    /// How long an attacker waits for an answer.
    pub(super) fn patience(&self) -> Duration {
        self.pick(Duration::from_secs(30), Duration::from_secs(3))
    }

    /// How long a client waits for an answer that must come. A small attack checks no times: others use the machine too.
    pub(super) fn deadline(&self) -> Duration {
        self.pick(Duration::from_secs(10), SMALL_DEADLINE)
    }

    /// Does something repeatedly on `threads` threads, as long as an attack lasts and at least once; `act` gets
    /// the number of its thread and of its calls so far.
    pub(super) fn crowd(&self, threads: usize, act: impl Fn(usize, usize) + Sync) {
        let end = Instant::now() + self.time();
        std::thread::scope(|scope| {
            for thread in 0..threads {
                let act = &act;
                scope.spawn(move || {
                    for turn in 0.. {
                        act(thread, turn);
                        if Instant::now() >= end {
                            break;
                        }
                        std::thread::sleep(BREATH);
                    }
                });
            }
        });
    }

    /// Sends a body of OTLP over HTTP on a connection of its own.
    pub(super) fn push(&self, headers: &str, body: &[u8], points: u64, tally: &Tally) {
        let request = wire::post("/v1/metrics", headers, body);
        tally.note(
            wire::once(wire::ATTACKER, self.ports.otlp, self.patience(), &request),
            points,
        );
    }

    /// Sends a remote write on a connection of its own; `headers` say of which version.
    pub(super) fn write(&self, headers: &str, packed: &[u8], samples: u64, tally: &Tally) {
        tally.note(self.write_once(headers, packed, self.patience()), samples);
    }

    /// The answer to a remote write.
    pub(super) fn write_once(
        &self,
        headers: &str,
        packed: &[u8],
        patience: Duration,
    ) -> Result<HttpAnswer, BenchError> {
        let request = wire::post("/api/v1/write", headers, packed);
        wire::once(wire::ATTACKER, self.ports.write, patience, &request)
    }

    /// Asks the admin API.
    pub(super) fn ask(&self, path: &str, patience: Duration) -> Result<HttpAnswer, BenchError> {
        wire::once(wire::ATTACKER, self.ports.admin, patience, &wire::get(path))
    }

    /// The sum of a metric on the page of the Prometheus exporter.
    pub(super) fn shown(&self, name: &str) -> Result<f64, BenchError> {
        Scraper::connect(self.ports.page, "/metrics")?.sum(name)
    }
}

/// What must happen in a small attack happens by then.
pub(super) const SMALL_DEADLINE: Duration = Duration::from_secs(60);

/// One that is refused at once tries again after this, and leaves the processor to others meanwhile.
const BREATH: Duration = Duration::from_millis(10);

/// A port that is served answers by then.
const PATIENCE: Duration = Duration::from_secs(20);

fn configuration(role: AttackedProgram, setup: &Setup, ports: Ports, directory: &Path) -> String {
    let places = [
        ("<http>", setup.http),
        ("<receivers>", setup.receivers.0),
        ("<receiving>", setup.receivers.1),
        ("<processors>", setup.processors.0),
        ("<processing>", setup.processors.1),
        ("<exporters>", setup.exporters.0),
        ("<exporting>", setup.exporters.1),
        ("<extensions>", setup.extensions.0),
        ("<extending>", setup.extensions.1),
        ("DIR", &*directory.to_string_lossy()),
    ];
    let text = match role {
        AttackedProgram::Tidegate => CONFIG,
        AttackedProgram::Collector => OF_THE_COLLECTOR,
    };
    let text = places
        .iter()
        .fold(text.to_owned(), |text, (place, with)| text.replace(place, with));
    let ports = ports.named();
    ports
        .iter()
        .fold(text, |text, (name, port)| text.replace(name, &port.to_string()))
}
