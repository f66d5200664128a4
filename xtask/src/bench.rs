// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench` and `soak`: measurements of the release binary from outside.

use std::path::PathBuf;
use std::process::Command;

use crate::progress::LongTask;
use crate::test::{self, workspace};
use crate::{Outcome, instructions, process, sdk};

/// The manifest of the harness, which is a workspace of its own.
pub(crate) const MANIFEST: &str = "bench/Cargo.toml";

/// The profile of cargo without optimisation.
pub(crate) const DEV: &str = "dev";

/// The group that measures the SDKs, not the gateway: only when it is named.
const SDK: &str = "sdk";

/// The group that counts instead of measuring: likewise.
const INSTRUCTIONS: &str = "instructions";

/// Runs the groups named, or all; figures are printed and kept in `target/bench`.
pub(crate) fn bench(groups: &[String]) -> Outcome {
    if groups == [SDK] {
        return sdk::bench();
    }
    if let [first, arguments @ ..] = groups
        && first == INSTRUCTIONS
    {
        return instructions::bench(arguments);
    }
    let release = build()?;
    let output = process::target().join("bench");
    let mut harness = Command::new(release.join("tidegate-bench"));
    harness.arg(release.join("tidegate")).arg("bench").arg(output);
    process::stream(harness.args(groups))
}

/// A thousand simulated sources first, then the gateway under everything at once for this number of minutes.
pub(crate) fn soak(minutes: &[String]) -> Outcome {
    let sources = [
        "test",
        "--release",
        "-p",
        "tidegate-engine",
        "--test",
        "sources",
        "--",
        "--ignored",
        "--nocapture",
    ];
    let progress = LongTask::new("soak: a thousand simulated sources").begin(String::new);
    process::stream(process::cargo().args(sources).current_dir(workspace()))?;
    drop(progress);
    let release = build()?;
    let mut harness = Command::new(release.join("tidegate-bench"));
    harness.arg(release.join("tidegate")).arg("soak");
    process::stream(harness.args(minutes))
}

/// Builds the gateway and the harness with optimisations; gives the directory of both.
pub(crate) fn build() -> Result<PathBuf, String> {
    build_with("release")?;
    Ok(process::target().join("release"))
}

/// Builds the gateway and the harness with a profile of cargo.
pub(crate) fn build_with(profile: &str) -> Outcome {
    let build = |name: &str| LongTask::new(format!("build of the {name}, profile {profile}"));
    let progress = build("gateway").step(1, 2).begin(String::new);
    build_gateway(profile)?;
    drop(progress);
    let _progress = build("harness").step(2, 2).begin(String::new);
    build_harness(profile)
}

/// Builds the gateway alone. Without optimisation, it is that of the tests.
pub(crate) fn build_gateway(profile: &str) -> Outcome {
    if profile == DEV {
        return test::build_gateway();
    }
    let gateway = ["build", "--package", "tidegate", "--profile", profile];
    process::stream(process::cargo().args(gateway).current_dir(workspace()))
}

/// Builds the harness alone.
pub(crate) fn build_harness(profile: &str) -> Outcome {
    process::stream(harness_cargo("build").args(["--bin", "tidegate-bench", "--profile", profile]))
}

/// A command of cargo for the harness. Its workspace builds into our target directory, so that both share built crates.
pub(crate) fn harness_cargo(command: &str) -> Command {
    let mut cargo = process::cargo();
    cargo
        .args([command, "--locked", "--manifest-path", MANIFEST, "--target-dir"])
        .arg(process::target())
        .current_dir(workspace());
    cargo
}
