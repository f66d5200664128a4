// SPDX-License-Identifier: Apache-2.0

//! Packages from PyPI.

use std::path::Path;
use std::process::Command;

/// A pip that installs packages into a directory.
pub(crate) fn into(directory: &Path) -> Command {
    let mut pip = command("install");
    pip.arg("--root-user-action=ignore")
        .arg("--target")
        .arg(directory);
    pip
}

/// A pip that asks nothing and prints only errors.
pub(crate) fn command(name: &str) -> Command {
    let mut pip = Command::new("python3");
    pip.args([
        "-m",
        "pip",
        name,
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
    ]);
    pip
}
