// SPDX-License-Identifier: Apache-2.0

//! The cost of decoding a scraped page into points, with lines that are known and with new ones:
//! `cargo bench --bench decode`.

use std::fmt::Write;
use std::hint::black_box;
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use tidegate::prom::model::LabelSet;
use tidegate::prom::scrape::{ScrapeDecoder, Settings, Target};
use tidegate_engine::Attributes;
use tidegate_exposition::Format;

const LINES: u64 = 10_000;

struct Plain;

impl Target for Plain {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        labels.set("job", "agents");
        labels.set("instance", "gpu-node-001.example:9090");
        true
    }

    fn resource(&self, job: &str, instance: &str) -> Attributes {
        [("service.name", job), ("service.instance.id", instance)]
            .into_iter()
            .collect()
    }
}

/// Lines of 118 to 141 bytes, as exporters of inference servers have them.
fn counters(is_reversed: bool) -> String {
    let mut page = String::from("# HELP nixl_bytes_total bytes\n# TYPE nixl_bytes_total counter\n");
    for line in 0..LINES {
        let line = if is_reversed { LINES - line } else { line };
        let _ = writeln!(
            page,
            "nixl_bytes_total{{agent=\"agent-{:05}\",backend=\"UCX\",node=\"gpu-node-{:03}.example\",direction=\"write\",\
             model=\"llama-70b\"}} {}.{}",
            line,
            line / 40,
            line * 7919 % 1_000_000_007,
            line % 100
        );
    }
    page
}

/// As many lines, twelve a histogram.
fn histograms() -> String {
    let mut page = String::from("# TYPE nixl_xfer_seconds histogram\n");
    for series in 0..LINES / 12 {
        let labels = format!(
            "agent=\"agent-{series:05}\",backend=\"UCX\",node=\"gpu-node-{:03}.example\"",
            series / 40
        );
        for bucket in 0..9 {
            let _ = writeln!(
                page,
                "nixl_xfer_seconds_bucket{{{labels},le=\"0.{bucket}\"}} {}",
                bucket * series
            );
        }
        let count = 9 * series;
        let _ = writeln!(page, "nixl_xfer_seconds_bucket{{{labels},le=\"+Inf\"}} {count}");
        let _ = writeln!(page, "nixl_xfer_seconds_sum{{{labels}}} {count}.25");
        let _ = writeln!(page, "nixl_xfer_seconds_count{{{labels}}} {count}");
    }
    page
}

fn decode(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(LINES));
    group.measurement_time(Duration::from_secs(3));
    let (counters, reversed, histograms) = (counters(false), counters(true), histograms());
    let pages = [
        ("counters", [&counters, &counters]),
        ("histograms", [&histograms, &histograms]),
        ("other order", [&counters, &reversed]),
    ];
    for (name, pages) in pages {
        let mut decoder = ScrapeDecoder::new(Settings::default(), Box::new(Plain));
        let mut points = Vec::new();
        let mut scrape = 0;
        group.bench_function(name, |bencher| {
            bencher.iter(|| {
                scrape += 1;
                points.clear();
                let page = pages[usize::from(scrape % 2 == 0)].as_bytes();
                let counts = decoder.page(Format::Text, black_box(page), scrape * 1_000_000_000, &mut points);
                black_box(counts.expect("a sound page"))
            });
        });
    }
    group.bench_function("unknown", |bencher| {
        let new = || {
            (
                ScrapeDecoder::new(Settings::default(), Box::new(Plain)),
                Vec::new(),
            )
        };
        bencher.iter_batched_ref(
            new,
            |(decoder, points)| {
                decoder
                    .page(Format::Text, counters.as_bytes(), 1_000_000_000, points)
                    .is_ok()
            },
            BatchSize::PerIteration,
        );
    });
    group.finish();
}

criterion_group!(benches, decode);
criterion_main!(benches);
