// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask page`: the page of `admin` in a real browser, Debian's Chromium, driven by Playwright.

use crate::test::workspace;
use crate::{Outcome, process, testenv};

/// Installs what is missing and runs the tests; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Runs `tests/page`. It takes a minute when the gateway is built. Pictures go to `target/page`.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    process::stream(process::cargo().args(["build", "--quiet", "--bin", "tidegate"]))?;
    let part = |name| testenv::directory().join(name);
    let parts = [part("playwright"), part("python-tools")];
    let path = std::env::join_paths(parts).map_err(|error| error.to_string())?;
    let programs = [
        ("TIDEGATE_BINARY", process::target().join("debug/tidegate")),
        ("TIDEGATE_CHROMIUM", part("chromium")),
        ("TIDEGATE_PICTURES", process::target().join("page")),
    ];
    process::stream(
        process::by_hand("python3")
            .args(["-m", "pytest", "-p", "no:cacheprovider", "tests/page", "--quiet"])
            .args(arguments)
            .current_dir(workspace())
            .env("PYTHONPATH", path)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .envs(programs),
    )
}
