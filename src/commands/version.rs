// SPDX-License-Identifier: Apache-2.0

//! `version`: the version and the build of this binary.

use super::Failure;
use crate::built::{COMMIT, DATE, VERSION};
use crate::print_line;

/// Prints version, commit, target and the NIXL formats it reads.
///
/// # Errors
/// None: failed writes to standard output are not reported.
pub fn run() -> Result<(), Failure> {
    print_line!("tidegate {VERSION}");
    print_line!("commit: {COMMIT}, {DATE}");
    print_line!("target: {}-{}", std::env::consts::ARCH, std::env::consts::OS);
    print_line!(
        "profile: {}",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        }
    );
    print_line!("nixl rings: 1, 2a, 2b, 3, 4, 5 (proposed); multi-process stores: schema 1");
    Ok(())
}
