// SPDX-License-Identifier: Apache-2.0

//! Names and labels that came from Prometheus are spelt the same on the page, in queries and in what is written on, as a
//! real Prometheus spells them that scrapes the same target.

use super::kit::query_api::{QueryApi, Sample};
use super::kit::{Gateway, Prometheus, Release, SOON, Target, free_port, http, wait_for, wait_until};
use std::collections::{BTreeMap, BTreeSet};

const PAGE: &str = "# TYPE odd__requests counter
odd__requests{l__x=\"1\",_lead=\"2\",trail_=\"3\"} 1
# TYPE odd_total_requests counter
odd_total_requests{a__b=\"1\",a_b=\"2\"} 2
# TYPE _odd_ratio gauge
_odd_ratio 3
# TYPE odd:requests:rate5m gauge
odd:requests:rate5m{quantile=\"0.5\",le=\"1\"} 4
# TYPE odd__seconds histogram
odd__seconds_bucket{l__x=\"1\",le=\"+Inf\"} 5
odd__seconds_sum{l__x=\"1\"} 5
odd__seconds_count{l__x=\"1\"} 5
odd_untyped{_=\"1\"} 6
target_info{a__b=\"1\",_lead=\"2\"} 1
";

/// The series that the page makes.
const OURS: &str = "{__name__=~\".*odd.*|target_info\",job=\"app\"}";

type Series = BTreeSet<BTreeMap<String, String>>;

/// Names and labels, without the scope's and without labels that OpenTelemetry adds to a target.
fn named(samples: &[Sample]) -> Series {
    let added = ["server_address", "server_port", "url_scheme"];
    let labels = samples.iter().map(|sample| {
        let mut labels = sample.labels.clone();
        labels.retain(|name, _| !name.starts_with("otel_scope_") && !added.contains(&name.as_str()));
        labels
    });
    labels.collect()
}

/// A Prometheus that scrapes the target, and writes to `remote` where there is one.
fn direct(target: &Target, remote: &str) -> Prometheus {
    let config = format!(
        "global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
scrape_configs:
  - {{job_name: app, static_configs: [{{targets: ['{}'], labels: {{instance: i}}}}]}}
{remote}",
        target.address()
    );
    Prometheus::start_with(
        Release::Newest,
        &config,
        &["--enable-feature=metadata-wal-records"],
    )
}

/// The ports of the gateway show the series of `expected`.
fn shows(what: &str, admin: u16, page: u16, expected: &Series) {
    let mut last = Series::new();
    wait_for(SOON, &format!("{what}: the queries know every series"), || {
        last = named(&QueryApi::at(admin).query(OURS));
        (last == *expected).then_some(())
    });
    let page = http::get(page, "/metrics").expect("the exporter answers").text();
    for series in expected
        .iter()
        .filter(|series| !series.contains_key("le") || series.contains_key("quantile"))
    {
        let labels = series.iter().filter(|(name, _)| *name != "__name__");
        let labels: Vec<String> = labels
            .map(|(name, value)| format!("{name}=\"{value}\""))
            .collect();
        let line = format!("{}{{{}}} ", series["__name__"], labels.join(","));
        let is_shown = page.lines().any(|shown| shown.starts_with(&line));
        let is_target = series["__name__"] == "target_info";
        assert!(is_shown || is_target, "{what}: {line} in\n{page}");
    }
    assert!(page.contains("a__b=\"1\""), "{what}: target_info in\n{page}");
}

#[test]
fn what_prometheus_named_keeps_its_names() {
    let target = Target::showing(PAGE);
    let (admin, page) = (free_port(), free_port());
    let store = Prometheus::start_release(Release::Newest, "");
    let plain = direct(&target, "");
    let mut expected = Series::new();
    wait_until(SOON, "Prometheus has scraped the target", || {
        expected = named(&plain.query(OURS));
        !expected.is_empty()
    });
    assert_eq!(expected.len(), 9, "{expected:?}");
    let gateway = Gateway::start(&format!(
        "receivers:
  prometheus:
    config:
      global: {{scrape_interval: 200ms, scrape_timeout: 200ms}}
      scrape_configs:
        - {{job_name: app, static_configs: [{{targets: ['{}'], labels: {{instance: i}}}}]}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\", without_scope_info: true}}
  prometheusremotewrite: {{endpoint: \"http://127.0.0.1:{}/api/v1/write\"}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheus], exporters: [prometheus, prometheusremotewrite]}}}}
",
        target.address(),
        store.port(),
    ));
    shows("a scrape", admin, page, &expected);
    wait_until(SOON, "the store has what was written", || {
        named(&store.query(OURS)) == expected
    });
    gateway.stop();
}

#[test]
fn what_prometheus_wrote_keeps_its_names() {
    let target = Target::showing(PAGE);
    let (write, admin, page) = (free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  prometheusremotewrite: {{endpoint: \"127.0.0.1:{write}\"}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{page}\", without_scope_info: true}}
extensions: {{admin: {{endpoint: \"127.0.0.1:{admin}\"}}}}
service:
  extensions: [health_check, admin]
  pipelines: {{metrics: {{receivers: [prometheusremotewrite], exporters: [prometheus]}}}}
",
    ));
    let remote = format!(
        "remote_write: [{{url: 'http://127.0.0.1:{write}/api/v1/write', \
         protobuf_message: io.prometheus.write.v2.Request, queue_config: {{batch_send_deadline: 100ms}}}}]\n"
    );
    let writer = direct(&target, &remote);
    let mut expected = Series::new();
    wait_until(SOON, "Prometheus has scraped the target", || {
        expected = named(&writer.query(OURS));
        !expected.is_empty()
    });
    shows("a remote write", admin, page, &expected);
    gateway.stop();
}
