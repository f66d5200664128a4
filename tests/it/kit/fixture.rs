// SPDX-License-Identifier: Apache-2.0

//! One metric of every kind, with exemplars and a start, as a service would send them.

use super::any_metrics::{pair, text};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum, Summary, SummaryDataPoint, exemplar,
    number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use std::time::{SystemTime, UNIX_EPOCH};

/// OTLP's number of it.
const CUMULATIVE: i32 = 2;

/// The trace that every exemplar belongs to, as its label says it.
pub(crate) const TRACE: &str = "0102030405060708090a0b0c0d0e0f10";

/// A request with every kind of metric, measured now; counters began a minute ago.
pub(crate) fn every_kind() -> ExportMetricsServiceRequest {
    let now = now();
    let resource = [
        ("service.namespace", "prod"),
        ("service.name", "shop"),
        ("service.instance.id", "i-1"),
        ("host.name", "worker"),
    ];
    let scope = InstrumentationScope {
        name: "checkout".to_owned(),
        version: "1.2".to_owned(),
        ..InstrumentationScope::default()
    };
    let metrics = vec![
        metric(
            "room.temperature",
            "Cel",
            gauge(&[("a", 21.5), ("b", -0.25)], now),
        ),
        metric(
            "odd",
            "",
            gauge(
                &[("nan", f64::NAN), ("inf", f64::INFINITY), ("least", 5e-324)],
                now,
            ),
        ),
        metric(
            "requests",
            "{request}",
            counter(number_data_point::Value::AsInt(12_345_678_901), now),
        ),
        metric(
            "sent",
            "By",
            counter(number_data_point::Value::AsDouble(0.1), now),
        ),
        metric("queue", "1", queue(now)),
        metric("latency", "s", histogram(now)),
        metric("size", "By", exponential(now)),
        metric("pause", "s", summary(now)),
    ];
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: resource.map(|(key, value)| pair(key, text(value))).to_vec(),
                ..Resource::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(scope),
                metrics,
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

/// Nanoseconds since 1970.
fn now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .expect("it is later than 1970");
    now.as_nanos() as u64
}

/// When what counts began.
fn start(now: u64) -> u64 {
    now - 60_000_000_000
}

fn metric(name: &str, unit: &str, data: Data) -> Metric {
    Metric {
        name: name.to_owned(),
        description: format!("What {name} is"),
        unit: unit.to_owned(),
        data: Some(data),
        metadata: Vec::new(),
    }
}

fn route_attributes(value: &str) -> Vec<KeyValue> {
    vec![pair("http.route", text(value))]
}

fn number(attributes: Vec<KeyValue>, value: number_data_point::Value, now: u64) -> NumberDataPoint {
    NumberDataPoint {
        attributes,
        time_unix_nano: now,
        value: Some(value),
        ..NumberDataPoint::default()
    }
}

fn gauge(values: &[(&str, f64)], now: u64) -> Data {
    let point = |(name, value): &(&str, f64)| {
        number(
            route_attributes(name),
            number_data_point::Value::AsDouble(*value),
            now,
        )
    };
    Data::Gauge(Gauge {
        data_points: values.iter().map(point).collect(),
    })
}

fn counter(value: number_data_point::Value, now: u64) -> Data {
    let point = NumberDataPoint {
        start_time_unix_nano: start(now),
        exemplars: vec![exemplar(3.0, now)],
        ..number(route_attributes("/a"), value, now)
    };
    Data::Sum(Sum {
        data_points: vec![point],
        aggregation_temporality: CUMULATIVE,
        is_monotonic: true,
    })
}

fn queue(now: u64) -> Data {
    Data::Sum(Sum {
        data_points: vec![number(Vec::new(), number_data_point::Value::AsInt(-3), now)],
        aggregation_temporality: CUMULATIVE,
        is_monotonic: false,
    })
}

fn histogram(now: u64) -> Data {
    Data::Histogram(Histogram {
        data_points: vec![HistogramDataPoint {
            attributes: route_attributes("/a"),
            start_time_unix_nano: start(now),
            time_unix_nano: now,
            count: 10,
            sum: Some(45.5),
            explicit_bounds: vec![0.25, 1.0, 10.0],
            bucket_counts: vec![1, 2, 3, 4],
            exemplars: vec![exemplar(0.5, now), exemplar(20.0, now)],
            ..HistogramDataPoint::default()
        }],
        aggregation_temporality: CUMULATIVE,
    })
}

/// Scale 1: a bucket grows by the root of 2.
fn exponential(now: u64) -> Data {
    let buckets = |offset, bucket_counts: &[u64]| {
        Some(Buckets {
            offset,
            bucket_counts: bucket_counts.to_vec(),
        })
    };
    Data::ExponentialHistogram(ExponentialHistogram {
        data_points: vec![ExponentialHistogramDataPoint {
            attributes: route_attributes("/a"),
            start_time_unix_nano: start(now),
            time_unix_nano: now,
            count: 12,
            sum: Some(30.5),
            scale: 1,
            zero_count: 2,
            positive: buckets(-1, &[1, 0, 3, 5]),
            negative: buckets(2, &[1]),
            exemplars: vec![exemplar(1.2, now)],
            ..ExponentialHistogramDataPoint::default()
        }],
        aggregation_temporality: CUMULATIVE,
    })
}

fn summary(now: u64) -> Data {
    let quantile = |(quantile, value)| ValueAtQuantile { quantile, value };
    Data::Summary(Summary {
        data_points: vec![SummaryDataPoint {
            attributes: route_attributes("/a"),
            start_time_unix_nano: start(now),
            time_unix_nano: now,
            count: 7,
            sum: 3.5,
            quantile_values: [(0.5, 0.25), (0.99, 1.5)].map(quantile).to_vec(),
            flags: 0,
        }],
    })
}

fn exemplar(value: f64, now: u64) -> Exemplar {
    Exemplar {
        filtered_attributes: vec![pair("user", text("u-1"))],
        time_unix_nano: now,
        value: Some(exemplar::Value::AsDouble(value)),
        trace_id: (1..=16).collect(),
        span_id: (1..=8).collect(),
    }
}
