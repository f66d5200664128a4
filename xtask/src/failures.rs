// SPDX-License-Identifier: Apache-2.0

//! The failed tests of a run, for its last lines: thousands of lines lie between a failure and the end of the log.

use std::io::{BufRead, BufReader, Write, stdout};
use std::process::{Command, Stdio};

use crate::{Outcome, process};

/// The most lines of a failed test that are printed again.
const LINES: usize = 25;

/// The most lines of a panic that are printed last.
const PANIC_LINES: usize = 6;

/// Begins the list of what failed tests printed, and the list of their names.
const SECTION: &str = "failures:";

/// Where a reader of the output of test runners is.
#[derive(Default)]
struct Failures {
    /// The names of tests, and what each printed.
    tests: Vec<(String, Vec<String>)>,
    is_section: bool,
    is_backtrace: bool,
}

impl Failures {
    fn take(&mut self, line: &str) {
        if line == SECTION {
            // The second is the list of the names, after what they printed.
            self.is_section = !self.is_section;
            return;
        }
        if !self.is_section {
            return;
        }
        if let Some(name) = name_of(line) {
            self.tests.push((name.to_owned(), Vec::new()));
        } else if let Some((_, printed)) = self.tests.last_mut() {
            self.is_backtrace = is_backtrace(line, self.is_backtrace);
            if !self.is_backtrace && !line.is_empty() && printed.len() < LINES {
                printed.push(line.to_owned());
            }
        }
    }

    /// What the tests printed, then their panics: a log of CI may be cut to its last lines.
    fn report(&self) -> String {
        let mut text = String::new();
        for (name, printed) in &self.tests {
            block(&mut text, name, printed);
        }
        for (name, printed) in &self.tests {
            block(&mut text, name, panic_of(printed));
        }
        text
    }
}

fn block(text: &mut String, name: &str, lines: &[String]) {
    if !lines.is_empty() {
        *text += &format!("\nfailed: {name}\n");
        lines.iter().for_each(|line| *text += &format!("    {line}\n"));
    }
}

/// The first panic and the lines of its message.
fn panic_of(printed: &[String]) -> &[String] {
    let Some(begin) = printed.iter().position(|line| line.contains(" panicked at ")) else {
        return &[];
    };
    let end = printed.len().min(begin + PANIC_LINES);
    &printed[begin..end]
}

/// The test whose output follows.
fn name_of(line: &str) -> Option<&str> {
    line.strip_prefix("---- ")?.strip_suffix(" stdout ----")
}

fn is_backtrace(line: &str, was_before: bool) -> bool {
    line == "stack backtrace:" || (was_before && line.starts_with([' ', 'n']))
}

/// Runs tests with our own standard error and shows what they print. The failures come again at the end.
///
/// # Errors
/// The command line and how it ended.
pub(crate) fn watch(command: &mut Command) -> Outcome {
    let started = command.stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("{}: {error}", process::line(command)))?;
    let mut failures = Failures::default();
    if let Some(output) = child.stdout.take() {
        let mut output = BufReader::new(output);
        let mut line = Vec::new();
        while output.read_until(b'\n', &mut line).is_ok_and(|read| read > 0) {
            // Without a reader of our output, the tests go on.
            let _ = stdout().write_all(&line);
            failures.take(String::from_utf8_lossy(&line).trim_end());
            line.clear();
        }
    }
    let status = child.wait();
    eprint!("{}", failures.report());
    process::ended(command, status)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_told_without_their_backtraces() {
        let output = "test a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b stdout ----\nseed 7\n\nthread 'b' panicked at x.rs:1:\nleft\n\
            stack backtrace:\n   0: core::panicking\n             at x.rs\nnote: Some details are omitted\n\n---- c stdout ----\nno\n\n\n\
            failures:\n    b\n    c\n\ntest result: FAILED. 1 passed; 2 failed\n";
        let mut failures = Failures::default();
        output.lines().for_each(|line| failures.take(line));
        assert_eq!(
            failures.report(),
            "\nfailed: b\n    seed 7\n    thread 'b' panicked at x.rs:1:\n    left\n\nfailed: c\n    no\n\n\
            failed: b\n    thread 'b' panicked at x.rs:1:\n    left\n"
        );
    }

    #[test]
    fn a_run_without_failures_has_no_report() {
        let mut failures = Failures::default();
        failures.take("test a ... ok");
        failures.take("test result: ok. 1 passed");
        assert_eq!(failures.report(), "");
    }
}
