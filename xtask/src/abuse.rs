// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask abuse`: peers that lie, against the release binary.

use std::path::Path;
use std::process::Command;

use crate::{Outcome, bench, process};

/// Makes the attacks named, or all; prints their results and keeps them in `target/abuse`.
pub(crate) fn abuse(arguments: &[String]) -> Outcome {
    harness(&bench::build()?, arguments)
}

/// The small form of each attack, against the debug binary.
pub(crate) fn small() -> Outcome {
    bench::build_with(bench::DEV)?;
    harness(&process::target().join("debug"), &["--small".to_owned()])
}

fn harness(binaries: &Path, arguments: &[String]) -> Outcome {
    let mut harness = Command::new(binaries.join("tidegate-bench"));
    harness
        .arg(binaries.join("tidegate"))
        .arg("abuse")
        .arg(process::target().join("abuse"));
    process::last_words(harness.args(arguments))
}
