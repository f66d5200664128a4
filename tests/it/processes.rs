// SPDX-License-Identifier: Apache-2.0

//! Several processes that report as one series: gunicorn workers without `service.instance.id`, pods whose instance a
//! processor removes. The gateway shows the sum of their counts.

use super::kit::keda::Keda;
use super::kit::{Gateway, QueryApi, SOON, free_port, http, wait_for};
use serde_json::Value as Json;
use std::time::SystemTime;
use tonic::Code;

/// A process that counts, and reports what it has counted since it began.
struct Worker {
    start: u64,
    counted: u64,
}

/// When the tests' processes begin: a nanosecond of 2026.
const EPOCH: u64 = 1_790_000_000_000_000_000;
const SECOND: u64 = 1_000_000_000;

impl Worker {
    fn body(&self, time: u64) -> String {
        let Self { start, counted } = self;
        let times = format!(r#""startTimeUnixNano":"{start}","timeUnixNano":"{time}""#);
        let sum = format!(
            r#"{{"name":"requests","sum":{{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{{"asInt":"{counted}",{times}}}]}}}}"#
        );
        let wait = format!(
            r#"{{"name":"wait","histogram":{{"aggregationTemporality":2,"dataPoints":[{{"count":"{counted}","sum":{counted},"explicitBounds":[1],"bucketCounts":["{counted}","0"],{times}}}]}}}}"#
        );
        format!(
            r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{{"key":"service.name","value":{{"stringValue":"web"}}}},{{"key":"service.instance.id","value":{{"stringValue":"{start}"}}}}]}},"scopeMetrics":[{{"metrics":[{sum},{wait}]}}]}}]}}"#
        )
    }
}

/// The value of the only sample of a page whose name is this; 0: there is none.
fn shown(port: u16, name: &str) -> f64 {
    let page = http::get(port, "/metrics").unwrap().text();
    let samples = page
        .lines()
        .filter(|line| line.starts_with(&format!("{name}{{")) || line.starts_with(&format!("{name} ")));
    let values: Vec<f64> = samples
        .filter_map(|line| line.split_whitespace().nth(1)?.parse().ok())
        .collect();
    assert!(values.len() <= 1, "{page}");
    values.first().copied().unwrap_or(0.0)
}

#[test]
fn processes_under_one_identity_add_up_exactly_with_aggregate_and_without() {
    let (input, added, plain) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  resource: {{attributes: [{{key: service.instance.id, action: delete}}]}}
  aggregate: {{rules: [{{match: {{name: \"*\"}}, without: []}}]}}
exporters:
  prometheus/added: {{endpoint: \"127.0.0.1:{added}\"}}
  prometheus/plain: {{endpoint: \"127.0.0.1:{plain}\"}}
service:
  pipelines:
    metrics/added: {{receivers: [otlp], processors: [resource, aggregate], exporters: [prometheus/added]}}
    metrics/plain: {{receivers: [otlp], processors: [resource], exporters: [prometheus/plain]}}
"
    ));
    let mut workers: Vec<Worker> = Vec::new();
    let (mut counted, mut turn) = (0, 0);
    for processes in [3, 4, 8] {
        while workers.len() < processes {
            let start = EPOCH + workers.len() as u64 * 7;
            workers.push(Worker { start, counted: 0 });
        }
        for step in 0..10 {
            // Each time in another order.
            for at in 0..processes {
                let worker = &mut workers[(at * 5 + step) % processes];
                worker.counted += 1;
                counted += 1;
                turn += 1;
                let body = worker.body(EPOCH + turn * SECOND);
                let answer = http::post(input, "/v1/metrics", "application/json", body.as_bytes());
                assert_eq!(answer.unwrap().status, 200);
            }
            let wanted = f64::from(counted);
            assert_eq!(
                shown(added, "requests_total"),
                wanted,
                "{processes} processes, step {step}"
            );
            assert_eq!(shown(added, "wait_count"), wanted);
        }
        // All have been heard beside each other.
        assert_eq!(
            shown(plain, "requests_total"),
            f64::from(counted),
            "{processes} processes"
        );
        assert_eq!(shown(plain, "wait_count"), f64::from(counted));
    }
    for component in [
        "processor=\"processors::aggregate@metrics/added\"",
        "exporter=\"prometheus/plain\"",
    ] {
        let labels = [component, "reason=\"interleaved\""];
        // Both read it from their tables about once a second.
        let mut colliding = 0.0;
        wait_for(SOON, "the collisions are counted", || {
            colliding = gateway.own_metric("tidegate_colliding_streams_total", &labels);
            (colliding >= 2.0).then_some(())
        });
        assert_eq!(colliding, 2.0, "{component}");
    }
    let log = gateway.stop();
    assert!(log.contains("several processes report the same series"), "{log}");
}

/// A gateway that adds up what it is sent on one page, and shows it as it is on another.
struct Scene {
    gateway: Gateway,
    input: u16,
    admin: u16,
    added: u16,
    plain: u16,
    turn: u64,
}

impl Scene {
    fn start() -> Self {
        let (input, admin, added, plain) = (free_port(), free_port(), free_port(), free_port());
        let gateway = Gateway::start(&format!(
            "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  resource: {{attributes: [{{key: service.instance.id, action: delete}}]}}
  aggregate: {{rules: [{{match: {{name: \"*\"}}, without: []}}]}}
exporters:
  prometheus/added: {{endpoint: \"127.0.0.1:{added}\", namespace: added}}
  prometheus/plain: {{endpoint: \"127.0.0.1:{plain}\", namespace: plain}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics/added: {{receivers: [otlp], processors: [resource, aggregate], exporters: [prometheus/added]}}
    metrics/plain: {{receivers: [otlp], processors: [resource], exporters: [prometheus/plain]}}
"
        ));
        Self {
            gateway,
            input,
            admin,
            added,
            plain,
            turn: 0,
        }
    }

    /// A worker reports its count, `seconds` after the last report of any worker.
    fn report(&mut self, worker: &mut Worker, counted: u64, seconds: u64) {
        worker.counted = counted;
        self.turn += seconds;
        let body = worker.body(EPOCH + self.turn * SECOND);
        let answer = http::post(self.input, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.unwrap().status, 200);
    }

    /// The page and the queries show these totals: added up, and as they came.
    fn shows(&self, added: u64, plain: u64) {
        for (port, namespace, total) in [(self.added, "added", added), (self.plain, "plain", plain)] {
            for name in ["requests_total", "wait_count"] {
                let name = format!("{namespace}_{name}");
                assert_eq!(shown(port, &name), total as f64, "{name}");
                assert_eq!(
                    QueryApi::at(self.admin).value(&name),
                    Some(total as f64),
                    "{name}"
                );
            }
        }
    }

    /// The counter and the histogram count as colliding for this reason and no other.
    fn counts(&self, component: &str, reason: &str) {
        let count = |reason: &str| {
            let labels = [component, &format!("reason=\"{reason}\"")];
            self.gateway
                .own_metric("tidegate_colliding_streams_total", &labels)
        };
        wait_for(SOON, "the collision is counted", || {
            (count(reason) == 2.0).then_some(())
        });
        for other in ["interleaved", "indistinct", "forgotten"] {
            assert!(other == reason || count(other) == 0.0, "{component}: {other}");
        }
    }
}

const ADDED: &str = "processor=\"processors::aggregate@metrics/added\"";
const PLAIN: &str = "exporter=\"prometheus/plain\"";

#[test]
fn processes_of_one_start_time_are_counted_as_indistinct() {
    let mut scene = Scene::start();
    let [mut one, mut two] = [0, 0].map(|counted| Worker {
        start: EPOCH,
        counted,
    });
    // Every fall counts as a restart: the total is too high, and the gateway says so.
    let mut total = 0;
    for count in 1..=8 {
        scene.report(&mut one, count, 1);
        total += count;
        scene.shows(total, count);
        scene.report(&mut two, 100 + count, 1);
        total += 100;
        scene.shows(total, 100 + count);
    }
    for component in [ADDED, PLAIN] {
        scene.counts(component, "indistinct");
    }
    let log = scene.gateway.stop();
    let told = log
        .lines()
        .filter(|line| line.contains("with the same start time or none; its total may be too high"));
    assert!(told.count() >= 2, "{log}");
}

#[test]
fn a_process_that_was_forgotten_adds_what_it_gains_and_is_counted() {
    let mut scene = Scene::start();
    let [mut one, mut two, mut three] = [0, 7, 14].map(|later| Worker {
        start: EPOCH + later,
        counted: 0,
    });
    scene.report(&mut one, 5, 1);
    scene.report(&mut two, 3, 1);
    scene.shows(8, 3);
    // Two hours later a third begins: the first has been silent for too long to be remembered.
    scene.report(&mut three, 2, 2 * 3600);
    scene.shows(10, 2);
    scene.report(&mut one, 9, 1);
    scene.shows(10, 9);
    scene.report(&mut one, 12, 1);
    scene.shows(13, 12);
    scene.counts(ADDED, "forgotten");
    let log = scene.gateway.stop();
    assert!(
        log.contains("a forgotten process reports a series again"),
        "{log}"
    );
}

#[test]
fn a_later_replica_warns_that_senders_may_be_counted_twice() {
    let (input, page) = (free_port(), free_port());
    let config = format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: \"*\"}}, without: []}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  pipelines:
    metrics: {{receivers: [otlp], processors: [aggregate], exporters: [prometheus]}}
"
    );
    for (host, warns) in [("gateway-0", false), ("gateway-1", true)] {
        let gateway = Gateway::start_with(&config, |command| {
            command
                .env("KUBERNETES_SERVICE_HOST", "10.0.0.1")
                .env("HOSTNAME", host);
        });
        let log = gateway.stop();
        assert_eq!(
            log.contains("one of several replicas that aggregate"),
            warns,
            "{log}"
        );
    }
}

/// A report of a process of one service, whose level is 100.
fn level(process: u64, start: SystemTime) -> String {
    let nanos = |time: SystemTime| time.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_nanos() as u64;
    let (start, time) = (nanos(start) + process, nanos(SystemTime::now()));
    let point = format!(r#"{{"asInt":"100","startTimeUnixNano":"{start}","timeUnixNano":"{time}"}}"#);
    let sum = format!(r#"{{"isMonotonic":false,"aggregationTemporality":2,"dataPoints":[{point}]}}"#);
    let service = r#"{"key":"service.name","value":{"stringValue":"web"}}"#;
    format!(
        r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{service}]}},"scopeMetrics":[{{"metrics":[{{"name":"depth","sum":{sum}}}]}}]}}]}}"#
    )
}

#[test]
fn levels_of_processes_under_one_identity_are_one_number_on_every_face() {
    let (input, admin, page) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  composite:
    composites:
      - {{name: depth_of_all, metric: depth, function: last, across: sum}}
      - {{name: processes, metric: depth, function: last, across: count}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\"}}
service:
  extensions: [health_check, admin]
  pipelines:
    metrics: {{receivers: [otlp], processors: [composite], exporters: [prometheus]}}
"
    ));
    let start = SystemTime::now();
    let composite = |name: &str| -> Json {
        let all = http::get(admin, &format!("/api/v1/composites/{name}")).unwrap();
        all.json()[0].clone()
    };
    wait_for(SOON, "three processes add up", || {
        for process in 0..3 {
            let body = level(process, start);
            let answer = http::post(input, "/v1/metrics", "application/json", body.as_bytes());
            assert_eq!(answer.unwrap().status, 200);
        }
        (composite("depth_of_all")["value"].as_f64() == Some(300.0)).then_some(())
    });
    let sum = composite("depth_of_all");
    assert_eq!(
        (&sum["state"], &sum["collision"]),
        (&Json::from("fresh"), &Json::Null)
    );
    wait_for(SOON, "the page shows all", || {
        (shown(page, "depth") == 300.0 && shown(page, "depth_of_all") == 300.0).then_some(())
    });
    for query in ["depth", "depth_of_all"] {
        assert_eq!(QueryApi::at(admin).value(query), Some(300.0), "{query}");
    }
    let mut keda = Keda::at(admin);
    let trigger = |name: &'static str| [("composite", name), ("target", "10")];
    assert_eq!(keda.metric(&trigger("depth_of_all")), Ok(300.0));
    let by_query = [("query", "sum(depth_of_all)"), ("target", "10")];
    assert_eq!(keda.metric(&by_query), Ok(300.0));

    // Their number cannot be known, and no answer claims to know it.
    let count = composite("processes");
    assert_eq!(
        (&count["value"], &count["state"]),
        (&Json::from(1.0), &Json::from("partial"))
    );
    let why = count["collision"].as_str().unwrap();
    assert!(why.contains("service.instance.id"), "{why}");
    let (code, why) = keda.metric(&trigger("processes")).expect_err("a collision");
    assert!(
        code == Code::FailedPrecondition && why.contains("service.instance.id"),
        "{why}"
    );
    gateway.stop();
}
