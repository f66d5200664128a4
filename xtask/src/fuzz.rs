// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask fuzz`: libFuzzer and AddressSanitizer on everything that reads bytes from outside.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use crate::progress::LongTask;
use crate::{Outcome, process, test::workspace};

/// Names of `fuzz/src/targets.rs`, each with a directory in the repository whose files it starts from.
const TARGETS: &[(&str, &str)] = &[
    ("otlp", "tests/data"),
    ("json", "tests/data"),
    ("config", "crates/tidegate-config/tests/data/bad"),
    ("ring", "tests/data/nixl"),
    ("store", "tests/data/nixl"),
    ("cells", "tests/data"),
    ("events", "tests/data"),
    ("statsd", "tests/data"),
    ("compression", "tests/data"),
    ("authority", "tests/data"),
    ("log", "tests/data"),
    ("query", "tests/data/promql"),
    ("state", "tests/data"),
    ("exposition", "tests/data/exposition"),
    ("plugin_frames", "tests/data"),
    ("remote_write", "tests/data"),
];
/// The default duration of each target.
const SECONDS: u32 = 60;
const TRIPLE: &str = "x86_64-unknown-linux-gnu";
/// The flags that cargo-fuzz passes: coverage counters for libFuzzer, and the sanitizer, which stable has but hides.
const RUSTFLAGS: &str = "--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares -Zsanitizer=address -Ccodegen-units=1";

/// `[SECONDS] [TARGET...]`: runs the targets named, or all, one after the other.
pub(crate) fn fuzz(arguments: &[String]) -> Outcome {
    let (seconds, names) = match arguments.split_first() {
        Some((first, rest)) if first.parse::<u32>().is_ok() => (first.parse().unwrap_or(SECONDS), rest),
        _ => (SECONDS, arguments),
    };
    let known = |name: &String| TARGETS.iter().any(|(known, _)| known == name);
    if let Some(unknown) = names.iter().find(|name| !known(name)) {
        let all: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
        return Err(format!("no target `{unknown}`; there are: {}", all.join(", ")));
    }
    let directory = process::target().join("fuzz");
    let progress = LongTask::new("fuzz: build").begin(String::new);
    let binary = build(&directory)?;
    drop(progress);
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    let chosen: Vec<_> = TARGETS.iter().filter(|(name, _)| is_wanted(name)).collect();
    for (index, (name, seeds)) in chosen.iter().enumerate() {
        let corpus = directory.join("corpus").join(name);
        let _progress = LongTask::new(format!("fuzz {name}"))
            .step(index + 1, chosen.len())
            .expected(Duration::from_secs(seconds.into()))
            .begin(move || format!("{} inputs", std::fs::read_dir(&corpus).map_or(0, Iterator::count)));
        run(&binary, name, &workspace().join(seeds), &directory, seconds)?;
    }
    Ok(())
}

fn build(directory: &Path) -> Result<std::path::PathBuf, String> {
    let manifest = workspace().join("fuzz/Cargo.toml");
    let mut cargo = process::cargo();
    cargo
        .args(["build", "--release", "--target", TRIPLE, "--manifest-path"])
        .arg(manifest)
        .arg("--target-dir")
        .arg(directory)
        .env("RUSTC_BOOTSTRAP", "1")
        .env("RUSTFLAGS", RUSTFLAGS);
    process::stream(&mut cargo)?;
    Ok(directory.join(TRIPLE).join("release/tidegate-fuzz"))
}

fn run(binary: &Path, name: &str, seeds: &Path, directory: &Path, seconds: u32) -> Outcome {
    println!("{name}: {seconds} s");
    let corpus = directory.join("corpus").join(name);
    let findings = directory.join("findings").join(name);
    for needed in [&corpus, &findings] {
        std::fs::create_dir_all(needed).map_err(|error| format!("{}: {error}", needed.display()))?;
    }
    // A log deletes files on threads that end when they like: memory that one of them still has looks like a leak.
    let leaks = u8::from(name != "log");
    let mut fuzzer = Command::new(binary);
    fuzzer
        .env("TIDEGATE_FUZZ_TARGET", name)
        // The reader's own handler for truncated mappings must see SIGBUS and SIGSEGV first.
        .env(
            "ASAN_OPTIONS",
            format!("handle_segv=0:handle_sigbus=0:detect_leaks={leaks}"),
        )
        .arg(corpus)
        .arg(seeds)
        .arg(format!("-artifact_prefix={}/", findings.display()))
        .arg(format!("-max_total_time={seconds}"))
        .args([
            "-max_len=16384",
            "-rss_limit_mb=2048",
            "-timeout=10",
            "-print_final_stats=1",
            "-verbosity=0",
        ])
        .args(["-handle_bus=0", "-handle_segv=0"]);
    process::stream(&mut fuzzer)
}
