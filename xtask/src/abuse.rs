// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask abuse`: peers that lie, against the release binary.

use crate::bench::Programs;
use crate::{Outcome, process};

/// Makes the attacks named, or all; prints their results and keeps them in `target/abuse`.
pub(crate) fn abuse(arguments: &[String]) -> Outcome {
    harness(&Programs::release()?, arguments)
}

/// The small form of each attack, against the debug binary.
pub(crate) fn small() -> Outcome {
    harness(&Programs::of_tests()?, &["--small".to_owned()])
}

fn harness(programs: &Programs, arguments: &[String]) -> Outcome {
    let mut harness = programs.command();
    harness.arg("abuse").arg(process::target().join("abuse"));
    process::last_words(harness.args(arguments))
}
