// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask page`: the page of `admin` in a real browser, Debian's Chromium, driven by Playwright.

use crate::{Outcome, process, pytest, testenv};

/// Installs what is missing and runs the tests; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Runs `tests/page`. It takes a minute when the gateway is built. Pictures go to `target/page`.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let part = |name| testenv::directory().join(name);
    let programs = [
        ("TIDEGATE_CHROMIUM", part("chromium")),
        ("TIDEGATE_PICTURES", process::target().join("page")),
    ];
    let folders = [part("playwright"), part("python-tools")];
    pytest::run(&["tests/page", "--quiet"], &folders, &programs, arguments)
}
