// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask loom`: the arithmetic of the account under every interleaving of threads.

use crate::progress::LongTask;
use crate::{Outcome, process, test::workspace};

/// Arguments go to the tests. Builds apart from the rest, in `target/loom`: some 20 seconds, and 10 for the tests.
pub(crate) fn loom(arguments: &[String]) -> Outcome {
    let mut cargo = process::cargo();
    cargo
        .args(["test", "--package", "tidegate-account", "--lib", "--target-dir"])
        .arg(process::target().join("loom"))
        .args(arguments)
        .env("CARGO_ENCODED_RUSTFLAGS", "--cfg\x1floom")
        .current_dir(workspace());
    let _progress = LongTask::new("loom").begin(String::new);
    process::stream(&mut cargo)
}
