// SPDX-License-Identifier: Apache-2.0

//! `tidegate quickstart` on a terminal and without one, with taken ports, and after a killed run.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::Signal;
use tempfile::TempDir;

use super::kit::gateway::tidegate;
use super::kit::process::{Process, Transcript};
use super::kit::{SOON, http, wait_for};

/// Two demonstrations that look for free ports at the same time find the same ones: one at a time starts.
pub(super) fn starting() -> MutexGuard<'static, ()> {
    static STARTING: Mutex<()> = Mutex::new(());
    STARTING.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Starts a demonstration with rings in `directory`, and waits until it is ready.
fn start(directory: &Path) -> (Process, PathBuf) {
    let _starting = starting();
    let mut command = tidegate();
    command.args(["quickstart", "--directory"]).arg(directory);
    let mut process = Process::start("quickstart", &mut command);
    let rings = directory.join(format!("tidegate-quickstart-{}", process.pid()));
    let said = process.stdout.clone();
    process.wait_until("the last ring, and the health check", || {
        let is_ready = |port| http::get(port, "/").is_ok_and(|answer| answer.status == 200);
        rings.join("rank_7").exists() && said.find("export").is_some() && is_ready(port_of(&said, "health"))
    });
    (process, rings)
}

fn stop(mut process: Process) {
    process.signal(Signal::INT);
    let status = process.wait(SOON);
    assert!(status.success(), "{status}");
}

/// The port of the first line that contains `part`.
fn port_of(said: &Transcript, part: &str) -> u16 {
    let line = said.find(part).expect("it is printed before the start");
    let rest = line.split_once("127.0.0.1:").expect("an address").1;
    let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().expect("a port")
}

#[test]
fn rings_of_a_killed_run_are_removed_by_the_next_one() {
    let directory = TempDir::new().expect("a temporary directory");
    let foreign = directory.path().join("tidegate-quickstart-2000000000");
    std::fs::create_dir(&foreign).expect("a new directory");
    std::fs::write(foreign.join("notes.txt"), "mine").expect("a new file");
    let (mut killed, rings) = start(directory.path());
    killed.signal(Signal::KILL);
    killed.wait(SOON);
    assert!(rings.exists(), "a killed run can't clean up");
    let (running, own) = start(directory.path());
    assert!(!rings.exists() && own.exists());
    let notice = format!("removed {}", rings.display());
    assert!(
        running.stdout.find(&notice).is_some(),
        "{}",
        running.stdout.text()
    );
    // A third run leaves the rings of the second alone.
    let (third, _) = start(directory.path());
    assert!(own.exists());
    stop(third);
    stop(running);
    let left = std::fs::read_dir(directory.path())
        .expect("it is there")
        .flatten();
    let left: Vec<PathBuf> = left.map(|entry| entry.path()).collect();
    assert_eq!(left, [foreign]);
}

#[test]
fn a_taken_port_is_named_and_another_one_answers() {
    let _taken = wait_for(SOON, "the usual port is free", || {
        TcpListener::bind(("127.0.0.1", 4318)).ok()
    });
    let directory = TempDir::new().expect("a temporary directory");
    let (mut process, _) = start(directory.path());
    let page = process.stdout.text();
    assert!(page.starts_with("http://127.0.0.1:"), "{page}");
    let line = process.stdout.find("OTLP over HTTP").expect("a line");
    assert!(line.contains("(4318 is taken)"), "{line}");
    let port = port_of(&process.stdout, "OTLP over HTTP");
    assert_ne!(port, 4318);
    process.wait_until("the other port answers", || {
        http::post(port, "/v1/metrics", "application/json", b"{}").is_ok_and(|answer| answer.status == 200)
    });
    let admin = port_of(&process.stdout, "http://");
    let export = format!("export TIDEGATE_ADMIN=127.0.0.1:{admin}`");
    assert!(page.contains(&export), "{page}");
    stop(process);
}

#[test]
fn the_commands_that_it_prints_work() {
    let directory = TempDir::new().expect("a temporary directory");
    let (mut process, _) = start(directory.path());
    let admin = port_of(&process.stdout, "http://");
    let text = process.stdout.text();
    assert!(
        text.contains(" composites watch nixl_xfer_time_avg_10s\n"),
        "{text}"
    );
    process.wait_until("top, composites, query and tap answer", || {
        let commands: [&[&str]; 4] = [
            &["top", "--once", "--interval", "100ms"],
            &["composites", "watch", "nixl_xfer_time_avg_10s", "--events", "1"],
            &["query", "--fail-empty", "sum(rate(agent_tx_bytes_total[5s]))"],
            &["tap", "aggregate", "--limit", "1"],
        ];
        commands.iter().all(|arguments| {
            let output = tidegate()
                .args(*arguments)
                .env("TIDEGATE_ADMIN", format!("127.0.0.1:{admin}"))
                .output();
            output.expect("it runs").status.success()
        })
    });
    assert!(!process.stdout.text().contains('\x1b'), "a pipe gets plain lines");
    stop(process);
}

#[test]
fn a_directory_that_is_missing_is_an_error_that_names_the_option() {
    let output = tidegate()
        .args(["quickstart", "--directory", "/nonexistent/rings"])
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    let problem = String::from_utf8_lossy(&output.stderr);
    assert!(
        problem.contains("/nonexistent/rings") && problem.contains("--directory"),
        "{problem}"
    );
}

#[test]
fn any_name_of_a_directory_is_possible() {
    let base = TempDir::new().expect("a temporary directory");
    let directory = base.path().join(r#"a "b": ${env:HOME} $$c # {d"#);
    std::fs::create_dir(&directory).expect("a new directory");
    let (mut process, rings) = start(&directory);
    let said = process.stdout.clone();
    process.wait_until("the gateway reads the rings", || said.find("rank_0").is_some());
    stop(process);
    assert!(!rings.exists());
}

#[test]
fn numbers_that_can_not_be_are_wrong_arguments() {
    for wrong in [
        "--seconds=inf",
        "--seconds=1e30",
        "--seconds=-1",
        "--rate=nan",
        "--rate=-5",
        "--rate=inf",
    ] {
        let output = tidegate().args(["quickstart", wrong]).output().expect("it runs");
        assert_eq!(output.status.code(), Some(2), "{wrong}");
        let problem = String::from_utf8_lossy(&output.stderr);
        assert!(problem.contains("expected a number"), "{wrong}: {problem}");
    }
    let directory = TempDir::new().expect("a temporary directory");
    let output = tidegate()
        .args(["ring", "sim", "--rate=inf", "--directory"])
        .arg(directory.path())
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(2));
}

/// Runs the command of its arguments in a pseudo-terminal, reads frames, quits, and prints `restored`.
const TERMINAL: &str = r#"
import fcntl, os, pty, re, select, struct, subprocess, sys, termios, time
master, slave = pty.openpty()
fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
before = termios.tcgetattr(slave)
child = subprocess.Popen(sys.argv[1:], stdin=slave, stdout=slave)
seen = b""
def read_until(done, what, deadline=time.monotonic() + 60):
    global seen
    while not done():
        left = deadline - time.monotonic()
        if left <= 0 or not select.select([master], [], [], left)[0]:
            child.kill()
            sys.exit(f"no {what} in {seen!r}")
        seen += os.read(master, 65536)
def frames():
    # The last one can be incomplete.
    return [frame for frame in seen.split(b"\x1b[H")[1:-1] if b"rank_7" in frame]
read_until(lambda: len(frames()) > 1, "two frames")
for frame in frames():
    lines = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", frame.decode()).split("\r\n")
    if len(lines) > 24 or max(map(len, lines)) > 80:
        sys.exit(f"not within 80 columns and 24 rows: {lines}")
    if not lines[0].startswith("http://127.0.0.1:") or sum("http://" in line for line in lines) != 7:
        sys.exit(f"no addresses: {lines}")
    ranks = [line for line in lines if line.startswith("rank_")]
    if len(ranks) != 8 or not all("B/s" in line for line in ranks):
        sys.exit(f"no units: {lines}")
os.write(master, b"q")
read_until(lambda: b"\x1b[?1049l" in seen, "end")
if child.wait(60) != 0 or termios.tcgetattr(slave) != before:
    sys.exit("the terminal is not as before")
print("restored")
"#;

#[test]
fn a_terminal_of_80_columns_keeps_the_addresses_above_the_table() {
    let directory = TempDir::new().expect("a temporary directory");
    let _starting = starting();
    let output = Command::new("python3")
        .args(["-c", TERMINAL, env!("CARGO_BIN_EXE_tidegate")])
        .args(["quickstart", "--directory"])
        .arg(directory.path())
        .output()
        .expect("Python runs");
    let problem = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "restored\n", "{problem}");
    let left = std::fs::read_dir(directory.path()).expect("it is there").count();
    assert_eq!(left, 0);
}
