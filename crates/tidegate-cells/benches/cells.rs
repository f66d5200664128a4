// SPDX-License-Identifier: Apache-2.0

//! The cost of recording, compared with a bare atomic addition, and the cost of reading. Both are measured in processor
//! time, so that other processes on the same machine matter less.

#![allow(clippy::unwrap_used, reason = "a benchmark fails by a panic")]

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{Bencher, Criterion, criterion_group, criterion_main};
use rustix::time::{ClockId, clock_gettime};
use tidegate_cells::{Directory, FamilySpec, GaugeMode, Kind, Limits, Options, Store};

const PROCESSES: usize = 64;
const SERIES: usize = 1000;
const BOUNDS: [f64; 12] = [
    0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 60.0,
];

/// Time that this thread has had.
fn now() -> Duration {
    Duration::try_from(clock_gettime(ClockId::ThreadCPUTime)).unwrap()
}

fn measure<T>(b: &mut Bencher<'_>, mut run: impl FnMut() -> T) {
    b.iter_custom(|times| {
        let start = now();
        (0..times).for_each(|_| drop(black_box(run())));
        now().checked_sub(start).unwrap()
    });
}

fn record(c: &mut Criterion) {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path(), Options::default()).unwrap();
    let of = |name, kind| store.family(&FamilySpec::new(name, kind)).unwrap().with(&[]);
    let mut group = c.benchmark_group("record");
    let bare = AtomicU64::new(0);
    group.bench_function("bare atomic add", |b| {
        measure(b, || black_box(&bare).fetch_add(1, Ordering::Relaxed));
    });
    let counter = of("counter", Kind::Counter).counter().unwrap();
    group.bench_function("counter", |b| measure(b, || black_box(&counter).add(1)));
    let float = of("float", Kind::FloatCounter).float().unwrap();
    group.bench_function("float counter", |b| measure(b, || black_box(&float).add(0.5)));
    let gauge = of("gauge", Kind::Gauge(GaugeMode::Max)).float().unwrap();
    group.bench_function("gauge set", |b| measure(b, || black_box(&gauge).set(0.5)));
    let recent = of("recent", Kind::Gauge(GaugeMode::MostRecent)).float().unwrap();
    group.bench_function("gauge set, most recent", |b| {
        measure(b, || black_box(&recent).set(0.5));
    });
    let values: Vec<f64> = (0..256).map(|n| f64::from(n * 37 % 256) * 0.01).collect();
    let mut next = values.iter().cycle();
    let histogram = of(
        "histogram",
        Kind::Histogram {
            bounds: BOUNDS.into(),
        },
    )
    .histogram()
    .unwrap();
    group.bench_function("histogram, 12 bounds", |b| {
        measure(b, || black_box(&histogram).observe(*next.next().unwrap()));
    });
    let many = (0..100).map(f64::from).collect();
    let histogram = of("many", Kind::Histogram { bounds: many }).histogram().unwrap();
    group.bench_function("histogram, 100 bounds", |b| {
        measure(b, || black_box(&histogram).observe(*next.next().unwrap() * 40.0));
    });
    let kind = Kind::ExponentialHistogram { max_scale: 20 };
    let exponential = of("exponential", kind).exponential().unwrap();
    group.bench_function("exponential", |b| {
        measure(b, || black_box(&exponential).observe(*next.next().unwrap()));
    });
    let summary = of("summary", Kind::Summary).summary().unwrap();
    group.bench_function("summary", |b| measure(b, || black_box(&summary).observe(0.5)));
    let labelled = store
        .family(&FamilySpec::new("labelled", Kind::Counter).labels(["model", "status"]))
        .unwrap();
    labelled.with(&["llama-3.3-70b-instruct", "200"]);
    group.bench_function("look-up of a known series, two labels", |b| {
        measure(b, || {
            black_box(&labelled).with(&["llama-3.3-70b-instruct", "200"])
        });
    });
    group.finish();
}

/// A process of a thousand series: counters, gauges and, a tenth, histograms.
fn process(path: &Path) -> Store {
    let store = Store::create(path, Options::default()).unwrap();
    let family = |name, kind| store.family(&FamilySpec::new(name, kind).labels(["n"])).unwrap();
    let counter = family("requests_total", Kind::Counter);
    let gauge = family("usage", Kind::Gauge(GaugeMode::LiveSum));
    let histogram = family(
        "latency_seconds",
        Kind::Histogram {
            bounds: BOUNDS.into(),
        },
    );
    for n in 0..SERIES {
        let label = n.to_string();
        match n % 10 {
            0 => histogram.with(&[&label]).histogram().unwrap().observe(n as f64),
            1..6 => counter.with(&[&label]).counter().unwrap().add(n as u64),
            _ => gauge.with(&[&label]).float().unwrap().set(n as f64),
        }
    }
    store
}

fn read(c: &mut Criterion) {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let stores: Vec<_> = (0..PROCESSES).map(|_| process(directory.path())).collect();
    let mut group = c.benchmark_group("read 64 processes of 1,000 series");
    group.sample_size(20).measurement_time(Duration::from_secs(3));
    let mut reader = Directory::open(directory.path(), Limits::default()).unwrap();
    assert_eq!(
        reader
            .scan()
            .merged
            .families
            .iter()
            .map(|family| family.series.len())
            .sum::<usize>(),
        SERIES
    );
    group.bench_function("again", |b| measure(b, || reader.scan()));
    group.bench_function("for the first time", |b| {
        measure(b, || {
            Directory::open(directory.path(), Limits::default())
                .unwrap()
                .scan()
        });
    });
    group.finish();
    drop(stores);
    c.bench_function("own values of 1,000 series", |b| {
        let store = process(directory.path());
        measure(b, || store.read());
    });
}

criterion_group!(benches, record, read);
criterion_main!(benches);
