// SPDX-License-Identifier: Apache-2.0

//! Points to OTLP metrics. Points that share resource, scope and metric share the messages, wherever they stand.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::Arc;

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::InstrumentationScope;
use opentelemetry_proto::tonic::metrics::v1 as otlp;
use opentelemetry_proto::tonic::resource::v1 as otlp_resource;
use prost::Message;
use tidegate_engine::{
    AttributeValue, Buckets, Data, Exemplar, Metric, Point, Resource, Scope, Series, Temporality, Value,
};

use super::attributes_to_proto;
use crate::{Encoded, Signal};

/// A request with all points, in their order within each metric; messages in the order of their first point.
pub fn encode_points(points: &[Point]) -> Encoded {
    let mut request = ExportMetricsServiceRequest::default();
    let mut places = MessageIndexes::default();
    for point in points {
        push(places.metric(&mut request, &point.series), point);
    }
    Encoded::one(Signal::Metrics, request.encode_to_vec().into(), points.len())
}

/// Where the messages stand that have been made: by their number in the message around them.
#[derive(Default)]
struct MessageIndexes<'a> {
    resources: Level<'a, (), Resource>,
    scopes: Level<'a, usize, Scope>,
    metrics: Level<'a, (usize, usize), Metric>,
}

impl<'a> MessageIndexes<'a> {
    fn metric<'r>(
        &mut self,
        request: &'r mut ExportMetricsServiceRequest,
        series: &'a Series,
    ) -> &'r mut otlp::Metric {
        let Series {
            resource,
            scope,
            metric,
            ..
        } = series;
        let resources = &mut request.resource_metrics;
        let in_resources = self.resources.index_of((), resource, resources, resource_metrics);
        let scopes = &mut resources[in_resources].scope_metrics;
        let in_scopes = self.scopes.index_of(in_resources, scope, scopes, scope_metrics);
        let metrics = &mut scopes[in_scopes].metrics;
        let in_metrics = self
            .metrics
            .index_of((in_resources, in_scopes), metric, metrics, empty_metric);
        &mut metrics[in_metrics]
    }
}

/// The messages of one level, by what they stand for and by where the message around them stands.
struct Level<'a, Around, T> {
    /// The one asked for last: most points follow another of the same.
    last: Option<(Around, &'a Arc<T>, usize)>,
    places: HashMap<(Around, &'a T), usize>,
}

impl<Around, T> Default for Level<'_, Around, T> {
    fn default() -> Self {
        Self {
            last: None,
            places: HashMap::new(),
        }
    }
}

impl<'a, Around: Copy + Eq + Hash, T: Eq + Hash> Level<'a, Around, T> {
    /// Where the wanted one stands in its list; put there when it is new.
    fn index_of<M>(
        &mut self,
        around: Around,
        wanted: &'a Arc<T>,
        list: &mut Vec<M>,
        make: fn(&T) -> M,
    ) -> usize {
        if let Some((last_around, last, place)) = self.last
            && last_around == around
            && Arc::ptr_eq(last, wanted)
        {
            return place;
        }
        let place = *self.places.entry((around, wanted)).or_insert_with(|| {
            list.push(make(wanted));
            list.len() - 1
        });
        self.last = Some((around, wanted, place));
        place
    }
}

fn resource_metrics(resource: &Resource) -> otlp::ResourceMetrics {
    otlp::ResourceMetrics {
        resource: Some(otlp_resource::Resource {
            attributes: attributes_to_proto(&resource.attributes),
            ..Default::default()
        }),
        schema_url: resource.schema_url.to_string(),
        ..Default::default()
    }
}

fn scope_metrics(scope: &Scope) -> otlp::ScopeMetrics {
    otlp::ScopeMetrics {
        scope: Some(InstrumentationScope {
            name: scope.name.to_string(),
            version: scope.version.to_string(),
            attributes: attributes_to_proto(&scope.attributes),
            ..Default::default()
        }),
        schema_url: scope.schema_url.to_string(),
        ..Default::default()
    }
}

fn temporality(temporality: Temporality) -> i32 {
    match temporality {
        Temporality::Unspecified => otlp::AggregationTemporality::Unspecified as i32,
        Temporality::Delta => otlp::AggregationTemporality::Delta as i32,
        Temporality::Cumulative => otlp::AggregationTemporality::Cumulative as i32,
    }
}

fn empty_metric(metric: &Metric) -> otlp::Metric {
    let data = match metric.data {
        Data::Gauge => otlp::metric::Data::Gauge(otlp::Gauge::default()),
        Data::Sum {
            monotonic,
            temporality: of,
        } => otlp::metric::Data::Sum(otlp::Sum {
            aggregation_temporality: temporality(of),
            is_monotonic: monotonic,
            ..Default::default()
        }),
        Data::Histogram { temporality: of } => otlp::metric::Data::Histogram(otlp::Histogram {
            aggregation_temporality: temporality(of),
            ..Default::default()
        }),
        Data::ExponentialHistogram { temporality: of } => {
            otlp::metric::Data::ExponentialHistogram(otlp::ExponentialHistogram {
                aggregation_temporality: temporality(of),
                ..Default::default()
            })
        }
        Data::Summary => otlp::metric::Data::Summary(otlp::Summary::default()),
    };
    otlp::Metric {
        name: metric.name.to_string(),
        description: metric.description.to_string(),
        unit: metric.unit.to_string(),
        metadata: attributes_to_proto(&metric.metadata),
        data: Some(data),
    }
}

fn flags(value: &Value) -> u32 {
    match value {
        Value::NoRecordedValue => otlp::DataPointFlags::NoRecordedValueMask as u32,
        _ => 0,
    }
}

fn push(metric: &mut otlp::Metric, point: &Point) {
    match &mut metric.data {
        Some(otlp::metric::Data::Gauge(gauge)) => gauge.data_points.push(number(point)),
        Some(otlp::metric::Data::Sum(sum)) => sum.data_points.push(number(point)),
        Some(otlp::metric::Data::Histogram(histogram)) => histogram.data_points.push(histogram_point(point)),
        Some(otlp::metric::Data::ExponentialHistogram(histogram)) => {
            histogram.data_points.push(exponential_point(point));
        }
        Some(otlp::metric::Data::Summary(summary)) => summary.data_points.push(summary_point(point)),
        None => {}
    }
}

fn number(point: &Point) -> otlp::NumberDataPoint {
    otlp::NumberDataPoint {
        attributes: attributes_to_proto(&point.series.attributes),
        start_time_unix_nano: point.start,
        time_unix_nano: point.time,
        exemplars: point.exemplars.iter().map(exemplar).collect(),
        flags: flags(&point.value),
        value: match point.value {
            Value::Int(number) => Some(otlp::number_data_point::Value::AsInt(number)),
            Value::Double(number) => Some(otlp::number_data_point::Value::AsDouble(number)),
            _ => None,
        },
    }
}

fn histogram_point(point: &Point) -> otlp::HistogramDataPoint {
    let mut to = otlp::HistogramDataPoint {
        attributes: attributes_to_proto(&point.series.attributes),
        start_time_unix_nano: point.start,
        time_unix_nano: point.time,
        exemplars: point.exemplars.iter().map(exemplar).collect(),
        flags: flags(&point.value),
        ..Default::default()
    };
    if let Value::Histogram(histogram) = &point.value {
        (to.count, to.sum, to.min, to.max) = (histogram.count, histogram.sum, histogram.min, histogram.max);
        to.bucket_counts.clone_from(&histogram.counts);
        to.explicit_bounds = histogram.bounds.to_vec();
    }
    to
}

fn exponential_point(point: &Point) -> otlp::ExponentialHistogramDataPoint {
    let buckets = |buckets: &Buckets| otlp::exponential_histogram_data_point::Buckets {
        offset: buckets.offset,
        bucket_counts: buckets.counts.clone(),
    };
    let mut to = otlp::ExponentialHistogramDataPoint {
        attributes: attributes_to_proto(&point.series.attributes),
        start_time_unix_nano: point.start,
        time_unix_nano: point.time,
        exemplars: point.exemplars.iter().map(exemplar).collect(),
        flags: flags(&point.value),
        ..Default::default()
    };
    if let Value::ExponentialHistogram(histogram) = &point.value {
        (to.count, to.sum, to.min, to.max) = (histogram.count, histogram.sum, histogram.min, histogram.max);
        (to.scale, to.zero_count, to.zero_threshold) =
            (histogram.scale, histogram.zero_count, histogram.zero_threshold);
        (to.positive, to.negative) = (
            Some(buckets(&histogram.positive)),
            Some(buckets(&histogram.negative)),
        );
    }
    to
}

fn summary_point(point: &Point) -> otlp::SummaryDataPoint {
    let mut to = otlp::SummaryDataPoint {
        attributes: attributes_to_proto(&point.series.attributes),
        start_time_unix_nano: point.start,
        time_unix_nano: point.time,
        flags: flags(&point.value),
        ..Default::default()
    };
    if let Value::Summary(summary) = &point.value {
        (to.count, to.sum) = (summary.count, summary.sum);
        let quantile = |q: &tidegate_engine::Quantile| otlp::summary_data_point::ValueAtQuantile {
            quantile: q.quantile,
            value: q.value,
        };
        to.quantile_values = summary.quantiles.iter().map(quantile).collect();
    }
    to
}

fn exemplar(exemplar: &Exemplar) -> otlp::Exemplar {
    otlp::Exemplar {
        filtered_attributes: attributes_to_proto(&exemplar.filtered_attributes),
        time_unix_nano: exemplar.time,
        span_id: exemplar.span_id.clone(),
        trace_id: exemplar.trace_id.clone(),
        value: match exemplar.value {
            AttributeValue::Int(number) => Some(otlp::exemplar::Value::AsInt(number)),
            AttributeValue::Double(number) => Some(otlp::exemplar::Value::AsDouble(number)),
            _ => None,
        },
    }
}
