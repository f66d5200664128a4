// SPDX-License-Identifier: Apache-2.0

//! The measured programs: tidegate with its queue in memory and with room for more on disk, and its peers as far as
//! they are on PATH.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::BenchError;
use crate::gateway::free_port;
use crate::http::{Scraper, sum};
use crate::process::Process;
use crate::subject::on_path;

/// `memory_limiter::limit_mib`, as for a container of 128 MiB. The soft limit is a fifth below.
pub(super) const LIMIT_MIB: f64 = 100.0;

/// A program and its configuration.
pub(super) struct OverloadSubject {
    pub(super) name: &'static str,
    pub(super) is_peer: bool,
    /// Whether its memory limit can be configured.
    pub(super) is_limited: bool,
    binary: PathBuf,
    /// Text of its configuration, in which `FROM`, `TO` and `BOOKS` stand for ports and `DIR` for a directory.
    config: &'static str,
    /// Its arguments, with the same, and `CONFIG` for a path.
    arguments: &'static str,
    /// Names of what it says of points that it holds, and that it has dropped.
    held: &'static [&'static str],
    dropped: &'static [&'static str],
}

const MEMORY: &str = "
receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:FROM'}}}}
processors: {memory_limiter: {check_interval: 1s, limit_mib: 100}}
exporters: {otlp: {endpoint: '127.0.0.1:TO', tls: {insecure: true}, compression: none}}
service:
  telemetry: {metrics: {address: '127.0.0.1:BOOKS'}}
  pipelines: {metrics: {receivers: [otlp], processors: [memory_limiter], exporters: [otlp]}}
";

/// Memory for a third of the limit, the rest on disk.
const SPILL: &str = "
extensions: {file_storage: {directory: 'DIR', max_size: 1GiB}}
receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:FROM'}}}}
processors: {memory_limiter: {check_interval: 1s, limit_mib: 100}}
exporters:
  otlp:
    endpoint: '127.0.0.1:TO'
    tls: {insecure: true}
    compression: none
    sending_queue: {storage: file_storage, storage_mode: spill, max_bytes: 32MiB}
service:
  extensions: [file_storage]
  telemetry: {metrics: {address: '127.0.0.1:BOOKS'}}
  pipelines: {metrics: {receivers: [otlp], processors: [memory_limiter], exporters: [otlp]}}
";

const COLLECTOR: &str = "
receivers: {otlp: {protocols: {grpc: {endpoint: '127.0.0.1:FROM'}}}}
processors: {memory_limiter: {check_interval: 1s, limit_mib: 100, spike_limit_mib: 20}}
exporters: {otlp: {endpoint: '127.0.0.1:TO', tls: {insecure: true}, compression: none}}
service:
  telemetry: {metrics: {readers: [{pull: {exporter: {prometheus: {host: 127.0.0.1, port: BOOKS}}}}]}}
  pipelines: {metrics: {receivers: [otlp], processors: [memory_limiter], exporters: [otlp]}}
";

const ROTEL: &str = "start --otlp-grpc-endpoint 127.0.0.1:FROM --otlp-http-endpoint 127.0.0.1:0 --exporter otlp \
    --disable-batching --otlp-exporter-protocol grpc --otlp-exporter-compression none \
    --otlp-exporter-endpoint http://127.0.0.1:TO";

pub(super) fn all(tidegate: &Path) -> Vec<OverloadSubject> {
    let own = |name, config| OverloadSubject {
        name,
        is_peer: false,
        is_limited: true,
        binary: tidegate.to_owned(),
        config,
        arguments: "run --config CONFIG",
        held: &["tidegate_held_items"],
        dropped: &["tidegate_dropped_items_total"],
    };
    let mut subjects = vec![own("in memory", MEMORY), own("room on disk", SPILL)];
    for name in ["otelcol", "otelcol-contrib"] {
        subjects.extend(on_path(name).map(|binary| OverloadSubject {
            name,
            is_peer: true,
            is_limited: true,
            binary,
            config: COLLECTOR,
            arguments: "--config CONFIG",
            held: &[],
            dropped: &[
                "otelcol_exporter_send_failed_metric_points",
                "otelcol_exporter_send_failed_metric_points_total",
            ],
        }));
    }
    // It has no limit of memory, and no books that could be read.
    subjects.extend(on_path("rotel").map(|binary| OverloadSubject {
        name: "rotel",
        is_peer: true,
        is_limited: false,
        binary,
        config: "",
        arguments: ROTEL,
        held: &[],
        dropped: &[],
    }));
    subjects
}

/// A program that has been started.
pub(super) struct Running<'a> {
    pub(super) process: Process,
    /// Where it takes OTLP.
    pub(super) otlp: u16,
    subject: &'a OverloadSubject,
    port: u16,
    books: RefCell<Option<Scraper>>,
}

impl OverloadSubject {
    pub(super) fn start(&self, to: u16) -> Result<Running<'_>, BenchError> {
        // On a disk, not in memory.
        let directory = TempDir::new_in(std::env::current_dir()?.join("target"))?;
        let (otlp, port) = (free_port()?, free_port()?);
        let path = directory.path().join("config.yaml");
        let told = |text: &str| {
            text.replace("FROM", &otlp.to_string())
                .replace("TO", &to.to_string())
                .replace("BOOKS", &port.to_string())
                .replace("DIR", &directory.path().to_string_lossy())
                .replace("CONFIG", &path.to_string_lossy())
        };
        std::fs::write(&path, told(self.config))?;
        let mut command = Command::new(std::path::absolute(&self.binary)?);
        command.current_dir(directory.path()).env("GOMAXPROCS", "1");
        command.args(self.arguments.split_whitespace().map(told));
        Ok(Running {
            process: Process::start(command, directory)?,
            otlp,
            subject: self,
            port,
            books: RefCell::default(),
        })
    }
}

impl Running<'_> {
    /// Points that it holds, as far as it says.
    pub(super) fn held(&self) -> Result<u64, BenchError> {
        self.count(self.subject.held)
    }

    /// Points that it has dropped and counted.
    pub(super) fn dropped(&self) -> Result<u64, BenchError> {
        self.count(self.subject.dropped)
    }

    fn count(&self, names: &[&str]) -> Result<u64, BenchError> {
        if names.is_empty() {
            return Ok(0);
        }
        let mut books = self.books.borrow_mut();
        let scraper = match &mut *books {
            Some(scraper) => scraper,
            none => none.insert(Scraper::connect(self.port, "/metrics")?),
        };
        let page = scraper.get()?;
        Ok(names.iter().map(|name| sum(page, name)).sum::<f64>() as u64)
    }
}
