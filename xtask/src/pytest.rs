// SPDX-License-Identifier: Apache-2.0

//! Tests of the gateway in Python.

use std::path::PathBuf;

use crate::test::workspace;
use crate::{Outcome, process};

/// Builds the gateway and runs pytest. Python looks for modules in `folders`. `programs` are variables that name what the
/// tests run, beside `TIDEGATE_BINARY`, the gateway.
pub(crate) fn run(
    what: &[&str],
    folders: &[PathBuf],
    programs: &[(&str, PathBuf)],
    arguments: &[String],
) -> Outcome {
    process::stream(process::cargo().args(["build", "--quiet", "--bin", "tidegate"]))?;
    let path = std::env::join_paths(folders).map_err(|error| error.to_string())?;
    process::stream(
        process::by_hand("python3")
            .args(["-m", "pytest", "-p", "no:cacheprovider"])
            .args(what)
            .args(arguments)
            .current_dir(workspace())
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("TIDEGATE_BINARY", process::target().join("debug/tidegate"))
            .envs(programs.iter().cloned()),
    )
}
