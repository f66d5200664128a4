// SPDX-License-Identifier: Apache-2.0

//! Rules on live data: alerts at Alertmanagers and in the API, recorded series in queries and on the page, restarts and
//! reloads.

use super::kit::gateway::tidegate;
use super::kit::{
    Alertmanager, Answer, Gateway, HttpPeer, SOON, Target, free_port, http, wait_for, wait_until,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
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
        let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock");
        let body = json!({"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "depth", "gauge": {"dataPoints": [
            {"asDouble": depth, "timeUnixNano": now.as_nanos().to_string(),
             "attributes": [{"key": "zone", "value": {"stringValue": zone}}]}
        ]}}]}]}]});
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

/// The alerts of all requests to an Alertmanager.
fn received(peer: &HttpPeer) -> Vec<(Instant, Value)> {
    let requests = peer.seen().into_iter();
    let alerts = requests.flat_map(|request| {
        assert!(
            request.line.starts_with("POST /am/api/v2/alerts "),
            "{}",
            request.line
        );
        let alerts: Vec<Value> = serde_json::from_slice(&request.body).expect("a list of alerts");
        alerts.into_iter().map(move |alert| (request.at, alert))
    });
    alerts.collect()
}

/// Now, as alerts have times.
fn now() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

#[test]
fn alerts_reach_two_alertmanagers_of_which_one_comes_late() {
    let (first, late) = (HttpPeer::start(), free_port());
    let scene = Scene::new(&rules("500ms")).with(&format!(
        "alertmanagers: [{{endpoint: \"http://127.0.0.1:{}\", path_prefix: /am/}}, {{endpoint: \"http://127.0.0.1:{late}\"}}]",
        first.port()
    ));
    let gateway = scene.start();
    scene.send("x", 3.0);
    wait_until(SOON, "the series is recorded", || {
        scene.value("zone:depth:max").as_deref() == Some("3")
    });
    assert!(received(&first).is_empty(), "nothing fires");
    scene.send("x", 9.0);
    let pending = scene.wait_for_alert("x", "pending");
    assert_eq!(pending["annotations"]["summary"], "x has 9");
    assert_eq!(pending["value"], "9e+00");
    scene.wait_for_alert("x", "firing");
    let (_, firing) = wait_for(SOON, "the first Alertmanager has it", || {
        received(&first).into_iter().next()
    });
    let labels = json!({"alertname": "Deep", "zone": "x", "severity": "page", "cluster": "c1"});
    assert_eq!(firing["labels"], labels);
    assert_eq!(firing["annotations"]["summary"], "x has 9");
    assert!(firing["endsAt"].as_str() > Some(&*now()), "{firing}");
    let url = firing["generatorURL"].as_str().expect("a URL");
    assert!(
        url.starts_with("http://gateway.example:8080/graph?g0.expr=zone%3Adepth%3Amax"),
        "{url}"
    );
    let shown = format!("alertmanager=\"http://127.0.0.1:{late}/api/v2/alerts\"");
    wait_until(SOON, "the second one fails", || {
        gateway.own_metric("tidegate_alert_errors_total", &[&shown]) > 0.0
    });
    assert_eq!(gateway.own_metric("tidegate_alerts_waiting", &[&shown]), 1.0);
    let late = Alertmanager::start_at(late);
    wait_until(SOON, "the second one has the alert", || !late.alerts().is_empty());
    assert_eq!(late.alerts()[0]["labels"], labels);
    scene.send("x", 1.0);
    wait_until(SOON, "the first one hears of the end", || {
        let now = now();
        let last = received(&first).pop();
        last.is_some_and(|(_, alert)| alert["endsAt"].as_str() <= Some(&*now))
    });
    wait_until(SOON, "the second one hears of the end", || {
        late.alerts().is_empty()
    });
    assert_eq!(gateway.own_metric("tidegate_alerts_dropped_total", &[]), 0.0);
    gateway.stop();
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

/// Seconds since an alert became active.
fn active_for(alert: &Value) -> f64 {
    let since = alert["activeAt"].as_str().expect("a time");
    let since = humantime::parse_rfc3339(since).expect("a time");
    SystemTime::now()
        .duration_since(since)
        .map_or(0.0, |time| time.as_secs_f64())
}

#[test]
fn a_restart_with_storage_keeps_the_time_of_for() {
    /// Longer than a gateway takes to start.
    const PENDING_SECONDS: f64 = 8.0;
    let scene = Scene::new(&rules("1h")).with("storage: file_storage");
    let gateway = scene.start();
    scene.send("x", 9.0);
    wait_until(SOON, "the alert is pending for some seconds", || {
        scene
            .alert("x")
            .is_some_and(|alert| active_for(&alert) > PENDING_SECONDS)
    });
    gateway.kill();
    // A run in which the series does not come: the alert waits, and outlasts it.
    let gateway = scene.start();
    wait_until(SOON, "the rules have run", || {
        scene.get("/api/v1/rules")["groups"][0]["rules"][1]["health"] == "ok"
    });
    assert!(scene.alerts().is_empty(), "its series is not there");
    gateway.stop();
    let started = Instant::now();
    let gateway = scene.start();
    scene.send("x", 9.0);
    let alert = scene.wait_for_alert("x", "pending");
    // Alerts are kept every second. Without them, the alert would be younger than the gateway.
    let age = started.elapsed().as_secs_f64();
    assert!(active_for(&alert) > age, "`for` began again: {alert}");
    gateway.stop();
}

#[test]
fn a_reload_keeps_alerts_of_equal_rules_and_takes_new_rules() {
    let scene = Scene::new(&rules("1h"));
    let gateway = scene.start();
    scene.send("x", 9.0);
    let before = scene.wait_for_alert("x", "pending");
    let unchanged = scene.reload(&gateway);
    assert_eq!(unchanged["success"], true, "{unchanged}");
    assert_eq!(unchanged["changed"], json!([]), "nothing is built again");
    scene.write(&(rules("1h") + "  - record: zones\n    expr: count(depth)\n"));
    let result = scene.reload(&gateway);
    assert_eq!(result["success"], true, "{result}");
    wait_until(SOON, "the new rule records", || {
        scene.value("zones").as_deref() == Some("1")
    });
    let after = scene.wait_for_alert("x", "pending");
    assert_eq!(after["activeAt"], before["activeAt"]);
    assert_eq!(scene.value("zone:depth:max").as_deref(), Some("9"));
    scene.write("groups:\n- name: web\n  rules:\n  - alert: Broken\n    expr: sum(\n");
    let broken = scene.reload(&gateway);
    assert_eq!(broken["success"], false, "{broken}");
    let error = broken["error"].as_str().expect("a text");
    assert!(error.contains("web.yaml:5"), "{error}");
    let still = scene.wait_for_alert("x", "pending");
    assert_eq!(still["activeAt"], before["activeAt"]);
    scene.write("groups: []\n");
    assert_eq!(scene.reload(&gateway)["success"], true);
    wait_until(SOON, "the series of removed rules end", || {
        scene.alerts().is_empty() && scene.value("zone:depth:max").is_none()
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
        assert_ne!(code, Some(0), "{said}");
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

#[test]
fn alerts_of_a_dead_target_are_unknown_until_it_is_back() {
    let page = |depth: u32| Answer::text(&format!("# TYPE depth gauge\ndepth{{zone=\"x\"}} {depth}\n"));
    let target = Target::start();
    target.answer("/metrics", page(9));
    let rules = "groups: [{name: web, rules: [{alert: Deep, expr: depth > 5}]}]\n";
    let scene = Scene::new(rules).with("stale: unknown");
    let scrape = format!(
        "receivers:
  prometheus:
    config:
      global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
      scrape_configs: [{{job_name: web, static_configs: [{{targets: [\"{}\"]}}]}}]
",
        target.address()
    );
    let config = scene.config().replace("receivers:\n", &scrape);
    let gateway = Gateway::start(&config.replace("[otlp]", "[otlp, prometheus]"));
    let firing = scene.wait_for_alert("x", "firing");
    let broken = Answer {
        status: 500,
        ..Answer::default()
    };
    target.answer("/metrics", broken);
    let is_unknown = |alert: &Value| alert["labels"]["state"] == "unknown";
    wait_until(SOON, "an alert says that the state is unknown", || {
        scene.alerts().iter().any(is_unknown)
    });
    let still = scene.wait_for_alert("x", "firing");
    assert_eq!(
        still["activeAt"], firing["activeAt"],
        "it has not resolved in between"
    );
    // The rules that a reload brings know of the dead source too.
    scene.write(&rules.replace("rules: [", "rules: [{record: ones, expr: vector(1)}, "));
    let result = scene.reload(&gateway);
    assert_eq!(result["success"], true, "{result}");
    wait_until(SOON, "the new rule records", || {
        scene.value("ones").as_deref() == Some("1")
    });
    let still = scene.wait_for_alert("x", "firing");
    assert_eq!(still["activeAt"], firing["activeAt"], "the reload keeps it");
    target.answer("/metrics", page(1));
    wait_until(SOON, "the alert resolves with its source", || {
        scene.alerts().is_empty()
    });
    gateway.stop();
}

#[test]
fn an_event_reaches_the_alertmanager_soon_at_an_interval_of_100_ms() {
    const EVENTS: usize = 100;
    const LIMIT: Duration = Duration::from_millis(250);
    let peer = HttpPeer::start();
    let scene = Scene::new(&rules("0s")).with(&format!(
        "alertmanagers: [{{endpoint: \"http://127.0.0.1:{}\", path_prefix: am}}]",
        peer.port()
    ));
    let gateway = scene.start();
    let mut times: Vec<Duration> = (0..EVENTS)
        .map(|event| {
            let zone = format!("zone{event}");
            let sent = Instant::now();
            scene.send(&zone, 9.0);
            let arrived = wait_for(SOON, "the alert arrives", || {
                let mut all = received(&peer).into_iter();
                let found = all.find(|(_, alert)| alert["labels"]["zone"] == *zone);
                found.map(|(at, _)| at)
            });
            arrived - sent
        })
        .collect();
    times.sort();
    let (median, p99) = (times[EVENTS / 2], times[EVENTS * 99 / 100 - 1]);
    // Past the capture of the test runner, so that every run shows the figures.
    let most = times[EVENTS - 1];
    let report = format!("from an event to its alert: median {median:?}, p99 {p99:?}, most {most:?}");
    let mut stderr = std::io::stderr();
    writeln!(stderr, "{report}").expect("standard error");
    assert!(median < LIMIT, "{report}: {times:?}");
    // Without optimisation, and beside other tests, single events may wait for a processor.
    if !cfg!(debug_assertions) {
        assert!(p99 < LIMIT, "{report}: {times:?}");
    }
    gateway.stop();
}
