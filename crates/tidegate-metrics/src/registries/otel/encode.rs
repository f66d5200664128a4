// SPDX-License-Identifier: Apache-2.0

//! Values as messages of OTLP.

use std::time::{SystemTime, UNIX_EPOCH};

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use opentelemetry_proto::tonic::resource::v1::Resource;
use otlp::exponential_histogram_data_point::Buckets;
use otlp::{metric, number_data_point};

use super::build::Temporality;
use crate::value::{Exemplar, ExponentialBuckets, FamilyValues, SeriesValues, Value};

/// When points count from, and when they were taken.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) now: u64,
}

pub(super) fn nanos(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64)
}

/// How many points a push has.
pub(super) fn points(families: &[FamilyValues]) -> usize {
    families.iter().map(|family| family.series.len()).sum()
}

/// A push. `total` are the times of what is cumulative in any case.
pub(super) fn request(
    resource: &Resource,
    families: &[FamilyValues],
    temporality: Temporality,
    times: Times,
    total: Times,
) -> ExportMetricsServiceRequest {
    let metrics = families
        .iter()
        .filter(|family| !family.series.is_empty())
        .map(|family| otlp::Metric {
            name: family.name.clone(),
            description: family.help.clone(),
            unit: family.unit.clone(),
            metadata: Vec::new(),
            data: Some(data(family, temporality, times, total)),
        });
    let scope = InstrumentationScope {
        name: "tidegate-metrics".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        ..InstrumentationScope::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![otlp::ResourceMetrics {
            resource: Some(resource.clone()),
            scope_metrics: vec![otlp::ScopeMetrics {
                scope: Some(scope),
                metrics: metrics.collect(),
                schema_url: String::new(),
            }],
            schema_url: String::new(),
        }],
    }
}

fn data(family: &FamilyValues, temporality: Temporality, times: Times, total: Times) -> metric::Data {
    use crate::Kind;
    let chosen = match temporality {
        Temporality::Cumulative => otlp::AggregationTemporality::Cumulative as i32,
        Temporality::Delta => otlp::AggregationTemporality::Delta as i32,
    };
    let numbers = |times: Times| family.series.iter().map(|series| number(series, times)).collect();
    match &family.kind {
        Kind::Counter | Kind::FloatCounter => metric::Data::Sum(otlp::Sum {
            data_points: numbers(times),
            aggregation_temporality: chosen,
            is_monotonic: true,
        }),
        Kind::UpDownCounter => metric::Data::Sum(otlp::Sum {
            data_points: numbers(total),
            aggregation_temporality: otlp::AggregationTemporality::Cumulative as i32,
            is_monotonic: false,
        }),
        Kind::Gauge(_) => metric::Data::Gauge(otlp::Gauge {
            data_points: numbers(Times { start: 0, ..times }),
        }),
        Kind::Histogram { .. } | Kind::Summary => metric::Data::Histogram(otlp::Histogram {
            data_points: family
                .series
                .iter()
                .filter_map(|series| explicit(series, times))
                .collect(),
            aggregation_temporality: chosen,
        }),
        Kind::ExponentialHistogram { .. } => metric::Data::ExponentialHistogram(otlp::ExponentialHistogram {
            data_points: family
                .series
                .iter()
                .filter_map(|series| exponential(series, times))
                .collect(),
            aggregation_temporality: chosen,
        }),
    }
}

fn number(series: &SeriesValues, times: Times) -> otlp::NumberDataPoint {
    let value = match &series.value {
        // OTLP's whole numbers have a sign.
        Value::Counter(value) => match i64::try_from(*value) {
            Ok(value) => number_data_point::Value::AsInt(value),
            Err(_) => number_data_point::Value::AsDouble(*value as f64),
        },
        Value::UpDownCounter(value) => number_data_point::Value::AsInt(*value),
        other => number_data_point::Value::AsDouble(other.as_f64()),
    };
    otlp::NumberDataPoint {
        attributes: attributes(&series.labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        exemplars: series.exemplars.iter().map(exemplar).collect(),
        flags: 0,
        value: Some(value),
    }
}

fn explicit(series: &SeriesValues, times: Times) -> Option<otlp::HistogramDataPoint> {
    let Value::Histogram(histogram) = &series.value else {
        return None;
    };
    Some(otlp::HistogramDataPoint {
        attributes: attributes(&series.labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: histogram.count(),
        sum: Some(histogram.sum),
        bucket_counts: histogram.counts.clone(),
        explicit_bounds: histogram.bounds.to_vec(),
        exemplars: series.exemplars.iter().map(exemplar).collect(),
        flags: 0,
        min: None,
        max: None,
    })
}

fn exponential(series: &SeriesValues, times: Times) -> Option<otlp::ExponentialHistogramDataPoint> {
    let Value::Exponential(value) = &series.value else {
        return None;
    };
    let side = |side: &ExponentialBuckets| Buckets {
        offset: side.offset,
        bucket_counts: side.counts.clone(),
    };
    Some(otlp::ExponentialHistogramDataPoint {
        attributes: attributes(&series.labels),
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: value.count,
        sum: value.sum,
        scale: value.scale,
        zero_count: value.zero_count,
        positive: Some(side(&value.positive)),
        negative: Some(side(&value.negative)),
        flags: 0,
        exemplars: series.exemplars.iter().map(exemplar).collect(),
        min: None,
        max: None,
        zero_threshold: 0.0,
    })
}

fn exemplar(exemplar: &Exemplar) -> otlp::Exemplar {
    otlp::Exemplar {
        filtered_attributes: Vec::new(),
        time_unix_nano: nanos(exemplar.time),
        span_id: exemplar.span.span.to_vec(),
        trace_id: exemplar.span.trace.to_vec(),
        value: Some(otlp::exemplar::Value::AsDouble(exemplar.value)),
    }
}

fn attributes(labels: &[(String, String)]) -> Vec<KeyValue> {
    labels.iter().map(|(key, value)| attribute(key, value)).collect()
}

pub(super) fn attribute(key: &str, value: &str) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value.to_owned())),
        }),
        ..KeyValue::default()
    }
}
