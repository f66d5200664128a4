// SPDX-License-Identifier: Apache-2.0

//! Tests of the gateway in Python, and other programs of the repository in it.

use std::io::{self, BufReader, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::progress::LongTask;
use crate::test::{build_gateway, workspace};
use crate::{Outcome, process};

/// The letters of pytest for tests that have ended.
const OUTCOMES: &[u8] = b".FEsxX";

/// Builds the gateway and runs pytest on `what`: the folder of the tests, and options. Python looks for modules in `folders`.
/// `programs` are variables that name what the tests run, beside `TIDEGATE_BINARY`, the gateway.
pub(crate) fn run(
    what: &[&str],
    folders: &[PathBuf],
    programs: &[(&str, PathBuf)],
    arguments: &[String],
) -> Outcome {
    build_gateway()?;
    watch(
        what[0],
        python(folders)?
            .args(["-m", "pytest", "-p", "no:cacheprovider"])
            .args(what)
            .args(arguments)
            .env("TIDEGATE_BINARY", process::target().join("debug/tidegate"))
            .envs(programs.iter().cloned()),
    )
}

/// Runs pytest, and prints how long it runs already. Without a terminal, what it prints comes in whole lines: otherwise, our
/// lines would follow its dots.
///
/// # Errors
/// The command line and how it ended.
pub(crate) fn watch(name: &str, pytest: &mut Command) -> Outcome {
    let task = LongTask::new(name);
    if io::stdout().is_terminal() {
        let _progress = task.begin(String::new);
        return process::stream(pytest);
    }
    let passed = Arc::new(AtomicUsize::new(0));
    let counted = passed.clone();
    let _progress = task.begin(move || format!("{} tests passed", counted.load(Ordering::Relaxed)));
    let started = pytest.stdout(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("{}: {error}", process::line(pytest)))?;
    if let Some(output) = child.stdout.take() {
        copy_lines(output, io::stdout(), &passed);
    }
    let status = child.wait();
    process::ended(pytest, status)
}

/// Copies whole lines. Counts the tests that have passed as soon as their dots are there.
fn copy_lines(from: impl Read, mut to: impl Write, passed: &AtomicUsize) {
    let mut line = Vec::new();
    let mut are_outcomes = true;
    for byte in BufReader::new(from).bytes().map_while(Result::ok) {
        line.push(byte);
        are_outcomes &= OUTCOMES.contains(&byte);
        if are_outcomes && byte == b'.' {
            passed.fetch_add(1, Ordering::Relaxed);
        }
        if byte == b'\n' {
            // Without a reader of our output, the tests go on.
            let _ = to.write_all(&line);
            line.clear();
            are_outcomes = true;
        }
    }
    let _ = to.write_all(&line);
}

/// Python at the root of the repository. It looks for modules in `folders`, and leaves no compiled files beside the source.
pub(crate) fn python(folders: &[PathBuf]) -> Result<Command, String> {
    let path = std::env::join_paths(folders).map_err(|error| error.to_string())?;
    let mut python = process::by_hand("python3");
    python
        .current_dir(workspace())
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1");
    Ok(python)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is written at a time.
    struct Writes(Vec<String>);

    impl Write for Writes {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.push(String::from_utf8_lossy(bytes).into_owned());
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn lines_are_copied_whole_and_dots_of_tests_are_counted() {
        let lines = ["..F.s [ 90%]\n", "\n", "Errors... none.\n", ".."];
        let (mut copied, passed) = (Writes(Vec::new()), AtomicUsize::new(0));
        // It comes in pieces.
        let printed = lines.concat();
        let (first, rest) = printed.as_bytes().split_at(20);
        copy_lines(first.chain(rest), &mut copied, &passed);
        assert_eq!(copied.0, lines);
        assert_eq!(passed.into_inner(), 5);
    }
}
