// SPDX-License-Identifier: Apache-2.0

//! Clocks that are set while a gateway runs: a sender's, and its own. Every value is right, or it is not called fresh.

use super::kit::{Gateway, Ledgers, QueryApi, SOON, free_port, http, testenv, wait_until};
use serde_json::{Value, json};
use std::fs;
use std::process::Command;
use std::thread;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

const HOUR: i64 = 3600;

/// Longer than what counts as one push.
const INTERVAL: Duration = Duration::from_millis(1100);

struct Scene {
    gateway: Gateway,
    queries: QueryApi,
    otlp: u16,
    page: u16,
    /// When the sender's process began.
    start: i64,
    /// How far ahead the sender's clock is, in seconds.
    offset: i64,
    total: i64,
    sent: usize,
    refused: usize,
}

/// Nanoseconds since 1970, by this process's clock.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970");
    i64::try_from(since.as_nanos()).expect("before 2262")
}

impl Scene {
    fn start(adjust: impl FnOnce(&mut Command)) -> Self {
        let (otlp, page, admin) = (free_port(), free_port(), free_port());
        let config = format!(
            "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
processors:
  composite:
    composites: [{{name: level_now, metric: level, function: last, across: sum}}]
  aggregate: {{rules: [{{match: {{name: \"regex:hits|level\"}}}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: [composite, aggregate], exporters: [prometheus]}}
"
        );
        Self {
            gateway: Gateway::start_with(&config, adjust),
            queries: QueryApi::at(admin),
            otlp,
            page,
            start: now(),
            offset: 0,
            total: 0,
            sent: 0,
            refused: 0,
        }
    }

    /// Sends a counter and a gauge of the same number. Gives how many points the gateway says it refused, and why.
    fn push(&mut self) -> (usize, String) {
        thread::sleep(INTERVAL);
        self.total += 1;
        self.sent += 2;
        let point = json!({
            "startTimeUnixNano": self.start.to_string(),
            "timeUnixNano": (now() + self.offset * 1_000_000_000).to_string(),
            "asInt": self.total.to_string(),
        });
        let body = json!({"resourceMetrics": [{
            "resource": {"attributes": [{"key": "service.name", "value": {"stringValue": "svc"}}]},
            "scopeMetrics": [{"metrics": [
                {"name": "hits", "sum": {"isMonotonic": true, "aggregationTemporality": 2, "dataPoints": [point]}},
                {"name": "level", "gauge": {"dataPoints": [point]}},
            ]}],
        }]});
        let answer = http::post(
            self.otlp,
            "/v1/metrics",
            "application/json",
            body.to_string().as_bytes(),
        );
        let answer = answer.expect("the gateway answers");
        assert_eq!(answer.status, 200);
        let partial = answer.json()["partialSuccess"].take();
        let rejected = match &partial["rejectedDataPoints"] {
            Value::String(text) => text.parse().expect("a number"),
            Value::Null => 0,
            other => panic!("{other}"),
        };
        self.refused += rejected;
        (
            rejected,
            partial["errorMessage"].as_str().unwrap_or_default().to_owned(),
        )
    }

    /// The answer of the gateway about a series: its value and its state.
    fn explain(&self, selector: &str) -> (Option<f64>, String) {
        let found = self.queries.get("/api/v1/explain", &[("match[]", selector)]);
        let one = &found[0];
        let value = one["value"].as_f64();
        (value, one["state"].as_str().unwrap_or_default().to_owned())
    }

    fn composite(&self) -> (Option<f64>, String) {
        let page = http::get(self.queries.port(), "/api/v1/composites/level_now").expect("a page");
        let group = page.json()[0].clone();
        (
            group["value"].as_f64(),
            group["state"].as_str().unwrap_or_default().to_owned(),
        )
    }

    /// Whether all readers show the number that was sent last as fresh. A value that a reader calls fresh must be
    /// right; one push may still be on its way.
    fn all_are_right(&self, may_lag: bool) -> bool {
        let truth = self.total as f64;
        let all = [
            ("hits", self.explain("hits_total")),
            ("level", self.explain("level")),
            ("composite", self.composite()),
        ];
        let mut right = true;
        for (who, (value, state)) in all {
            let is_right = value == Some(truth);
            assert!(
                is_right || may_lag || state != "fresh",
                "{who} is {value:?}, not {truth}, and {state}"
            );
            assert!(
                value.is_none_or(|value| value <= truth),
                "{who}: {value:?} of {truth}"
            );
            right &= is_right && state == "fresh";
        }
        right
    }

    /// Sends until all readers are right again.
    fn recover(&mut self, what: &str) {
        for push in 0..15 {
            self.push();
            if self.all_are_right(push < 2) {
                return self.check_readers(what);
            }
        }
        panic!(
            "{what}: {:?} {:?} of {}",
            self.explain("hits_total"),
            self.composite(),
            self.total
        );
    }

    fn check_readers(&self, what: &str) {
        let page = http::get(self.page, "/metrics").expect("a page").text();
        for name in ["hits_total", "level"] {
            assert_eq!(
                self.queries.value(name),
                Some(self.total as f64),
                "{what}: {name}"
            );
            let line = page.lines().find(|line| line.starts_with(&format!("{name}{{")));
            let line = line.unwrap_or_else(|| panic!("{what}: {page}"));
            assert!(line.ends_with(&format!(" {}", self.total)), "{what}: {line}");
        }
    }

    fn dropped(&self, reason: &str) -> f64 {
        let reason = format!("reason=\"{reason}\"");
        let labels = ["component=\"processors::aggregate", reason.as_str()];
        self.gateway.own_metric("tidegate_dropped_items_total", &labels)
    }

    fn anomalies(&self, reason: &str) -> f64 {
        let labels = ["aggregate", &format!("reason=\"{reason}\"")];
        self.gateway.own_metric("tidegate_stray_streams_total", &labels)
    }
}

#[test]
fn values_after_a_clock_step_are_right_again_or_not_fresh() {
    let mut scene = Scene::start(|_| {});
    (0..3).for_each(|_| drop(scene.push()));
    scene.recover("before");
    assert_eq!(scene.refused, 0);
    // A day ahead: refused, reported, counted; it leaves nothing behind.
    scene.offset = 24 * HOUR;
    let (rejected, why) = scene.push();
    assert_eq!(rejected, 2);
    assert!(why.contains("too far ahead of the gateway's clock"), "{why}");
    (0..2).for_each(|_| drop(scene.push()));
    let state = |scene: &Scene| [scene.explain("hits_total").1, scene.composite().1];
    wait_until(SOON, "both are stale", || state(&scene) == ["stale", "stale"]);
    scene.offset = 0;
    scene.recover("after a day ahead");
    wait_until(SOON, "points from the future are counted", || {
        scene.dropped("future") == 6.0
    });
    // An hour back: late until the new clock is believed.
    scene.offset = -HOUR;
    let (rejected, why) = scene.push();
    assert_eq!((rejected, why.contains("not newer")), (2, true), "{why}");
    (0..2).for_each(|_| drop(scene.push()));
    wait_until(SOON, "both are stale", || state(&scene) == ["stale", "stale"]);
    scene.recover("after an hour back");
    scene.offset = 0;
    scene.recover("back");
    wait_until(SOON, "streams that went on are counted", || {
        scene.anomalies("reanchored") == 2.0
    });
    wait_until(SOON, "each refused point is counted", || {
        scene.dropped("future") + scene.dropped("late") == scene.refused as f64
    });
    let ledgers = Ledgers::agreed(&scene.gateway, scene.queries.port());
    let sent = scene.sent as u64;
    assert_eq!(ledgers.of("receivers::otlp", "metrics"), [("accepted", sent)]);
    let counts = ledgers.of("processors::aggregate@metrics", "metrics");
    let absorbed = counts.iter().find(|(name, _)| *name == "absorbed");
    assert_eq!(absorbed, Some(&("absorbed", sent - scene.refused as u64)));
    let line = scene.gateway.wait_for_log("too far ahead of the gateway's clock");
    assert!(
        line.contains("WARN") && line.contains("level") | line.contains("hits"),
        "{line}"
    );
    scene.gateway.stop();
}

/// A clock of a gateway that can be set.
struct FakeClock {
    directory: tempfile::TempDir,
}

impl FakeClock {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let clock = Self { directory };
        clock.set("+0");
        clock
    }

    fn set(&self, offset: &str) {
        fs::write(self.file(), offset).expect("a file");
    }

    fn file(&self) -> std::path::PathBuf {
        self.directory.path().join("offset")
    }

    fn rule(&self, command: &mut Command) {
        let library = testenv("faketime").join("usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1");
        command
            .env("LD_PRELOAD", library)
            .env("FAKETIME_TIMESTAMP_FILE", self.file())
            .env("FAKETIME_NO_CACHE", "1")
            .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
    }
}

#[test]
fn a_gateway_whose_own_clock_steps_stays_right() {
    let clock = FakeClock::new();
    let mut scene = Scene::start(|command| clock.rule(command));
    (0..3).for_each(|_| drop(scene.push()));
    scene.recover("before");
    for (steps, offset) in (1..).zip(["+1d", "-2h", "+0"]) {
        clock.set(offset);
        scene.recover(offset);
        let told = || scene.gateway.own_metric("tidegate_clock_steps_total", &[]);
        wait_until(SOON, "the step is counted", || told() == f64::from(steps));
    }
    assert_eq!(scene.refused, 0);
    assert_eq!(scene.dropped("late") + scene.dropped("future"), 0.0);
    scene.gateway.stop();
}

/// Events without times get that of their arrival, by the clock on the wall, wherever they are written.
#[test]
fn events_without_times_have_the_time_of_the_wall_clock_after_it_was_set() {
    let clock = FakeClock::new();
    let folder = tempfile::tempdir().expect("a directory");
    let (path, page) = (folder.path().display(), free_port());
    let config = format!(
        "receivers:
  uds: {{datagram: {{path: \"{path}/statsd.sock\"}}}}
processors:
  composite: {{composites: [{{name: load_now, metric: load, function: last, across: sum}}]}}
  aggregate: {{rules: [{{match: {{name: load}}}}]}}
exporters:
  file/csv: {{path: \"{path}/events.csv\", format: csv}}
  file/json: {{path: \"{path}/events.json\"}}
  prometheus: {{endpoint: \"127.0.0.1:{page}\", send_timestamps: true}}
service:
  extensions: [health_check]
  pipelines:
    metrics/raw: {{receivers: [uds], exporters: [file/csv, file/json]}}
    metrics: {{receivers: [uds], processors: [composite, aggregate], exporters: [prometheus]}}
"
    );
    let gateway = Gateway::start_with(&config, |command| clock.rule(command));
    let socket = std::os::unix::net::UnixDatagram::unbound().expect("a socket");
    let statsd = folder.path().join("statsd.sock");
    let read = |name: &str| fs::read_to_string(folder.path().join(name)).unwrap_or_default();
    for (value, (offset, ahead)) in (1..).zip([("+0", 0), ("+1d", 24 * HOUR), ("-2h", -2 * HOUR)]) {
        clock.set(offset);
        let line = format!("load:{value}|g");
        socket.send_to(line.as_bytes(), &statsd).expect("it is taken");
        let is_right = |nanos: i64| {
            let truth = now() + ahead * 1_000_000_000;
            (nanos - truth).abs() < 30_000_000_000
        };
        let (csv_end, json_value) = (format!(",,load,{value}"), format!("\"asDouble\":{value}"));
        wait_until(SOON, "the event is written", || {
            read("events.csv").lines().any(|line| line.ends_with(&csv_end))
                && read("events.json").contains(&json_value)
        });
        let csv = read("events.csv");
        let line = csv
            .lines()
            .find(|line| line.ends_with(&csv_end))
            .expect("it is there");
        let micros: i64 = line
            .split(',')
            .next()
            .and_then(|time| time.parse().ok())
            .expect("a time");
        assert!(is_right(micros * 1000), "{offset}: {line}");
        let json = read("events.json");
        let line = json
            .lines()
            .find(|line| line.contains(&json_value))
            .expect("it is there");
        let line: Value = serde_json::from_str(line).expect("JSON");
        let metric = &line["resourceMetrics"][0]["scopeMetrics"][0]["metrics"][0];
        let time = metric["gauge"]["dataPoints"][0]["timeUnixNano"].as_str();
        let time: i64 = time.and_then(|time| time.parse().ok()).expect("a time");
        assert!(is_right(time), "{offset}: {line}");
        for name in ["load", "load_now"] {
            let shown = || {
                let page = http::get(page, "/metrics").expect("a page").text();
                let line = page
                    .lines()
                    .find(|line| line.split(['{', ' ']).next() == Some(name))?;
                let mut numbers = line.rsplit(' ');
                let (millis, shown) = (
                    numbers.next()?.parse::<i64>().ok()?,
                    numbers.next()?.parse::<f64>().ok()?,
                );
                (shown == f64::from(value)).then_some(millis)
            };
            let mut millis = 0;
            wait_until(SOON, "the page shows it", || {
                millis = shown().unwrap_or(0);
                millis != 0
            });
            assert!(is_right(millis * 1_000_000), "{offset}: {name} at {millis}");
        }
    }
    gateway.stop();
}
