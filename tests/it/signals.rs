// SPDX-License-Identifier: Apache-2.0

//! Signals that end a gateway.

use super::kit::http_peer::Reply;
use super::kit::{Gateway, HttpPeer, SOON, free_port, http, wait_until};
use rustix::fs::{CWD, Mode, mkfifoat};
use rustix::process::Signal;
use std::process::Command;
use std::time::Duration;
use std::{fs, thread};
use tempfile::TempDir;

/// A request with one log record.
const LOG: &str = r#"{"resourceLogs": [{"scopeLogs": [{"logRecords": [{"body": {"stringValue": "a"}}]}]}]}"#;

/// A vendor whose answers take this long.
///
/// The delay must be longer than a busy machine takes from the request to the signals.
fn slow_vendor(delay: Duration) -> HttpPeer {
    HttpPeer::answering(Reply {
        delay,
        ..Reply::default()
    })
}

fn config(input: u16, vendor: &HttpPeer, timeout: &str) -> String {
    format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}}}
exporters: {{otlphttp: {{endpoint: \"http://127.0.0.1:{}\", timeout: {timeout}}}}}
service: {{drain_timeout: 1m, pipelines: {{logs: {{receivers: [otlp], exporters: [otlphttp]}}}}}}
",
        vendor.port()
    )
}

/// Sends a record, which the vendor then has and has not answered.
fn send_one(input: u16, vendor: &HttpPeer) {
    let answer = http::post(input, "/v1/logs", "application/json", LOG.as_bytes());
    assert_eq!(answer.expect("an answer").status, 200);
    wait_until(SOON, "the vendor reads the request", || !vendor.seen().is_empty());
}

#[test]
fn two_signals_at_once_do_not_cut_the_drain() {
    let (vendor, input) = (slow_vendor(Duration::from_secs(4)), free_port());
    let gateway = Gateway::start(&config(input, &vendor, "20s"));
    send_one(input, &vendor);
    // As a terminal and a supervisor do.
    gateway.signal(Signal::INT);
    let said = gateway.stop();
    assert!(!said.contains("second signal"), "{said}");
    assert!(said.contains("sent=1 "), "{said}");
    assert_eq!(vendor.seen().len(), 1, "it is sent once");
}

#[test]
fn two_signals_at_once_during_a_reload_do_not_cut_the_drain() {
    // The replaced exporter waits for the answer, and the reload for the exporter.
    let (vendor, input) = (slow_vendor(Duration::from_secs(12)), free_port());
    let mut gateway = Gateway::start(&config(input, &vendor, "50s"));
    send_one(input, &vendor);
    fs::write(gateway.path("config.yaml"), config(input, &vendor, "51s")).expect("a file of the test");
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("the new configuration runs");
    gateway.signal(Signal::INT);
    let said = gateway.stop();
    assert!(!said.contains("second signal"), "{said}");
    assert!(said.contains("sent=1 "), "{said}");
    assert_eq!(vendor.seen().len(), 1, "it is sent once");
}

#[test]
fn a_second_signal_ends_a_reload_too() {
    let (vendor, input) = (slow_vendor(Duration::from_secs(30)), free_port());
    let mut gateway = Gateway::start(&config(input, &vendor, "1m"));
    send_one(input, &vendor);
    fs::write(gateway.path("config.yaml"), config(input, &vendor, "2m")).expect("a file of the test");
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("the new configuration runs");
    gateway.signal(Signal::TERM);
    // A busy machine may take the signal late.
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("SIGHUP refused: the gateway stops");
    // Another one within a second is an echo.
    std::thread::sleep(Duration::from_millis(1500));
    let said = gateway.stop_within(Duration::from_secs(20));
    assert!(said.contains("second signal: stopped without draining"), "{said}");
}

/// As a file on a dead mount.
#[test]
fn a_configuration_that_never_comes_does_not_delay_the_stop() {
    let (vendor, input) = (slow_vendor(Duration::from_secs(4)), free_port());
    let answer = |delay| Reply {
        body: "{}".to_owned(),
        delay,
        ..Reply::default()
    };
    let server = HttpPeer::answering(answer(Duration::ZERO));
    let mut gateway = Gateway::start_with(&config(input, &vendor, "20s"), |command| {
        let url = format!("http://127.0.0.1:{}/more.yaml", server.port());
        command.args(["--config", &url]);
    });
    server.answer(answer(Duration::from_mins(5)));
    gateway.signal(Signal::HUP);
    gateway.wait_for_log("reading the configuration again");
    wait_until(SOON, "the gateway reads", || server.seen().len() == 2);
    send_one(input, &vendor);
    let said = gateway.stop();
    assert!(said.contains("SIGHUP refused: the gateway stops"), "{said}");
    assert!(said.contains("sent=1 "), "{said}");
}

#[test]
fn a_pipe_is_read_at_the_start_and_refused_at_a_reload() {
    let (vendor, input) = (HttpPeer::start(), free_port());
    let directory = TempDir::new().expect("a temporary directory");
    let pipe = directory.path().join("more.yaml");
    mkfifoat(CWD, &pipe, Mode::RUSR | Mode::WUSR).expect("a pipe");
    let to = pipe.clone();
    let writer = thread::spawn(move || fs::write(to, "{}"));
    let mut gateway = Gateway::start_with(&config(input, &vendor, "20s"), |command| {
        command.arg("--config").arg(&pipe);
    });
    writer.join().expect("no panic").expect("the pipe is read");
    gateway.signal(Signal::HUP);
    let line = gateway.wait_for_log("not a regular file: a reload can't read it again");
    assert!(line.contains("more.yaml"), "{line}");
    send_one(input, &vendor);
    gateway.stop();
}

#[test]
fn a_check_reads_standard_input_and_the_pipe_of_a_shell() {
    const CHECK: &str = r#"
"$0" validate --config <(cat "$1") || exit
cat "$1" | "$0" validate --config /dev/stdin
"#;
    let vendor = HttpPeer::start();
    let directory = TempDir::new().expect("a temporary directory");
    let file = directory.path().join("gateway.yaml");
    fs::write(&file, config(free_port(), &vendor, "20s")).expect("a file of the test");
    let mut command = Command::new("bash");
    command
        .args(["-c", CHECK, env!("CARGO_BIN_EXE_tidegate")])
        .arg(&file);
    let output = command.output().expect("bash runs");
    let said = String::from_utf8_lossy(&output.stdout);
    assert_eq!(said.matches(": valid: 1 pipeline").count(), 2, "{output:?}");
}
