// SPDX-License-Identifier: Apache-2.0

//! Native histograms, which only protobuf can say: of another gateway, which was pushed exponential ones, and of a
//! Prometheus server itself.

use super::{PROTOBUF, Recorded, Scene};
use crate::kit::any_metrics::{pair, text};
use crate::kit::{Gateway, Prometheus, Release, free_port, http};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::{ExponentialHistogram, ExponentialHistogramDataPoint, Metric};
use prost::Message;
use std::time::{SystemTime, UNIX_EPOCH};
use tidegate_requests::metric;

const CUMULATIVE: i32 = 2;

/// Offset and counts of a side.
type Side = (i32, &'static [u64]);

/// A histogram: its case, scale, zero bucket (count, threshold), positive and negative buckets.
type Case = (&'static str, i32, (u64, f64), Side, Side);

const NONE: Side = (0, &[]);
const CASES: [Case; 11] = [
    ("one side", 3, (0, 0.0), (-4, &[1, 2, 3]), NONE),
    ("both sides", 1, (2, 0.0), (-1, &[1, 0, 3, 5]), (2, &[1, 7])),
    ("negative only", 0, (0, 0.0), NONE, (-3, &[4, 0, 0, 1])),
    (
        "gaps, short and long",
        2,
        (0, 0.0),
        (5, &[1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 3]),
        NONE,
    ),
    ("zeros only", 4, (9, 0.5), NONE, NONE),
    ("wide zero bucket", 0, (3, 0.25), (-2, &[1, 1]), (-1, &[2])),
    ("empty", 5, (0, 0.0), NONE, NONE),
    ("finest", 8, (0, 0.0), (-300, &[1, 1, 1, 5]), NONE),
    (
        "finer than Prometheus has",
        11,
        (0, 0.0),
        (2047, &[1, 2, 3, 4, 5, 6, 7, 8]),
        NONE,
    ),
    ("coarsest", -4, (1, 0.0), (-1, &[3, 4]), (0, &[5])),
    ("large", 2, (0, 0.0), (0, &[1 << 52, 1, 1 << 40]), NONE),
];

/// All cases with `times` times their counts, counted from `start` on.
fn request(times: u64, start: u64) -> Vec<u8> {
    let side = |(offset, counts): Side| {
        let bucket_counts = counts.iter().map(|count| count * times).collect();
        (!counts.is_empty()).then_some(Buckets {
            offset,
            bucket_counts,
        })
    };
    let point = |(name, scale, (zeros, zero_threshold), positive, negative): Case| {
        let counts = positive.1.iter().chain(negative.1).chain([&zeros]);
        ExponentialHistogramDataPoint {
            attributes: vec![pair("case", text(name))],
            start_time_unix_nano: start,
            time_unix_nano: now(),
            count: counts.sum::<u64>() * times,
            sum: Some(times as f64 * 0.375),
            scale,
            zero_count: zeros * times,
            zero_threshold,
            positive: side(positive),
            negative: side(negative),
            ..ExponentialHistogramDataPoint::default()
        }
    };
    let data = ExponentialHistogram {
        data_points: CASES.map(point).to_vec(),
        aggregation_temporality: CUMULATIVE,
    };
    let metric = Metric {
        unit: "s".to_owned(),
        ..metric("took", Data::ExponentialHistogram(data))
    };
    let request = tidegate_requests::request(Vec::new(), "", [metric]);
    request.encode_to_vec()
}

fn now() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.expect("it is later than 1970").as_nanos() as u64
}

/// How many series of an instance the server itself has as native histograms.
fn natives(scene: &Scene, instance: &str) -> usize {
    let query = format!("{{via=\"direct\",instance=\"{instance}\"}}");
    let series = scene.prometheus.query_json(&query);
    series
        .iter()
        .filter(|series| !series["histogram"].is_null())
        .count()
}

#[test]
fn native_histograms_come_through_as_a_prometheus_scrapes_them() {
    const PAGE: &str = "/gateway/protobuf";
    const SERVER: &str = "/prometheus-3/protobuf";
    let (otlp, exporter) = (free_port(), free_port());
    let source = Gateway::start(&format!(
        "receivers: {{otlp: {{protocols: {{http: {{endpoint: \"127.0.0.1:{otlp}\"}}}}}}}}
exporters: {{prometheus: {{endpoint: \"127.0.0.1:{exporter}\"}}}}
service: {{pipelines: {{metrics: {{receivers: [otlp], exporters: [prometheus]}}}}}}
"
    ));
    let server = Prometheus::start_release(Release::Newest, "{}");
    // It measures how long requests take.
    assert_eq!(server.value("vector(1)"), Some(1.0));
    let page_after = |times: u64, start: u64| {
        let sent = http::post(
            otlp,
            "/v1/metrics",
            "application/x-protobuf",
            &request(times, start),
        );
        assert_eq!(sent.expect("the gateway answers").status, 200);
        let page = http::request("GET", exporter, "/metrics", &[("accept", PROTOBUF)], b"");
        page.expect("the gateway answers")
    };
    let begun = now() - 60_000_000_000;
    let mut recorded = Recorded::new();
    recorded.show(PAGE, page_after(2, begun), false);
    recorded.record("prometheus-3", server.port(), &[("protobuf", PROTOBUF)]);
    let scene = Scene::start(&recorded);
    scene.are_equal("protobuf", PAGE);
    scene.are_equal("protobuf", SERVER);
    assert_eq!(natives(&scene, PAGE), CASES.len(), "every case is there");
    assert!(natives(&scene, SERVER) > 0, "it has some of its own");
    // They grow, and begin again.
    for (times, start) in [(7, begun), (1, now())] {
        recorded.pages.show(PAGE, page_after(times, start));
        let sum = format!("sum(histogram_sum({{via=\"direct\",instance=\"{PAGE}\"}}))");
        let expected = CASES.len() as f64 * times as f64 * 0.375;
        scene.prometheus.wait_for_value(&sum, expected);
        scene.are_equal("protobuf", PAGE);
        assert_eq!(natives(&scene, PAGE), CASES.len(), "every case is there");
    }
    drop(source);
}
