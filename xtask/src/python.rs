// SPDX-License-Identifier: Apache-2.0

//! The Python package: built as a wheel, unpacked under `target/python`, and tested from there.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::progress::LongTask;
use crate::test::{build_gateway, workspace};
use crate::{Outcome, process, pytest, testenv};

/// Installs what is missing and tests the package; arguments go to pytest.
pub(crate) fn test_alone(arguments: &[String]) -> Outcome {
    testenv::setup(&[])?;
    test(arguments)
}

/// Builds the wheel, checks its types and runs its tests, also after a failure.
pub(crate) fn test(arguments: &[String]) -> Outcome {
    let site = install(&[])?;
    build_gateway()?;
    let source = workspace().join("python");
    let progress = LongTask::new("python: types").begin(String::new);
    let types = process::stream(
        python(&site)
            .args(["-m", "mypy", "--no-incremental", "--strict"])
            .args(["-p", "tidegate"]),
    );
    let stubs = process::stream(
        python(&site)
            .args(["-m", "mypy.stubtest", "tidegate._tidegate"])
            .args(["--ignore-disjoint-bases"]),
    );
    drop(progress);
    let tests = pytest::watch(
        "python/tests",
        python(&site)
            .args(["-m", "pytest", "-p", "no:cacheprovider", "--config-file"])
            .arg(source.join("pyproject.toml"))
            .arg(source.join("tests"))
            .args(arguments),
    );
    types.and(stubs).and(tests)
}

/// The command that measures recording, next to `prometheus_client`: [`sdk`](crate::sdk) reads its output.
pub(crate) fn bench() -> Result<Command, String> {
    testenv::setup(&[])?;
    let site = install(&["--release"])?;
    let mut bench = python(&site);
    bench.arg(workspace().join("python/bench/record.py"));
    Ok(bench)
}

/// Builds the wheel and unpacks it; gives the directory that it is importable from.
fn install(options: &[&str]) -> Result<PathBuf, String> {
    let place = process::target().join("python");
    let (wheels, site) = (place.join("wheels"), place.join("site"));
    testenv::clear(&wheels)?;
    testenv::clear(&site)?;
    process::stream(
        process::by_hand(tools().join("bin/maturin"))
            .args(["build", "--compatibility", "linux", "--out"])
            .arg(&wheels)
            .arg("--manifest-path")
            .arg(workspace().join("python/Cargo.toml"))
            .args(options)
            // Without this, maturin's settings for the build would rebuild everything in the workspace's own target
            // directory.
            .env("CARGO_TARGET_DIR", place.join("build")),
    )?;
    let wheel = only_file(&wheels)?;
    process::run(
        Command::new("python3")
            .args(["-m", "zipfile", "-e"])
            .arg(wheel)
            .arg(&site),
    )?;
    Ok(site)
}

/// Python with the package, the tools and the peers of the tests at hand. It runs at the root, where no folder has
/// the name of the package.
fn python(site: &Path) -> Command {
    let parts = [site.to_owned(), tools(), testenv::part("python")];
    let path = std::env::join_paths(parts).expect("no colon in our own paths");
    let mut python = process::by_hand("python3");
    python
        .current_dir(workspace())
        .env("PYTHONPATH", path)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("TIDEGATE_BINARY", process::target().join("debug/tidegate"))
        .env(testenv::VARIABLE, testenv::directory());
    python
}

/// The directory of the tools that build and check the package.
pub(crate) fn tools() -> PathBuf {
    testenv::part("python-tools")
}

fn only_file(directory: &Path) -> Result<OsString, String> {
    let describe = |error| format!("{}: {error}", directory.display());
    let mut entries = fs::read_dir(directory).map_err(describe)?;
    match (entries.next(), entries.next()) {
        (Some(Ok(entry)), None) => Ok(entry.path().into()),
        _ => Err(format!("{}: not one file", directory.display())),
    }
}
