// SPDX-License-Identifier: Apache-2.0

//! The `prometheus` receiver beside a real Prometheus: both scrape the same pages of real exporters by the same
//! configuration, and have the same series with the same values.
//!
//! That same Prometheus also scrapes the gateway's exporter, so one query API gives both sides. Pages are recorded
//! once: values that move between two scrapes would tell nothing.

mod native;

use super::kit::pages::{Page, Pages};
use super::kit::{Exporter, Gateway, Prometheus, Release, SOON, Script, free_port, http};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Instant;

const TEXT: &str = "text/plain;version=0.0.4";
const UTF8: &str = "text/plain;version=1.0.0;escaping=allow-utf-8";
const OPENMETRICS: &str = "application/openmetrics-text;version=1.0.0";
const PROTOBUF: &str =
    "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited";

/// Series that two scrapers can't agree on, and the one that the gateway's exporter makes of what it knows of a target.
const OF_THE_SCRAPER: [&str; 2] = ["scrape_duration_seconds", "target_info"];

/// The pushes to the pushgateway: every type, odd values, odd names, a time, labels that clash with the target's.
const PUSHED: &str = r#"# HELP jobs_total Jobs, with a \\ and a line\nbreak
# TYPE jobs_total counter
jobs_total{result="ok",path="C:\\dir\n\"x\""} 3
jobs_total{result="",exported_job="twice"} 1e+300
# TYPE odd gauge
odd{kind="nan"} NaN
odd{kind="+inf"} +Inf
odd{kind="-inf"} -Inf
odd{kind="least"} 5e-324
odd{kind="zero"} -0
# TYPE took_seconds histogram
took_seconds_bucket{le="0.1"} 1
took_seconds_bucket{le="1"} 3
took_seconds_bucket{le="+Inf"} 4
took_seconds_sum 5.5
took_seconds_count 4
# TYPE pause_seconds summary
pause_seconds{quantile="0.5"} 0.25
pause_seconds{quantile="0.99"} NaN
pause_seconds_sum 3
pause_seconds_count 12
# TYPE whatever untyped
whatever{job="mine",instance="theirs"} 7
nothing_said 1
"#;

/// The same with names of any character.
const PUSHED_UTF8: &str =
    "# TYPE \"http.requests\" counter\n{\"http.requests\",\"http.route\"=\"/a\"} 3\n{\"größe\"} 2\n";

/// A target: its page's path, which is also its `instance`, and whether the page's labels win over the target's.
struct Recorded {
    pages: Pages,
    instances: Vec<(String, bool)>,
}

impl Recorded {
    fn new() -> Self {
        Self {
            pages: Pages::start(),
            instances: Vec::new(),
        }
    }

    /// Keeps the page that an exporter gives for each of these formats.
    fn record(&mut self, name: &str, port: u16, formats: &[(&str, &str)]) {
        for (format, accept) in formats {
            let answer = http::request("GET", port, "/metrics", &[("accept", accept)], b"");
            self.show(
                &format!("/{name}/{format}"),
                answer.expect("the exporter answers"),
                name.contains("honored"),
            );
        }
    }

    fn show(&mut self, path: &str, page: impl Into<Page>, honors: bool) {
        self.pages.show(path, page);
        self.instances.push((path.to_owned(), honors));
    }

    /// `global` and `scrape_configs` as both scrapers understand them; `more` are labels for every target and settings
    /// for every job.
    fn config(&self, global: &str, label: &str, further_jobs: &str) -> String {
        let job = |name: &str, honors: bool| {
            let of_job = self.instances.iter().filter(|(_, honored)| *honored == honors);
            let target = |(path, _): &(String, bool)| {
                format!(
                    "  - {{targets: ['127.0.0.1:{}'], labels: {{__metrics_path__: '{path}', instance: '{path}'{label}}}}}\n",
                    self.pages.port()
                )
            };
            let targets: String = of_job.map(target).collect();
            format!("- job_name: {name}\n  honor_labels: {honors}\n  static_configs:\n{targets}")
        };
        let jobs = [("recorded", false), ("honored", true)];
        let used = jobs
            .iter()
            .filter(|(_, honors)| self.instances.iter().any(|(_, honored)| honored == honors));
        let jobs: String = used.map(|(name, honors)| job(name, *honors)).collect();
        format!(
            "global: {{{global}scrape_interval: 2s, scrape_timeout: 2s}}\nscrape_configs:\n{jobs}{further_jobs}"
        )
    }
}

/// A gateway and a Prometheus that scrape the same, the latter the former as well.
struct Scene {
    _gateway: Gateway,
    prometheus: Prometheus,
}

impl Scene {
    fn start(recorded: &Recorded) -> Self {
        let exporter = free_port();
        let config = recorded.config("scrape_native_histograms: true, ", "", "");
        let gateway = Gateway::start(&format!(
            "receivers:
  prometheus:
    config:
{}
exporters:
  prometheus:
    endpoint: \"127.0.0.1:{exporter}\"
    translation_strategy: NoTranslation
    without_scope_info: true
    enable_open_metrics: true
service:
  pipelines:
    metrics: {{receivers: [prometheus], exporters: [prometheus]}}
",
            config
                .lines()
                .map(|line| format!("      {line}\n"))
                .collect::<String>()
        ));
        let release = Release::Newest;
        let through = |via: &str, protocol: &str| {
            format!(
                "- {{job_name: {via}, honor_labels: true, scrape_protocols: [{protocol}], static_configs: [{{targets: ['127.0.0.1:{exporter}'], labels: {{via: {via}}}}}]}}\n"
            )
        };
        let jobs = through("text", "PrometheusText1.0.0") + &through("protobuf", "PrometheusProto");
        let config = recorded.config(release.native_histograms(), ", via: direct", &jobs);
        Self {
            prometheus: Prometheus::start_release(release, &config),
            _gateway: gateway,
        }
    }

    /// Waits until what came through the gateway is what Prometheus scraped itself, of these instances.
    fn are_equal(&self, via: &str, instances: &str) {
        let deadline = Instant::now() + SOON;
        loop {
            let (direct, through) = (self.series("direct", instances), self.series(via, instances));
            let differences = differences(&direct, &through);
            if differences.is_empty() && !direct.is_empty() {
                println!("{via}, {instances}: {} series", direct.len());
                return;
            }
            assert!(
                Instant::now() < deadline,
                "{} of {} series differ via {via}:\n{}\n{}",
                differences.len(),
                direct.len(),
                differences[..differences.len().min(20)].join("\n"),
                self.failures()
            );
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
    }

    /// Why targets are down, and what else the server says.
    fn failures(&self) -> String {
        let targets = self.prometheus.targets();
        let errors = targets
            .as_array()
            .into_iter()
            .flatten()
            .map(|target| &target["lastError"]);
        let errors: Vec<String> = errors
            .filter(|error| *error != "")
            .map(Value::to_string)
            .collect();
        format!("{}\n{}", errors.join("\n"), self.prometheus.log())
    }

    /// Values by labels, of what the target itself exposes and what is said of its scrape.
    fn series(&self, via: &str, instances: &str) -> BTreeMap<String, String> {
        let query = format!("{{via=\"{via}\",instance=~\"{instances}\"}}");
        let series = self.prometheus.query_json(&query);
        series.iter().filter_map(as_labels_and_value).collect()
    }
}

fn as_labels_and_value(series: &Value) -> Option<(String, String)> {
    let mut labels = series["metric"].as_object()?.clone();
    labels.remove("via");
    let name = labels["__name__"].as_str()?;
    if OF_THE_SCRAPER.contains(&name) {
        return None;
    }
    let value = match &series["value"] {
        Value::Null => &series["histogram"][1],
        value => &value[1],
    };
    Some((Value::Object(labels).to_string(), value.to_string()))
}

fn differences(direct: &BTreeMap<String, String>, through: &BTreeMap<String, String>) -> Vec<String> {
    let missing = direct
        .iter()
        .filter_map(|(labels, value)| match through.get(labels) {
            Some(found) if found == value => None,
            found => Some(format!("{labels} is {value}, not {found:?}")),
        });
    let further = through.keys().filter(|labels| !direct.contains_key(*labels));
    missing
        .chain(further.map(|labels| format!("{labels} is too many")))
        .collect()
}

#[test]
fn the_receiver_has_what_a_prometheus_scrapes_from_real_exporters() {
    let (node, pushgateway, nixl_port) = (Exporter::node(), Exporter::pushgateway(), free_port());
    let others = Release::ALL.map(|release| Prometheus::start_release(release, "{}"));
    pushgateway.push("job/batch/instance/a", PUSHED);
    pushgateway.push("job/another", "nothing_said 2\n");
    let mut recorded = Recorded::new();
    let classic = [
        ("text", TEXT),
        ("openmetrics", OPENMETRICS),
        ("protobuf", PROTOBUF),
    ];
    recorded.record("node", node.port(), &classic);
    recorded.record("prometheus-2", others[0].port(), &classic);
    recorded.record("prometheus-3", others[1].port(), &classic);
    recorded.record("pushgateway", pushgateway.port(), &classic);
    recorded.record("pushgateway-honored", pushgateway.port(), &classic[..1]);
    let (_, nixl) = Script::nixl_exporter(nixl_port).hold();
    recorded.record("nixl", nixl_port, &[("text", TEXT)]);
    nixl.release();
    pushgateway.push("job/utf8", PUSHED_UTF8);
    recorded.record("pushgateway-utf8", pushgateway.port(), &[("text", UTF8)]);
    let scene = Scene::start(&recorded);
    // Text has no native histograms, and this Prometheus asks for names of any character in text only.
    scene.are_equal("text", "/.*/(text|openmetrics)|a|mine|theirs|");
    scene.are_equal(
        "protobuf",
        "/(node|nixl|prometheus.*|pushgateway|pushgateway-honored)/.*",
    );
    recorded.pages.hide("/node/text");
    recorded.pages.hide("/prometheus-3/protobuf");
    scene
        .prometheus
        .wait_for_value("count(up{via=\"direct\"} == 0)", 2.0);
    scene.are_equal("text", "/.*/(text|openmetrics)");
    scene.are_equal(
        "protobuf",
        "/(node|nixl|prometheus.*|pushgateway|pushgateway-honored)/.*",
    );
    assert_eq!(
        scene.series("text", "/node/text").len(),
        scene.series("direct", "/node/text").len()
    );
}
