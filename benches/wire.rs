//! What a request of metrics costs on its way through: checked (all that a hop needs), decoded to points, and turned
//! from and to JSON. prost's decoding of the same bytes stands beside it for comparison.

use std::hint::black_box;
use std::time::Duration;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use opentelemetry_proto::tonic::collector::metrics::v1::ExportMetricsServiceRequest;
use opentelemetry_proto::tonic::common::v1::{AnyValue, InstrumentationScope, KeyValue, any_value};
use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, HistogramDataPoint, Metric, NumberDataPoint, ResourceMetrics, ScopeMetrics, Sum,
    metric, number_data_point,
};
use opentelemetry_proto::tonic::resource::v1::Resource;
use prost::Message;
use tidegate::batch::{Signal, convert, json, wire};

const TIME: u64 = 1_700_000_000_000_000_000;
/// What an inference engine's SDK sends at once: so many counters and a tenth as many histograms, each of eight
/// points.
const COUNTERS: usize = 100;
const POINTS: usize = 8;

fn text(key: &str, value: String) -> KeyValue {
    let value = any_value::Value::StringValue(value);
    KeyValue {
        key: key.to_owned(),
        value: Some(AnyValue { value: Some(value) }),
        ..Default::default()
    }
}

fn attributes(point: usize) -> Vec<KeyValue> {
    vec![
        text("model_name", "llama-3.3-70b-instruct".to_owned()),
        text("engine", point.to_string()),
        text("finished_reason", "stop".to_owned()),
    ]
}

fn counter(number: usize) -> Metric {
    let data_points = (0..POINTS).map(|point| NumberDataPoint {
        attributes: attributes(point),
        start_time_unix_nano: TIME,
        time_unix_nano: TIME + 1,
        value: Some(number_data_point::Value::AsInt((number * point) as i64)),
        ..Default::default()
    });
    Metric {
        name: format!("vllm.request.success.{number}"),
        description: "Count of successfully processed requests".to_owned(),
        unit: "{request}".to_owned(),
        data: Some(metric::Data::Sum(Sum {
            data_points: data_points.collect(),
            aggregation_temporality: AggregationTemporality::Cumulative.into(),
            is_monotonic: true,
        })),
        ..Default::default()
    }
}

fn histogram(number: usize) -> Metric {
    let data_points = (0..POINTS).map(|point| HistogramDataPoint {
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
        name: format!("vllm.time_to_first_token.{number}"),
        unit: "s".to_owned(),
        data: Some(metric::Data::Histogram(
            opentelemetry_proto::tonic::metrics::v1::Histogram {
                data_points: data_points.collect(),
                aggregation_temporality: AggregationTemporality::Cumulative.into(),
            },
        )),
        ..Default::default()
    }
}

fn request() -> ExportMetricsServiceRequest {
    let metrics = (0..COUNTERS)
        .map(counter)
        .chain((0..COUNTERS / 10).map(histogram));
    ExportMetricsServiceRequest {
        resource_metrics: vec![ResourceMetrics {
            resource: Some(Resource {
                attributes: vec![text("service.name", "vllm".to_owned())],
                ..Default::default()
            }),
            scope_metrics: vec![ScopeMetrics {
                scope: Some(InstrumentationScope {
                    name: "vllm".to_owned(),
                    ..Default::default()
                }),
                metrics: metrics.collect(),
                ..Default::default()
            }],
            ..Default::default()
        }],
    }
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
        b.iter(|| convert::points(black_box(&encoded)))
    });
    group.bench_function("decode/prost", |b| {
        b.iter(|| ExportMetricsServiceRequest::decode(black_box(bytes.clone())));
    });
    group.bench_function("to_json", |b| b.iter(|| json::to_json(black_box(&encoded))));
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
