// SPDX-License-Identifier: Apache-2.0

//! Real NIXL processes with the plugin, and what is in the cells.

use std::fs;
use std::io::{BufRead, BufReader, Lines, Write};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};

use serde_json::Value as Json;
use tempfile::TempDir;
use tidegate_cells::{Directory, Limits, Scan, Snapshot, Value};
use tidegate_ring::{KINDS, NixlKind};

/// A copy of a wheel that has the plugin. The copy is of links, as the wheel has hundreds of megabytes and finds its
/// libraries beside itself.
pub(crate) struct Wheel {
    version: &'static str,
    packages: TempDir,
}

impl Wheel {
    pub(crate) fn new(version: &'static str) -> Self {
        let packages = TempDir::new_in(env!("CARGO_TARGET_TMPDIR")).expect("a directory");
        link_all(&testenv(&format!("nixl-{version}")), packages.path());
        let plugins = packages.path().join(".nixl_cu12.mesonpy.libs/plugins");
        fs::copy(plugin(), plugins.join("libtelemetry_exporter_tidegate.so")).expect("the plugin is copied");
        Self { version, packages }
    }

    /// A driver in `tests/python`, with telemetry switched on. The caller sets its destination.
    pub(crate) fn driver(&self, script: &str, arguments: &[&str]) -> Command {
        let scripts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/python");
        let path = std::env::join_paths([self.packages.path(), &testenv("python")]).expect("no colon");
        let mut command = Command::new("python3");
        for (variable, _) in std::env::vars() {
            if variable.starts_with("NIXL_") || variable.starts_with("TIDEGATE_") {
                command.env_remove(variable);
            }
        }
        command
            .arg(scripts.join(script))
            .args(arguments)
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("NIXL_LOG_LEVEL", "ERROR")
            .env("NIXL_TELEMETRY_ENABLE", "y")
            // cargo's own, which foreign libraries must not meet.
            .env_remove("LD_LIBRARY_PATH")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// The same with the plugin, which keeps its cells in `cells`.
    pub(crate) fn agents(&self, script: &str, arguments: &[&str], cells: &Path) -> Command {
        let mut command = self.driver(script, arguments);
        command
            .env("NIXL_TELEMETRY_EXPORTER", "tidegate")
            .env("TIDEGATE_CELLS_DIR", cells);
        command
    }

    /// Two agents that exchange something and provoke errors.
    pub(crate) fn transfers(&self, cells: &Path) -> Outcome {
        let names = format!("a-{0},b-{0}", self.version);
        run(self.agents("nixl_transfer.py", &["--agents", &names, "--errors", "2"], cells))
    }
}

/// The exit status and the output of a driver.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    pub(crate) stderr: String,
    stdout: String,
}

impl Outcome {
    /// The report of the driver about its steps.
    pub(crate) fn report(&self) -> Json {
        assert!(self.status.success(), "{}: {}", self.status, self.stderr);
        serde_json::from_str(&self.stdout).expect("a driver prints JSON")
    }

    /// The lines of the plugin.
    pub(crate) fn plugin_lines(&self) -> Vec<&str> {
        plugin_lines(&self.stderr)
    }
}

fn plugin_lines(stderr: &str) -> Vec<&str> {
    stderr.lines().filter(|line| line.contains("tidegate")).collect()
}

pub(crate) fn run(mut command: Command) -> Outcome {
    let output = command.output().expect("python3 starts");
    assert_eq!(
        output.status.signal(),
        None,
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Outcome {
        status: output.status,
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        stdout: String::from_utf8(output.stdout).expect("UTF-8"),
    }
}

/// The scenario `steps`, step by step. Killed when dropped.
pub(crate) struct Steps {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
}

impl Steps {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("python3 starts");
        let lines = BufReader::new(child.stdout.take().expect("it is piped")).lines();
        Self { child, lines }
    }

    /// Runs the next step, and returns its report.
    pub(crate) fn step(&mut self) -> Json {
        let stdin = self.child.stdin.as_mut().expect("it is piped");
        writeln!(stdin, "go").expect("it reads");
        let line = self.lines.next().expect("it answers").expect("a line");
        serde_json::from_str(&line).expect("JSON")
    }

    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it ends");
    }

    /// Lets it end well; the lines of the plugin.
    pub(crate) fn end(mut self) -> Vec<String> {
        drop(self.child.stdin.take());
        assert!(self.child.wait().expect("it ends").success());
        let stderr = std::io::read_to_string(self.child.stderr.take().expect("it is piped"));
        plugin_lines(&stderr.expect("UTF-8"))
            .into_iter()
            .map(str::to_owned)
            .collect()
    }
}

impl Drop for Steps {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub(crate) fn scan(cells: &Path) -> Scan {
    let scan = Directory::open(cells, Limits::default())
        .expect("a directory")
        .scan();
    assert!(scan.problems.is_empty(), "{:?}", scan.problems);
    scan
}

/// A value of a kind's family for an agent.
pub(crate) fn value<'a>(merged: &'a Snapshot, family: &str, kind: &NixlKind, agent: &str) -> &'a Value {
    let mut labels = vec![
        ("agent_name", agent),
        ("hostname", hostname()),
        ("category", kind.category.name()),
    ];
    labels.extend(kind.status.map(|status| ("status", status)));
    let value = merged.value(family, &labels);
    value.unwrap_or_else(|| panic!("no {family} {labels:?}"))
}

/// The total of a kind of event by its name.
pub(crate) fn total(merged: &Snapshot, event: &str, agent: &str) -> u64 {
    let kind = NixlKind::by_name(event).expect("a kind");
    match value(merged, kind.total.name, kind, agent) {
        Value::Counter(total) => *total,
        other => panic!("{event}: {other:?}"),
    }
}

/// How many observations there are of a kind of event.
pub(crate) fn observations(merged: &Snapshot, event: &str, agent: &str) -> u64 {
    let kind = NixlKind::by_name(event).expect("a kind");
    let histogram = kind.histogram.expect("it has one");
    match value(merged, histogram.name, kind, agent) {
        Value::Histogram { buckets, .. } => buckets.iter().sum(),
        other => panic!("{event}: {other:?}"),
    }
}

pub(crate) fn lost(merged: &Snapshot, reason: &str, agent: &str) -> u64 {
    let labels = [
        ("agent_name", agent),
        ("hostname", hostname()),
        ("reason", reason),
    ];
    match merged.value("tidegate_nixl_plugin_lost_events", &labels) {
        Some(Value::Counter(lost)) => *lost,
        other => panic!("{labels:?}: {other:?}"),
    }
}

/// The cells hold what the report says, of every kind of event, and nothing is lost.
pub(crate) fn assert_holds(merged: &Snapshot, report: &Json) {
    let agents = report["agents"].as_object().expect("agents");
    assert!(!agents.is_empty());
    for (agent, did) in agents {
        for kind in KINDS
            .iter()
            .filter(|kind| kind.category != tidegate_ring::Category::Custom)
        {
            let expected = match (kind.status, kind.histogram) {
                (Some(status), _) => did["errors"][status].as_u64().unwrap_or(0),
                (None, Some(_)) => {
                    let count = observations(merged, kind.name, agent);
                    assert_eq!(Some(count), did["transfers"].as_u64(), "{agent} {}", kind.name);
                    continue;
                }
                (None, None) => did[kind.name].as_u64().unwrap_or(0),
            };
            assert_eq!(total(merged, kind.name, agent), expected, "{agent} {}", kind.name);
        }
        for reason in ["no_cells", "invalid_value", "panic"] {
            assert_eq!(lost(merged, reason, agent), 0, "{agent} {reason}");
        }
    }
}

/// Adds what two reports say.
pub(crate) fn sum(first: &Json, second: &Json) -> Json {
    match (first, second) {
        (Json::Object(first), Json::Object(second)) => {
            let all = first
                .keys()
                .chain(second.keys())
                .collect::<std::collections::BTreeSet<_>>();
            let of = |map: &serde_json::Map<String, Json>, key| map.get(key).cloned().unwrap_or(Json::Null);
            all.into_iter()
                .map(|key| (key.clone(), sum(&of(first, key), &of(second, key))))
                .collect()
        }
        (first, Json::Null) => first.clone(),
        (Json::Null, second) => second.clone(),
        (Json::Number(first), Json::Number(second)) => {
            (first.as_u64().unwrap_or(0) + second.as_u64().unwrap_or(0)).into()
        }
        _ => first.clone(),
    }
}

pub(crate) fn hostname() -> &'static str {
    static NAME: std::sync::OnceLock<String> = std::sync::OnceLock::new();
    NAME.get_or_init(|| {
        let name = fs::read_to_string("/proc/sys/kernel/hostname").expect("a name");
        name.trim_end().to_owned()
    })
}

/// cargo has made it beside this test.
fn plugin() -> PathBuf {
    let test = std::env::current_exe().expect("a path");
    test.with_file_name("libtelemetry_exporter_tidegate.so")
}

fn testenv(part: &str) -> PathBuf {
    let root = match std::env::var_os("TIDEGATE_TESTENV") {
        Some(root) => PathBuf::from(root),
        None => PathBuf::from(env!("CARGO_TARGET_TMPDIR")).with_file_name("testenv"),
    };
    let path = root.join(part);
    assert!(
        path.exists(),
        "{} is missing: run `cargo xtask setup`",
        path.display()
    );
    path
}

fn link_all(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).expect("a directory") {
        let entry = entry.expect("an entry");
        let target = to.join(entry.file_name());
        if entry.file_type().expect("a type").is_dir() {
            fs::create_dir(&target).expect("a directory");
            link_all(&entry.path(), &target);
        } else if fs::hard_link(entry.path(), &target).is_err() {
            fs::copy(entry.path(), &target).expect("a copy");
        }
    }
}
