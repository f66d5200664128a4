//! Every example configuration is valid and runs; `quickstart` does what the README says.

use super::kit::{Gateway, OtlpSink, SOON, free_port, gateway::tidegate, http, wait_until};
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

fn examples() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut found: Vec<_> = directory
        .read_dir()
        .expect("it is there")
        .flatten()
        .map(|entry| entry.path())
        .collect();
    found.sort();
    assert!(found.len() >= 4, "{found:?}");
    found
}

#[test]
fn every_example_is_valid() {
    for example in examples() {
        let output = tidegate()
            .arg("validate")
            .arg("--config")
            .arg(&example)
            .env("QUICKSTART_RINGS", "/tmp")
            .output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{}: {said}",
            example.display()
        );
    }
}

#[test]
fn every_example_runs() {
    let vendor = OtlpSink::start();
    let rings = TempDir::new().expect("a temporary directory");
    for example in examples()
        .iter()
        .filter(|path| !path.ends_with("quickstart.yaml"))
    {
        let yaml = std::fs::read_to_string(example).expect("it is readable");
        let gateway = Gateway::start_with(&yaml, |command| {
            command
                .env("NIXL_TELEMETRY_DIR", rings.path())
                .env("VENDOR_ENDPOINT", vendor.endpoint());
            command
                .env("VENDOR_GRPC_ENDPOINT", format!("127.0.0.1:{}", vendor.port()))
                .env("VENDOR_API_KEY", "key");
            for port in [
                "PROMETHEUS_ENDPOINT",
                "OTLP_GRPC_ENDPOINT",
                "OTLP_HTTP_ENDPOINT",
                "ADMIN_ENDPOINT",
            ] {
                command.env(port, format!("127.0.0.1:{}", free_port()));
            }
        });
        gateway.stop();
    }
}

/// The ports that quickstart says it uses, by the words of its lines.
fn port_of(said: &str, what: &str) -> Option<u16> {
    let line = said.lines().find(|line| line.contains(what))?;
    line.split("127.0.0.1:")
        .nth(1)?
        .split('/')
        .next()?
        .trim()
        .parse()
        .ok()
}

#[test]
fn quickstart_serves_a_simulated_node_and_stops_within_two_seconds_of_ctrl_c() {
    let mut child = tidegate()
        .arg("quickstart")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = child.stdout.take().expect("piped");
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stdout.read(&mut buffer) {
            // Nobody listens any more once the test is over.
            let _ = sender.send(String::from_utf8_lossy(&buffer[..read]).into_owned());
        }
    });
    let mut said = String::new();
    wait_until(SOON, "it says where to look", || {
        said.extend(receiver.try_iter());
        port_of(&said, "Prometheus").is_some() && port_of(&said, "composites").is_some()
    });
    let (scrape, admin) = (
        port_of(&said, "Prometheus").expect("seen"),
        port_of(&said, "composites").expect("seen"),
    );
    wait_until(SOON, "eight agents are served", || {
        let Ok(page) = http::get(scrape, "/metrics") else {
            return false;
        };
        let text = page.text();
        (0..8).all(|rank| text.contains(&format!("agent_tx_bytes_total{{agent_name=\"rank_{rank}\"")))
    });
    wait_until(SOON, "composites are fresh", || {
        let answer = http::get(admin, "/api/v1/composites/nixl_xfer_time_avg_10s")
            .expect("an answer")
            .json();
        let groups = answer.as_array().expect("always an array");
        groups.len() == 8
            && groups
                .iter()
                .all(|group| group["state"] == "fresh" && group["value"].as_f64() > Some(0.0))
    });
    let asked = Instant::now();
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("it is alive");
    let status = child.wait().expect("it ends");
    assert!(status.success(), "{status}");
    assert!(
        asked.elapsed() < Duration::from_secs(2),
        "it took {:?}",
        asked.elapsed()
    );
}
