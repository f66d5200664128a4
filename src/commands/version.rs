// SPDX-License-Identifier: Apache-2.0

//! `version`: the version and the build of this binary.

use super::Failure;
use crate::built::{COMMIT, DATE, FEATURES, RUSTC, VERSION};
use crate::print_line;

/// Prints version, commit, features, compiler, target and the NIXL formats it reads.
///
/// # Errors
/// None.
pub fn run() -> Result<(), Failure> {
    print_line!("{}", text().trim_end());
    Ok(())
}

/// What the command prints.
pub(super) fn text() -> String {
    let (arch, system) = (std::env::consts::ARCH, std::env::consts::OS);
    let profile = if cfg!(debug_assertions) {
        "debug"
    } else {
        "release"
    };
    format!(
        "tidegate {VERSION}\ncommit: {COMMIT}, {DATE}\nfeatures: {FEATURES}\nrustc: {RUSTC}\n\
         target: {arch}-{system}\nprofile: {profile}\n\
         nixl rings: 1, 2a, 2b, 3, 4, 5 (proposed); multi-process stores: schema 1\n"
    )
}
