// SPDX-License-Identifier: Apache-2.0

//! `test`: tests of a configuration, on virtual time.
//!
//! `file` has the format of a file of tests. `case` runs one test: `gateway` builds the graph with the stand-ins of
//! `stand_ins` and moves the clock, `check` compares the results. `arrival` says when inputs come, and which scrapes fail.
//! `input` has the senders and their data: `target` the targets of scrapes, `otlp` the requests. `rule_files` runs unit tests
//! of rules. `junit` writes the results for CI systems.

mod arrival;
mod case;
mod check;
mod file;
mod gateway;
mod input;
mod junit;
mod otlp;
mod rule_files;
mod stand_ins;
mod target;

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use self::case::LoadedTests;
use self::file::TestFile;
use self::junit::{CaseReport, FileReport};
use super::Failure;
use crate::config::{Decode, Problems, parse_text, read_file};
use crate::print_line;

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Tests need no network and no devices. They run on virtual time: a minute of a test takes less than a \
second. The exit code is 1 if a test fails.\n\nExample:\n  tidegate test gateway.test.yaml --junit results.xml"
)]
pub struct TestArgs {
    /// Files of tests, in YAML (docs/testing.md), and files of `promtool test rules`
    #[arg(required = true, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    files: Vec<PathBuf>,
    /// Write the results to a file, as JUnit XML
    #[arg(long, value_name = "FILE", value_hint = clap::ValueHint::FilePath)]
    junit: Option<PathBuf>,
    /// Run only tests with this text in their names
    #[arg(long, value_name = "TEXT")]
    run: Option<String>,
}

/// Runs the tests of all files, also after a failure, and prints the results.
///
/// # Errors
/// A test fails, a file can't be read, no test has the name of `--run`, or the results can't be written.
pub fn run(args: &TestArgs) -> Result<(), Failure> {
    // Before the tests, which may take long.
    let junit = args.junit.as_deref().map(create).transpose()?;
    let reports: Vec<_> = args.files.iter().map(|file| run_file(file, args)).collect();
    if let Some((path, mut file)) = junit {
        let written = file.write_all(junit::render(&reports).as_bytes());
        written.map_err(Failure::io(format!("writing {}", path.display())))?;
    }
    let tests: usize = reports.iter().map(|report| report.cases.len()).sum();
    let failures: usize = reports.iter().map(FileReport::failures).sum();
    if tests == 0 {
        let text = args.run.as_deref().unwrap_or_default();
        return Err(Failure::Message(format!("no test has `{text}` in its name")));
    }
    print_line!("{} passed, {failures} failed", tests - failures);
    if failures > 0 {
        return Err(Failure::Reported);
    }
    Ok(())
}

/// Opens the file for the results.
fn create(path: &Path) -> Result<(&Path, File), Failure> {
    let file = File::create(path).map_err(Failure::io(format!("writing {}", path.display())))?;
    Ok((path, file))
}

/// Runs the tests of a file, and prints their results.
fn run_file(path: &Path, args: &TestArgs) -> FileReport {
    let file = path.display().to_string();
    print_line!("{file}");
    let mut notes = BTreeSet::new();
    let cases = run_cases(path, args, &mut notes)
        .unwrap_or_else(|why| vec![report("the file", Duration::ZERO, Err(why))]);
    for note in notes {
        print_line!("  note  {note}");
    }
    FileReport { file, cases }
}

/// Runs the tests of a file. Adds what people should know to `notes`.
///
/// # Errors
/// All that is wrong with the file, as a text.
fn run_cases(path: &Path, args: &TestArgs, notes: &mut BTreeSet<String>) -> Result<Vec<CaseReport>, String> {
    let name = path.display().to_string();
    let text = read_file(path).map_err(|error| format!("{name}: {error}"))?;
    let mut problems = Problems::default();
    let root = parse_text(&name, &text, &mut problems);
    let root = root.filter(|_| problems.is_empty());
    let root = root.ok_or_else(|| problems.to_string())?;
    let is_wanted = |name: &str| (args.run.as_ref()).is_none_or(|text| name.contains(text));
    if root.get("rule_files").is_some() {
        let tests = rule_files::read(path, &text, notes)?;
        let wanted = tests.cases().filter(|case| is_wanted(&case.name));
        let cases = wanted.map(|case| {
            let begun = Instant::now();
            let result = rule_files::run(&case);
            report(&case.name, begun.elapsed(), result)
        });
        return Ok(cases.collect());
    }
    let tests = TestFile::decode(&root, &mut problems).filter(|_| problems.is_empty());
    let loaded = LoadedTests {
        tests: tests.ok_or_else(|| problems.to_string())?,
        directory: case::directory_of(path),
        problems,
    };
    let wanted = loaded.tests.tests.iter().filter(|case| is_wanted(&case.name));
    let cases = wanted.map(|case| {
        let begun = Instant::now();
        let result = case::run(&loaded, case, notes);
        report(&case.name, begun.elapsed(), result)
    });
    Ok(cases.collect())
}

/// The result of a test, which it prints.
fn report(name: &str, took: Duration, result: Result<(), String>) -> CaseReport {
    let failure = result.err();
    match &failure {
        None => print_line!("  pass  {name} ({:.1} s)", took.as_secs_f64()),
        Some(why) => print_line!("  FAIL  {name}\n{}", why.trim_end()),
    }
    CaseReport {
        name: name.to_owned(),
        took,
        failure,
    }
}

#[cfg(test)]
mod testing {
    use crate::config::{Decode, Problems, parse_text};

    /// A part of a file of tests.
    pub(super) fn decoded<T: Decode>(yaml: &str) -> T {
        let mut problems = Problems::default();
        let node = parse_text("a.yaml", yaml, &mut problems).expect("YAML");
        let decoded = T::decode(&node, &mut problems);
        decoded
            .filter(|_| !problems.has_errors())
            .unwrap_or_else(|| panic!("{problems}"))
    }
}
