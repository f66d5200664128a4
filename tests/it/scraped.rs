// SPDX-License-Identifier: Apache-2.0

//! A real Prometheus that scrapes the gateway has the data that the gateway got: values, types, exemplars, in every
//! format.

use super::kit::fixture::{TRACE, every_kind};
use super::kit::{Gateway, Prometheus, Release, SOON, free_port, http, wait_for};
use prost::Message;
use serde_json::Value;
use std::collections::BTreeMap;

/// Formats by the name that `scrape_protocols` has for them.
const FORMATS: [&str; 5] = [
    "PrometheusText0.0.4",
    "PrometheusText1.0.0",
    "OpenMetricsText0.0.1",
    "OpenMetricsText1.0.0",
    "PrometheusProto",
];

/// Labels of every series of the fixture, and of those that have a route.
const OURS: &str =
    "job=\"prod/shop\",instance=\"i-1\",otel_scope_name=\"checkout\",otel_scope_version=\"1.2\"";

/// Series and their values in every format. A route stands for the label `http_route`.
const VALUES: &[(&str, &str, f64)] = &[
    ("room_temperature_celsius", "a", 21.5),
    ("room_temperature_celsius", "b", -0.25),
    ("odd", "nan", f64::NAN),
    ("odd", "inf", f64::INFINITY),
    ("odd", "least", 5e-324),
    ("requests_total", "/a", 12_345_678_901.0),
    ("sent_bytes_total", "/a", 0.1),
    ("queue", "", -3.0),
    ("pause_seconds_sum", "/a", 3.5),
    ("pause_seconds_count", "/a", 7.0),
    ("latency_seconds_sum", "/a", 45.5),
    ("latency_seconds_count", "/a", 10.0),
];

/// Those with a label of their type's own.
const BUCKETS: &[(&str, &str, f64, f64)] = &[
    ("latency_seconds_bucket", "le", 0.25, 1.0),
    ("latency_seconds_bucket", "le", 1.0, 3.0),
    ("latency_seconds_bucket", "le", 10.0, 6.0),
    ("latency_seconds_bucket", "le", f64::INFINITY, 10.0),
    ("pause_seconds", "quantile", 0.5, 0.25),
    ("pause_seconds", "quantile", 0.99, 1.5),
];

/// Ports of the gateway's exporters.
struct Exporters {
    _gateway: Gateway,
    openmetrics: u16,
    text: u16,
    utf8: u16,
}

/// A gateway that was sent the fixture: with names as they always were, without OpenMetrics, with names as they are.
fn exporters() -> Exporters {
    let (otlp, openmetrics, text, utf8) = (free_port(), free_port(), free_port(), free_port());
    let gateway = Gateway::start(&format!(
        "receivers:
  otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}
exporters:
  prometheus: {{endpoint: \"127.0.0.1:{openmetrics}\", enable_open_metrics: true}}
  prometheus/text: {{endpoint: \"127.0.0.1:{text}\"}}
  prometheus/utf8: {{endpoint: \"127.0.0.1:{utf8}\", enable_open_metrics: true, translation_strategy: NoTranslation}}
service:
  pipelines:
    metrics: {{receivers: [otlp], exporters: [prometheus, prometheus/text, prometheus/utf8]}}
"
    ));
    let sent = http::post(
        otlp,
        "/v1/metrics",
        "application/x-protobuf",
        &every_kind().encode_to_vec(),
    );
    assert_eq!(sent.expect("the gateway answers").status, 200);
    Exporters {
        _gateway: gateway,
        openmetrics,
        text,
        utf8,
    }
}

/// A scrape configuration with a job for each of (name, port, settings).
fn jobs(release: Release, jobs: &[(&str, u16, String)]) -> String {
    let job = |(name, port, settings): &(&str, u16, String)| {
        format!(
            "- {{job_name: {name}, honor_labels: true, {settings}static_configs: [{{targets: ['127.0.0.1:{port}'], labels: {{via: {name}}}}}]}}\n"
        )
    };
    format!(
        "global: {{{}scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n{}",
        release.native_histograms(),
        jobs.iter().map(job).collect::<String>()
    )
}

/// All that came by a job has the values that were sent.
fn values_are_equal(server: &Prometheus, via: &str) {
    let has = |selector: String, expected: f64| {
        let found = wait_for(SOON, &format!("{via}: {selector}; {}", server.targets()), || {
            server.value(&selector)
        });
        assert_eq!(
            found.total_cmp(&expected),
            std::cmp::Ordering::Equal,
            "{via}: {selector} is {found}"
        );
    };
    for (name, route, expected) in VALUES {
        has(
            format!("{name}{{http_route=\"{route}\",via=\"{via}\",{OURS}}}"),
            *expected,
        );
    }
    for (name, label, bound, expected) in BUCKETS {
        // Formats differ in how they write a bound.
        let bound = if bound.is_finite() {
            format!("{label}=~\"{bound}(\\\\.0)?\"")
        } else {
            format!("{label}=\"+Inf\"")
        };
        has(format!("{name}{{{bound},via=\"{via}\",{OURS}}}"), *expected);
    }
    has(
        format!("target_info{{job=\"prod/shop\",instance=\"i-1\",host_name=\"worker\",via=\"{via}\"}}"),
        1.0,
    );
}

fn types_are_right(server: &Prometheus) {
    for (metric, kind) in [
        ("room_temperature_celsius", "gauge"),
        ("queue", "gauge"),
        ("latency_seconds", "histogram"),
        ("size_bytes", "histogram"),
        ("pause_seconds", "summary"),
    ] {
        let metadata = server.metadata(metric);
        let types: Vec<&str> = metadata
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|one| one["type"].as_str())
            .collect();
        assert!(
            !types.is_empty() && types.iter().all(|found| *found == kind),
            "{metric}: {metadata}"
        );
    }
    // In OpenMetrics a counter's family is called without the suffix.
    let counters = [server.metadata("requests_total"), server.metadata("requests")];
    let mut types = counters
        .iter()
        .filter_map(|metadata| metadata[0]["type"].as_str());
    assert!(types.all(|found| found == "counter"), "{counters:?}");
}

/// The exemplars of a selector: (value, labels), by value.
fn exemplars(server: &Prometheus, selector: &str) -> Vec<(f64, BTreeMap<String, String>)> {
    let series = server.exemplars(selector);
    let all = series
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|series| series["exemplars"].as_array());
    let mut found: Vec<_> = all
        .flatten()
        .map(|exemplar| {
            let value = exemplar["value"]
                .as_str()
                .and_then(|value| value.parse().ok())
                .expect("a number");
            let labels = serde_json::from_value(exemplar["labels"].clone()).expect("labels");
            (value, labels)
        })
        .collect();
    found.sort_by(|(a, _): &(f64, _), (b, _)| a.total_cmp(b));
    found
}

fn exemplars_are_equal(server: &Prometheus, via: &str) {
    let labels: BTreeMap<String, String> = [
        ("span_id", "0102030405060708"),
        ("trace_id", TRACE),
        ("user", "u-1"),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()))
    .into();
    for (name, expected) in [
        ("requests_total", &[3.0][..]),
        ("latency_seconds_bucket", &[0.5, 20.0]),
    ] {
        let found = exemplars(server, &format!("{name}{{via=\"{via}\"}}"));
        let expected: Vec<_> = expected.iter().map(|value| (*value, labels.clone())).collect();
        assert_eq!(found, expected, "{via}: {name}");
    }
}

/// The exponential histogram came as a native one, bucket for bucket.
fn the_native_histogram_is_equal(server: &Prometheus, via: &str) {
    let selector = format!("size_bytes{{via=\"{via}\",{OURS}}}");
    let found = wait_for(SOON, "a native histogram", || {
        server
            .query_json(&selector)
            .first()
            .map(|series| series["histogram"][1].clone())
    });
    assert_eq!(
        (found["count"].as_str(), found["sum"].as_str()),
        (Some("12"), Some("30.5")),
        "{found}"
    );
    let number = |value: &Value| {
        value
            .as_str()
            .and_then(|value| value.parse::<f64>().ok())
            .expect("a number")
    };
    let buckets: Vec<[f64; 3]> = found["buckets"]
        .as_array()
        .expect("buckets")
        .iter()
        .map(|bucket| [number(&bucket[1]), number(&bucket[2]), number(&bucket[3])])
        .collect();
    let root = |power: f64| 2f64.powf(power / 2.0);
    let expected = [
        [-root(3.0), -root(2.0), 1.0],
        [-1e-128, 1e-128, 2.0],
        [root(-1.0), root(0.0), 1.0],
        [root(1.0), root(2.0), 3.0],
        [root(2.0), root(3.0), 5.0],
    ];
    assert_eq!(buckets.len(), expected.len(), "{found}");
    for (found, expected) in buckets.iter().flatten().zip(expected.iter().flatten()) {
        assert!((found - expected).abs() <= expected.abs() * 1e-12, "{buckets:?}");
    }
}

#[test]
fn the_newest_prometheus_has_what_we_were_sent_in_every_format() {
    let exporters = exporters();
    let all: Vec<_> = FORMATS
        .iter()
        .map(|format| {
            (
                *format,
                exporters.openmetrics,
                format!("scrape_protocols: [{format}], "),
            )
        })
        .collect();
    let server = Prometheus::start_release(Release::Newest, &jobs(Release::Newest, &all));
    for format in FORMATS {
        values_are_equal(&server, format);
    }
    types_are_right(&server);
    for format in ["OpenMetricsText0.0.1", "OpenMetricsText1.0.0", "PrometheusProto"] {
        exemplars_are_equal(&server, format);
    }
    the_native_histogram_is_equal(&server, "PrometheusProto");
    assert_eq!(
        server.value("count(size_bytes_count{via=\"PrometheusText0.0.4\"})"),
        Some(1.0)
    );
    assert_eq!(server.log(), "", "no error");
}

#[test]
fn the_newest_prometheus_has_names_as_they_are() {
    let exporters = exporters();
    let formats = ["PrometheusText1.0.0", "OpenMetricsText1.0.0"];
    let all = formats.map(|format| (format, exporters.utf8, format!("scrape_protocols: [{format}], ")));
    let server = Prometheus::start_release(Release::Newest, &jobs(Release::Newest, &all));
    for format in formats {
        let named = |name: &str| format!("{{\"{name}\",\"http.route\"=~\"a|/a\",via=\"{format}\"}}");
        server.wait_for_value(&named("room.temperature"), 21.5);
        server.wait_for_value(&named("sent"), 0.1);
        server.wait_for_value(&named("latency_sum"), 45.5);
    }
    assert_eq!(server.metadata("room.temperature")[0]["type"], "gauge");
    assert_eq!(server.log(), "", "no error");
}

#[test]
fn an_old_prometheus_has_what_we_were_sent() {
    let exporters = exporters();
    let release = Release::Stable;
    // Its choice of formats can't be configured: with the feature of native histograms it asks for protobuf, else for
    // OpenMetrics, and text is what is left when nothing else is offered.
    let native = Prometheus::start_release(
        release,
        &jobs(release, &[("protobuf", exporters.openmetrics, String::new())]),
    );
    let all = [
        ("openmetrics", exporters.openmetrics, String::new()),
        ("text", exporters.text, String::new()),
    ];
    let classic = Prometheus::start_plain(release, &jobs(release, &all));
    for (server, via) in [
        (&native, "protobuf"),
        (&classic, "openmetrics"),
        (&classic, "text"),
    ] {
        values_are_equal(server, via);
        types_are_right(server);
    }
    exemplars_are_equal(&native, "protobuf");
    exemplars_are_equal(&classic, "openmetrics");
    the_native_histogram_is_equal(&native, "protobuf");
    assert_eq!((native.log(), classic.log()), Default::default(), "no error");
}
