// SPDX-License-Identifier: Apache-2.0

//! An Alertmanager that only takes known senders over TLS: tidegate beside a Prometheus server with the same rules and
//! the same targets, and senders that it refuses.

use super::kit::alertmanager::{PASSWORD, USER};
use super::kit::proxy::{Fault, Proxy};
use super::kit::query_api::Sample;
use super::kit::{
    Alertmanager, Answer, Authority, Gateway, Prometheus, QueryApi, Release, SOON, Target, free_port,
    last_answer, wait_for, wait_until,
};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use tempfile::TempDir;

/// The same file for both.
const RULES: &str = r#"groups:
- name: web
  interval: 200ms
  rules:
  - record: zone:depth:max
    expr: max by (zone) (depth)
  - record: zone:depth:share
    expr: sum by (zone) (depth) / ignoring (zone) group_left () sum(depth)
    labels: {unit: ratio}
  - record: job:duration:p90
    expr: histogram_quantile(0.9, sum by (job, le) (duration_seconds_bucket))
  - record: zone:depth:max_2s
    expr: max_over_time(zone:depth:max[2s])
  - alert: Deep
    expr: zone:depth:max > 5
    for: 400ms
    labels: {severity: page, upper: "{{ $labels.zone | toUpper }}"}
    annotations:
      summary: "{{ $labels.zone }} has {{ $value | humanize }} of {{ with query \"sum(depth)\" }}{{ . | first | value }}{{ end }}"
      share: "{{ printf \"zone:depth:share{zone=%q}\" $labels.zone | query | first | value | humanizePercentage }}"
  - alert: Slow
    expr: job:duration:p90 > 0.5
    keep_firing_for: 600ms
    labels: {severity: ticket}
    annotations: {summary: "{{ $labels.job }} takes {{ $value | humanizeDuration }}"}
- name: always
  interval: 300ms
  rules:
  - alert: Watchdog
    expr: vector(1)
    labels: {severity: none}
"#;

/// What both do with alerts before they leave.
const RELABELLING: &str = "[{action: drop, source_labels: [severity], regex: none}, \
     {action: labeldrop, regex: upper}, {source_labels: [severity], target_label: route, replacement: to-$1}]";

/// The series that [`RULES`] record, and how many they are on a page with three zones.
const RECORDED: (&str, usize) = ("{__name__=~\".+:.+\"}", 10);

/// Alerts that fire on [`busy_page`], and those of them that reach the Alertmanager.
const FIRING: usize = 4;
const HELD: usize = 3;

const EVALUATORS: [&str; 2] = ["prometheus", "tidegate"];

/// A page with the depths of two zones, and the number of requests that took at most half a second of a hundred.
fn page(depths: [f64; 2], fast: u32) -> Answer {
    let [x, y] = depths;
    Answer::text(&format!(
        "# TYPE depth gauge
depth{{zone=\"x\"}} {x}
depth{{zone=\"y\"}} {y}
depth{{zone=\"z\"}} 3
# TYPE duration_seconds histogram
duration_seconds_bucket{{le=\"0.1\"}} 10
duration_seconds_bucket{{le=\"0.5\"}} {fast}
duration_seconds_bucket{{le=\"2\"}} 100
duration_seconds_bucket{{le=\"+Inf\"}} 100
duration_seconds_sum 55
duration_seconds_count 100
"
    ))
}

fn busy_page() -> Answer {
    page([9.0, 7.25], 60)
}

fn calm_page() -> Answer {
    page([1.0, 2.0], 99)
}

/// The `global` and `scrape_configs` of both.
fn scrapes(target: &Target, more: &str) -> String {
    format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms{more}}}, \
         scrape_configs: [{{job_name: web, static_configs: [{{targets: [\"{}\"]}}]}}]",
        target.address()
    )
}

fn prometheus(target: &Target, rules: &Path, alertmanager: &Alertmanager) -> Prometheus {
    let config = format!(
        "{{{}, rule_files: [{rules:?}], alerting: {{alert_relabel_configs: {RELABELLING}, alertmanagers: [{{scheme: https, \
         basic_auth: {{username: {USER}, password: {PASSWORD}}}, tls_config: {{ca_file: {:?}}}, \
         static_configs: [{{targets: [\"localhost:{}\"]}}]}}]}}}}",
        scrapes(target, ", external_labels: {evaluator: prometheus}"),
        alertmanager.authority(),
        alertmanager.port()
    );
    // It loses the alerts that fire before it knows the Alertmanager, and sends them again after this time.
    Prometheus::start_with(Release::Newest, &config, &["--rules.alert.resend-delay=5s"])
}

/// tidegate, and its queries.
fn gateway(target: &Target, rules: &Path, alertmanager: &Alertmanager) -> (Gateway, QueryApi) {
    let admin = free_port();
    let gateway = Gateway::start(&format!(
        "extensions:
  admin: {{endpoint: \"127.0.0.1:{admin}\", history: {{interval: 100ms, retention: 1m}}}}
  basicauth/am: {{client_auth: {{username: {USER}, password: {PASSWORD}}}}}
  rules:
    files: [{rules:?}]
    resend_delay: 10m
    external_labels: {{evaluator: tidegate}}
    alert_relabel_configs: {RELABELLING}
    alertmanagers:
      - endpoint: \"https://localhost:{}\"
        tls: {{ca_file: {:?}}}
        auth: {{authenticator: basicauth/am}}
receivers:
  prometheus: {{config: {{{}}}}}
  rules: {{}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\"}}}}
service:
  extensions: [health_check, basicauth/am, admin, rules]
  pipelines:
    metrics: {{receivers: [prometheus], exporters: [prometheus]}}
    metrics/rules: {{receivers: [rules], exporters: [prometheus]}}
",
        alertmanager.port(),
        alertmanager.authority(),
        scrapes(target, "")
    ));
    (gateway, QueryApi::at(admin))
}

/// The labels and annotations of the alerts of an evaluator, without its name.
fn held(alertmanager: &Alertmanager, evaluator: &str) -> Vec<String> {
    let mut held = Vec::new();
    for alert in alertmanager.alerts() {
        let mut labels = alert["labels"].as_object().cloned().expect("labels");
        if labels.remove("evaluator") == Some(json!(evaluator)) {
            held.push(json!([labels, alert["annotations"]]).to_string());
        }
    }
    held.sort();
    held
}

/// The series that a query gives, in the order of their labels.
fn series(api: &QueryApi, query: &str) -> Vec<Sample> {
    let mut samples = api.query(query);
    samples.sort_by(|one, other| one.labels.cmp(&other.labels));
    samples
}

/// The alerts of a list in the order of their fields, without their times.
fn timeless(alerts: &[Value]) -> Vec<Value> {
    let alerts = alerts.iter().map(|alert| {
        let value = alert["value"].as_str().expect("a text");
        let value: f64 = value.parse().expect("a number");
        json!({
            "labels": alert["labels"], "annotations": alert["annotations"], "state": alert["state"], "value": value,
        })
    });
    let mut alerts: Vec<Value> = alerts.collect();
    alerts.sort_by_key(ToString::to_string);
    alerts
}

/// A rule as dashboards read it, without its times. An evaluator may leave empty labels out.
fn shown_rule(rule: &Value) -> Value {
    json!({
        "name": rule["name"], "query": rule["query"], "type": rule["type"], "health": rule["health"],
        "labels": rule["labels"].as_object().cloned().unwrap_or_default(),
        "annotations": rule["annotations"], "state": rule["state"],
        "duration": rule["duration"].as_f64(), "keepFiringFor": rule["keepFiringFor"].as_f64(),
        "alerts": rule["alerts"].as_array().map(|alerts| timeless(alerts)),
    })
}

/// The groups of rules in the order of their names.
fn shown_groups(api: &QueryApi) -> Vec<Value> {
    let data = api.get("/api/v1/rules", &[]);
    let groups = data["groups"].as_array().expect("a list").iter();
    let groups = groups.map(|group| {
        let rules = group["rules"].as_array().expect("a list").iter();
        let rules: Vec<Value> = rules.map(shown_rule).collect();
        let interval = group["interval"].as_f64();
        json!({"file": group["file"], "interval": interval, "limit": group["limit"], "name": group["name"], "rules": rules})
    });
    let mut groups: Vec<Value> = groups.collect();
    groups.sort_by_key(|group| group["name"].to_string());
    groups
}

/// The alerts of all rules.
fn shown_alerts(api: &QueryApi) -> Vec<Value> {
    let data = api.get("/api/v1/alerts", &[]);
    timeless(data["alerts"].as_array().expect("a list"))
}

/// Checks that both show the same rules and alerts while all alerts fire.
fn show_the_same(api: &QueryApi, server: &QueryApi) {
    let fires = |api: &QueryApi| {
        let alerts = shown_alerts(api);
        alerts.len() == FIRING && alerts.iter().all(|alert| alert["state"] == "firing")
    };
    let shown = |api: &QueryApi| (shown_alerts(api), shown_groups(api));
    let [of_tidegate, of_prometheus] = last_answer(
        || [shown(api), shown(server)],
        |[ours, theirs]| ours == theirs && fires(api) && fires(server),
    );
    assert_eq!(of_tidegate, of_prometheus);
    let (alerts, groups) = of_prometheus;
    assert_eq!((alerts.len(), groups.len()), (FIRING, 2), "{groups:?}");
}

#[test]
fn tidegate_and_prometheus_send_equal_alerts_and_record_equal_series() {
    let target = Target::start();
    target.answer("/metrics", busy_page());
    let directory = TempDir::new().expect("a temporary directory");
    let rules = directory.path().join("web.yaml");
    fs::write(&rules, RULES).expect("a file of the test");
    let alertmanager = Alertmanager::start_guarded();
    let server = prometheus(&target, &rules, &alertmanager);
    let (gateway, api) = gateway(&target, &rules, &alertmanager);

    let [of_prometheus, of_tidegate] = wait_for(SOON, "both have sent all alerts", || {
        let of_both = EVALUATORS.map(|evaluator| held(&alertmanager, evaluator));
        of_both.iter().all(|held| held.len() == HELD).then_some(of_both)
    });
    assert_eq!(of_tidegate, of_prometheus);
    let all = of_tidegate.concat();
    for part in [
        "\"route\":\"to-page\"",
        "y has 7.25 of 19.25",
        "46.75%",
        "web takes 1.625s",
    ] {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert!(!all.contains("Watchdog") && !all.contains("upper"), "{all}");

    // The API and the series have the alerts that do not leave, and all labels.
    let firing = "ALERTS{alertstate=\"firing\"}";
    for (query, count) in [RECORDED, (firing, FIRING)] {
        let [of_tidegate, of_prometheus] = last_answer(
            || [series(&api, query), series(&server, query)],
            |[ours, theirs]| ours.len() == count && ours == theirs,
        );
        assert_eq!(of_tidegate, of_prometheus);
        assert_eq!(of_tidegate.len(), count, "{of_tidegate:?}");
    }
    show_the_same(&api, &server);

    target.answer("/metrics", calm_page());
    // If tidegate did not send their end, its alerts would be there for 40 minutes.
    wait_until(SOON, "the alerts of both end", || {
        alertmanager.alerts().is_empty()
    });
    wait_until(SOON, "both have recorded the calm", || {
        let calm = series(&server, RECORDED.0);
        calm.len() == RECORDED.1 && series(&api, RECORDED.0) == calm
    });
    let dropped = |reason: &str| gateway.own_metric("tidegate_alerts_dropped_total", &[reason]);
    assert_eq!(dropped("reason=\"relabelled\""), 1.0, "the watchdog");
    assert_eq!(dropped(""), 1.0);
    for metric in [
        "tidegate_alert_errors_total",
        "tidegate_alerts_waiting",
        "tidegate_rule_evaluation_failures_total",
        "tidegate_rule_template_errors_total",
        "tidegate_rule_samples_dropped_total",
    ] {
        assert_eq!(gateway.own_metric(metric, &[]), 0.0, "{metric}");
    }
    let log = gateway.stop();
    assert!(!log.contains(PASSWORD), "{log}");
}

/// Senders with a wrong authority or password, each with an address of its own.
struct Refused {
    files: TempDir,
    gateway: Gateway,
    /// Of the sender that trusts another authority, and of the one with another password.
    proxies: [Proxy; 2],
}

impl Refused {
    fn start(alertmanager: &Alertmanager) -> Self {
        let files = TempDir::new().expect("a temporary directory");
        let path = |name: &str| files.path().join(name);
        let (rules, authority, password) = (path("always.yaml"), path("ca.pem"), path("password"));
        fs::write(
            &rules,
            "groups: [{name: g, rules: [{alert: Always, expr: vector(1)}]}]\n",
        )
        .expect("a file of the test");
        Authority::new().write(&authority);
        fs::write(&password, "wr0ng").expect("a file of the test");
        let proxies = [(); 2].map(|()| Proxy::start(alertmanager.port(), Fault::None));
        let [by_authority, by_password] = &proxies;
        let gateway = Gateway::start(&format!(
            "extensions:
  basicauth/right: {{client_auth: {{username: {USER}, password: {PASSWORD}}}}}
  basicauth/wrong: {{client_auth: {{username: {USER}, password_file: {password:?}}}}}
  rules:
    files: [{rules:?}]
    interval: 100ms
    resend_delay: 10m
    alertmanagers:
      - endpoint: \"https://localhost:{}\"
        tls: {{ca_file: {authority:?}, reload_interval: 100ms}}
        auth: {{authenticator: basicauth/right}}
        alert_relabel_configs: [{{target_label: via, replacement: authority}}]
      - endpoint: \"https://localhost:{}\"
        tls: {{ca_file: {:?}}}
        auth: {{authenticator: basicauth/wrong}}
        alert_relabel_configs: [{{target_label: via, replacement: password}}]
receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:0\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:0\"}}}}
service:
  extensions: [health_check, basicauth/right, basicauth/wrong, rules]
  pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}
",
            by_authority.port(),
            by_password.port(),
            alertmanager.authority()
        ));
        Self {
            files,
            gateway,
            proxies,
        }
    }

    /// One of the gateway's own metrics, of each sender.
    fn metric(&self, name: &str) -> [f64; 2] {
        self.proxies.each_ref().map(|proxy| {
            let alertmanager = format!("alertmanager=\"https://localhost:{}/", proxy.port());
            self.gateway.own_metric(name, &[&alertmanager])
        })
    }

    /// Failed requests of each sender.
    fn errors(&self) -> [f64; 2] {
        self.metric("tidegate_alert_errors_total")
    }
}

#[test]
fn alerts_wait_until_the_authority_and_the_password_are_right() {
    let alertmanager = Alertmanager::start_guarded();
    let refused = Refused::start(&alertmanager);
    let connections = || refused.proxies[0].connections() as f64;
    wait_until(SOON, "both fail twice", || {
        refused.errors().iter().all(|errors| *errors >= 2.0)
    });
    assert_eq!(refused.metric("tidegate_alerts_sent_total"), [0.0; 2]);
    assert_eq!(refused.metric("tidegate_alerts_waiting"), [1.0; 2]);
    assert_eq!(alertmanager.alerts().len(), 0);
    assert_eq!(alertmanager.received(), 0.0);
    wait_until(SOON, "each connection without trust is an error", || {
        let failed = connections();
        failed >= 2.0 && refused.errors()[0] == failed
    });

    fs::copy(alertmanager.authority(), refused.files.path().join("ca.pem")).expect("a file of the test");
    fs::write(refused.files.path().join("password"), PASSWORD).expect("a file of the test");
    wait_until(SOON, "the Alertmanager has both alerts", || {
        alertmanager.alerts().len() == 2
    });
    wait_until(SOON, "both are counted", || {
        refused.metric("tidegate_alerts_sent_total") == [1.0; 2]
    });
    assert_eq!(alertmanager.received(), 2.0);
    assert_eq!(refused.errors()[0], connections() - 1.0);
    assert_eq!(refused.metric("tidegate_alerts_waiting"), [0.0; 2]);
    assert_eq!(refused.metric("tidegate_alerts_dropped_total"), [0.0; 2]);
    let handshakes = || alertmanager.log().matches("TLS handshake error").count() as f64;
    wait_until(SOON, "the Alertmanager has logged each handshake", || {
        handshakes() == refused.errors()[0]
    });
    let log = refused.gateway.stop();
    for part in ["invalid peer certificate", "401 Unauthorized"] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains(PASSWORD) && !log.contains("wr0ng"), "{log}");
}
