//! `version`: what this binary is.

use super::Failure;
use crate::say;

/// Prints version, target and the NIXL formats it reads.
pub fn run() -> Result<(), Failure> {
    say!("tidegate {}", env!("CARGO_PKG_VERSION"));
    say!("target: {}-{}", std::env::consts::ARCH, std::env::consts::OS);
    say!(
        "profile: {}",
        if cfg!(debug_assertions) {
            "debug"
        } else {
            "release"
        }
    );
    say!("nixl rings: 1, 2a, 2b, 3, 4, 5 (proposed); multi-process stores: schema 1");
    Ok(())
}
