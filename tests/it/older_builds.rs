// SPDX-License-Identifier: Apache-2.0

//! Configurations of older builds, and the files that these builds left on disk: the present build takes all of them.
//! `fixtures/README.md` says how the files were made.

use super::kit::gateway::tidegate;
use super::kit::points::Value;
use super::kit::{Gateway, OtlpSink, SOON, free_port, http, plugins, wait_for, wait_until};
use opentelemetry_proto::tonic::common::v1::any_value;
use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use tempfile::TempDir;
use tidegate_page::{Reader, State};

/// The commits of these builds, and the number of example configurations of each.
const BUILDS: [(&str, usize); 2] = [("4cf1c1e", 11), ("bf1e2a2", 12)];

/// The start time of all streams, as `fixtures/make.py` has it: before any gateway started.
const BEGIN: u64 = 1_700_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

const DELTA: u8 = 1;
const CUMULATIVE: u8 = 2;

fn fixtures(build: &str) -> PathBuf {
    let all = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/it/fixtures");
    all.join(build)
}

/// Copies a directory. Gives the number of bytes.
fn copy(from: &Path, to: &Path) -> u64 {
    fs::create_dir_all(to).expect("a directory");
    let mut bytes = 0;
    for entry in fs::read_dir(from).expect("a fixture").flatten() {
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        bytes += if from.is_dir() {
            copy(&from, &to)
        } else {
            fs::copy(&from, &to).expect("a copy")
        };
    }
    bytes
}

/// A copy of the files of one scene, before the present build starts on it.
struct Scene {
    yaml: String,
    state: TempDir,
    sockets: TempDir,
    sink: OtlpSink,
    input: u16,
    page: u16,
}

impl Scene {
    fn new(build: &str, name: &str) -> Self {
        let (fixtures, state) = (fixtures(build), TempDir::new().expect("a temporary directory"));
        assert!(copy(&fixtures.join(name), state.path()) > 0, "{build}: {name}");
        Self {
            yaml: fs::read_to_string(fixtures.join(format!("{name}.yaml"))).expect("a configuration"),
            state,
            sockets: TempDir::new().expect("a temporary directory"),
            sink: OtlpSink::start(),
            input: free_port(),
            page: free_port(),
        }
    }

    fn start(&self) -> Gateway {
        Gateway::start_with(&self.yaml, |command| {
            command
                .env("STATE", self.state.path())
                .env("SOCKET", self.socket())
                .env("INPUT", self.input.to_string())
                .env("PAGE", self.page.to_string())
                .env("PEER", self.sink.port().to_string());
        })
    }

    fn socket(&self) -> PathBuf {
        self.sockets.path().join("events.sock")
    }

    fn send_line(&self, line: &str) {
        let sender = UnixDatagram::unbound().expect("a socket");
        sender
            .send_to(line.as_bytes(), self.socket())
            .expect("it is sent");
    }

    /// Sends one point of a sum that covers these seconds after [`BEGIN`].
    fn send(&self, name: &str, temporality: u8, (start, end): (u64, u64), value: u64) {
        let (start, end) = (BEGIN + start * SECOND, BEGIN + end * SECOND);
        let resource = r#"{"attributes":[{"key":"service.name","value":{"stringValue":"llm"}}]}"#;
        let point = format!(r#"{{"asInt":"{value}","startTimeUnixNano":"{start}","timeUnixNano":"{end}"}}"#);
        let sum = format!(
            r#"{{"isMonotonic":true,"aggregationTemporality":{temporality},"dataPoints":[{point}]}}"#
        );
        let metrics = format!(r#"[{{"name":"{name}","sum":{sum}}}]"#);
        let body = format!(
            r#"{{"resourceMetrics":[{{"resource":{resource},"scopeMetrics":[{{"metrics":{metrics}}}]}}]}}"#
        );
        let answer = http::post(self.input, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.expect("an answer").status, 200);
    }

    /// Waits until the scrape page has all of these lines.
    fn shows(&self, lines: &[&str]) {
        wait_for(SOON, &format!("{lines:?}"), || {
            let page = http::get(self.page, "/metrics").ok()?.text();
            let has_all = lines.iter().all(|line| page.lines().any(|found| found == *line));
            has_all.then_some(())
        });
    }
}

#[test]
fn configurations_of_older_builds_are_valid() {
    for (build, count) in BUILDS {
        let mut valid = 0;
        for entry in fs::read_dir(fixtures(build).join("config")).expect("a fixture") {
            let path = entry.expect("an entry").path();
            let mut command = tidegate();
            command.arg("validate").arg("--config").arg(&path);
            command
                .env("QUICKSTART_RINGS", "/tmp")
                .env("PLUGIN_DIR", plugins::examples());
            let output = command.output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {said}", path.display());
            valid += 1;
        }
        assert_eq!(valid, count, "{build}");
    }
}

#[test]
fn totals_of_older_builds_are_shown_and_continue() {
    for (build, _) in BUILDS {
        let scene = Scene::new(build, "totals");
        let gateway = scene.start();
        scene.shows(&[
            "deltas_total{instance=\"\",job=\"llm\"} 7",
            "requests_total{instance=\"\",job=\"llm\"} 150",
            "jobs_total{queue=\"a\"} 9",
            "level{instance=\"\",job=\"llm\"} 3.5",
            "latency_bucket{instance=\"\",job=\"llm\",le=\"0.5\"} 2",
            "latency_bucket{instance=\"\",job=\"llm\",le=\"1\"} 4",
            "latency_bucket{instance=\"\",job=\"llm\",le=\"+Inf\"} 8",
            "latency_sum{instance=\"\",job=\"llm\"} 10",
            "sizes_bucket{instance=\"\",job=\"llm\",le=\"2\"} 4",
            "sizes_bucket{instance=\"\",job=\"llm\",le=\"4\"} 9",
            "sizes_sum{instance=\"\",job=\"llm\"} 11",
        ]);
        // The older build has counted this delta.
        scene.send("deltas", DELTA, (1, 2), 4);
        scene.send("deltas", DELTA, (2, 3), 5);
        scene.send("requests", CUMULATIVE, (0, 3), 160);
        scene.send_line("jobs:1|c|#queue:a");
        scene.shows(&[
            "deltas_total{instance=\"\",job=\"llm\"} 12",
            "requests_total{instance=\"\",job=\"llm\"} 160",
            "jobs_total{queue=\"a\"} 10",
        ]);
        assert_eq!(
            gateway.own_metric("tidegate_storage_lost_records_total", &[]),
            0.0
        );
        gateway.stop();
    }
}

/// The names of all spans that arrived, sorted, as requests may overtake each other.
fn spans(sink: &OtlpSink) -> Vec<String> {
    let resources = sink.traces().into_iter().flat_map(|all| all.resource_spans);
    let spans = resources
        .flat_map(|all| all.scope_spans)
        .flat_map(|all| all.spans);
    let mut names: Vec<String> = spans.map(|span| span.name).collect();
    names.sort_unstable();
    names
}

/// The texts of all log records that arrived, sorted, as requests may overtake each other.
fn records(sink: &OtlpSink) -> Vec<String> {
    let resources = sink.logs().into_iter().flat_map(|all| all.resource_logs);
    let records = resources
        .flat_map(|all| all.scope_logs)
        .flat_map(|all| all.log_records);
    let texts = records.filter_map(|record| match record.body?.value? {
        any_value::Value::StringValue(text) => Some(text),
        _ => None,
    });
    let mut texts: Vec<String> = texts.collect();
    texts.sort_unstable();
    texts
}

/// The increases of `requests` that arrived: start and end in seconds after [`BEGIN`], and the value.
fn increases(sink: &OtlpSink) -> Vec<(u64, u64, f64)> {
    let seconds = |time: u64| (time - BEGIN) / SECOND;
    let points = sink.points_of("requests").into_iter();
    let increases = points.map(|point| {
        let is_delta = matches!(point.value, Value::Sum { temporality: 1, .. });
        assert!(is_delta, "{point:?}");
        (
            seconds(point.start_time_ns),
            seconds(point.time_ns),
            point.number(),
        )
    });
    increases.collect()
}

#[test]
fn queues_of_older_builds_are_delivered_and_deltas_continue() {
    for ((build, _), name) in BUILDS.into_iter().flat_map(|of| [(of, "always"), (of, "spill")]) {
        let scene = Scene::new(build, name);
        let gateway = scene.start();
        wait_until(SOON, &format!("{build}: the batches of {name}"), || {
            let sink = &scene.sink;
            increases(sink).len() == 1 && spans(sink).len() == 2 && records(sink).len() == 3
        });
        assert_eq!(increases(&scene.sink), [(1, 2, 50.0)]);
        assert_eq!(spans(&scene.sink), ["one", "two"]);
        assert_eq!(records(&scene.sink), ["first", "second", "third"]);
        if name == "always" {
            let headers = scene.sink.headers();
            let tenants = headers
                .iter()
                .filter_map(|headers| headers.get("x-tenant")?.to_str().ok());
            let mut tenants: Vec<_> = tenants.collect();
            tenants.sort_unstable();
            assert_eq!(tenants, ["a", "b", "c"]);
        }
        // Without the stored position of the stream, this point would be the baseline, and no point would arrive.
        scene.send("requests", CUMULATIVE, (0, 3), 170);
        wait_until(SOON, "an increase", || increases(&scene.sink).len() == 2);
        assert_eq!(increases(&scene.sink)[1], (2, 3, 20.0));
        for metric in [
            "tidegate_storage_lost_records_total",
            "tidegate_dropped_items_total",
        ] {
            assert_eq!(gateway.own_metric(metric, &[]), 0.0, "{build}: {name}: {metric}");
        }
        gateway.stop();
    }
}

#[test]
fn pages_of_older_builds_are_read_and_replaced() {
    for (build, _) in BUILDS {
        let scene = Scene::new(build, "page");
        let path = scene.state.path().join("page");
        let old = Reader::open(&path).expect("a page");
        assert_eq!((old.used(), old.capacity()), (2, 8));
        for (labels, value) in [("model=\"m\"", 7.0), ("model=\"n\"", 2.0)] {
            let handle = old.find("depth", labels).expect("an entry");
            let now = old.read(&handle).expect("values");
            assert_eq!((now.state, now.value), (State::Fresh, Some(value)), "{labels}");
            assert_eq!((now.last, now.count), (Some(value), Some(1.0)), "{labels}");
            assert_eq!(now.quantiles(), [(0.5, value)], "{labels}");
        }
        assert_ne!(old.heartbeat(), None, "its writer was killed");

        let gateway = scene.start();
        wait_until(SOON, "another page", || !old.is_current());
        let new = Reader::open(&path).expect("a page");
        scene.send_line("queue:5|g|#model:m");
        let now = wait_for(SOON, "a value", || {
            let handle = new.find("depth", "model=\"m\"").ok()?;
            new.read(&handle).ok().filter(|now| now.value.is_some())
        });
        assert_eq!(now.value, Some(5.0));
        assert_eq!(new.used(), 1, "values of the killed writer are gone");
        assert!(new.heartbeat() > old.heartbeat());
        gateway.stop();
    }
}

#[test]
fn retained_cells_of_older_builds_are_shown() {
    for (build, _) in BUILDS {
        let scene = Scene::new(build, "cells");
        let gateway = scene.start();
        scene.shows(&[
            "requests_total{instance=\"\",job=\"old\",l=\"a\"} 41.5",
            "requests_total{instance=\"\",job=\"old\",l=\"b\"} 1",
            "latency_bucket{instance=\"\",job=\"old\",l=\"a\",le=\"1\"} 1",
            "latency_bucket{instance=\"\",job=\"old\",l=\"a\",le=\"10\"} 2",
            "latency_bucket{instance=\"\",job=\"old\",l=\"a\",le=\"+Inf\"} 3",
            "latency_sum{instance=\"\",job=\"old\",l=\"a\"} 55.5",
        ]);
        assert!(gateway.own_metrics().contains("tidegate_shm_unread_files"));
        assert_eq!(gateway.own_metric("tidegate_shm_unread_files", &[]), 0.0);
        gateway.stop();
    }
}
