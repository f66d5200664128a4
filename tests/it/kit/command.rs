// SPDX-License-Identifier: Apache-2.0

//! Commands that end by themselves.

use std::path::Path;
use std::process::{Command, Output};

use super::gateway::tidegate;

/// A command's exit code, standard output and standard error.
pub(crate) struct Finished {
    pub(crate) code: Option<i32>,
    pub(crate) output: String,
    pub(crate) errors: String,
}

/// Runs a command to its end.
pub(crate) fn finished(command: &mut Command) -> Finished {
    let Output {
        status,
        stdout,
        stderr,
    } = command.output().expect("it starts");
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("UTF-8");
    Finished {
        code: status.code(),
        output: text(stdout),
        errors: text(stderr),
    }
}

/// The exit code, standard output and standard error of a command.
pub(crate) fn result(command: &mut Command) -> (Option<i32>, String, String) {
    let Finished { code, output, errors } = finished(command);
    (code, output, errors)
}

/// A command that asks the gateway whose admin endpoint has this port.
pub(crate) fn asking(port: u16, arguments: &[&str]) -> Command {
    let mut command = tidegate();
    command
        .args(arguments)
        .args(["--endpoint", &format!("127.0.0.1:{port}")]);
    command
}

/// `tidegate validate` of a file, in a directory.
pub(crate) fn validate(directory: &Path, file: &Path) -> Command {
    let mut command = tidegate();
    command
        .current_dir(directory)
        .args(["validate", "--config"])
        .arg(file);
    command
}
