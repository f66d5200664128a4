// SPDX-License-Identifier: Apache-2.0

//! Requests as SDKs send them: one resource, one scope, metrics of ten points with five attributes each.

use std::str::FromStr;

use bytes::{Bytes, BytesMut};
use opentelemetry_proto::tonic::common::v1::{InstrumentationScope, KeyValue};
use opentelemetry_proto::tonic::metrics::v1::{
    HistogramDataPoint, Metric, NumberDataPoint, number_data_point,
};
use prost::Message;
use tidegate_requests::{attribute, counter, gauge, histogram};

const POINTS_PER_METRIC: usize = 10;
/// The stamp is within as many bytes of the beginning of a request.
const STAMPED: usize = 64;
/// Digits of a stamp.
const DIGITS: usize = 20;
/// Nanoseconds since 1970 when every series began, and from one request to the next.
const BEGUN: u64 = 1_760_000_000_000_000_000;
const STEP: u64 = 15_000_000_000;

/// The kind of the points of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PointKind {
    Gauge,
    /// Cumulative and monotonic.
    Sum,
    /// Cumulative, of 14 bounds.
    Histogram,
    /// Every other metric a sum, the others gauges.
    Mixed,
}

impl FromStr for PointKind {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        match name {
            "gauge" => Ok(Self::Gauge),
            "sum" => Ok(Self::Sum),
            "histogram" => Ok(Self::Histogram),
            "mixed" => Ok(Self::Mixed),
            other => Err(format!(
                "no kind `{other}`; there are: gauge, sum, histogram, mixed"
            )),
        }
    }
}

/// The shape of a request. Requests with different `seed` have other series, times and values.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestShape {
    pub(crate) kind: PointKind,
    pub(crate) points: usize,
    /// Which source, and so which resource, it is of.
    pub(crate) source: usize,
    pub(crate) seed: usize,
}

/// A request of `points` points, mixed. It begins with `stamp`, so that a receiver can tell when it was made.
pub(crate) fn request(points: usize, stamp: u64) -> Bytes {
    let shape = RequestShape {
        kind: PointKind::Mixed,
        points,
        source: 0,
        seed: 0,
    };
    stamped(&shape.encode(), stamp)
}

/// The name of the metric with this number.
pub(crate) fn name(metric: usize) -> String {
    format!("bench.component{}.requests.metric_{metric}", metric % 17)
}

impl RequestShape {
    /// The request as bytes, its stamp 0.
    pub(crate) fn encode(&self) -> Bytes {
        let first_points = (0..self.points).step_by(POINTS_PER_METRIC);
        let metrics = first_points.enumerate().map(|(number, first)| Metric {
            description: "made up".to_owned(),
            unit: "1".to_owned(),
            ..self.metric(number, first..self.points.min(first + POINTS_PER_METRIC))
        });
        let mut request = tidegate_requests::request(self.resource(), "", metrics);
        request.resource_metrics[0].scope_metrics[0].scope = Some(InstrumentationScope {
            name: "tidegate-bench".to_owned(),
            version: "1".to_owned(),
            ..Default::default()
        });
        request.encode_to_vec().into()
    }

    fn resource(&self) -> Vec<KeyValue> {
        let Self { source, .. } = self;
        vec![
            attribute("stamp", format!("{:0DIGITS$}", 0)),
            attribute("service.name", format!("svc-{}", source % 13)),
            attribute("service.instance.id", format!("instance-{source:08}")),
            attribute("host.name", format!("node-{source:04}")),
            attribute("deployment.environment.name", "bench"),
        ]
    }

    fn metric(&self, number: usize, series: std::ops::Range<usize>) -> Metric {
        let is_gauge = self.kind == PointKind::Gauge || self.kind == PointKind::Mixed && number % 2 == 1;
        match self.kind {
            PointKind::Histogram => histogram(name(number), series.map(|series| self.histogram(series))),
            _ if is_gauge => gauge(name(number), series.map(|series| self.number(series))),
            _ => counter(name(number), series.map(|series| self.number(series))),
        }
    }

    fn attributes(&self, series: usize) -> Vec<KeyValue> {
        let Self { seed, .. } = self;
        let methods = ["GET", "POST", "PUT", "DELETE"];
        let statuses = ["200", "204", "404", "500"];
        vec![
            attribute("http.request.method", methods[series % 4]),
            attribute("http.route", format!("/api/v1/resource/{}", series % 97)),
            attribute("http.response.status_code", statuses[series / 4 % 4]),
            attribute(
                "server.address",
                format!("host-{:03}.example.internal", (series + seed) % 251),
            ),
            attribute("server.port", format!("value-4-{}", (series * 31 + seed) % 1009)),
        ]
    }

    fn number(&self, series: usize) -> NumberDataPoint {
        let value = match series % 2 {
            0 => number_data_point::Value::AsDouble(series as f64 * 1.618 + self.seed as f64),
            _ => number_data_point::Value::AsInt((series * 7919 + self.seed) as i64),
        };
        NumberDataPoint {
            attributes: self.attributes(series),
            start_time_unix_nano: BEGUN,
            time_unix_nano: self.time(),
            value: Some(value),
            ..Default::default()
        }
    }

    fn histogram(&self, series: usize) -> HistogramDataPoint {
        let explicit_bounds = vec![
            0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0,
        ];
        let buckets = 0..=explicit_bounds.len();
        let bucket_counts: Vec<u64> = buckets
            .map(|bucket| ((series + self.seed) * (bucket + 3) % 1000) as u64)
            .collect();
        HistogramDataPoint {
            attributes: self.attributes(series),
            start_time_unix_nano: BEGUN,
            time_unix_nano: self.time(),
            count: bucket_counts.iter().sum(),
            sum: Some(series as f64 * 0.37),
            bucket_counts,
            explicit_bounds,
            ..Default::default()
        }
    }

    fn time(&self) -> u64 {
        BEGUN + STEP * (self.seed as u64 + 1)
    }
}

/// Where the stamp of a request is.
fn stamp_offset(request: &[u8]) -> Option<usize> {
    let begin = request.get(..STAMPED).unwrap_or(request);
    begin
        .windows(DIGITS)
        .position(|window| window.iter().all(u8::is_ascii_digit))
}

/// A copy of a request with another stamp.
pub(crate) fn stamped(request: &[u8], stamp: u64) -> Bytes {
    let mut copy = BytesMut::from(request);
    if let Some(place) = stamp_offset(request) {
        copy[place..place + DIGITS].copy_from_slice(format!("{stamp:0DIGITS$}").as_bytes());
    }
    copy.freeze()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_is_in_the_first_bytes() {
        for points in [1, 10, 8000] {
            let request = request(points, 1_234_567_890);
            assert!(
                request[..STAMPED]
                    .windows(DIGITS)
                    .any(|window| window == b"00000000001234567890")
            );
            assert_eq!(stamped(&request, 1_234_567_890), request);
            assert_ne!(stamped(&request, 17), request);
        }
    }
}
