// SPDX-License-Identifier: Apache-2.0

//! The cost of a sample, by format and by what the parser already knows of it: `cargo bench -p tidegate-exposition`.

use std::fmt::Write;
use std::hint::black_box;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use tidegate_exposition::{Event, Format, Labels, Options, Parser};

const LINES: u64 = 10_000;

/// Lines of 118 to 141 bytes, as exporters of inference servers have them.
fn page(is_open_metrics: bool) -> String {
    let mut page = String::from("# HELP nixl_bytes bytes\n# TYPE nixl_bytes counter\n");
    for line in 0..LINES {
        let _ = writeln!(
            page,
            "nixl_bytes_total{{agent=\"agent-{:04}\",backend=\"UCX\",node=\"gpu-node-{:03}.example\",direction=\"write\",\
             model=\"llama-70b\"}} {}.{}",
            line % 2000,
            line / 40,
            line * 7919 % 1_000_000_007,
            line % 100
        );
    }
    if is_open_metrics {
        page.push_str("# EOF\n");
    }
    page
}

/// The bytes of all series of a page, in its order.
fn series(format: Format, page: &[u8]) -> Vec<Vec<u8>> {
    let mut parser = Parser::new(format, page, Options::default());
    let mut series = Vec::new();
    while let Some(event) = parser.next(b"").expect("a sound page") {
        if let Event::Sample(sample) = event {
            series.push(sample.series.raw().to_vec());
        }
    }
    series
}

fn sum(format: Format, page: &[u8], expected: &[Vec<u8>]) -> f64 {
    let mut parser = Parser::new(format, page, Options::default());
    let (mut sum, mut at) = (0.0, 0);
    while let Some(event) = parser
        .next(expected.get(at).map_or(&[], Vec::as_slice))
        .expect("a sound page")
    {
        if let Event::Sample(sample) = event {
            sum += sample.value;
            at += 1;
        }
    }
    sum
}

fn sum_with_labels(format: Format, page: &[u8]) -> f64 {
    let mut parser = Parser::new(format, page, Options::default());
    let mut labels = Labels::default();
    let mut sum = 0.0;
    while let Some(event) = parser.next(b"").expect("a sound page") {
        if let Event::Sample(sample) = event {
            sample.series.labels(&mut labels).expect("sound labels");
            sum += sample.value + labels.len() as f64;
        }
    }
    sum
}

fn parse(criterion: &mut Criterion) {
    for (name, format) in [("text", Format::Text), ("openmetrics", Format::OpenMetrics)] {
        let page = page(format == Format::OpenMetrics);
        let series = series(format, page.as_bytes());
        let mut group = criterion.benchmark_group(name);
        group.throughput(Throughput::Elements(LINES));
        group.bench_function("expected", |bencher| {
            bencher.iter(|| sum(format, black_box(page.as_bytes()), &series));
        });
        group.bench_function("found", |bencher| {
            bencher.iter(|| sum(format, black_box(page.as_bytes()), &[]));
        });
        group.bench_function("labels", |bencher| {
            bencher.iter(|| sum_with_labels(format, black_box(page.as_bytes())));
        });
        group.finish();
    }
}

criterion_group!(benches, parse);
criterion_main!(benches);
