// SPDX-License-Identifier: Apache-2.0

//! Encoded metrics to points. Series of one request share their resource, scope and metric.

use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use tidegate_engine::{
    AttributeValue, AttributesBuilder, Buckets, Data, Exemplar, ExponentialHistogram, Histogram, Metric,
    Point, Quantile, Resource, Scope, Series, Summary, Temporality, Value,
};

use super::ConvertError;
use super::attributes::{attributes_from_proto, build_attributes};
use crate::wire::text;
use crate::{Encoded, Signal, schema};

/// All points of a batch of metrics; U+FFFD replaces bytes that are not UTF-8.
///
/// # Errors
/// A part of the batch is not an OTLP request of metrics.
pub fn points(encoded: &Encoded) -> Result<Vec<Point>, ConvertError> {
    let schema = schema::request(Signal::Metrics);
    let mut points = Vec::with_capacity(encoded.items());
    let mut builder = AttributesBuilder::default();
    for part in &encoded.parts {
        let request = text::decode::<ExportMetricsServiceRequest>(schema, &part.bytes)?;
        for resource_metrics in request.resource_metrics {
            decode_resource(resource_metrics, &mut builder, &mut points);
        }
    }
    Ok(points)
}

fn decode_resource(metrics: otlp::ResourceMetrics, builder: &mut AttributesBuilder, points: &mut Vec<Point>) {
    let resource = Arc::new(Resource {
        attributes: attributes_from_proto(&metrics.resource.unwrap_or_default().attributes),
        schema_url: metrics.schema_url.into(),
    });
    for scope_metrics in metrics.scope_metrics {
        let scope = Arc::new(scope(
            scope_metrics.scope.unwrap_or_default(),
            scope_metrics.schema_url,
        ));
        for metric in scope_metrics.metrics {
            Context {
                resource: &resource,
                scope: &scope,
                builder,
                points,
            }
            .metric(metric);
        }
    }
}

fn scope(scope: InstrumentationScope, schema_url: String) -> Scope {
    Scope {
        name: scope.name.into(),
        version: scope.version.into(),
        attributes: attributes_from_proto(&scope.attributes),
        schema_url: schema_url.into(),
    }
}

struct Context<'a> {
    resource: &'a Arc<Resource>,
    scope: &'a Arc<Scope>,
    /// For the attributes of all points.
    builder: &'a mut AttributesBuilder,
    points: &'a mut Vec<Point>,
}

/// The fields that all kinds of points have.
struct Common {
    attributes: Vec<KeyValue>,
    start: u64,
    time: u64,
    flags: u32,
    exemplars: Vec<otlp::Exemplar>,
}

impl Context<'_> {
    fn metric(&mut self, metric: otlp::Metric) {
        let otlp::Metric {
            name,
            description,
            unit,
            metadata,
            data,
        } = metric;
        let Some(data) = data else { return };
        let kind = kind(&data);
        let metric = Arc::new(Metric {
            name: name.into(),
            description: description.into(),
            unit: unit.into(),
            data: kind,
            metadata: attributes_from_proto(&metadata),
        });
        match data {
            otlp::metric::Data::Gauge(gauge) => self.numbers(&metric, gauge.data_points),
            otlp::metric::Data::Sum(sum) => self.numbers(&metric, sum.data_points),
            otlp::metric::Data::Histogram(histogram) => {
                for point in histogram.data_points {
                    let (common, value) = histogram_point(point);
                    self.push(&metric, common, value);
                }
            }
            otlp::metric::Data::ExponentialHistogram(histogram) => {
                for point in histogram.data_points {
                    let (common, value) = exponential_point(point);
                    self.push(&metric, common, value);
                }
            }
            otlp::metric::Data::Summary(summary) => {
                for point in summary.data_points {
                    let (common, value) = summary_point(point);
                    self.push(&metric, common, value);
                }
            }
        }
    }

    fn numbers(&mut self, metric: &Arc<Metric>, points: Vec<otlp::NumberDataPoint>) {
        for point in points {
            let value = match point.value {
                Some(otlp::number_data_point::Value::AsInt(number)) => Value::Int(number),
                Some(otlp::number_data_point::Value::AsDouble(number)) => Value::Double(number),
                None => Value::NoRecordedValue,
            };
            let common = Common {
                attributes: point.attributes,
                start: point.start_time_unix_nano,
                time: point.time_unix_nano,
                flags: point.flags,
                exemplars: point.exemplars,
            };
            self.push(metric, common, value);
        }
    }

    fn push(&mut self, metric: &Arc<Metric>, common: Common, value: Value) {
        const NO_RECORDED_VALUE: u32 = otlp::DataPointFlags::NoRecordedValueMask as u32;
        let ended = common.flags & NO_RECORDED_VALUE != 0;
        self.points.push(Point {
            series: Arc::new(Series {
                resource: self.resource.clone(),
                scope: self.scope.clone(),
                metric: metric.clone(),
                attributes: build_attributes(&common.attributes, self.builder),
            }),
            start: common.start,
            time: common.time,
            value: if ended { Value::NoRecordedValue } else { value },
            exemplars: common.exemplars.into_iter().map(exemplar).collect(),
        });
    }
}

fn kind(data: &otlp::metric::Data) -> Data {
    match data {
        otlp::metric::Data::Gauge(_) => Data::Gauge,
        otlp::metric::Data::Sum(sum) => Data::Sum {
            monotonic: sum.is_monotonic,
            temporality: temporality(sum.aggregation_temporality),
        },
        otlp::metric::Data::Histogram(histogram) => Data::Histogram {
            temporality: temporality(histogram.aggregation_temporality),
        },
        otlp::metric::Data::ExponentialHistogram(histogram) => Data::ExponentialHistogram {
            temporality: temporality(histogram.aggregation_temporality),
        },
        otlp::metric::Data::Summary(_) => Data::Summary,
    }
}

pub(crate) fn temporality(number: i32) -> Temporality {
    match otlp::AggregationTemporality::try_from(number) {
        Ok(otlp::AggregationTemporality::Delta) => Temporality::Delta,
        Ok(otlp::AggregationTemporality::Cumulative) => Temporality::Cumulative,
        Ok(otlp::AggregationTemporality::Unspecified) | Err(_) => Temporality::Unspecified,
    }
}

fn histogram_point(point: otlp::HistogramDataPoint) -> (Common, Value) {
    let value = Histogram {
        count: point.count,
        sum: point.sum,
        min: point.min,
        max: point.max,
        bounds: point.explicit_bounds.into(),
        counts: point.bucket_counts,
    };
    let common = Common {
        attributes: point.attributes,
        start: point.start_time_unix_nano,
        time: point.time_unix_nano,
        flags: point.flags,
        exemplars: point.exemplars,
    };
    (common, Value::Histogram(Box::new(value)))
}

fn exponential_point(point: otlp::ExponentialHistogramDataPoint) -> (Common, Value) {
    let buckets = |buckets: Option<otlp::exponential_histogram_data_point::Buckets>| {
        let buckets = buckets.unwrap_or_default();
        Buckets {
            offset: buckets.offset,
            counts: buckets.bucket_counts,
        }
    };
    let value = ExponentialHistogram {
        count: point.count,
        sum: point.sum,
        min: point.min,
        max: point.max,
        scale: point.scale,
        zero_count: point.zero_count,
        zero_threshold: point.zero_threshold,
        positive: buckets(point.positive),
        negative: buckets(point.negative),
    };
    let common = Common {
        attributes: point.attributes,
        start: point.start_time_unix_nano,
        time: point.time_unix_nano,
        flags: point.flags,
        exemplars: point.exemplars,
    };
    (common, Value::ExponentialHistogram(Box::new(value)))
}

fn summary_point(point: otlp::SummaryDataPoint) -> (Common, Value) {
    let quantiles = point.quantile_values.into_iter().map(|q| Quantile {
        quantile: q.quantile,
        value: q.value,
    });
    let value = Summary {
        count: point.count,
        sum: point.sum,
        quantiles: quantiles.collect(),
    };
    let common = Common {
        attributes: point.attributes,
        start: point.start_time_unix_nano,
        time: point.time_unix_nano,
        flags: point.flags,
        exemplars: Vec::new(),
    };
    (common, Value::Summary(Box::new(value)))
}

fn exemplar(exemplar: otlp::Exemplar) -> Exemplar {
    Exemplar {
        filtered_attributes: attributes_from_proto(&exemplar.filtered_attributes),
        time: exemplar.time_unix_nano,
        value: match exemplar.value {
            Some(otlp::exemplar::Value::AsInt(number)) => AttributeValue::Int(number),
            Some(otlp::exemplar::Value::AsDouble(number)) => AttributeValue::Double(number),
            None => AttributeValue::Empty,
        },
        trace_id: exemplar.trace_id,
        span_id: exemplar.span_id,
    }
}
