//! What is measured: tidegate with and without a queue on disk, and its peers as far as they are on PATH.

use std::path::{Path, PathBuf};
use std::process::Command;

use tempfile::TempDir;

use crate::Error;
use crate::gateway::free_port;
use crate::process::Process;

/// A program and how it is told to hand OTLP on.
pub(super) struct Subject {
    pub(super) name: &'static str,
    /// Somebody else's.
    pub(super) is_peer: bool,
    binary: PathBuf,
    /// Adds arguments, and files to the directory, for ports in and out.
    tell: fn(&mut Command, &Path, u16, u16) -> std::io::Result<()>,
}

/// Names of binaries, and how they are told.
type Known = (
    &'static str,
    fn(&mut Command, &Path, u16, u16) -> std::io::Result<()>,
);

const PEERS: [Known; 3] = [
    ("otelcol", tell_collector),
    ("otelcol-contrib", tell_collector),
    ("rotel", tell_rotel),
];

/// Known by name only: it takes a configuration of its own making, which is not known here.
const UNTOLD: &str = "df_engine";

pub(super) fn all(tidegate: &Path) -> Vec<Subject> {
    let own = |name, tell| Subject {
        name,
        is_peer: false,
        binary: tidegate.to_owned(),
        tell,
    };
    let mut subjects = vec![
        own("tidegate", tell_tidegate),
        own("tidegate, durable", tell_durable),
    ];
    for (name, tell) in PEERS {
        let found = on_path(name);
        subjects.extend(found.map(|binary| Subject {
            name,
            is_peer: true,
            binary,
            tell,
        }));
    }
    if on_path(UNTOLD).is_some() {
        println!("  {UNTOLD} is on PATH, and is not measured: its configuration is not known here");
    }
    subjects
}

fn on_path(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|directory| directory.join(name))
        .find(|binary| binary.is_file())
}

impl Subject {
    /// Started, and the port on which it listens.
    pub(super) fn start(&self, to: u16) -> Result<(Process, u16), Error> {
        let directory = TempDir::new_in(std::env::current_dir()?.join("target"))?;
        let port = free_port()?;
        let mut command = Command::new(&self.binary);
        (self.tell)(&mut command, directory.path(), port, to)?;
        Ok((Process::start(command, directory)?, port))
    }
}

fn tell_tidegate(command: &mut Command, directory: &Path, from: u16, to: u16) -> std::io::Result<()> {
    tell_queue(command, directory, (from, to), "", "")
}

/// Every request on disk before it is acknowledged, forced there every 100 ms.
fn tell_durable(command: &mut Command, directory: &Path, from: u16, to: u16) -> std::io::Result<()> {
    let storage = format!("extensions: {{file_storage: {{directory: {directory:?}}}}}\n");
    tell_queue(command, directory, (from, to), &storage, "storage: file_storage")
}

fn tell_queue(
    command: &mut Command,
    directory: &Path,
    (from, to): (u16, u16),
    extensions: &str,
    queue: &str,
) -> std::io::Result<()> {
    let named = if extensions.is_empty() { "" } else { "file_storage" };
    let yaml = format!(
        "{extensions}receivers: {{otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{from}\"}}}}}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{to}\", tls: {{insecure: true}}, compression: none, sending_queue: {{{queue}}}}}
service:
  extensions: [{named}]
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}
"
    );
    let path = directory.join("config.yaml");
    std::fs::write(&path, yaml)?;
    command.args(["run", "--config"]).arg(path);
    Ok(())
}

fn tell_collector(command: &mut Command, directory: &Path, from: u16, to: u16) -> std::io::Result<()> {
    let yaml = format!(
        "receivers:
  otlp: {{protocols: {{grpc: {{endpoint: \"127.0.0.1:{from}\", max_recv_msg_size_mib: 64}}}}}}
exporters:
  otlp: {{endpoint: \"127.0.0.1:{to}\", tls: {{insecure: true}}, compression: none}}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{metrics: {{receivers: [otlp], exporters: [otlp]}}}}
"
    );
    let path = directory.join("config.yaml");
    std::fs::write(&path, yaml)?;
    command.arg("--config").arg(path).env("GOMAXPROCS", "1");
    Ok(())
}

fn tell_rotel(command: &mut Command, directory: &Path, from: u16, to: u16) -> std::io::Result<()> {
    command
        .current_dir(directory)
        .arg("start")
        .args(["--otlp-grpc-endpoint", &format!("127.0.0.1:{from}")])
        .args([
            "--otlp-http-endpoint",
            "127.0.0.1:0",
            "--exporter",
            "otlp",
            "--disable-batching",
        ])
        .args([
            "--otlp-exporter-protocol",
            "grpc",
            "--otlp-exporter-compression",
            "none",
        ])
        .args(["--otlp-exporter-endpoint", &format!("http://127.0.0.1:{to}")]);
    Ok(())
}
