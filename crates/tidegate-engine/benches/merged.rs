// SPDX-License-Identifier: Apache-2.0

//! The cost of a report of one of eight producers for merged series, and of a reader after all of them have changed.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by a panic")]

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate_engine::{
    Attributes, Data, Histogram, Key, MergeMode, Merged, MergedLimits, Metric, ProducerId, RunReport, Series,
    Value,
};

const PRODUCERS: u8 = 8;

/// Series that a round changes of one producer.
const CHANGED: usize = 10_000;

fn identity(number: usize) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: "requests".into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Gauge,
            metadata: Attributes::default(),
        }),
        attributes: [("pod", number.to_string())].into_iter().collect(),
    })
}

fn report(producer: u8, sequence: u64, value: Value) -> RunReport {
    RunReport {
        producer: ProducerId([producer; 16]),
        epoch: 1,
        start: 1,
        sequence,
        time: sequence,
        mode: MergeMode::Add,
        value,
    }
}

fn histogram(sequence: u64) -> Value {
    let bounds: Arc<[f64]> = (0..20).map(f64::from).collect();
    let mut histogram = Histogram::empty(bounds);
    (0..20).for_each(|value| histogram.observe(f64::from(value), sequence));
    Value::Histogram(Box::new(histogram))
}

/// Series that each producer has reported once, and their keys in an order that no cache likes.
fn filled(series: usize, value: &Value) -> (Merged, Vec<Key>) {
    let mut merged = Merged::new(MergedLimits::default());
    let identities: Vec<_> = (0..series).map(identity).collect();
    let keys: Vec<Key> = identities.iter().map(|series| Key::of(series)).collect();
    for producer in 0..PRODUCERS {
        for (key, series) in keys.iter().zip(&identities) {
            let report = report(producer, 1, value.clone());
            merged.take(*key, || series.clone(), report).unwrap();
        }
    }
    // 7919 is prime: the steps visit every series.
    let scattered = (0..series).map(|at| keys[at * 7919 % series]);
    (merged, scattered.collect())
}

fn reports(c: &mut Criterion) {
    let mut group = c.benchmark_group("merged");
    let doubles: fn(u64) -> Value = |sequence| Value::Double(sequence as f64 * 0.1);
    let whole: fn(u64) -> Value = |sequence| Value::Int(sequence as i64);
    for (name, series, value) in [
        ("whole numbers", 100_000, whole),
        ("doubles", 100_000, doubles),
        ("histograms", 20_000, histogram),
    ] {
        let (mut merged, keys) = filled(series, &value(1));
        println!("{name}: {} bytes for {series} series", merged.bytes());
        let mut next = 0usize;
        group.throughput(Throughput::Elements(CHANGED as u64));
        group.bench_function(format!("reports of {name}"), |b| {
            b.iter(|| {
                for _ in 0..CHANGED {
                    let sequence = 2 + (next / series) as u64;
                    let producer = (sequence % u64::from(PRODUCERS)) as u8;
                    let report = report(producer, sequence, value(sequence));
                    merged
                        .take(
                            keys[next % series],
                            || unreachable!("the series is known"),
                            report,
                        )
                        .unwrap();
                    next += 1;
                }
            });
        });
        group.throughput(Throughput::Elements(series as u64));
        let mut sequence = 1 << 32;
        group.bench_function(format!("a reader of changed {name}"), |b| {
            b.iter_custom(|rounds| {
                let mut spent = std::time::Duration::ZERO;
                for _ in 0..rounds {
                    sequence += 1;
                    for key in &keys {
                        let report = report(0, sequence, value(sequence));
                        merged
                            .take(*key, || unreachable!("the series is known"), report)
                            .unwrap();
                    }
                    let begun = std::time::Instant::now();
                    merged.read(&mut |reading| _ = black_box(reading));
                    spent += begun.elapsed();
                }
                spent
            });
        });
    }
    group.finish();
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(10).warm_up_time(std::time::Duration::from_secs(1)).measurement_time(std::time::Duration::from_secs(3));
    targets = reports
}
criterion_main!(benches);
