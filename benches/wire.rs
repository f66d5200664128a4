// SPDX-License-Identifier: Apache-2.0

//! The cost of a request of metrics on its way through: checked (all that a hop needs), decoded to points, turned from
//! and to JSON, and compressed. prost's decoding of the same bytes stands beside it for comparison.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::KeyValue;
use opentelemetry_proto::tonic::metrics::v1::{HistogramDataPoint, Metric, NumberDataPoint};
use prost::Message;
use tidegate::net::{Coding, compress, decompress};
use tidegate_otlp::{Signal, convert, json, wire};
use tidegate_requests::{attribute, int};
use tokio::runtime::Builder;

const TIME: u64 = 1_700_000_000_000_000_000;
/// A request of an inference engine's SDK: this number of counters and a tenth as many histograms, each of eight points.
const COUNTERS: usize = 100;
const POINTS: usize = 8;

fn attributes(point: usize) -> Vec<KeyValue> {
    vec![
        attribute("model_name", "llama-3.3-70b-instruct"),
        attribute("engine", point.to_string()),
        attribute("finished_reason", "stop"),
    ]
}

fn counter(number: usize) -> Metric {
    let points = (0..POINTS).map(|point| NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: TIME,
        time_unix_nano: TIME + 1,
        ..int((number * point) as i64)
    });
    Metric {
        description: "Count of successfully processed requests".to_owned(),
        unit: "{request}".to_owned(),
        ..tidegate_requests::counter(format!("vllm.request.success.{number}"), points)
    }
}

fn histogram(number: usize) -> Metric {
    let points = (0..POINTS).map(|point| HistogramDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: TIME,
        time_unix_nano: TIME + 1,
        count: 15,
        sum: Some(4.5),
        bucket_counts: vec![1; 15],
        explicit_bounds: (0..14).map(|bound| f64::from(1 << bound) / 1000.0).collect(),
        ..Default::default()
    });
    Metric {
        unit: "s".to_owned(),
        ..tidegate_requests::histogram(format!("vllm.time_to_first_token.{number}"), points)
    }
}

fn request() -> ExportMetricsServiceRequest {
    let counters = (0..COUNTERS).map(counter);
    let histograms = (0..COUNTERS / 10).map(histogram);
    let resource = vec![attribute("service.name", "vllm")];
    tidegate_requests::request(resource, "vllm", counters.chain(histograms))
}

fn requests(c: &mut Criterion) {
    let bytes = Bytes::from(request().encode_to_vec());
    let encoded = wire::check(Signal::Metrics, bytes.clone()).expect("a request");
    let document = json::to_json(&encoded).expect("JSON").into_bytes();
    let mut group = c.benchmark_group("wire");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("check", |b| {
        b.iter(|| wire::check(Signal::Metrics, black_box(bytes.clone())));
    });
    group.bench_function("decode/points", |b| {
        b.iter(|| convert::points(black_box(&encoded)));
    });
    group.bench_function("decode/prost", |b| {
        b.iter(|| ExportMetricsServiceRequest::decode(black_box(bytes.clone())));
    });
    group.bench_function("to_json", |b| b.iter(|| json::to_json(black_box(&encoded))));
    let runtime = Builder::new_current_thread().build().expect("a runtime");
    for coding in [Coding::Gzip, Coding::Zstd] {
        let name = coding.header().unwrap_or_default();
        let packed = Bytes::from(compress(coding, &bytes).expect("a coder"));
        group.bench_function(format!("compress/{name}"), |b| {
            b.iter(|| compress(coding, black_box(&bytes)));
        });
        group.bench_function(format!("decompress/{name}"), |b| {
            b.iter(|| runtime.block_on(decompress(coding, black_box(packed.clone()), bytes.len())));
        });
    }
    group.throughput(Throughput::Bytes(document.len() as u64));
    group.bench_function("from_json", |b| {
        b.iter(|| json::to_protobuf(Signal::Metrics, black_box(&document)));
    });
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(20).warm_up_time(Duration::from_secs(1)).measurement_time(Duration::from_secs(3));
    targets = requests
}
criterion_main!(benches);
