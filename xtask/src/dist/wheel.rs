// SPDX-License-Identifier: Apache-2.0

//! The Python package: a wheel, for all versions of Python from 3.10 on, and the source of it.

use std::fs;
use std::process::Command;

use super::Release;
use crate::test::workspace;
use crate::{Outcome, process, python, testenv};

/// The oldest system that a wheel of Zig runs on: glibc 2.17.
const OLDEST_SYSTEM: &str = "manylinux2014";

/// Where `pyproject.toml` looks for the licences of the crates. Git ignores this file.
const NOTICES: &str = "python/THIRD-PARTY-NOTICES.txt";

pub(super) fn build(release: &Release) -> Outcome {
    testenv::setup_part("python-tools")?;
    let notices = workspace().join(NOTICES);
    fs::copy(&release.notices, &notices)
        .map_err(|error| format!("{} to {}: {error}", release.notices.display(), notices.display()))?;
    let built = build_both(release);
    let removed = fs::remove_file(&notices).map_err(|error| format!("{}: {error}", notices.display()));
    built.and(removed)
}

/// Builds the wheel and the archive of the source.
fn build_both(release: &Release) -> Outcome {
    let mut wheel = maturin(release, "build");
    if !release.is_debug {
        wheel.arg("--release");
    }
    if release.with_zig {
        wheel.args(["--zig", "--compatibility", OLDEST_SYSTEM]);
    }
    // Tests of the package build there, too. Without this, the settings of maturin would rebuild everything in the
    // workspace's own target directory.
    wheel.env("CARGO_TARGET_DIR", process::target().join("python/build"));
    process::stream(&mut wheel)?;
    process::stream(&mut maturin(release, "sdist"))
}

fn maturin(release: &Release, command: &str) -> Command {
    let mut maturin = release.command(python::tools().join("bin/maturin"));
    maturin
        .args([command, "--out"])
        .arg(&release.output)
        .arg("--manifest-path")
        .arg(workspace().join("python/Cargo.toml"));
    maturin
}
