// SPDX-License-Identifier: Apache-2.0

//! An OpenTelemetry Collector with the parts that tests need (`tests/go/collector`).

use super::process::Process;
use super::{free_port, testenv};
use std::fs;
use std::process::Command;
use tempfile::TempDir;

/// The running Collector; it ends when dropped.
pub(crate) struct GoCollector {
    port: u16,
    _process: Process,
    _directory: TempDir,
}

impl GoCollector {
    /// Starts it. Its receiver `otlp` takes HTTP. Other receivers, exporters and pipelines are YAML.
    pub(crate) fn start(receivers: &str, exporters: &str, pipelines: &str) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let (path, port) = (directory.path().join("config.yaml"), free_port());
        let config = format!(
            "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{port}\"}}}}}}
{receivers}
exporters:
{exporters}
service:
  telemetry: {{metrics: {{level: none}}}}
  pipelines: {{{pipelines}}}
"
        );
        fs::write(&path, config).expect("a file in a fresh directory");
        let mut command = Command::new(testenv("collector").join("collector"));
        let mut process = Process::start("collector", command.arg("--config").arg(&path));
        let stderr = process.stderr.clone();
        process.wait_until("it is ready", || stderr.find("Everything is ready").is_some());
        Self {
            port,
            _process: process,
            _directory: directory,
        }
    }

    /// The port of its OTLP receiver.
    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}
