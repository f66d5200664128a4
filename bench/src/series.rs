// SPDX-License-Identifier: Apache-2.0

//! Counter series as requests that are made once. Each round sets values and times in place, in their bytes.

use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::metrics::v1::NumberDataPoint;
use prost::Message;
use tidegate_requests::{attribute, counter, int};

use crate::BenchError;
use crate::http::Scraper;
use crate::otlp::load::now_ns;

/// Counters of an agent, each a metric.
const METRICS: usize = 100;
/// Points of a request, as SDKs and agents send them at most, and agents.
const POINTS_A_REQUEST: usize = 5_000;
const AGENTS_A_REQUEST: usize = 500;
/// Placeholders for the time and the value of a point until they are set.
const TIME: u64 = 0x5eed_0000_7131_0e01;
const VALUE: i64 = 0x5eed_0000_0a1e_0e02;
/// Before a time and a value: field 3 and field 6 of a point, both of eight bytes.
const TIME_TAG: u8 = 0x19;
const VALUE_TAG: u8 = 0x31;

/// A request, and where its points have their times and values.
pub(crate) struct SeriesRequest {
    bytes: Vec<u8>,
    times: Vec<usize>,
    values: Vec<usize>,
}

/// Requests that have each of `series` series once. They begin with `bench.`, count from `start` and have two
/// attributes.
pub(crate) fn requests(series: usize) -> Vec<SeriesRequest> {
    let start = now_ns();
    let agents: Vec<usize> = (0..series / METRICS).collect();
    let metrics: Vec<usize> = (0..METRICS).collect();
    let mut requests = Vec::new();
    for agents in agents.chunks(AGENTS_A_REQUEST) {
        requests.extend(
            metrics
                .chunks(POINTS_A_REQUEST / agents.len())
                .map(|metrics| SeriesRequest::of(metrics, agents, start)),
        );
    }
    requests
}

impl SeriesRequest {
    /// Of one series.
    pub(crate) fn single(metric: usize, agent: usize) -> Self {
        Self::of(&[metric], &[agent], now_ns())
    }

    fn of(metrics: &[usize], agents: &[usize], start: u64) -> Self {
        let bytes = message(metrics, agents, start).encode_to_vec();
        let places = |tag: u8, mark: [u8; 8]| {
            let mark = [&[tag][..], &mark].concat();
            let at = bytes
                .windows(mark.len())
                .enumerate()
                .filter(move |(_, window)| *window == mark);
            at.map(|(at, _)| at + 1).collect::<Vec<_>>()
        };
        let (times, values) = (
            places(TIME_TAG, TIME.to_le_bytes()),
            places(VALUE_TAG, VALUE.to_le_bytes()),
        );
        Self { bytes, times, values }
    }

    /// How many points it has.
    #[cfg(test)]
    fn points(&self) -> usize {
        self.values.len()
    }

    /// As of now: every counter has this value.
    pub(crate) fn at(&mut self, value: u64) -> &[u8] {
        let now = now_ns().to_le_bytes();
        for at in &self.times {
            self.bytes[*at..*at + 8].copy_from_slice(&now);
        }
        for at in &self.values {
            self.bytes[*at..*at + 8].copy_from_slice(&value.to_le_bytes());
        }
        &self.bytes
    }
}

/// Pushes all of them, with this value.
pub(crate) fn push(requests: &mut [SeriesRequest], to: &mut Scraper, value: u64) -> Result<(), BenchError> {
    for request in requests {
        to.post("/v1/metrics", "application/x-protobuf", request.at(value))?;
    }
    Ok(())
}

fn message(metrics: &[usize], agents: &[usize], start: u64) -> ExportMetricsServiceRequest {
    let point = |agent: &usize| NumberDataPoint {
        attributes: vec![
            attribute("agent_name", format!("agent_{agent}")),
            attribute("hostname", format!("node-{}", agent / 8)),
        ],
        start_time_unix_nano: start,
        time_unix_nano: TIME,
        ..int(VALUE)
    };
    let resource = vec![attribute("service.name", "bench")];
    let metrics = metrics.iter();
    let metrics = metrics.map(|metric| counter(format!("bench.things_{metric}"), agents.iter().map(point)));
    tidegate_requests::request(resource, "", metrics)
}

#[cfg(test)]
mod tests {
    use opentelemetry_proto::tonic::metrics::v1::{metric, number_data_point};

    use super::*;

    #[test]
    fn every_series_is_there_once_and_has_the_value_of_the_round() {
        let mut requests = requests(60_000);
        assert_eq!(requests.iter().map(SeriesRequest::points).sum::<usize>(), 60_000);
        let mut seen = std::collections::HashSet::new();
        for request in &mut requests {
            let request = ExportMetricsServiceRequest::decode(request.at(7)).unwrap();
            let scope = &request.resource_metrics[0].scope_metrics[0];
            for metric in &scope.metrics {
                let Some(metric::Data::Sum(sum)) = &metric.data else {
                    panic!("no sum");
                };
                for point in &sum.data_points {
                    assert_eq!(point.value, Some(number_data_point::Value::AsInt(7)));
                    assert!(point.time_unix_nano >= point.start_time_unix_nano);
                    assert!(seen.insert((metric.name.clone(), format!("{:?}", point.attributes))));
                }
            }
        }
        assert_eq!(seen.len(), 60_000);
    }
}
