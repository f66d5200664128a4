// SPDX-License-Identifier: Apache-2.0

//! Every example configuration is valid and runs; `quickstart` does what the README says.

use super::kit::{Gateway, OtlpSink, SOON, free_port, gateway::tidegate, http, plugins, wait_until};
use super::quickstart;
use std::io::Read;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};
use tempfile::TempDir;

pub(crate) fn examples() -> Vec<PathBuf> {
    let directory = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("config");
    let mut found: Vec<_> = directory
        .read_dir()
        .expect("it is there")
        .flatten()
        .map(|entry| entry.path())
        // Their tests, which `testcmd.rs` runs.
        .filter(|path| !path.to_string_lossy().ends_with(".test.yaml"))
        .collect();
    found.sort();
    assert!(found.len() >= 4, "{found:?}");
    found
}

/// The tests of the rules in `examples/rules`, for `promtool` and `tidegate test`.
pub(crate) fn example_rules() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/rules/tests/inference.test.yaml")
}

#[test]
fn every_example_is_valid() {
    for example in examples() {
        let output = tidegate()
            .arg("validate")
            .arg("--config")
            .arg(&example)
            .env("QUICKSTART_RINGS", "/tmp")
            .env("PLUGIN_DIR", plugins::examples())
            .output();
        let output = output.expect("it starts");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(
            output.status.success() && said.is_empty(),
            "{}: {said}",
            example.display()
        );
        let summary = String::from_utf8_lossy(&output.stdout);
        let begin = format!("{}: valid: ", example.display());
        assert!(
            summary.starts_with(&begin) && summary.lines().count() == 1,
            "{summary}"
        );
    }
}

/// What listens in an example, and the variable of its endpoint. The last two listen even if the example does not say where.
const LISTENERS: [(&str, &str); 8] = [
    ("grpc:", "OTLP_GRPC_ENDPOINT"),
    ("http:", "OTLP_HTTP_ENDPOINT"),
    ("prometheusremotewrite: {endpoint", "REMOTE_WRITE_LISTEN"),
    ("serve:", "CLUSTER_ENDPOINT"),
    ("admin:", "ADMIN_ENDPOINT"),
    ("prometheus: {endpoint", "PROMETHEUS_ENDPOINT"),
    ("health_check:", "HEALTH_ENDPOINT"),
    ("pipelines:", "OWN_METRICS_ENDPOINT"),
];

/// A line without its variables, such as `${env:NAME:-default}`.
fn without_variables(line: &str) -> String {
    let mut pieces = line.split("${");
    let first = pieces.next().unwrap_or_default().to_owned();
    let rest = pieces.map(|piece| piece.split_once('}').map_or("", |(_, rest)| rest));
    first + &rest.collect::<String>()
}

/// Whether the text has an address with a port, such as `localhost:4317`.
fn has_port(text: &str) -> bool {
    let after_colons = text.split(':').skip(1);
    let mut digits = after_colons.map(|rest| rest.chars().take_while(char::is_ascii_digit).count());
    digits.any(|digits| digits >= 2)
}

#[test]
fn examples_take_every_port_from_a_variable_and_name_it_at_the_head() {
    assert!(has_port("endpoint: \"127.0.0.1:4317\"") && !has_port("interval: 10s"));
    for example in examples() {
        let yaml = std::fs::read_to_string(&example).expect("it is readable");
        let head: String = yaml.lines().take_while(|line| line.starts_with('#')).collect();
        let body: Vec<_> = yaml
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .collect();
        for line in &body {
            assert!(
                !has_port(&without_variables(line)),
                "{}: {line}",
                example.display()
            );
        }
        for (key, variable) in LISTENERS {
            let is_there = body.iter().any(|line| line.trim_start().starts_with(key));
            let named = format!("{variable} (");
            let is_used = body
                .iter()
                .any(|line| line.contains(&format!("${{env:{variable}:-")));
            assert!(
                !is_there || (is_used && head.contains(&named)),
                "{}: {variable}: listen on it, and name it with its default in the first comment",
                example.display()
            );
        }
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
                .env("SOCKET_DIR", rings.path())
                .env("OUTPUT_DIR", rings.path())
                .env("PLUGIN_DIR", plugins::examples())
                .env("STORAGE", rings.path().join("storage"))
                .env("COMPOSITE_PAGE", rings.path().join("page"))
                .env("DATADOG_ENDPOINT", vendor.endpoint())
                .env("GRAFANA_ENDPOINT", vendor.endpoint())
                .env("REMOTE_WRITE_ENDPOINT", vendor.endpoint())
                .env("VENDOR_ENDPOINT", vendor.endpoint());
            command
                .env("VENDOR_GRPC_ENDPOINT", format!("127.0.0.1:{}", vendor.port()))
                .env("VENDOR_API_KEY", "key");
            for port in [
                "PROMETHEUS_ENDPOINT",
                "OTLP_GRPC_ENDPOINT",
                "OTLP_HTTP_ENDPOINT",
                "ADMIN_ENDPOINT",
                "REMOTE_WRITE_LISTEN",
                "CLUSTER_ENDPOINT",
            ] {
                command.env(port, format!("127.0.0.1:{}", free_port()));
            }
        });
        gateway.stop();
    }
}

#[test]
fn statsd_lines_on_a_socket_become_lines_of_csv_and_points_of_json() {
    let directory = TempDir::new().expect("a temporary directory");
    let yaml = include_str!("../../config/sockets-to-file.yaml");
    let gateway = Gateway::start_with(yaml, |command| {
        command
            .env("SOCKET_DIR", directory.path())
            .env("OUTPUT_DIR", directory.path());
    });
    let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    socket
        .connect(directory.path().join("statsd.sock"))
        .expect("it listens");
    socket
        .send(b"jobs:3|c|#queue:a\nload:0.5|g")
        .expect("it is taken");
    let read = |name: &str| std::fs::read_to_string(directory.path().join(name)).unwrap_or_default();
    wait_until(SOON, "both lines are there", || {
        read("events.csv").lines().count() == 3
    });
    let csv = read("events.csv");
    assert!(
        csv.starts_with("timestamp_us,category,event_name,value\n"),
        "{csv}"
    );
    assert!(
        csv.contains(",,jobs,3\n") && csv.contains(",,load,0.5\n"),
        "{csv}"
    );
    wait_until(SOON, "the aggregate is there", || {
        read("metrics.jsonl").contains("\"jobs\"")
    });
    gateway.stop();
    for line in read("metrics.jsonl").lines() {
        serde_json::from_str::<serde_json::Value>(line).expect("a line is JSON");
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
fn quickstart_serves_a_simulated_node_and_stops_soon_after_ctrl_c() {
    let starting = quickstart::starting();
    let mut child = tidegate()
        .arg("quickstart")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it starts");
    let mut stdout = child.stdout.take().expect("piped");
    let (sender, receiver) = std::sync::mpsc::sync_channel(1024);
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(read @ 1..) = stdout.read(&mut buffer) {
            // No server listens once the test is over.
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
    drop(starting);
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
        asked.elapsed() < Duration::from_secs(20),
        "it took {:?}",
        asked.elapsed()
    );
}
