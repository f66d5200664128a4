// SPDX-License-Identifier: Apache-2.0

//! The cost of a record from C, with the shared library and with the static one, and from Rust in the same run.

use std::hint::black_box;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use tidegate_metrics::{Description, Histogram, MetricsRegistry, Prometheus};

const CALLS: u32 = 2_000_000;
const SAMPLES: usize = 21;

fn main() {
    // `cargo test --benches` only wants to know that it builds.
    if !std::env::args().any(|argument| argument == "--bench") {
        return;
    }
    rust();
    let libraries = std::env::current_exe().expect("our own path");
    let libraries = libraries.parent().expect("a directory");
    let directory = tempfile::tempdir().expect("a directory");
    let shared = libraries.join("libtidegate_capi.so");
    std::os::unix::fs::symlink(&shared, directory.path().join("libtidegate.so.1")).expect("a link");
    c("C, shared library", &shared, directory.path());
    c(
        "C, static library",
        &libraries.join("libtidegate_capi.a"),
        directory.path(),
    );
}

fn c(title: &str, library: &Path, directory: &Path) {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = directory.join("record");
    let built = Command::new("cc")
        .args(["-std=c11", "-O2", "-I"])
        .arg(here.join("include"))
        .arg(here.join("benches/record.c"))
        .arg(library)
        .args(["-lgcc_s", "-lutil", "-lrt", "-lpthread", "-lm", "-ldl", "-o"])
        .arg(&program)
        .status();
    assert!(built.expect("a C compiler").success());
    println!("{title}: nanoseconds a call");
    let run = Command::new(&program)
        .arg(directory.join("cells"))
        .env("LD_LIBRARY_PATH", directory)
        .status();
    assert!(run.expect("it starts").success());
}

fn rust() {
    let registry = Prometheus::new();
    let describe = |name: &str| Description::new(name, "");
    let counter = registry.counter(&describe("a"), &[]).expect("a counter");
    let gauge = registry.gauge(&describe("b"), &[]).expect("a gauge");
    let classic: Histogram = registry.histogram(&describe("c"), &[]).expect("a histogram");
    println!("Rust: nanoseconds a call");
    measure("Counter::inc", |_| black_box(&counter).inc());
    measure("Gauge::set", |i| black_box(&gauge).set(f64::from(i)));
    measure("Histogram::observe, 15 buckets", |i| {
        black_box(&classic).observe(f64::from(i & 1023) / 1000.0);
    });
}

fn measure(name: &str, call: impl Fn(u32)) {
    let mut samples: Vec<f64> = (0..SAMPLES)
        .map(|_| {
            let start = Instant::now();
            (0..CALLS).for_each(&call);
            start.elapsed().as_secs_f64() * 1e9 / f64::from(CALLS)
        })
        .collect();
    samples.sort_by(f64::total_cmp);
    println!(
        "  {name:34} {:6.2} (best {:.2})",
        samples[SAMPLES / 2],
        samples[0]
    );
}
