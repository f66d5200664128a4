// SPDX-License-Identifier: Apache-2.0

//! The cost of a query: its parsing, and its evaluation over series in memory, of numbers and of native histograms.

use std::hint::black_box;
use std::sync::Arc;

use criterion::{Criterion, criterion_group, criterion_main};
use tidegate_engine::{Buckets, ExponentialHistogram};
use tidegate_promql::{FloatHistogram, HistogramSample, Labels, Millis, NAME, Query, QuerySeries, Sample};

const NOW: Millis = 1_700_000_000_000;

/// A sample a second, for ten minutes.
const SAMPLES: Millis = 600;

fn labels(name: &str, number: usize) -> Labels {
    let pairs = [
        (NAME, name.to_owned()),
        ("pod", format!("pod-{number}")),
        ("x", format!("x{}", number % 4)),
    ];
    pairs.into_iter().collect()
}

fn times() -> impl Iterator<Item = Millis> {
    (0..SAMPLES).map(|tick| NOW - (SAMPLES - tick) * 1000)
}

fn counters(name: &str, series: usize) -> impl Iterator<Item = QuerySeries> {
    (0..series).map(move |number| {
        let sample = |time: Millis| Sample {
            time,
            value: (time / 1000 % 100_000 * (number as i64 + 1)) as f64,
        };
        QuerySeries::of_floats(labels(name, number), times().map(sample).collect())
    })
}

fn histograms(name: &str, series: usize) -> impl Iterator<Item = QuerySeries> {
    (0..series).map(move |number| {
        let sample = |time: Millis| {
            let each = (time / 1000 % 100_000) as u64;
            let value = FloatHistogram::from(&ExponentialHistogram {
                count: 40 * each,
                sum: Some(each as f64 * 3.5),
                scale: 3,
                positive: Buckets {
                    offset: -20,
                    counts: vec![each; 40],
                },
                ..ExponentialHistogram::default()
            });
            HistogramSample {
                time,
                value: Arc::new(value),
            }
        };
        QuerySeries {
            labels: labels(name, number),
            samples: Vec::new(),
            histograms: times().map(sample).collect(),
        }
    })
}

fn queries(c: &mut Criterion) {
    let store: Vec<QuerySeries> = counters("hits_total", 100)
        .chain(histograms("wait_seconds", 20))
        .collect();
    for text in [
        "sum(hits_total)",
        "sum by (x) (rate(hits_total[1m]))",
        "topk(5, increase(hits_total[5m]))",
        "max_over_time(sum(rate(hits_total[1m]))[5m:10s])",
        "histogram_count(sum(wait_seconds))",
        "histogram_quantile(0.99, sum by (x) (rate(wait_seconds[1m])))",
    ] {
        c.bench_function(&format!("parse/{text}"), |b| {
            b.iter(|| Query::parse(black_box(text)));
        });
        let query = Query::parse(text).expect("it is PromQL");
        c.bench_function(&format!("instant/{text}"), |b| {
            b.iter(|| black_box(&query).instant(&store, NOW));
        });
    }
    let query = Query::parse("sum by (x) (rate(hits_total[1m]))").expect("it is PromQL");
    c.bench_function("range/60 steps", |b| {
        b.iter(|| black_box(&query).range(&store, NOW - 300_000, NOW, 5000));
    });
}

criterion_group!(benches, queries);
criterion_main!(benches);
