// SPDX-License-Identifier: Apache-2.0

//! The pages of the Rust SDK, scraped by a real Prometheus: what the server's API says of them is what was recorded.

use std::collections::BTreeMap;
use std::sync::Arc;

use tidegate_exposition::{Event, Format, Labels, Options, Parser};
use tidegate_metrics::{
    Description, Histogram, MetricsRegistry, Prometheus as Memory, Shm, SpanRef, serve_http,
};

use super::kit::{Prometheus, Release, SOON, wait_for};

const TEXT: &str = "PrometheusText0.0.4";
const OPEN_METRICS: &str = "OpenMetricsText1.0.0";
const MODEL: &str = "a \"model\"\\ of\nlines";

/// One of each instrument, with values of which none is like another.
fn record(registry: &dyn MetricsRegistry) -> Histogram {
    let model = [("model", MODEL)];
    let of = |name: &str| Description::new(name, "What it\nmeans");
    registry.counter(&of("requests"), &model).unwrap().add(41);
    registry
        .float_counter(&of("energy").unit("J"), &model)
        .unwrap()
        .add(2.5);
    registry.up_down_counter(&of("open"), &model).unwrap().add(-3);
    registry.gauge(&of("cache").unit("1"), &model).unwrap().set(0.75);
    registry.gauge(&of("worst"), &model).unwrap().set(f64::INFINITY);
    let answers = registry
        .counter_family(&of("answers"), &model, &["code"])
        .unwrap();
    answers.with(&["200"]).add(7);
    answers.with(&["503"]).add(3);
    let sizes = of("sizes").unit("By").exponential();
    let sizes = registry.histogram(&sizes, &model).unwrap();
    (0..10).for_each(|at| sizes.observe(f64::from(1 << at)));
    let ttft = of("ttft").unit("s").bounds([0.1, 0.5, 1.0]).exemplars();
    let ttft = registry.histogram(&ttft, &model).unwrap();
    (0..10).for_each(|at| ttft.observe(f64::from(at) / 8.0));
    ttft
}

type Series = BTreeMap<String, String>;

/// Bounds as numbers: the formats and servers write them each in their way.
fn plain(mut labels: Series) -> Series {
    if let Some(bound) = labels.get_mut("le") {
        *bound = bound.parse::<f64>().unwrap().to_string();
    }
    labels
}

/// The samples of a page.
fn samples(page: &str) -> BTreeMap<Series, f64> {
    let mut parser = Parser::new(Format::Text, page.as_bytes(), Options::default());
    let mut labels = Labels::default();
    let mut all = BTreeMap::new();
    while let Some(event) = parser.next(b"").unwrap_or_else(|error| panic!("{error}\n{page}")) {
        if let Event::Sample(sample) = event {
            sample.series.labels(&mut labels).unwrap();
            let owned = labels
                .iter()
                .map(|(key, value)| (key.to_owned(), value.to_owned()));
            all.insert(plain(owned.collect()), sample.value);
        }
    }
    all
}

fn scraping(port: u16, protocol: &str) -> Prometheus {
    let config = format!(
        "global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - {{job_name: sdk, scrape_protocols: [{protocol}], static_configs: [{{targets: [\"127.0.0.1:{port}\"]}}]}}
"
    );
    Prometheus::start_with(Release::Newest, &config, &["--enable-feature=exemplar-storage"])
}

/// The series that the server has of its target after a scrape.
fn stored(server: &Prometheus) -> BTreeMap<Series, f64> {
    let found = server.query("{job=\"sdk\", __name__!~\"up|scrape_.*\"}");
    let own = |mut labels: Series| {
        labels.retain(|key, _| key != "job" && key != "instance");
        plain(labels)
    };
    found
        .into_iter()
        .map(|sample| (own(sample.labels), sample.value))
        .collect()
}

/// Waits until the server says what the registry's page does, of every series.
fn compare(registry: &dyn MetricsRegistry, protocol: &str, server: &Prometheus) {
    let expected = samples(&registry.prometheus_format_str());
    assert!(expected.len() > 25, "{expected:?}");
    let mut last = BTreeMap::new();
    wait_for(SOON, "the server has the page", || {
        last = stored(server);
        (last == expected).then_some(())
    });
    let value = |name: &str| server.value(&format!("{name}{{job=\"sdk\"}}"));
    assert_eq!(value("requests_total"), Some(41.0), "{protocol}");
    assert_eq!(value("open"), Some(-3.0), "{protocol}");
    assert_eq!(value("ttft_seconds_sum"), Some(5.625), "{protocol}");
}

#[test]
fn a_prometheus_server_has_what_was_recorded() {
    for protocol in [TEXT, OPEN_METRICS] {
        let registry = Arc::new(Memory::new());
        let ttft = record(&*registry);
        let span = SpanRef::new([0xab; 16], [0xcd; 8]).unwrap();
        ttft.observe_in(0.0, span);
        let page = serve_http(registry.clone(), "127.0.0.1:0").unwrap();
        let server = scraping(page.address().port(), protocol);
        compare(&*registry, protocol, &server);
        assert_eq!(server.metadata("cache_ratio")[0]["help"], "What it\nmeans");
        let exemplars = server.exemplars("ttft_seconds_bucket");
        if protocol == OPEN_METRICS {
            wait_for(SOON, "the exemplar", || {
                let found = server.exemplars("ttft_seconds_bucket");
                let labels = &found[0]["exemplars"][0]["labels"];
                (labels["trace_id"] == "ab".repeat(16) && labels["span_id"] == "cd".repeat(8)).then_some(())
            });
        } else {
            assert_eq!(exemplars.as_array().map(Vec::len), Some(0), "{exemplars}");
        }
        // A later scrape shows values that are recorded later.
        registry
            .counter(&Description::new("later", ""), &[])
            .unwrap()
            .inc();
        server.wait_for_value("later_total{job=\"sdk\"}", 1.0);
    }
}

#[test]
fn a_prometheus_server_has_what_all_processes_recorded() {
    let directory = tempfile::tempdir().unwrap();
    let registry = Arc::new(Shm::create(directory.path(), &[]).unwrap());
    record(&*registry);
    let page = serve_http(registry.clone(), "127.0.0.1:0").unwrap();
    let server = scraping(page.address().port(), OPEN_METRICS);
    compare(&*registry, OPEN_METRICS, &server);
    let other = Shm::create(directory.path(), &[]).unwrap();
    record(&other);
    server.wait_for_value("requests_total{job=\"sdk\"}", 82.0);
    server.wait_for_value("ttft_seconds_count{job=\"sdk\"}", 20.0);
    // Its counts stay when it is gone.
    drop(other);
    record(&Shm::create(directory.path(), &[]).unwrap());
    server.wait_for_value("requests_total{job=\"sdk\"}", 123.0);
    let expected = samples(&registry.prometheus_format_str());
    wait_for(SOON, "the server has the page", || {
        (stored(&server) == expected).then_some(())
    });
}
