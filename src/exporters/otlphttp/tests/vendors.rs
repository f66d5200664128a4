// SPDX-License-Identifier: Apache-2.0

//! Every preset against a sink that keeps the vendor's published rules, with metrics that break all of them.

use http::Response;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::{self as otlp, metric};
use prost::Message;
use tidegate_requests::{attribute, gauge, int, metric, request};

use super::*;
use crate::batch::{Batch, Signal, wire};
use crate::component::unix_now;
use crate::exporters::testing::Seen;
use crate::exporters::vendor::VENDORS;

/// The rules in a vendor's documentation, repeated independently of the code.
#[derive(Clone, Copy)]
struct Rules {
    path: &'static str,
    key: (&'static str, &'static str),
    max_bytes: usize,
    max_points: usize,
    max_buckets: usize,
    /// 1: delta, 2: cumulative; 0: either.
    temporality: i32,
    names: fn(&str) -> bool,
    keys: fn(&str) -> bool,
}

const ANY: Rules = Rules {
    path: "/base/v1/metrics",
    key: ("user-agent", "tidegate"),
    max_bytes: 64 << 20,
    max_points: usize::MAX,
    max_buckets: usize::MAX,
    temporality: 0,
    names: |_| true,
    keys: |_| true,
};

/// The answer of a server with these rules; a request that breaks one is refused whole.
fn keep(rules: Rules, seen: &Seen) -> Response<Body> {
    let Rules { key, .. } = rules;
    if seen.path != rules.path {
        return answer(404, "");
    }
    if !seen.header(key.0).starts_with(key.1) {
        return answer(401, "");
    }
    if seen.header("content-type") != "application/x-protobuf" {
        return answer(415, "");
    }
    if seen.message.len() > rules.max_bytes {
        return answer(413, "");
    }
    let request = ExportMetricsServiceRequest::decode(&*seen.message).unwrap();
    let mut points = 0;
    for metric in metrics(&request) {
        let (temporality, count, buckets) = about(metric);
        points += count;
        let wrong = (rules.temporality != 0 && temporality != 0 && temporality != rules.temporality)
            || buckets > rules.max_buckets
            || !(rules.names)(&metric.name)
            || keys(metric).any(|key| !(rules.keys)(key));
        if wrong {
            return answer(403, format!("{metric:?}"));
        }
    }
    if points > rules.max_points {
        answer(403, "too many points")
    } else {
        answer(200, "")
    }
}

fn metrics(request: &ExportMetricsServiceRequest) -> impl Iterator<Item = &otlp::Metric> {
    let scopes = request
        .resource_metrics
        .iter()
        .flat_map(|resource| &resource.scope_metrics);
    scopes.flat_map(|scope| &scope.metrics)
}

/// Temporality of what has one to keep to, points, most buckets.
fn about(metric: &otlp::Metric) -> (i32, usize, usize) {
    match metric.data.as_ref().expect("data") {
        metric::Data::Sum(sum) => (sum.aggregation_temporality, sum.data_points.len(), 0),
        metric::Data::Histogram(histogram) => {
            let buckets = histogram
                .data_points
                .iter()
                .map(|point| point.bucket_counts.len());
            (
                histogram.aggregation_temporality,
                histogram.data_points.len(),
                buckets.max().unwrap_or(0),
            )
        }
        metric::Data::Gauge(gauge) => (0, gauge.data_points.len(), 0),
        other => panic!("{other:?}"),
    }
}

fn keys(metric: &otlp::Metric) -> impl Iterator<Item = &str> {
    let points = match metric.data.as_ref().expect("data") {
        metric::Data::Sum(sum) => &sum.data_points[..],
        metric::Data::Gauge(gauge) => &gauge.data_points,
        _ => &[],
    };
    points
        .iter()
        .flat_map(|point| &point.attributes)
        .map(|attribute| attribute.key.as_str())
}

fn google_name(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic())
        && chars.all(|c| c.is_ascii_alphanumeric() || "_:./".contains(c))
}

fn google_key(name: &str) -> bool {
    let mut chars = name.chars();
    chars.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
        && chars.all(|c| c.is_ascii_alphanumeric() || "_.".contains(c))
}

/// A sink's answers, by the vendor's name.
fn server(vendor: &str) -> crate::exporters::testing::Answer {
    match vendor {
        "datadog" => |_, seen| {
            keep(
                Rules {
                    key: ("dd-api-key", "u:key"),
                    max_bytes: 5_100_000,
                    temporality: 1,
                    ..ANY
                },
                seen,
            )
        },
        "dynatrace" => |_, seen| {
            let rules = Rules {
                key: ("authorization", "Api-Token u:key"),
                max_bytes: 4_000_000,
                max_points: 15_000,
                temporality: 1,
                keys: |key| key.chars().all(|c| !c.is_uppercase()),
                ..ANY
            };
            keep(rules, seen)
        },
        "newrelic" => |_, seen| {
            keep(
                Rules {
                    key: ("api-key", "u:key"),
                    max_bytes: 1_000_000,
                    ..ANY
                },
                seen,
            )
        },
        "grafana_cloud" => |_, seen| {
            keep(
                Rules {
                    key: ("authorization", "Basic dTprZXk="),
                    temporality: 2,
                    ..ANY
                },
                seen,
            )
        },
        "splunk" => |_, seen| {
            let rules = Rules {
                path: "/base/v2/datapoint/otlp",
                key: ("x-sf-token", "u:key"),
                max_buckets: 30,
                ..ANY
            };
            keep(rules, seen)
        },
        "honeycomb" => |_, seen| {
            keep(
                Rules {
                    key: ("x-honeycomb-team", "u:key"),
                    ..ANY
                },
                seen,
            )
        },
        "chronosphere" => |_, seen| {
            let rules = Rules {
                key: ("api-token", "u:key"),
                max_bytes: 16_000_000,
                max_points: 9_999,
                ..ANY
            };
            keep(rules, seen)
        },
        "google_cloud" => |_, seen| {
            keep(
                Rules {
                    names: google_name,
                    keys: google_key,
                    temporality: 2,
                    ..ANY
                },
                seen,
            )
        },
        _ => |_, seen| keep(ANY, seen),
    }
}

const POINTS: usize = 16_000;

/// Counters of both temporalities, a gauge with a strange name, a histogram with many buckets.
fn batch(start: u64, time: u64) -> Batch {
    let number = |at: usize| otlp::NumberDataPoint {
        attributes: vec![
            attribute("Pod-Name", format!("pod {at}")),
            attribute("padding", "x".repeat(100)),
        ],
        start_time_unix_nano: start,
        time_unix_nano: time,
        ..int(5)
    };
    let sum = |name: &str, temporality, count| {
        let sum = otlp::Sum {
            data_points: (0..count).map(number).collect(),
            aggregation_temporality: temporality,
            is_monotonic: true,
        };
        metric(name, metric::Data::Sum(sum))
    };
    let histogram = otlp::Histogram {
        data_points: vec![otlp::HistogramDataPoint {
            start_time_unix_nano: start,
            time_unix_nano: time,
            count: 41,
            sum: Some(1.0),
            bucket_counts: vec![1; 41],
            explicit_bounds: (0..40).map(f64::from).collect(),
            ..Default::default()
        }],
        aggregation_temporality: 2,
    };
    let metrics = [
        sum("cumulative", 2, POINTS),
        sum("delta", 1, 1),
        metric("latency", metric::Data::Histogram(histogram)),
        gauge("4xx rate (%)", [number(0)]),
    ];
    let request = request(Vec::new(), "", metrics);
    Batch::new(wire::check(Signal::Metrics, request.encode_to_vec().into()).unwrap())
}

#[tokio::test]
async fn every_vendor_takes_everything_that_its_preset_sends() {
    for vendor in VENDORS {
        let name = crate::config::Decode::show(&vendor.name);
        let name = name.trim_matches('"');
        let sink = Sink::start(server(name)).await;
        let key = match vendor.key {
            crate::exporters::vendor::KeyAs::Extension(_) => "",
            _ => ", api_key: \"u:key\"",
        };
        let bench = bench(&sink, &format!(", vendor: {name}{key}")).await;
        let start = unix_now();
        let items = POINTS as u64 + 3;
        bench.push(batch(start, start + 1));
        bench.push(batch(start, start + 2));
        let balance = balance_when(&bench.ledgers[0], |balance| balance.held() == 0).await;
        let refused = sink.seen().len();
        assert_eq!(
            (balance.left, balance.dropped_total()),
            (2 * items, 0),
            "{name}: {refused} requests"
        );
        bench.stop().await;
    }
}

#[tokio::test]
async fn what_is_set_goes_before_the_preset() {
    let sink = Sink::start(|_, _| answer(200, "")).await;
    let more = ", vendor: splunk, api_key: k, headers: {X-SF-Token: mine}, temporality: preserve, max_buckets: 0, \
                compression: none, sending_queue: {max_request_items: 1}";
    let bench = bench(&sink, more).await;
    bench.push(points(2));
    balance_when(&bench.ledgers[0], |balance| balance.left == 2).await;
    let seen = sink.seen();
    assert_eq!(seen.len(), 2, "an item each");
    assert_eq!(seen[0].header("x-sf-token"), "mine");
    assert_eq!(seen[0].header("content-encoding"), "");
    bench.stop().await;
}
