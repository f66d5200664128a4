// SPDX-License-Identifier: Apache-2.0

//! OTLP requests of metrics for tests and benches, made by short calls. Other fields of a message have their defaults:
//! `Metric { unit: "s".into(), ..counter("x", points) }`.

#![forbid(unsafe_code)]

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics,
    ScopeMetrics, Sum, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;

/// Metrics of one scope of one resource, which are there if they have a name or attributes.
pub fn request(
    resource: Vec<KeyValue>,
    scope: &str,
    metrics: impl IntoIterator<Item = Metric>,
) -> ExportMetricsServiceRequest {
    let resource = Resource {
        attributes: resource,
        ..Default::default()
    };
    let scope = InstrumentationScope {
        name: scope.to_owned(),
        ..Default::default()
    };
    let scope_metrics = ScopeMetrics {
        scope: (!scope.name.is_empty()).then_some(scope),
        metrics: metrics.into_iter().collect(),
        ..Default::default()
    };
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: (!resource.attributes.is_empty()).then_some(resource),
            scope_metrics: vec![scope_metrics],
            ..Default::default()
        }],
    }
}

/// An attribute whose value is text.
pub fn attribute(key: &str, value: impl Into<String>) -> KeyValue {
    let value = any_value::Value::StringValue(value.into());
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}

/// A point of a gauge or of a sum, without attributes.
pub fn int(value: i64) -> NumberDataPoint {
    NumberDataPoint {
        value: Some(number_data_point::Value::AsInt(value)),
        ..Default::default()
    }
}

/// A metric of any data.
pub fn metric(name: impl Into<String>, data: metric::Data) -> Metric {
    Metric {
        name: name.into(),
        data: Some(data),
        ..Default::default()
    }
}

/// A gauge.
pub fn gauge(name: impl Into<String>, points: impl IntoIterator<Item = NumberDataPoint>) -> Metric {
    let data_points = points.into_iter().collect();
    metric(name, metric::Data::Gauge(Gauge { data_points }))
}

/// A monotonic, cumulative sum.
pub fn counter(name: impl Into<String>, points: impl IntoIterator<Item = NumberDataPoint>) -> Metric {
    let sum = Sum {
        data_points: points.into_iter().collect(),
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
        is_monotonic: true,
    };
    metric(name, metric::Data::Sum(sum))
}

/// A cumulative histogram.
pub fn histogram(name: impl Into<String>, points: impl IntoIterator<Item = HistogramDataPoint>) -> Metric {
    let histogram = Histogram {
        data_points: points.into_iter().collect(),
        aggregation_temporality: AggregationTemporality::Cumulative.into(),
    };
    metric(name, metric::Data::Histogram(histogram))
}
