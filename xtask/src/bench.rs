// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask bench` and `soak`: measurements of the release binary from outside.

use std::path::PathBuf;
use std::process::Command;

use crate::progress::LongTask;
use crate::test::{self, workspace};
use crate::{Outcome, instructions, process, sdk};

/// The manifest of the harness, which is a workspace of its own.
pub(crate) const MANIFEST: &str = "bench/Cargo.toml";

const HARNESS: &str = "tidegate-bench";

/// The profile of what users run.
const RELEASE: &str = "release";

/// The profile of the instruction counts. Tests build the harness with it, too: most of its crates are the same.
pub(crate) const COUNTED: &str = "instructions";

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
    let output = process::target().join("bench");
    let mut harness = Programs::release()?.command();
    process::stream(harness.arg("bench").arg(output).args(groups))
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
    let mut harness = Programs::release()?.command();
    process::stream(harness.arg("soak").args(minutes))
}

/// The gateway and the harness that measures it, built.
pub(crate) struct Programs {
    gateway: PathBuf,
    pub(crate) harness: PathBuf,
}

impl Programs {
    /// Builds both with all optimisations.
    pub(crate) fn release() -> Result<Self, String> {
        Self::build(RELEASE, RELEASE, RELEASE, build_gateway)
    }

    /// Builds the gateway of the tests and the harness of the tests.
    pub(crate) fn of_tests() -> Result<Self, String> {
        Self::build("dev", "debug", COUNTED, test::build_gateway)
    }

    /// `folder` has the gateway: cargo writes what it builds with the profile `dev` to `debug`.
    fn build(
        profile: &str,
        folder: &str,
        profile_of_harness: &str,
        build_gateway: fn() -> Outcome,
    ) -> Result<Self, String> {
        let build =
            |name: &str, profile: &str| LongTask::new(format!("build of the {name}, profile {profile}"));
        let progress = build("gateway", profile).step(1, 2).begin(String::new);
        build_gateway()?;
        drop(progress);
        let _progress = build("harness", profile_of_harness).step(2, 2).begin(String::new);
        Ok(Self {
            gateway: process::target().join(folder).join("tidegate"),
            harness: build_harness(profile_of_harness)?,
        })
    }

    /// A command of the harness with this gateway.
    pub(crate) fn command(&self) -> Command {
        let mut command = Command::new(&self.harness);
        command.arg(&self.gateway);
        command
    }
}

/// Builds the gateway alone, with all optimisations.
pub(crate) fn build_gateway() -> Outcome {
    let gateway = ["build", "--package", "tidegate", "--profile", RELEASE];
    process::stream(process::cargo().args(gateway).current_dir(workspace()))
}

/// Builds the harness alone, with all optimisations, and gives its path.
pub(crate) fn release_harness() -> Result<PathBuf, String> {
    build_harness(RELEASE)
}

fn build_harness(profile: &str) -> Result<PathBuf, String> {
    process::stream(harness_cargo("build", profile).args(["--bin", HARNESS]))?;
    Ok(process::target().join(profile).join(HARNESS))
}

/// A command of cargo for the harness. Its workspace builds into our target directory, so that both share built crates.
pub(crate) fn harness_cargo(command: &str, profile: &str) -> Command {
    let mut cargo = process::cargo();
    cargo
        .args([
            command,
            "--locked",
            "--manifest-path",
            MANIFEST,
            "--profile",
            profile,
            "--target-dir",
        ])
        .arg(process::target())
        .current_dir(workspace());
    if profile == COUNTED {
        // It is not built again for every commit.
        cargo.env("TIDEGATE_COMMIT", COUNTED);
    }
    cargo
}
