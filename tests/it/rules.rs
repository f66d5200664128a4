// SPDX-License-Identifier: Apache-2.0

//! Rules on live data: alerts at Alertmanagers and in the API, recorded series in queries and on the page, restarts and
//! reloads.

mod continuity;
mod delivery;
mod history;
mod peers;

use super::kit::gateway::tidegate;
use super::kit::{Gateway, SOON, free_port, http, wait_for, wait_until};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};
use tempfile::TempDir;

/// A gateway with rules, and what it reads and writes.
struct Scene {
    directory: TempDir,
    input: u16,
    admin: u16,
    page: u16,
    /// More options of the extension.
    options: String,
}

impl Scene {
    fn new(rules: &str) -> Self {
        let scene = Self {
            directory: TempDir::new().expect("a temporary directory"),
            input: free_port(),
            admin: free_port(),
            page: free_port(),
            options: String::new(),
        };
        scene.write(rules);
        scene
    }

    fn with(mut self, options: &str) -> Self {
        self.options = options.to_owned();
        self
    }

    fn rule_file(&self) -> PathBuf {
        self.directory.path().join("web.yaml")
    }

    fn write(&self, rules: &str) {
        fs::write(self.rule_file(), rules).expect("a file of the test");
    }

    fn config(&self) -> String {
        let directory = self.directory.path().display();
        format!(
            "extensions:
  admin: {{endpoint: \"127.0.0.1:{}\", history: {{interval: 100ms, retention: 1m}}}}
  file_storage: {{directory: \"{directory}/storage\", create_directory: true}}
  rules:
    files: [\"{directory}/*.yaml\"]
    interval: 100ms
    external_labels: {{cluster: c1}}
    external_url: http://gateway.example:8080/
    {}
receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{}\"}}}}}}
  rules: {{}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{}\"}}
service:
  extensions: [health_check, file_storage, admin, rules]
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus]}}
    metrics/rules: {{receivers: [rules], exporters: [prometheus]}}
",
            self.admin, self.options, self.input, self.page
        )
    }

    fn start(&self) -> Gateway {
        Gateway::start(&self.config())
    }

    /// Sends a gauge.
    fn send(&self, zone: &str, depth: f64) {
        self.send_from(None, zone, depth);
    }

    /// Sends a gauge, of this service.
    fn send_from(&self, service: Option<&str>, zone: &str, depth: f64) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let mut body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "depth", "gauge": {"dataPoints": [
            {"asDouble": depth, "timeUnixNano": now.as_nanos().to_string(),
             "attributes": [{"key": "zone", "value": {"stringValue": zone}}]}
        ]}}]}]}]});
        if let Some(service) = service {
            let name = json!({"key": "service.name", "value": {"stringValue": service}});
            body["resourceMetrics"][0]["resource"] = json!({"attributes": [name]});
        }
        let body = body.to_string();
        let answer = http::post(self.input, "/v1/metrics", "application/json", body.as_bytes());
        assert_eq!(answer.expect("an answer").status, 200);
    }

    fn get(&self, path: &str) -> Value {
        let answer = http::get(self.admin, path).expect("an answer");
        assert_eq!(answer.status, 200, "{path}: {}", answer.text());
        answer.json()["data"].clone()
    }

    fn alerts(&self) -> Vec<Value> {
        let data = self.get("/api/v1/alerts");
        data["alerts"].as_array().cloned().expect("a list")
    }

    /// The alert `Deep` of a zone.
    fn alert(&self, zone: &str) -> Option<Value> {
        let mut alerts = self.alerts().into_iter();
        alerts.find(|alert| alert["labels"]["alertname"] == "Deep" && alert["labels"]["zone"] == zone)
    }

    fn wait_for_alert(&self, zone: &str, state: &str) -> Value {
        wait_for(SOON, &format!("the alert of {zone} is {state}"), || {
            self.alert(zone).filter(|alert| alert["state"] == state)
        })
    }

    /// The value of a query with one series.
    fn value(&self, query: &str) -> Option<String> {
        let data = self.get(&format!("/api/v1/query?query={query}"));
        data["result"][0]["value"][1].as_str().map(str::to_owned)
    }

    /// The page of the exporter.
    fn page(&self) -> String {
        http::get(self.page, "/metrics").expect("a page").text()
    }

    /// Sends SIGHUP, and returns the result of the reload.
    fn reload(&self, gateway: &Gateway) -> Value {
        let newest = || self.get("/api/v1/status/config")["reloads"][0].clone();
        let last = newest();
        gateway.signal(Signal::HUP);
        wait_for(SOON, "the reload is over", || {
            Some(newest()).filter(|newest| *newest != last)
        })
    }
}

/// A group that records the deepest queue of each zone, and alerts if it is deeper than 5 for a time.
fn rules(hold: &str) -> String {
    format!(
        "groups:
- name: web
  rules:
  - record: zone:depth:max
    expr: max by (zone) (depth)
  - alert: Deep
    expr: zone:depth:max > 5
    for: {hold}
    labels: {{severity: page}}
    annotations: {{summary: \"{{{{ $labels.zone }}}} has {{{{ $value }}}}\"}}
"
    )
}

#[test]
fn rules_and_alerts_are_shown_as_prometheus_shows_them() {
    let scene = Scene::new(&rules("0s"));
    let gateway = scene.start();
    scene.send("x", 9.0);
    scene.wait_for_alert("x", "firing");
    let groups = scene.get("/api/v1/rules")["groups"].clone();
    let group = &groups[0];
    assert_eq!(group["name"], "web");
    assert_eq!(group["file"], scene.rule_file().display().to_string());
    assert_eq!(group["interval"], 0.1);
    assert_eq!(group["limit"], 0);
    let [record, alert] = [&group["rules"][0], &group["rules"][1]];
    assert_eq!([&record["type"], &record["health"]], ["recording", "ok"]);
    assert_eq!(record["query"], "max by (zone) (depth)");
    assert_eq!(
        [&alert["type"], &alert["state"], &alert["health"]],
        ["alerting", "firing", "ok"]
    );
    assert_eq!(alert["duration"], 0.0);
    assert_eq!(alert["alerts"][0]["labels"]["zone"], "x");
    assert!(alert["evaluationTime"].as_f64() > Some(0.0));
    let names = |query: &str| -> Vec<String> {
        let data = scene.get(&format!("/api/v1/rules?{query}"));
        let groups = data["groups"].as_array().cloned().expect("a list");
        let rules = groups
            .iter()
            .flat_map(|group| group["rules"].as_array().expect("a list"));
        rules
            .map(|rule| rule["name"].as_str().expect("a name").to_owned())
            .collect()
    };
    let both = ["zone:depth:max", "Deep"];
    let table: [(&str, &[&str]); 7] = [
        ("", &both),
        ("type=alert", &both[1..]),
        ("type=record", &both[..1]),
        ("rule_name[]=Deep&rule_name[]=other", &both[1..]),
        ("rule_group[]=other", &[]),
        ("file[]=other.yaml", &[]),
        ("match[]=%7Bseverity%3D%22page%22%7D", &both[1..]),
    ];
    for (query, expected) in table {
        assert_eq!(names(query), expected, "{query}");
    }
    let without = scene.get("/api/v1/rules?exclude_alerts=true&type=alert")["groups"].clone();
    assert_eq!(without[0]["rules"][0]["alerts"], json!([]));
    let page = "/api/v1/rules?exclude_alerts=perhaps";
    assert_eq!(http::get(scene.admin, page).expect("an answer").status, 400);
    assert_eq!(
        scene.get("/api/v1/alertmanagers")["activeAlertmanagers"],
        json!([])
    );
    gateway.stop();
}

#[test]
fn recorded_series_are_in_queries_and_on_the_page_until_their_inputs_go() {
    let scene = Scene::new(&rules("0s"));
    let gateway = scene.start();
    scene.send("x", 7.0);
    wait_until(SOON, "the series is on the page", || {
        scene.page().contains("zone:depth:max{zone=\"x\"} 7\n")
    });
    let count = scene.page().matches("\nzone:depth:max{").count();
    assert_eq!(
        count,
        1,
        "the table is shown, and no copy of it: {}",
        scene.page()
    );
    assert_eq!(scene.value("sum(zone:depth:max)").as_deref(), Some("7"));
    wait_until(SOON, "alerts are series too", || {
        scene.value("ALERTS%7Balertstate=%22firing%22%7D").as_deref() == Some("1")
    });
    wait_until(SOON, "its past is kept", || {
        let count = scene.value("count_over_time(zone:depth:max[10s])");
        count.is_some_and(|count| count.parse::<f64>().expect("a number") >= 2.0)
    });
    scene.send("x", 1.0);
    wait_until(SOON, "the alert's series ends", || {
        scene.value("ALERTS").is_none()
    });
    assert!(gateway.own_metric("tidegate_rule_evaluations_total", &["rule_group="]) > 0.0);
    assert_eq!(
        gateway.own_metric("tidegate_rule_evaluation_failures_total", &[]),
        0.0
    );
    gateway.stop();
}

#[test]
fn a_rule_over_series_without_a_past_names_the_option_of_the_history() {
    let scene = Scene::new(
        "groups:\n- name: web\n  rules:\n  - record: depth:max\n    expr: max_over_time(depth[10s])\n",
    );
    let config = scene
        .config()
        .replace("history: {", "history: {rules: [{name: other}], ");
    let gateway = Gateway::start(&config);
    scene.send("x", 9.0);
    let failed = wait_for(SOON, "the rule fails", || {
        let rule = scene.get("/api/v1/rules")["groups"][0]["rules"][0].clone();
        (rule["health"] == "err").then_some(rule)
    });
    let error = failed["lastError"].as_str().expect("a text");
    assert!(
        error.contains("`depth` has no past: no rule of `history::rules` matches it"),
        "{error}"
    );
    wait_until(SOON, "the failure is counted", || {
        gateway.own_metric("tidegate_rule_evaluation_failures_total", &[]) > 0.0
    });
    gateway.stop();
}

#[test]
fn run_and_validate_refuse_broken_rules_and_rules_that_reach_too_far() {
    let table = [
        (
            "groups:\n- name: web\n  rules:\n  - alert: Broken\n    expr: sum(\n",
            ["web.yaml:5", "error"],
        ),
        (
            "groups:\n- name: web\n  rules:\n  - record: far\n    expr: rate(hits_total[1h])\n",
            ["web.yaml:4: rule `far`", "`history::retention`"],
        ),
    ];
    for (text, parts) in table {
        let scene = Scene::new(text);
        let (code, said) = Gateway::launch(&scene.config(), |_| {}).wait(SOON);
        assert_eq!(code, Some(1), "{said}");
        let checked = tidegate()
            .args(["validate", "--config", &format!("yaml:{}", scene.config())])
            .args(["--set", "extensions.health_check.endpoint=127.0.0.1:1"])
            .output()
            .expect("it starts");
        let found = String::from_utf8_lossy(&checked.stderr);
        assert_eq!(checked.status.code(), Some(1), "{found}");
        for part in parts {
            assert!(said.contains(part), "{part}: {said}");
            assert!(found.contains(part), "{part}: {found}");
        }
    }
}
