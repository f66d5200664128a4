// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask test`: every test, with everything they need.

use crate::progress::LongTask;
use crate::{
    Outcome, abuse, bench, cluster, deny, deploy, dist, docs, editor, failures, instructions, loom, page,
    process, python, rules, testenv,
};
use std::path::Path;
use std::process::Command;
use std::time::Instant;

/// Installs the missing peers and runs every test of the workspace, also after a failure. Without arguments it also
/// checks the rules of the source, the spelling and the dependencies. It then runs loom, the tests in Python, of `deploy/`,
/// of packages, of the page, of the documents, of the schema and of the harness, the instruction counts, small attacks and
/// a small cluster. Arguments go to `cargo test`.
///
/// The checks and the examples in the documentation come first, so that the run ends with the closing lines of the unit
/// and whole-gateway tests. If some of those fail, what they printed comes again at the end.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    // Most parts before `instructions` wait more than they compute. Its build takes the rest of the processors.
    let early = arguments.is_empty().then(instructions::build_in_background);
    let outcome = testenv::setup(&[]).and_then(|()| run(arguments));
    if let Some(Ok(mut build)) = early {
        // The part has waited for it and has shown its errors. Without the part, nobody needs it.
        let _ = build.kill();
        let _ = build.wait();
    }
    outcome
}

fn run(arguments: &[String]) -> Outcome {
    let others = match arguments {
        [] => {
            let parts: [TestPart; 15] = [
                ("rules", || rules::rules(&[])),
                ("spelling", spelling),
                ("deny", || deny::deny(&[])),
                ("loom", || loom::loom(&[])),
                ("python", || python::test(&[])),
                ("deploy", || deploy::test(&[])),
                ("packages", || dist::test(&[])),
                ("page", || page::test(&[])),
                ("docs", || docs::test(&[])),
                ("editor", || editor::test(&[])),
                // The build for `instructions` ends with one long thread. This one takes the other processors.
                ("build of tests", || process::stream(all_tests().arg("--no-run"))),
                ("instructions", || instructions::bench(&[])),
                ("harness", harness),
                ("abuse", abuse::small),
                ("cluster", cluster::small),
            ];
            // All parts run, also after a failure.
            let steps = parts.len();
            let numbered = parts.into_iter().zip(1..);
            let results: Vec<_> = numbered
                .map(|(part, number)| timed(part, number, steps))
                .collect();
            results.into_iter().collect()
        }
        _ => Ok(()),
    };
    let examples = process::stream(cargo_test().arg("--doc"));
    let mut tests = all_tests();
    if std::env::var_os(THREADS).is_none() {
        tests.env(THREADS, threads().to_string());
    }
    let tests = failures::watch(tests.args(arguments));
    others.and(examples).and(tests)
}

/// The variable with the number of tests that run at a time.
const THREADS: &str = "RUST_TEST_THREADS";

/// Whole-gateway tests wait for half of their time, so there are two for each processor.
fn threads() -> usize {
    2 * std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// A part of the run: its name, and its tests.
type TestPart = (&'static str, fn() -> Outcome);

/// The parts whose programs print the lines of their progress themselves.
const WITH_LINES: [&str; 2] = ["abuse", "cluster"];

/// Runs a part, one of so many steps, and prints how long it took.
fn timed((name, part): TestPart, number: usize, steps: usize) -> Outcome {
    let begun = Instant::now();
    let task = LongTask::new(format!("cargo xtask test: {name}")).step(number, steps);
    let progress = (!WITH_LINES.contains(&name)).then(|| task.begin(String::new));
    let outcome = part();
    drop(progress);
    eprintln!(
        "cargo xtask test: {name} took {:.0} s",
        begun.elapsed().as_secs_f64()
    );
    outcome
}

/// Checks the spelling of all files, with the settings of `_typos.toml`.
fn spelling() -> Outcome {
    let typos = testenv::directory().join("typos/bin/typos");
    process::stream(Command::new(typos).current_dir(workspace()))
}

/// The tests of the harness. They share crates with the program of `instructions`, so their part comes after it.
fn harness() -> Outcome {
    let mut cargo = bench::harness_cargo("test", bench::COUNTED);
    cargo
        .arg("--no-fail-fast")
        .env(testenv::VARIABLE, testenv::directory());
    process::stream(&mut cargo)
}

/// `cargo test` of the unit and whole-gateway tests.
fn all_tests() -> Command {
    let mut cargo = cargo_test();
    cargo.args(["--lib", "--bins", "--tests", "--no-fail-fast"]);
    cargo
}

fn cargo_test() -> Command {
    cargo_test_of(&["--workspace"])
}

/// `cargo test` of some packages, with the test environment.
pub(crate) fn cargo_test_of(packages: &[&str]) -> Command {
    let mut cargo = process::cargo();
    cargo
        .arg("test")
        .args(packages)
        .current_dir(workspace())
        .env(testenv::VARIABLE, testenv::directory());
    cargo
}

/// Builds parts of the workspace without optimisation, with the features of dependencies that its tests enable. `cargo test`
/// has the same features, so it builds nothing again. The parts alone have other features: cargo would build most crates twice.
pub(crate) fn build(parts: &[&str]) -> Outcome {
    let mut cargo = process::cargo();
    // Cargo enables the features of tests only for a named example, test or bench. `tests/dist` and
    // `tests/page` run this example.
    cargo
        .args(["build", "--workspace", "--example", "cells", "--target-dir"])
        .arg(process::target())
        .args(parts)
        .current_dir(workspace());
    process::stream(&mut cargo)
}

/// Builds `target/debug/tidegate`, the gateway of all tests.
pub(crate) fn build_gateway() -> Outcome {
    build(&["--bin", "tidegate"])
}

/// The root of the repository.
pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("this package is a folder of the workspace")
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Dependencies of such a crate have features of their own: cargo would build the SDK and its dependencies twice.
    #[test]
    fn the_crate_of_macros_has_no_dependencies_of_tests() {
        let manifest = workspace().join("crates/tidegate-metrics-derive/Cargo.toml");
        let text = std::fs::read_to_string(manifest).expect("the manifest");
        assert!(!text.contains("dev-dependencies"), "{text}");
    }
}
