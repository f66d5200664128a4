// SPDX-License-Identifier: Apache-2.0

//! OTLP metrics flattened to what tests compare: one value per metric, resource and attributes.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    HistogramDataPoint, Metric, NumberDataPoint, metric, number_data_point,
};
use std::collections::BTreeMap;

/// Attributes by name, every value spelled as text.
pub(crate) type Attributes = BTreeMap<String, String>;

/// One data point with all that identifies it.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Point {
    pub(crate) name: String,
    pub(crate) unit: String,
    pub(crate) scope: String,
    pub(crate) resource: Attributes,
    pub(crate) attributes: Attributes,
    pub(crate) start_time_ns: u64,
    pub(crate) time_ns: u64,
    pub(crate) value: Value,
}

/// The value of a point. `temporality`: 1 delta, 2 cumulative.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Gauge(f64),
    Sum {
        value: f64,
        monotonic: bool,
        temporality: i32,
    },
    Histogram {
        count: u64,
        sum: Option<f64>,
        min: Option<f64>,
        max: Option<f64>,
        bounds: Vec<f64>,
        bucket_counts: Vec<u64>,
        temporality: i32,
    },
    /// An exponential histogram or a summary, of which tests look at the message itself.
    Other,
}

impl Point {
    /// The number of a gauge or sum.
    ///
    /// # Panics
    /// If it's neither.
    pub(crate) fn number(&self) -> f64 {
        match self.value {
            Value::Gauge(value) | Value::Sum { value, .. } => value,
            _ => panic!("{self:?} is not a number"),
        }
    }

    /// The value of an attribute of the point, else of the resource; empty if there is none.
    pub(crate) fn attribute(&self, name: &str) -> &str {
        let found = self.attributes.get(name).or(self.resource.get(name));
        found.map_or("", String::as_str)
    }
}

/// The points of these requests, in order.
pub(crate) fn points(requests: &[ExportMetricsServiceRequest]) -> Vec<Point> {
    let mut points = Vec::new();
    for resource in requests.iter().flat_map(|request| &request.resource_metrics) {
        let attributes = resource.resource.as_ref().map(|found| &found.attributes[..]);
        let attributes = attributes_of(attributes.unwrap_or_default());
        for scope in &resource.scope_metrics {
            let scope_name = scope.scope.as_ref().map_or("", |scope| &scope.name);
            for metric in &scope.metrics {
                let points_of_metric = points_of(metric).into_iter();
                points.extend(points_of_metric.map(|point| Point {
                    scope: scope_name.to_owned(),
                    resource: attributes.clone(),
                    ..point
                }));
            }
        }
    }
    points
}

fn points_of(metric: &Metric) -> Vec<Point> {
    let point = |attributes: &[KeyValue], start_time_ns, time_ns, value| Point {
        name: metric.name.clone(),
        unit: metric.unit.clone(),
        scope: String::new(),
        resource: Attributes::new(),
        attributes: attributes_of(attributes),
        start_time_ns,
        time_ns,
        value,
    };
    let numbers = |points: &[NumberDataPoint], value: &dyn Fn(f64) -> Value| {
        let points = points.iter();
        let flat = points.map(|p| {
            let (start, time) = (p.start_time_unix_nano, p.time_unix_nano);
            point(&p.attributes, start, time, value(number(p)))
        });
        flat.collect()
    };
    match metric.data.as_ref() {
        Some(metric::Data::Gauge(gauge)) => numbers(&gauge.data_points, &Value::Gauge),
        Some(metric::Data::Sum(sum)) => numbers(&sum.data_points, &|value| Value::Sum {
            value,
            monotonic: sum.is_monotonic,
            temporality: sum.aggregation_temporality,
        }),
        Some(metric::Data::Histogram(histogram)) => {
            let points = histogram.data_points.iter();
            let flat = points.map(|p| {
                let value = histogram_value(p, histogram.aggregation_temporality);
                point(&p.attributes, p.start_time_unix_nano, p.time_unix_nano, value)
            });
            flat.collect()
        }
        _ => vec![point(&[], 0, 0, Value::Other)],
    }
}

fn number(point: &NumberDataPoint) -> f64 {
    match point.value {
        Some(number_data_point::Value::AsDouble(value)) => value,
        Some(number_data_point::Value::AsInt(value)) => value as f64,
        None => f64::NAN,
    }
}

fn histogram_value(point: &HistogramDataPoint, temporality: i32) -> Value {
    Value::Histogram {
        count: point.count,
        sum: point.sum,
        min: point.min,
        max: point.max,
        bounds: point.explicit_bounds.clone(),
        bucket_counts: point.bucket_counts.clone(),
        temporality,
    }
}

/// Attributes with their values as text.
pub(crate) fn attributes_of(attributes: &[KeyValue]) -> Attributes {
    let spell = |attribute: &KeyValue| {
        let value = attribute.value.as_ref().and_then(|value| value.value.as_ref());
        match value {
            Some(any_value::Value::StringValue(text)) => text.clone(),
            Some(any_value::Value::BoolValue(value)) => value.to_string(),
            Some(any_value::Value::IntValue(value)) => value.to_string(),
            Some(any_value::Value::DoubleValue(value)) => value.to_string(),
            Some(other) => format!("{other:?}"),
            None => String::new(),
        }
    };
    let pairs = attributes.iter();
    pairs.map(|pair| (pair.key.clone(), spell(pair))).collect()
}
