// SPDX-License-Identifier: Apache-2.0

//! Real Prometheus servers that scrape the gateway or take its writes, and promtool.

use super::process::Process;
use super::query_api::QueryApi;
use super::{SOON, free_port, http, testenv, wait_for};
use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::LazyLock;
use tempfile::TempDir;

/// The interval and the time limit of scrapes, unless a test says otherwise. On a busy machine, a page may take some hundred
/// milliseconds, and a late one ends its series until the next scrape.
const SCRAPE_INTERVAL: &str = "1s";

const NATIVE_HISTOGRAMS: &str = "--enable-feature=native-histograms";

/// Which Prometheus.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Release {
    /// Of the machine's Debian release: 2.42 on bookworm. Old names only; native histograms by a feature flag.
    Stable,
    /// The newest that the machine can install, 3.5 or later: UTF-8 names, `scrape_protocols`, remote write 2.0.
    Newest,
}

impl Release {
    pub(crate) const ALL: [Self; 2] = [Self::Stable, Self::Newest];

    fn program(self, name: &str) -> PathBuf {
        match self {
            Self::Stable => testenv("prometheus").join("usr/bin").join(name),
            Self::Newest => testenv("debian-unstable").join("usr/bin").join(name),
        }
    }

    /// Flags that only this one has.
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Stable => &[],
            Self::Newest => &[
                "--web.remote-write-receiver.accepted-protobuf-messages=prometheus.WriteRequest",
                "--web.remote-write-receiver.accepted-protobuf-messages=io.prometheus.write.v2.Request",
            ],
        }
    }

    /// Settings for the `global` section or one of `scrape_configs` that have it take native histograms, each ended
    /// by a comma: from 3.9 on the feature flag no longer does it.
    pub(crate) fn native_histograms(self) -> &'static str {
        static NEWEST: LazyLock<(u32, u32)> = LazyLock::new(|| Release::Newest.version());
        match self {
            Self::Newest if *NEWEST >= (3, 9) => "scrape_native_histograms: true, ",
            _ => "",
        }
    }

    fn version(self) -> (u32, u32) {
        let said = Command::new(self.program("prometheus")).arg("--version").output();
        let said = String::from_utf8(said.expect("prometheus starts").stdout).expect("text");
        let version = said.split(' ').nth(2).expect("`prometheus, version X.Y.Z`");
        let mut parts = version.split('.').map(|part| part.parse().expect("a number"));
        let mut next = || parts.next().expect("X.Y");
        (next(), next())
    }
}

/// A running Prometheus server. [`QueryApi`] has its queries.
pub(crate) struct Prometheus {
    /// Held for its end: the server is killed when this is dropped.
    process: Process,
    directory: TempDir,
    release: Release,
    flags: Vec<String>,
    api: QueryApi,
}

impl Deref for Prometheus {
    type Target = QueryApi;

    fn deref(&self) -> &QueryApi {
        &self.api
    }
}

impl Prometheus {
    /// Starts a server that scrapes `/metrics` of these ports of 127.0.0.1. It asks for text, where bounds are written as
    /// they are.
    pub(crate) fn scraping(ports: &[u16]) -> Self {
        let targets: Vec<String> = ports.iter().map(|port| format!("127.0.0.1:{port}")).collect();
        let config = format!(
            "global: {{scrape_interval: {SCRAPE_INTERVAL}, scrape_timeout: {SCRAPE_INTERVAL}}}
scrape_configs:
  - {{job_name: tidegate, static_configs: [{{targets: {targets:?}}}]}}
"
        );
        Self::start_plain(Release::Stable, &config)
    }

    /// Starts a server with this configuration and waits until it's ready. It takes remote writes
    /// (2.0 as well, where it knows them), native histograms and exemplars too.
    pub(crate) fn start(config: &str) -> Self {
        Self::start_release(Release::Stable, config)
    }

    /// As [`Self::start`], of the release that the test chooses.
    pub(crate) fn start_release(release: Release, config: &str) -> Self {
        Self::start_with(release, config, &[NATIVE_HISTOGRAMS])
    }

    /// As [`Self::start_release`], but it neither asks for native histograms nor takes them.
    pub(crate) fn start_plain(release: Release, config: &str) -> Self {
        Self::start_with(release, config, &[])
    }

    /// Starts a server with these flags.
    pub(crate) fn start_with(release: Release, config: &str, flags: &[&str]) -> Self {
        let directory = TempDir::new().expect("a temporary directory");
        Self::start_in(release, directory, config, flags)
    }

    fn start_in(release: Release, directory: TempDir, config: &str, flags: &[&str]) -> Self {
        let port = free_port();
        let file = directory.path().join("prometheus.yml");
        fs::write(&file, config).expect("a file in a fresh directory");
        let flags: Vec<String> = flags.iter().map(|flag| (*flag).to_owned()).collect();
        Self {
            process: launch(release, directory.path(), port, &flags),
            directory,
            release,
            flags,
            api: QueryApi::at(port),
        }
    }

    /// Kills it without a word.
    pub(crate) fn kill(&mut self) {
        self.process.signal(rustix::process::Signal::KILL);
        self.process.wait(SOON);
    }

    /// Starts it again after [`Self::kill`], with what it had, where it was.
    pub(crate) fn start_again(&mut self) {
        self.process = launch(self.release, self.directory.path(), self.api.port(), &self.flags);
    }

    /// Its log: warnings and errors.
    pub(crate) fn log(&self) -> String {
        self.process.stderr.text()
    }

    /// Waits until every target's last scrape is a success.
    pub(crate) fn wait_for_scrape(&self) {
        wait_for(SOON, "every target is up", || {
            let targets = self.targets().as_array().map_or(0, Vec::len);
            let up = self.query("up == 1").len();
            (targets > 0 && up == targets).then_some(())
        });
    }
}

/// Whether a target has been scraped. A scrape that took too long on a busy machine says nothing of the page.
pub(crate) fn is_scraped(target: &serde_json::Value) -> bool {
    let error = target["lastError"].as_str().unwrap_or_default();
    target["health"] != "unknown" && !error.contains("deadline exceeded")
}

/// Has `promtool check metrics` read a `/metrics` body: its complaints, if it has any.
pub(crate) fn promtool_check(body: &str) -> Result<(), String> {
    match promtool(Release::Stable, body) {
        (Some(0), said) if said.is_empty() => Ok(()),
        (_, said) => Err(said),
    }
}

/// Whether `promtool check metrics` can read a `/metrics` body, whatever it thinks of its style; if not, why.
pub(crate) fn promtool_reads(release: Release, body: &str) -> Result<(), String> {
    /// Its exit status when it has only remarks on style.
    const LINTS: i32 = 3;
    match promtool(release, body) {
        (Some(0 | LINTS), _) => Ok(()),
        (_, said) => Err(said),
    }
}

/// `promtool test rules` of the newest release. The caller adds the files.
pub(crate) fn promtool_test_rules() -> Command {
    let mut promtool = Command::new(Release::Newest.program("promtool"));
    promtool.args(["test", "rules"]);
    promtool
}

/// The exit status of `promtool check metrics` and what it said.
fn promtool(release: Release, body: &str) -> (Option<i32>, String) {
    let mut promtool = Command::new(release.program("promtool"))
        .args(["check", "metrics"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("promtool starts");
    let mut stdin = promtool.stdin.take().expect("it is piped");
    // It may close its input at the first error.
    let _ = stdin.write_all(body.as_bytes());
    drop(stdin);
    let output = promtool.wait_with_output().expect("promtool ends");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), said)
}

/// A server on the data and the configuration in `directory`, as soon as it's ready.
fn launch(release: Release, directory: &Path, port: u16, flags: &[String]) -> Process {
    let mut process = Process::start(
        "prometheus",
        Command::new(release.program("prometheus"))
            .arg(format!(
                "--config.file={}",
                directory.join("prometheus.yml").display()
            ))
            .arg(format!("--storage.tsdb.path={}", directory.display()))
            .arg(format!("--web.listen-address=127.0.0.1:{port}"))
            .arg("--web.enable-remote-write-receiver")
            .arg("--enable-feature=exemplar-storage")
            .arg("--storage.tsdb.retention.time=100y")
            .arg("--log.level=warn")
            .args(release.flags())
            .args(flags),
    );
    process.wait_until("it is ready", || {
        http::get(port, "/-/ready").is_ok_and(|response| response.status == 200)
    });
    process
}
