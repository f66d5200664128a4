// SPDX-License-Identifier: Apache-2.0

//! Child processes: run to the end, with their output in the error when they fail.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::io::{self, BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::thread;
use std::time::Duration;

/// Downloads fail now and then: three tries, a little apart, and then it is not chance.
const ATTEMPTS: u32 = 3;
pub(crate) const PAUSE: Duration = Duration::from_secs(3);

/// Of what a command says at the end, in its error.
const LAST_LINES: usize = 20;

/// Variables that `cargo run` and `cargo test` set for their child. A `cargo` started below must not see them:
/// build scripts that watch them (ring's does) would build again.
const CARGO_RUN_VARIABLES: [&str; 5] = [
    "CARGO_MANIFEST_DIR",
    "CARGO_MANIFEST_PATH",
    "CARGO_PKG_",
    "LD_LIBRARY_PATH",
    "OUT_DIR",
];

/// Runs `command`, catching its output.
///
/// # Errors
/// The command line, how it ended and the end of what it printed.
pub(crate) fn run(command: &mut Command) -> Result<(), String> {
    let output = command
        .output()
        .map_err(|error| format!("{}: {error}", line(command)))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!(
        "`{}`: {}\n{}",
        line(command),
        output.status,
        tail(&output)
    ))
}

/// Runs `command` with our own terminal as its output.
///
/// # Errors
/// The command line and how it ended.
pub(crate) fn stream(command: &mut Command) -> Result<(), String> {
    let status = command.status();
    ended(command, status)
}

/// Runs `command` with our own standard output. What it says at the end on standard error is in our error too: thousands of
/// lines may lie between it and the end of a log.
///
/// # Errors
/// The command line, how it ended, and the last lines of its standard error.
pub(crate) fn last_words(command: &mut Command) -> Result<(), String> {
    let started = command.stderr(Stdio::piped()).spawn();
    let mut child = started.map_err(|error| format!("{}: {error}", line(command)))?;
    let mut last = VecDeque::new();
    let said = child.stderr.take().into_iter();
    let said = said.flat_map(|said| BufReader::new(said).lines().map_while(Result::ok));
    for line in said {
        eprintln!("{line}");
        last.truncate(LAST_LINES - 1);
        last.push_front(line);
    }
    let ended = ended(command, child.wait());
    let last: Vec<String> = last.into_iter().rev().collect();
    ended.map_err(|error| format!("{error}\n{}", last.join("\n")))
}

/// How a command ended.
///
/// # Errors
/// The command line and how it ended, unless it was a success.
pub(crate) fn ended(command: &Command, status: io::Result<ExitStatus>) -> Result<(), String> {
    match status {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("`{}`: {status}", line(command))),
        Err(error) => Err(format!("{}: {error}", line(command))),
    }
}

/// Runs `command` with our own standard error, and gives what it printed and how it ended.
///
/// # Errors
/// It can't be started.
pub(crate) fn printed(command: &mut Command) -> Result<(String, Result<(), String>), String> {
    let output = command
        .stderr(Stdio::inherit())
        .output()
        .map_err(|error| format!("{}: {error}", line(command)))?;
    let ended = if output.status.success() {
        Ok(())
    } else {
        Err(format!("`{}`: {}", line(command), output.status))
    };
    Ok((String::from_utf8_lossy(&output.stdout).into_owned(), ended))
}

/// Tries `step` a few times, with a `pause` between.
///
/// # Errors
/// The last try's error.
pub(crate) fn retry(
    what: &str,
    pause: Duration,
    step: impl Fn() -> Result<(), String>,
) -> Result<(), String> {
    for attempt in 1..ATTEMPTS {
        match step() {
            Ok(()) => return Ok(()),
            Err(error) => eprintln!("{what}, attempt {attempt} of {ATTEMPTS}: {error}"),
        }
        thread::sleep(pause);
    }
    step().map_err(|error| format!("{what}, attempt {ATTEMPTS} of {ATTEMPTS}: {error}"))
}

/// The same cargo that runs us, as if it was started by hand.
pub(crate) fn cargo() -> Command {
    by_hand(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()))
}

/// A program as if it was started by hand, not below cargo.
pub(crate) fn by_hand(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        let name_text = name.to_string_lossy();
        if CARGO_RUN_VARIABLES.iter().any(|set| name_text.starts_with(set)) {
            command.env_remove(&name);
        }
    }
    command
}

/// Starts a command at the lowest priority, without output.
///
/// # Errors
/// It can't be started.
pub(crate) fn start_in_background(command: &Command) -> Result<Child, String> {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"])
        .arg(command.get_program())
        .args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        nice.current_dir(directory);
    }
    nice.stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    nice.spawn().map_err(|error| format!("{}: {error}", line(&nice)))
}

/// The target directory we were built in.
pub(crate) fn target() -> PathBuf {
    let us = std::env::current_exe().expect("the path of this very program");
    let target = us.ancestors().nth(2).expect("target/PROFILE/xtask");
    target.to_owned()
}

pub(crate) fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ")
}

fn tail(output: &Output) -> String {
    let text = [&output.stdout[..], &output.stderr[..]].concat();
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().collect();
    lines[lines.len().saturating_sub(LAST_LINES)..].join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    #[test]
    fn a_failure_names_the_command_its_status_and_its_last_words() {
        let command = || {
            let mut command = Command::new("sh");
            command.args(["-c", "echo out; echo err >&2; exit 7"]);
            command
        };
        let last = last_words(&mut command()).expect_err("it exits with 7");
        assert!(last.ends_with("exit status: 7\nerr"), "{last}");
        let error = run(&mut command());
        let error = error.expect_err("it exits with 7");
        for part in ["sh -c", "exit status: 7", "out", "err"] {
            assert!(error.contains(part), "{part} is missing in {error}");
        }
    }

    #[test]
    fn a_command_in_the_background_has_its_variables_and_directory() {
        let mut command = Command::new("sh");
        command
            .args([
                "-c",
                "test \"$STEP\" = one && test \"$PWD\" = / && test -z \"$HOME\" && test $(nice) = 19",
            ])
            .env("STEP", "one")
            .env_remove("HOME")
            .current_dir("/");
        let mut started = start_in_background(&command).expect("it starts");
        assert!(started.wait().expect("it ends").success());
    }

    #[test]
    fn a_step_that_fails_once_is_tried_again() {
        let calls = Cell::new(0);
        let flaky = || {
            calls.set(calls.get() + 1);
            if calls.get() == 1 {
                Err("no".to_owned())
            } else {
                Ok(())
            }
        };
        assert_eq!(retry("flaky", Duration::ZERO, flaky), Ok(()));
        assert_eq!(calls.get(), 2);
    }
}
