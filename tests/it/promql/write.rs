// SPDX-License-Identifier: Apache-2.0

//! A recording as a remote write.

use super::recording::{Recording, Value};
use prost::Message;
use std::sync::Arc;
use tidegate_engine::{Buckets, ExponentialHistogram};
use tidegate_promql::{Labels, Millis};

/// Prometheus's `prompb.WriteRequest`, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Float>,
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Float {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(double, tag = "5")]
    zero_threshold: f64,
    #[prost(uint64, tag = "6")]
    zero_count: u64,
    #[prost(message, repeated, tag = "8")]
    negative_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "9")]
    negative_deltas: Vec<i64>,
    #[prost(message, repeated, tag = "11")]
    positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    positive_deltas: Vec<i64>,
    #[prost(int64, tag = "15")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

fn side(buckets: &Buckets) -> (Vec<Span>, Vec<i64>) {
    let before = [0].iter().chain(&buckets.counts);
    let pairs = buckets.counts.iter().zip(before);
    let deltas = pairs.map(|(now, before)| *now as i64 - *before as i64).collect();
    let span = Span {
        offset: buckets.offset + 1,
        length: buckets.counts.len() as u32,
    };
    (
        if buckets.counts.is_empty() {
            Vec::new()
        } else {
            vec![span]
        },
        deltas,
    )
}

fn histogram(timestamp: Millis, of: &ExponentialHistogram) -> Histogram {
    let ((positive_spans, positive_deltas), (negative_spans, negative_deltas)) =
        (side(&of.positive), side(&of.negative));
    Histogram {
        count: of.count,
        sum: of.sum.unwrap(),
        schema: of.scale,
        zero_threshold: of.zero_threshold,
        zero_count: of.zero_count,
        negative_spans,
        negative_deltas,
        positive_spans,
        positive_deltas,
        timestamp,
    }
}

/// Samples of one kind.
fn series(labels: &Labels, samples: &[(Millis, Value)]) -> TimeSeries {
    let mut made = TimeSeries::default();
    let pairs = labels.iter();
    let pair = |(name, value): (&Arc<str>, &Arc<str>)| Label {
        name: name.to_string(),
        value: value.to_string(),
    };
    made.labels.extend(pairs.map(pair));
    for (timestamp, value) in samples {
        match value {
            Err(value) => made.samples.push(Float {
                value: *value,
                timestamp: *timestamp,
            }),
            Ok(value) => made.histograms.push(histogram(*timestamp, value)),
        }
    }
    made
}

/// As it is sent: the server takes numbers and histograms of one series in turns only from several requests.
pub(super) fn written(recording: &Recording) -> Vec<Vec<u8>> {
    let mut requests: Vec<WriteRequest> = Vec::new();
    for (labels, samples) in recording {
        let runs = samples.chunk_by(|(_, a), (_, b)| a.is_ok() == b.is_ok());
        for (number, run) in runs.enumerate() {
            if requests.len() == number {
                requests.push(WriteRequest::default());
            }
            requests[number].timeseries.push(series(labels, run));
        }
    }
    let body = |request: &WriteRequest| {
        let packed = snap::raw::Encoder::new().compress_vec(&request.encode_to_vec());
        packed.unwrap()
    };
    requests.iter().map(body).collect()
}
