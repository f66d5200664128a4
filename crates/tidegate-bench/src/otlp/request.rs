//! A request as SDKs send it: one resource, one scope, metrics of ten points with five attributes each.

use bytes::Bytes;
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    Gauge, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;

const POINTS_PER_METRIC: usize = 10;

/// A string.
pub(crate) fn attribute(key: &str, value: String) -> KeyValue {
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue {
            value: Some(any_value::Value::StringValue(value)),
        }),
        ..Default::default()
    }
}

fn point(number: usize) -> NumberDataPoint {
    let names = ["host", "gpu", "model", "rank", "phase"];
    NumberDataPoint {
        attributes: names
            .iter()
            .map(|name| attribute(name, format!("{name}-{}", number % 97)))
            .collect(),
        start_time_unix_nano: 1,
        time_unix_nano: 2,
        value: Some(number_data_point::Value::AsDouble(number as f64)),
        ..Default::default()
    }
}

/// A request of so many points. It begins with `stamp`, the first thing in it, for whoever wants to know when it was
/// made.
pub(crate) fn request(points: usize, stamp: u64) -> Bytes {
    let metrics = (0..points).step_by(POINTS_PER_METRIC).map(|first| {
        let numbers = first..points.min(first + POINTS_PER_METRIC);
        let gauge = Gauge {
            data_points: numbers.map(point).collect(),
        };
        Metric {
            name: format!("bench.metric_{first}"),
            unit: "1".to_owned(),
            data: Some(metric::Data::Gauge(gauge)),
            ..Default::default()
        }
    });
    let resource = Resource {
        attributes: vec![
            attribute("stamp", format!("{stamp:020}")),
            attribute("service.name", "bench".to_owned()),
        ],
        ..Default::default()
    };
    let request = ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(resource),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "bench".to_owned(),
                    ..Default::default()
                }),
                metrics: metrics.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
    };
    request.encode_to_vec().into()
}

/// The stamp of a request, out of its first bytes.
pub(super) fn stamp(begin: &[u8]) -> Option<u64> {
    let digits = begin
        .windows(20)
        .find(|window| window.iter().all(u8::is_ascii_digit))?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_in_the_first_bytes() {
        for points in [1, 10, 8000] {
            let request = request(points, 1_234_567_890);
            assert_eq!(stamp(&request[..64]), Some(1_234_567_890));
        }
    }
}
