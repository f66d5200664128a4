// SPDX-License-Identifier: Apache-2.0

//! The Python drivers of `tests/python`, each in its own process.

use super::process::Process;
use super::testenv;
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;

/// The wheels of the test environment, one for each layout of the ring.
pub(crate) const NIXL_WHEELS: [&str; 5] = ["1.0.1", "1.1.0", "1.2.0", "1.3.2", "1.5.1"];

/// Starting Python and its modules is slow when all tests do it at once.
const DEADLINE: Duration = Duration::from_secs(90);

/// A driver to be run.
pub(crate) struct Script {
    name: String,
    command: Command,
}

impl Script {
    /// `tests/python/NAME` with the OpenTelemetry SDK, prometheus_client and numpy at hand.
    pub(crate) fn new(name: &str) -> Self {
        let file = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("tests/python")
            .join(name);
        let mut command = Command::new("python3");
        command
            .arg(file)
            .env("PYTHONPATH", testenv("python"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            // cargo's own, which foreign libraries must not meet.
            .env_remove("LD_LIBRARY_PATH");
        for (variable, _) in std::env::vars() {
            if variable.starts_with("NIXL_") || variable.starts_with("OTEL_") {
                command.env_remove(variable);
            }
        }
        Self {
            name: name.to_owned(),
            command,
        }
    }

    /// Two agents of this wheel that write their rings to `directory`.
    pub(crate) fn nixl_rings(wheel: &str, directory: &Path) -> Self {
        Self::nixl("nixl_transfer.py", wheel)
            .env("NIXL_TELEMETRY_ENABLE", "y")
            .env("NIXL_TELEMETRY_DIR", directory)
    }

    /// Two agents of the newest wheel that keep their totals in stores in `directory`.
    pub(crate) fn nixl_stores(directory: &Path) -> Self {
        Self::nixl("nixl_transfer.py", "1.5.1")
            .env("NIXL_TELEMETRY_ENABLE", "y")
            .env("NIXL_TELEMETRY_EXPORTER", "prometheus_mp")
            .env("NIXL_TELEMETRY_MULTIPROC_DIR", directory)
            .env("NIXL_TELEMETRY_PROMETHEUS_LOCAL", "y")
            .env("NIXL_TELEMETRY_PROMETHEUS_PORT", "0")
    }

    /// Two agents of the newest wheel, the first of which serves its totals at this port of 127.0.0.1 until the driver
    /// is released.
    pub(crate) fn nixl_exporter(port: u16) -> Self {
        Self::nixl("nixl_transfer.py", "1.5.1")
            .args(["--hold"])
            .env("NIXL_TELEMETRY_ENABLE", "y")
            .env("NIXL_TELEMETRY_EXPORTER", "prometheus")
            .env("NIXL_TELEMETRY_PROMETHEUS_LOCAL", "y")
            .env("NIXL_TELEMETRY_PROMETHEUS_PORT", port.to_string())
    }

    /// Two agents of the newest wheel, with tidegate's exporter put into a copy of it at `packages`, that keep their
    /// cells in `cells`.
    pub(crate) fn nixl_cells(packages: &Path, cells: &Path) -> Self {
        link_all(&testenv("nixl-1.5.1"), packages);
        let exporter = "libtelemetry_exporter_tidegate.so";
        let test = std::env::current_exe().expect("a path");
        let plugins = packages.join(".nixl_cu12.mesonpy.libs/plugins");
        // cargo has made it beside this test, as for a dependency.
        fs::copy(test.with_file_name(exporter), plugins.join(exporter)).expect("the exporter is copied");
        Self::nixl_in("nixl_transfer.py", packages)
            .env("NIXL_TELEMETRY_ENABLE", "y")
            .env("NIXL_TELEMETRY_EXPORTER", "tidegate")
            .env("TIDEGATE_CELLS_DIR", cells)
    }

    /// A driver with a NIXL wheel at hand.
    pub(crate) fn nixl(name: &str, wheel: &str) -> Self {
        Self::nixl_in(name, &testenv(&format!("nixl-{wheel}")))
    }

    fn nixl_in(name: &str, packages: &Path) -> Self {
        let path = std::env::join_paths([packages, &testenv("python")]).expect("no colon");
        Self::new(name)
            .env("PYTHONPATH", path)
            .env("NIXL_LOG_LEVEL", "ERROR")
    }

    /// Adds arguments.
    pub(crate) fn args<S: AsRef<OsStr>>(mut self, arguments: impl IntoIterator<Item = S>) -> Self {
        self.command.args(arguments);
        self
    }

    /// Sets a variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs to the end and returns the standard output.
    ///
    /// # Panics
    /// If the driver fails.
    pub(crate) fn text(self) -> String {
        self.text_from(b"").unwrap_or_else(|error| panic!("{error}"))
    }

    /// Runs to the end and returns the JSON it printed.
    ///
    /// # Panics
    /// If the driver fails.
    pub(crate) fn json(self) -> Value {
        serde_json::from_str(&self.text()).expect("a driver prints JSON")
    }

    /// Runs to the end with `input` as its standard input; the standard output, or what it said
    /// when it failed.
    pub(crate) fn text_from(mut self, input: &[u8]) -> Result<String, String> {
        let mut child = self
            .command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("python3 starts");
        let mut stdin = child.stdin.take().expect("it is piped");
        let _ = stdin.write_all(input);
        drop(stdin);
        let output = child.wait_with_output().expect("it ends");
        if output.status.success() {
            return Ok(String::from_utf8(output.stdout).expect("a driver prints UTF-8"));
        }
        let said = String::from_utf8_lossy(&output.stderr);
        Err(format!("{}: {}: {said}", self.name, output.status))
    }

    /// Starts the driver, waits for its line of JSON and leaves it running (for `--hold`).
    pub(crate) fn hold(mut self) -> (Value, Held) {
        let mut process = Process::start(&self.name, &mut self.command);
        let stdout = process.stdout.clone();
        let line = super::wait_for(DEADLINE, "the driver's report", || {
            let ended = process.status();
            let line = stdout.find("{");
            assert!(line.is_some() || ended.is_none(), "it ended: {ended:?}");
            line
        });
        let report = serde_json::from_str(&line).expect("a driver prints JSON");
        (report, Held(process))
    }
}

/// Copies a directory by links, as NIXL's has hundreds of megabytes and finds its libraries beside itself.
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

/// A driver that lives until it's released.
pub(crate) struct Held(pub(crate) Process);

impl Held {
    /// Lets it end, and expects that it does so well.
    pub(crate) fn release(mut self) {
        self.0.close_stdin();
        let status = self.0.wait(DEADLINE);
        assert!(status.success(), "the driver ended with {status}");
    }
}

/// Parses a `/metrics` body with prometheus_client: the families as `parse_exposition.py` prints
/// them, or why it's not valid. `form` is `text` or `openmetrics`.
pub(crate) fn parse_exposition(form: &str, body: &str) -> Result<Value, String> {
    let text = Script::new("parse_exposition.py")
        .args([form])
        .text_from(body.as_bytes())?;
    Ok(serde_json::from_str(&text).expect("a driver prints JSON"))
}

/// prometheus_client in a process that reads one body after the other.
pub(crate) struct Parser {
    child: Child,
    bodies: ChildStdin,
    answers: BufReader<ChildStdout>,
}

impl Parser {
    /// Starts it.
    pub(crate) fn start() -> Self {
        let mut script = Script::new("parse_exposition.py").args(["serve"]);
        let command = script.command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("python3 starts");
        Self {
            bodies: child.stdin.take().expect("it is piped"),
            answers: BufReader::new(child.stdout.take().expect("it is piped")),
            child,
        }
    }

    /// How many samples a body has, or why it's not valid. `form` is `text` or `openmetrics`.
    pub(crate) fn parse(&mut self, form: &str, body: &[u8]) -> Result<u64, String> {
        let head = format!("{form} {}\n", body.len());
        let sent = self.bodies.write_all(&[head.as_bytes(), body].concat());
        sent.and_then(|()| self.bodies.flush()).expect("it reads");
        let mut answer = String::new();
        self.answers.read_line(&mut answer).expect("it answers");
        match serde_json::from_str(&answer).expect("a line of JSON") {
            Value::String(why) => Err(why),
            samples => Ok(samples.as_u64().expect("a number")),
        }
    }
}

impl Drop for Parser {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
