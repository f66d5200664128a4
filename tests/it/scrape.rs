// SPDX-License-Identifier: Apache-2.0

//! The `prometheus` receiver: what it makes of pages, beside a real Prometheus that scrapes the same; discovery,
//! credentials, failures, and the end of series.

mod answers;
mod discovery;
mod dns;
mod operator;
mod security;

use super::kit::query_api::Sample;
use super::kit::{
    Answer, Gateway, OtlpSink, Prometheus, Release, SOON, Target, free_port, http, wait_for, wait_until,
};
use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, Visitor};
use std::collections::BTreeMap;

/// Everything that a page of text can have.
const PAGE: &str = "# HELP requests_total What came.
# TYPE requests_total counter
requests_total{code=\"200\",method=\"get\"} 1027
requests_total{code=\"500\",method=\"get\"} 3
# TYPE temperature_celsius gauge
temperature_celsius{room=\"a\",job=\"of the page\"} -3.5
temperature_celsius{room=\"b\"} NaN
# TYPE latency_seconds histogram
latency_seconds_bucket{le=\"0.1\"} 5
latency_seconds_bucket{le=\"1\"} 8
latency_seconds_bucket{le=\"+Inf\"} 9
latency_seconds_sum 4.25
latency_seconds_count 9
# TYPE pause_seconds summary
pause_seconds{quantile=\"0.5\"} 0.01
pause_seconds{quantile=\"0.99\"} 0.2
pause_seconds_sum 17.5
pause_seconds_count 300
untyped_thing{x=\"\u{e9} \\\"quoted\\\" \\\\ \\n\"} 7e10
dropped_thing 1
renamed_thing{old=\"v\"} 1
";

/// Formats to ask for, and rules with every action, in Prometheus's own words.
const RULES: &str = "
    scrape_protocols: [PrometheusProto, PrometheusText1.0.0, OpenMetricsText0.0.1, PrometheusText0.0.4]
    relabel_configs:
      - {source_labels: [__address__], target_label: address, regex: '([^:]+):.*', replacement: 'DOLLAR{1}'}
      - {source_labels: [__address__], target_label: shard, modulus: 7, action: hashmod}
      - {regex: 'meta_(.+)', replacement: 'DOLLAR1', action: labelmap}
      - {regex: 'meta_.+', action: labeldrop}
      - {source_labels: [team], target_label: team, action: uppercase}
      - {source_labels: [team, zone], separator: '', target_label: low, action: lowercase}
      - {source_labels: [job], target_label: job, action: keepequal}
      - {source_labels: [__address__], target_label: instance, action: dropequal}
      - {regex: '.*', action: labelkeep}
      - {source_labels: [job], regex: app, action: keep}
      - {source_labels: [zone], regex: absent, action: drop}
      - {target_label: instance, replacement: the-instance}
    metric_relabel_configs:
      - {source_labels: [__name__], regex: 'dropped_.*', action: drop}
      - {source_labels: [__name__], regex: 'renamed_(.*)', target_label: __name__, replacement: 'new_DOLLAR1'}
      - {source_labels: [code, method], separator: '-', regex: '(.+)-(.+)', target_label: both, replacement: 'DOLLAR2.DOLLAR1'}
      - {source_labels: [code], target_label: hash, modulus: 1000, action: hashmod}
      - {regex: method, action: labeldrop}
";

/// A job that scrapes once a second. On a busy machine, a page may take some hundred milliseconds.
fn job(name: &str, targets: &str, more: &str) -> String {
    format!(
        "  - job_name: {name}
    scrape_interval: 1s
    scrape_timeout: 1s
    static_configs: [{{targets: [{targets}], labels: {{meta_team: core, meta_zone: z}}}}]
{more}"
    )
}

/// A gateway that scrapes into a sink.
fn into_sink(jobs: &str, sink: &OtlpSink) -> Gateway {
    let exporter = format!("otlphttp: {{endpoint: \"{}\"}}", sink.endpoint());
    Gateway::start(&config(jobs, &exporter, "otlphttp"))
}

/// A configuration with jobs written as a block.
fn config(jobs: &str, exporters: &str, exporter: &str) -> String {
    format!(
        "receivers:
  prometheus:
    config:
      scrape_configs:
{}
exporters:
  {exporters}
service: {{pipelines: {{metrics: {{receivers: [prometheus], exporters: [{exporter}]}}}}}}
",
        jobs.lines()
            .map(|line| format!("      {line}\n"))
            .collect::<String>()
    )
}

/// Series of a job by their labels, without those that differ from scrape to scrape.
fn series(prometheus: &Prometheus, job: &str) -> BTreeMap<Vec<(String, String)>, String> {
    let samples = prometheus.query(&format!(
        "{{job=\"{job}\",__name__!=\"scrape_duration_seconds\"}}"
    ));
    let key = |sample: &Sample| sample.labels.clone().into_iter().collect();
    samples
        .iter()
        .map(|sample| (key(sample), sample.value.to_string()))
        .collect()
}

#[test]
fn pages_and_rules_mean_what_they_mean_to_prometheus() {
    let target = Target::showing(PAGE);
    let address = format!("'{}'", target.address());
    let direct = job("app", &address, &RULES.replace("DOLLAR", "$"));
    let prometheus = Prometheus::start_release(Release::Newest, &format!("scrape_configs:\n{direct}"));
    let port = free_port();
    let through = job("app", &address, &RULES.replace("DOLLAR", "$$"));
    let exporter = format!("prometheus: {{endpoint: \"127.0.0.1:{port}\", without_scope_info: true}}");
    let gateway = Gateway::start(&config(&through, &exporter, "prometheus"));
    let behind = Prometheus::start_release(
        Release::Newest,
        &format!(
        "scrape_configs:
  - {{job_name: gateway, honor_labels: true, scrape_interval: 1s, scrape_timeout: 1s, static_configs: [{{targets: ['127.0.0.1:{port}']}}]}}
"
    ),
    );
    let mut last = (BTreeMap::new(), BTreeMap::new());
    let holds = |last: &mut (BTreeMap<_, _>, BTreeMap<_, _>)| {
        *last = (series(&prometheus, "app"), series(&behind, "app"));
        let settled = last.0.iter().any(|(labels, value)| {
            labels.contains(&("__name__".to_owned(), "scrape_series_added".to_owned())) && value == "0"
        });
        // The gateway adds `target_info`.
        last.1
            .retain(|labels, _| !labels.contains(&("__name__".to_owned(), "target_info".to_owned())));
        settled && last.0 == last.1
    };
    let started = std::time::Instant::now();
    while !holds(&mut last) {
        let (direct, through) = &last;
        let only = |one: &BTreeMap<Vec<(String, String)>, String>, other: &BTreeMap<_, _>| {
            one.iter()
                .filter(|(key, value)| other.get(*key) != Some(*value))
                .map(|(key, value)| format!("{key:?} {value}"))
                .collect::<Vec<_>>()
        };
        assert!(
            started.elapsed() < SOON,
            "only direct: {:#?}\nonly through the gateway: {:#?}",
            only(direct, through),
            only(through, direct)
        );
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    assert!(last.0.len() >= 19, "{last:?}");
    // Both ask in the same words.
    let mut asked: Vec<_> = target
        .requests()
        .iter()
        .map(|(_, headers)| {
            (
                headers["accept"].clone(),
                headers["x-prometheus-scrape-timeout-seconds"].clone(),
            )
        })
        .collect();
    asked.sort();
    asked.dedup();
    assert_eq!(asked.len(), 1, "{asked:?}");
    // A series that goes away is gone at once on both sides, though both look back for five minutes.
    target.answer(
        "/metrics",
        Answer::text("requests_total{code=\"200\",method=\"get\"} 1028\n"),
    );
    for server in [&prometheus, &behind] {
        wait_until(SOON, "the others are stale", || {
            server
                .query("{job=\"app\",__name__=~\"pause_.*|latency_.*|temp.*\"}")
                .is_empty()
        });
        server.wait_for_value("requests_total{job=\"app\"}", 1028.0);
    }
    gateway.stop();
}

#[test]
fn a_target_that_is_gone_ends_at_every_sink() {
    // Nobody else gets this port while the target is away.
    let at = free_port();
    let target = Target::start_on(at);
    target.answer("/metrics", Answer::text("alive 1\n"));
    let (sink, port) = (OtlpSink::start(), free_port());
    let config = config(
        &job("app", "'TARGET'", "").replace("TARGET", &target.address()),
        &format!(
            "prometheus: {{endpoint: \"127.0.0.1:{port}\"}}
  otlphttp: {{endpoint: \"{}\"}}
  file: {{path: out.jsonl}}",
            sink.endpoint()
        ),
        "prometheus, otlphttp, file",
    );
    let mut gateway = Gateway::start(&config);
    let page = || {
        http::get(port, "/metrics")
            .map(|page| page.text())
            .unwrap_or_default()
    };
    wait_until(SOON, "it is shown", || page().contains("\nalive{"));
    drop(target);
    wait_until(SOON, "it is shown no more", || {
        !page().contains("\nalive{") && page().contains("\nup{")
    });
    let line = wait_for(SOON, "up is 0", || {
        page()
            .lines()
            .find(|line| line.starts_with("up{") && line.ends_with(" 0"))
            .map(str::to_owned)
    });
    assert!(line.contains("job=\"app\""), "{line}");
    // Flag 1 is "no recorded value".
    let ended = |line: &str| line.contains("\"name\":\"alive\"") && line.contains("\"flags\":1");
    wait_until(SOON, "the file says so", || {
        std::fs::read_to_string(gateway.path("out.jsonl"))
            .unwrap_or_default()
            .lines()
            .any(ended)
    });
    wait_until(SOON, "the sink got it", || {
        sink.metrics()
            .iter()
            .any(|request| format!("{request:?}").contains("flags: 1"))
    });
    assert!(
        gateway.own_metric(
            "tidegate_scrape_failures_total",
            &["job=\"app\"", "reason=\"connection\""]
        ) > 0.0
    );
    assert_eq!(
        gateway.own_metric("tidegate_scrape_targets", &["state=\"down\""]),
        1.0
    );
    let target = Target::start_on(at);
    target.answer("/metrics", Answer::text("alive 1\n"));
    let back = gateway.wait_for_log("the target is back");
    let url = format!("target=http://127.0.0.1:{at}/metrics");
    assert!(
        back.contains("INFO") && back.contains(&url) && back.contains("after="),
        "{back}"
    );
    wait_until(SOON, "it is shown again", || page().contains("\nalive{"));
    let said = gateway.stop();
    assert!(said.contains("scrape failed"), "{said}");
    assert_eq!(said.matches("the target is back").count(), 1, "{said}");
}

#[test]
fn each_target_has_a_line_when_it_fails_and_when_it_is_back() {
    let ports = [free_port(), free_port()];
    let start = |port: u16| {
        let target = Target::start_on(port);
        target.answer("/metrics", Answer::text("alive 1\n"));
        target
    };
    let [first, second] = ports;
    let gateway = Gateway::start(&format!(
        "receivers:
  prometheus:
    config:
      scrape_configs:
        - job_name: app
          scrape_interval: 500ms
          scrape_timeout: 500ms
          static_configs: [{{targets: ['127.0.0.1:{first}', '127.0.0.1:{second}']}}]
exporters: {{nop: }}
service:
  pipelines: {{metrics: {{receivers: [prometheus], exporters: [nop]}}}}
"
    ));
    let wait_for_state = |state: &str, targets: f64| {
        let label = format!("state=\"{state}\"");
        wait_until(SOON, "the targets have this state", || {
            gateway.own_metric("tidegate_scrape_targets", &[&*label]) == targets
        });
    };
    wait_for_state("down", 2.0);
    let alive = start(first);
    wait_for_state("up", 1.0);
    let other = start(second);
    wait_for_state("up", 2.0);
    let log = gateway.stop();
    for port in ports {
        let url = format!("127.0.0.1:{port}/metrics");
        for text in ["scrape failed", "the target is back"] {
            let mut lines = log.lines().filter(|line| line.contains(&url));
            assert!(lines.any(|line| line.contains(text)), "{text} {url}: {log}");
        }
    }
    drop((alive, other));
}

/// The keys of a line of JSON, those that come twice too.
struct LineKeys(Vec<String>);

impl<'de> Deserialize<'de> for LineKeys {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct KeyVisitor;
        impl<'de> Visitor<'de> for KeyVisitor {
            type Value = LineKeys;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<LineKeys, A::Error> {
                let mut keys = Vec::new();
                while let Some((key, IgnoredAny)) = map.next_entry::<String, IgnoredAny>()? {
                    keys.push(key);
                }
                Ok(LineKeys(keys))
            }
        }
        deserializer.deserialize_map(KeyVisitor)
    }
}

#[test]
fn no_log_line_of_a_failed_scrape_has_a_key_twice() {
    let at = free_port();
    let mut gateway = Gateway::start(&format!(
        "receivers:
  prometheus:
    config:
      scrape_configs:
        - {{job_name: app, scrape_interval: 100ms, scrape_timeout: 100ms, static_configs: [{{targets: ['127.0.0.1:{at}']}}]}}
exporters: {{nop: }}
service:
  telemetry: {{logs: {{encoding: json, level: debug}}}}
  pipelines: {{metrics: {{receivers: [prometheus], exporters: [nop]}}}}
"
    ));
    let failed = gateway.wait_for_log("scrape failed");
    let url = format!("\"scrape_target\":\"http://127.0.0.1:{at}/metrics\"");
    assert!(failed.contains(&url), "{failed}");
    let target = Target::start_on(at);
    target.answer("/metrics", Answer::text("alive 1\n"));
    gateway.wait_for_log("the target is back");
    let log = gateway.stop();
    let lines: Vec<&str> = log.lines().filter(|line| line.starts_with('{')).collect();
    assert!(lines.len() > 2, "{log}");
    for line in lines {
        let LineKeys(mut keys) = serde_json::from_str(line).expect("a line is JSON");
        let all = keys.len();
        keys.sort();
        keys.dedup();
        assert_eq!(keys.len(), all, "{line}");
    }
}
