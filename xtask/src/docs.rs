// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask reference`: the pages of `docs/reference`, written from what the newest build says of itself, the
//! tables and plots of `docs/benchmarks.md`, and the diagrams of `docs/diagrams.py`. `cargo xtask site`: the site of `docs/`.

use crate::{Outcome, process, pytest, test, testenv};

/// The part of the test environment with the builder of the site.
const BUILDER: &str = "site";

/// Writes the pages that differ.
pub(crate) fn reference(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask reference".into());
    }
    test::build_gateway()?;
    process::stream(
        pytest::python(&[])?
            .arg("docs/reference.py")
            .arg(process::target().join("debug/tidegate")),
    )
}

/// Builds the site into `target/site`, in a folder of this version.
pub(crate) fn site(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask site".into());
    }
    testenv::setup_part(BUILDER)?;
    process::stream(
        pytest::python(&[testenv::part(BUILDER)])?
            .arg("docs/site.py")
            .arg(process::target().join("site")),
    )
}

/// Installs what is missing and runs the tests of the pages; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Runs `tests/docs`. It takes a few minutes when the gateway is built.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let promtool = testenv::part("debian-unstable/usr/bin/promtool");
    let programs = [
        ("TIDEGATE_CHROMIUM", testenv::part("chromium")),
        ("TIDEGATE_PROMTOOL", promtool),
    ];
    let folders = ["deploy-tools", "playwright", "python-tools", BUILDER].map(testenv::part);
    pytest::run(&["tests/docs", "--quiet"], &folders, &programs, arguments)
}
