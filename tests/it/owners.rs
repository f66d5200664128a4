// SPDX-License-Identifier: Apache-2.0

//! Of two processes that come to the same series the living one is seen: on the page, by queries and by KEDA.

use super::kit::keda::Keda;
use super::kit::{Gateway, QueryApi, SOON, free_port, http, wait_until};
use serde_json::Value as Json;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use tonic::Code;

fn now() -> u128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.expect("after 1970").as_nanos()
}

/// A process of a service: its version, and since when it counts.
struct Process {
    version: &'static str,
    host: &'static str,
    start: u128,
}

impl Process {
    fn new(version: &'static str, host: &'static str) -> Self {
        let start = now();
        Self { version, host, start }
    }

    /// Pushes a counter, a gauge and a histogram.
    fn push(&self, port: u16, value: u64) {
        let (start, now) = (self.start, now());
        let attribute =
            |key: &str, value: &str| format!(r#"{{"key":"{key}","value":{{"stringValue":"{value}"}}}}"#);
        let resource = [
            attribute("service.name", "shop"),
            attribute("service.instance.id", "pod-0"),
            attribute("service.version", self.version),
            attribute("host.name", self.host),
        ]
        .join(",");
        let times = format!(r#""startTimeUnixNano":"{start}","timeUnixNano":"{now}""#);
        let body = format!(
            r#"{{"resourceMetrics":[{{"resource":{{"attributes":[{resource}]}},"scopeMetrics":[{{"metrics":[
            {{"name":"req","sum":{{"isMonotonic":true,"aggregationTemporality":2,"dataPoints":[{{"asInt":"{value}",{times}}}]}}}},
            {{"name":"depth","gauge":{{"dataPoints":[{{"asInt":"{value}","timeUnixNano":"{now}"}}]}}}},
            {{"name":"wait","unit":"s","histogram":{{"aggregationTemporality":2,"dataPoints":[{{"count":"{value}","sum":1,"explicitBounds":[1],"bucketCounts":["{value}","0"],{times}}}]}}}}
            ]}}]}}]}}"#
        );
        let answer = http::post(port, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.expect("it lives").status, 200);
    }
}

struct Scene {
    gateway: Gateway,
    input: u16,
    admin: u16,
    scrape: u16,
}

fn start(processors: &str) -> Scene {
    let (input, admin, scrape) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\"}}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{input}\"}}}}}}
processors:
  aggregate: {{rules: [{{match: {{name: \"*\"}}}}]}}
  composite: {{interval: 100ms, composites: [{{name: requests, expr: \"sum(req_total)\"}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{scrape}\"}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [otlp], processors: [{processors}], exporters: [prometheus]}}}}
"
    ));
    Scene {
        gateway,
        input,
        admin,
        scrape,
    }
}

/// The answer to KEDA's query: a value, or the message of the error.
fn scale_by(admin: u16, query: &str) -> Result<f64, String> {
    let answer = Keda::at(admin).metric(&[("query", query), ("target", "10")]);
    answer.map_err(|(_, message)| message)
}

const BY_COMPOSITE: &[(&str, &str)] = &[("composite", "requests"), ("target", "10")];
const BY_QUERY: &[(&str, &str)] = &[("query", "sum(req_total)"), ("target", "10")];
const BY_ITS_GAUGE: &[(&str, &str)] = &[("query", "requests"), ("target", "10")];

/// The series that all of this is about, as pages and queries call them.
const SEEN: [&str; 3] = ["req_total", "depth", "wait_seconds_count"];

impl Scene {
    fn on_page(&self, name: &str) -> Vec<f64> {
        let page = http::get(self.scrape, "/metrics").expect("a page").text();
        let labels = format!("{name}{{");
        let lines = page.lines().filter(|line| line.starts_with(&labels));
        let value = |line: &str| line.rsplit(' ').next().and_then(|value| value.parse().ok());
        lines.filter_map(value).collect()
    }

    /// The answer to a query, and its warnings.
    fn ask(&self, query: &str) -> (Option<f64>, Vec<String>) {
        let answer = QueryApi::at(self.admin).api("/api/v1/query", &[("query", query)]);
        let warnings = answer["warnings"].as_array().cloned().unwrap_or_default();
        let warnings = warnings
            .iter()
            .filter_map(|text| text.as_str().map(str::to_owned));
        let value = answer["data"]["result"][0]["value"][1].as_str();
        (value.and_then(|value| value.parse().ok()), warnings.collect())
    }

    /// All readers see this value of every series.
    fn is_seen(&self, value: f64) -> Result<(), String> {
        for name in SEEN {
            let page = self.on_page(name);
            let (asked, warnings) = self.ask(name);
            let scaler = scale_by(self.admin, &format!("sum({name})"));
            if page != [value] || asked != Some(value) || !warnings.is_empty() || scaler != Ok(value) {
                return Err(format!(
                    "{name} is {page:?}, {asked:?} ({warnings:?}), {scaler:?}, not {value}"
                ));
            }
        }
        Ok(())
    }
}

/// A deploy: the old process ends, and the new one counts from 0 under the same labels.
fn upgrade(processors: &str) {
    let scene = start(processors);
    let old = Process::new("v1", "node-a");
    old.push(scene.input, 5);
    assert_eq!(scene.is_seen(5.0), Ok(()));
    let new = Process::new("v2", "node-b");
    for value in [7, 8, 9] {
        new.push(scene.input, value);
        assert_eq!(scene.is_seen(value as f64), Ok(()), "with {processors:?}");
        let page = http::get(scene.scrape, "/metrics").expect("a page").text();
        let described =
            "target_info{host_name=\"node-b\",instance=\"pod-0\",job=\"shop\",service_version=\"v2\"} 1";
        assert!(page.contains(described), "{page}");
        let asked = scene.ask("target_info{service_version=\"v2\"}").0;
        assert_eq!((asked, scene.ask("count(target_info)").0), (Some(1.0), Some(1.0)));
    }
    scene.gateway.stop();
}

#[test]
fn an_upgrade_never_freezes_what_is_shown() {
    upgrade("");
}

#[test]
fn an_upgrade_never_freezes_what_is_shown_of_an_aggregate() {
    upgrade("aggregate");
}

#[test]
fn two_live_processes_show_the_first_and_report_the_other() {
    for processors in ["", "aggregate"] {
        let scene = start(processors);
        let (one, two) = (Process::new("v1", "node-a"), Process::new("v1", "node-b"));
        let deadline = Instant::now() + SOON;
        for round in 1.. {
            one.push(scene.input, round);
            two.push(scene.input, 100 + round);
            for name in SEEN {
                assert_eq!(scene.on_page(name), [round as f64], "{name}");
                let (value, warnings) = scene.ask(&format!("sum({name})"));
                assert_eq!(value, Some(round as f64), "{name}");
                let warning = warnings.first().expect("a warning");
                assert!(
                    warning.contains("is omitted") && warning.contains("differs in host.name"),
                    "{warning}"
                );
                let refused = scale_by(scene.admin, name).expect_err("a part is not a value to scale by");
                assert!(refused.contains("host.name"), "{refused}");
            }
            let debug = http::get(scene.scrape, "/debug").expect("a page").json();
            let omitted = debug["omitted"].as_array().expect("a list").clone();
            let why = omitted[0]["why"].as_str().expect("a text");
            assert_eq!(omitted.len(), 3, "{debug}");
            assert!(
                why.contains("they differ in host.name: make one of these a label"),
                "{why}"
            );
            assert_eq!(omitted[0]["reason"], "ambiguous_identity");
            let counted = scene.gateway.own_metric(
                "tidegate_prometheus_omitted_series",
                &["reason=\"ambiguous_identity\""],
            );
            if round > 2 && counted == 3.0 {
                break;
            }
            assert!(Instant::now() < deadline, "{counted} are counted");
            std::thread::sleep(Duration::from_millis(300));
        }
        let log = scene.gateway.stop();
        let line = log
            .lines()
            .find(|line| line.contains("omitted from the exposition"))
            .expect("a line");
        assert!(line.contains("WARN") && line.contains("host.name"), "{line}");
        // The first one ends: after its lease the other is seen.
    }
}

#[test]
fn a_value_without_a_live_series_is_partial_and_scales_only_if_allowed() {
    for processors in ["composite", "composite, aggregate"] {
        let scene = start(processors);
        let (one, two) = (Process::new("v1", "node-a"), Process::new("v1", "node-b"));
        let mut keda = Keda::at(scene.admin);
        one.push(scene.input, 5);
        wait_until(SOON, "the value", || keda.metric(BY_COMPOSITE) == Ok(5.0));
        assert_eq!(keda.metric(BY_ITS_GAUGE), Ok(5.0));
        let mut activity = keda.activity(BY_COMPOSITE);
        assert_eq!(keda.next(&mut activity, SOON), Some(true));
        two.push(scene.input, 7);
        let composite = || {
            let page = http::get(scene.admin, "/api/v1/composites/requests").expect("an answer");
            page.json()[0].clone()
        };
        wait_until(SOON, "the state", || composite()["state"] == "partial");
        let shown = composite();
        assert_eq!((&shown["value"], &shown["error"]), (&5.0.into(), &Json::Null));
        let why = shown["collision"].as_str().expect("a text");
        assert!(
            why.contains("req_total") && why.contains("differs in host.name"),
            "{why}"
        );
        for trigger in [BY_COMPOSITE, BY_QUERY, BY_ITS_GAUGE] {
            for (on_partial, is_used) in [(None, false), (Some("use"), true), (Some("error"), false)] {
                let on_partial = on_partial.map(|word| ("onPartial", word));
                let trigger: Vec<_> = trigger.iter().copied().chain(on_partial).collect();
                match keda.metric(&trigger) {
                    Ok(value) => assert!(is_used && value == 5.0, "{trigger:?}: {value}"),
                    Err((code, why)) => {
                        assert!(!is_used && code == Code::FailedPrecondition, "{trigger:?}: {why}");
                        assert!(why.contains("host.name"), "{trigger:?}: {why}");
                    }
                }
                assert_eq!(
                    keda.is_active(&trigger).ok(),
                    is_used.then_some(true),
                    "{trigger:?}"
                );
            }
        }
        let said = keda.next(&mut activity, Duration::from_millis(200));
        assert_eq!(said, None, "the last word stays");
        let (value, warnings) = scene.ask("requests");
        assert_eq!(value, Some(5.0));
        assert!(
            warnings.iter().any(
                |text| text.contains("the composite `requests` is partial") && text.contains("host.name")
            ),
            "{warnings:?}"
        );
        wait_until(SOON, "the exporter shows it", || {
            let page = http::get(scene.scrape, "/metrics").expect("a page").text();
            page.lines().any(|line| line == "requests 5")
        });
        scene.gateway.stop();
    }
}

#[test]
fn one_that_has_gone_quiet_gives_way() {
    let scene = start("");
    let (one, two) = (Process::new("v1", "node-a"), Process::new("v1", "node-b"));
    for round in 1..5 {
        one.push(scene.input, round);
        two.push(scene.input, 100 + round);
        std::thread::sleep(Duration::from_millis(1200));
    }
    assert_eq!(scene.ask("req_total").0, Some(4.0));
    // It has pushed every 1.2 s: after 5 s it is quiet.
    let deadline = Instant::now() + SOON;
    let mut value = 200;
    loop {
        value += 1;
        two.push(scene.input, value);
        match scene.is_seen(value as f64) {
            Ok(()) if scene.ask("req_total").1.is_empty() => break,
            Ok(()) => {}
            Err(why) => assert!(Instant::now() < deadline, "{why}"),
        }
        std::thread::sleep(Duration::from_millis(200));
    }
    scene.gateway.stop();
}
