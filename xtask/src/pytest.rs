// SPDX-License-Identifier: Apache-2.0

//! Tests of the gateway in Python, and other programs of the repository in it.

use std::path::PathBuf;
use std::process::Command;

use crate::test::{build_gateway, workspace};
use crate::{Outcome, process};

/// Builds the gateway and runs pytest. Python looks for modules in `folders`. `programs` are variables that name what the
/// tests run, beside `TIDEGATE_BINARY`, the gateway.
pub(crate) fn run(
    what: &[&str],
    folders: &[PathBuf],
    programs: &[(&str, PathBuf)],
    arguments: &[String],
) -> Outcome {
    build_gateway()?;
    process::stream(
        python(folders)?
            .args(["-m", "pytest", "-p", "no:cacheprovider"])
            .args(what)
            .args(arguments)
            .env("TIDEGATE_BINARY", process::target().join("debug/tidegate"))
            .envs(programs.iter().cloned()),
    )
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
