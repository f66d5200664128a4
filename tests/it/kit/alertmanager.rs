// SPDX-License-Identifier: Apache-2.0

//! A real Alertmanager.

use super::process::Process;
use super::{http, testenv};
use serde_json::Value;
use std::fs;
use std::process::Command;
use tempfile::TempDir;

const CONFIG: &str = "route: {receiver: none}\nreceivers: [{name: none}]\n";

/// Debian's Alertmanager reads its templates at one path only, so it gets a `/usr/share` of its own.
const LAUNCH: &str = "mount --rbind \"$1/usr/share\" /usr/share && shift && exec \"$@\"";

/// A running Alertmanager; it is killed when this is dropped.
pub(crate) struct Alertmanager {
    _process: Process,
    _directory: TempDir,
    port: u16,
}

impl Alertmanager {
    /// Starts one on this port of 127.0.0.1, and waits until it is ready.
    pub(crate) fn start_at(port: u16) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let config = directory.path().join("alertmanager.yml");
        fs::write(&config, CONFIG).expect("a file in a fresh directory");
        let parts = testenv("alertmanager");
        let mut command = Command::new("unshare");
        command
            .args(["--map-root-user", "--mount", "sh", "-c", LAUNCH, "sh"])
            .arg(&parts)
            .arg(parts.join("usr/bin/prometheus-alertmanager"))
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.path={}",
                directory.path().join("data").display()
            ))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--cluster.listen-address=");
        let mut process = Process::start("alertmanager", &mut command);
        process.wait_until("the Alertmanager is ready", || {
            http::get(port, "/-/ready").is_ok_and(|answer| answer.status == 200)
        });
        Self {
            _process: process,
            _directory: directory,
            port,
        }
    }

    /// The alerts that fire.
    pub(crate) fn alerts(&self) -> Vec<Value> {
        let answer = http::get(self.port, "/api/v2/alerts").expect("an answer");
        answer.json().as_array().cloned().expect("a list")
    }
}
