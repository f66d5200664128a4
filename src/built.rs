// SPDX-License-Identifier: Apache-2.0

//! Which build this is.

/// The version of the release.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// The commit, 12 digits; `unknown` where it was built without one.
pub const COMMIT: &str = env!("TIDEGATE_BUILT_COMMIT");

/// The day of that commit, as `2026-11-23`; `unknown` where it was built without one.
pub const DATE: &str = env!("TIDEGATE_BUILT_DATE");

/// The features of Cargo in this build, with commas between; `none` without features.
pub const FEATURES: &str = env!("TIDEGATE_BUILT_FEATURES");

/// The version of the compiler, as `1.95.0`; `unknown` where it did not answer.
pub const RUSTC: &str = env!("TIDEGATE_BUILT_RUSTC");
