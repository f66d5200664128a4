// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask reference`: the pages of `docs/reference`, written from what the newest build says of itself.

use crate::test::workspace;
use crate::{Outcome, process, pytest, testenv};

/// Writes the pages that differ.
pub(crate) fn reference(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask reference".into());
    }
    process::stream(process::cargo().args(["build", "--quiet", "--bin", "tidegate"]))?;
    process::stream(
        process::by_hand("python3")
            .arg("docs/reference.py")
            .arg(process::target().join("debug/tidegate"))
            .current_dir(workspace()),
    )
}

/// Installs what is missing and runs the tests of the pages; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Runs `tests/docs`. It takes seconds when the gateway is built.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let folders = [testenv::directory().join("python-tools")];
    pytest::run(&["tests/docs", "--quiet"], &folders, &[], arguments)
}
