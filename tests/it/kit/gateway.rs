// SPDX-License-Identifier: Apache-2.0

//! The gateway under test: the real binary with a configuration of the test's own.

use super::http::{self, Response};
use super::process::{Process, Transcript};
use super::{SOON, free_port, wait_until};
use rustix::process::Signal;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tempfile::TempDir;

/// The limit from SIGTERM to the end, for the drain of an ordinary test.
const STOP_DEADLINE: Duration = Duration::from_mins(1);

/// The binary as cargo built it, without arguments, for tests of the command line.
pub(crate) fn tidegate() -> Command {
    Command::new(env!("CARGO_BIN_EXE_tidegate"))
}

/// A running gateway.
///
/// Beside the test's own file it gets one, merged first, that gives it a health check and its own
/// metrics on free ports, since every gateway of the machine would want the default ones. A test
/// that lists `service::extensions` itself must list `health_check` there too.
pub(crate) struct Gateway {
    process: Process,
    directory: TempDir,
    health_port: u16,
    telemetry_port: u16,
}

impl Gateway {
    /// Starts `tidegate run` with this YAML and waits until its health check answers.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_with(config, |_| {})
    }

    /// As [`Self::start`], with more arguments or variables for the command.
    pub(crate) fn start_with(config: &str, adjust: impl FnOnce(&mut Command)) -> Self {
        let mut gateway = Self::launch(config, adjust);
        let port = gateway.health_port;
        gateway.process.wait_until("the health check answers", || {
            http::get(port, "/").is_ok_and(|response| response.status == 200)
        });
        gateway
    }

    /// As [`Self::start_with`], but waits for nothing: for starts that should fail or be slow.
    pub(crate) fn launch(config: &str, adjust: impl FnOnce(&mut Command)) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        let (health_port, telemetry_port) = (free_port(), free_port());
        let mut command = tidegate();
        command.arg("run").current_dir(directory.path());
        let files = [
            ("base.yaml", base_config(health_port, telemetry_port)),
            ("config.yaml", config.to_owned()),
        ];
        for (name, text) in files {
            let path = directory.path().join(name);
            fs::write(&path, text).expect("a file in a fresh directory");
            command.arg("--config").arg(path);
        }
        // The examples of config/ name these variables, so a test of one has the ports above too.
        command
            .env("HEALTH_ENDPOINT", format!("127.0.0.1:{health_port}"))
            .env("OWN_METRICS_ENDPOINT", format!("127.0.0.1:{telemetry_port}"));
        adjust(&mut command);
        Self {
            process: Process::start("tidegate", &mut command),
            directory,
            health_port,
            telemetry_port,
        }
    }

    /// Its working directory, removed at the end: paths in the configuration may be relative.
    pub(crate) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// A path inside [`Self::directory`].
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The port of its health check.
    pub(crate) fn health_port(&self) -> u16 {
        self.health_port
    }

    /// The port of its own metrics.
    pub(crate) fn telemetry_port(&self) -> u16 {
        self.telemetry_port
    }

    pub(crate) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Its memory by the system: `VmRSS`, resident now, or `VmHWM`, at most so far.
    pub(crate) fn memory_mib(&self, field: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it runs");
        let rest = status
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = rest.and_then(|rest| rest.trim().split(' ').next()?.parse::<u64>().ok());
        kib.expect("a number of kB") / 1024
    }

    pub(crate) fn stderr(&self) -> &Transcript {
        &self.process.stderr
    }

    pub(crate) fn stdout(&self) -> &Transcript {
        &self.process.stdout
    }

    /// The answer of the health check.
    pub(crate) fn health(&self) -> std::io::Result<Response> {
        http::get(self.health_port, "/")
    }

    /// The gateway's own metrics, as text.
    pub(crate) fn own_metrics(&self) -> String {
        let response = http::get(self.telemetry_port, "/metrics").expect("its own metrics");
        assert_eq!(response.status, 200);
        response.text()
    }

    /// The sum of the series of one of its own metrics whose line contains all of `labels`, such
    /// as `reason="queue_full"`; 0 if there is none.
    pub(crate) fn own_metric(&self, name: &str, labels: &[&str]) -> f64 {
        let text = self.own_metrics();
        text.lines()
            .filter(|line| {
                line.strip_prefix(name)
                    .is_some_and(|rest| rest.starts_with(['{', ' ']))
            })
            .filter(|line| labels.iter().all(|label| line.contains(label)))
            .map(|line| {
                let value = line.rsplit(' ').next().expect("a line has a last word");
                value.parse::<f64>().expect("a sample ends in its value")
            })
            .sum()
    }

    /// Waits until no component holds items.
    pub(crate) fn wait_for_idle(&self) {
        wait_until(SOON, "nothing is held", || {
            self.own_metric("tidegate_held_items", &[]) == 0.0
        });
    }

    /// Waits until `holds`; fails at once if the gateway ends before.
    pub(crate) fn wait_until(&mut self, what: &str, holds: impl FnMut() -> bool) {
        self.process.wait_until(what, holds);
    }

    /// Waits until a line of standard error contains `part` and returns the line.
    pub(crate) fn wait_for_log(&mut self, part: &str) -> String {
        let stderr = self.process.stderr.clone();
        let what = format!("a line with {part:?}");
        self.process.wait_until(&what, || stderr.find(part).is_some());
        stderr.find(part).expect("it was there just now")
    }

    pub(crate) fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    /// Writes another `config.yaml` and sends SIGHUP. Calls `meanwhile` at least once, until that configuration runs.
    ///
    /// # Panics
    /// If it does not run.
    pub(crate) fn reload_while(&self, config: &str, mut meanwhile: impl FnMut()) {
        // The time of the last reload that succeeded.
        const TIME: &str = "tidegate_config_reload_timestamp_seconds";
        let before = self.own_metric(TIME, &[]);
        fs::write(self.path("config.yaml"), config).expect("a file of the test");
        self.signal(Signal::HUP);
        wait_until(SOON, "the new configuration runs", || {
            meanwhile();
            let success = self.own_metric("tidegate_config_reload_success", &[]);
            assert_eq!(success, 1.0, "{}", self.stderr().text());
            self.own_metric(TIME, &[]) != before
        });
    }

    /// SIGTERM; the gateway must drain and exit with 0. Returns what it wrote to standard error.
    pub(crate) fn stop(self) -> String {
        self.stop_within(STOP_DEADLINE)
    }

    /// As [`Self::stop`], with the test's own deadline.
    pub(crate) fn stop_within(mut self, deadline: Duration) -> String {
        self.process.signal(Signal::TERM);
        let status = self.process.wait(deadline);
        assert_eq!(status.code(), Some(0), "tidegate ended with {status}");
        self.process.stderr.text()
    }

    /// SIGKILL: the end without a drain.
    pub(crate) fn kill(mut self) {
        self.process.signal(Signal::KILL);
        self.process.wait(SOON);
    }

    /// Waits for an end that the test expects without having asked for it: (status code, stderr).
    pub(crate) fn wait(mut self, deadline: Duration) -> (Option<i32>, String) {
        let status = self.process.wait(deadline);
        (status.code(), self.process.stderr.text())
    }
}

fn base_config(health_port: u16, telemetry_port: u16) -> String {
    format!(
        "extensions:
  health_check: {{endpoint: \"127.0.0.1:{health_port}\"}}
service:
  extensions: [health_check]
  telemetry:
    metrics:
      readers: [{{pull: {{exporter: {{prometheus: {{host: 127.0.0.1, port: {telemetry_port}}}}}}}}}]
"
    )
}
