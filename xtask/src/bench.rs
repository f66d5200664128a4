//! `cargo xtask bench`: what the release binary does, measured from outside.

use crate::{Outcome, process, test::workspace};

/// Builds the gateway and the harness with optimisations and runs the groups named, or all.
pub(crate) fn bench(groups: &[String]) -> Outcome {
    let build = [
        "build",
        "--release",
        "--package",
        "tidegate",
        "--package",
        "tidegate-bench",
    ];
    process::stream(process::cargo().args(build).current_dir(workspace()))?;
    let target = process::target();
    let release = target.join("release");
    process::stream(
        std::process::Command::new(release.join("tidegate-bench"))
            .arg(release.join("tidegate"))
            .arg(target.join("bench"))
            .args(groups),
    )
}
