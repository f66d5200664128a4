// SPDX-License-Identifier: Apache-2.0

//! `memory_ballast`: accepted from old configurations of the Collector, without effect.

use std::sync::Arc;

use crate::component::{ConfigType, Extension, ExtensionFactory, Factory, Lifecycle, Stability};
use crate::config::{Node, Problems, WithoutEffect};

const NO_BALLAST: &WithoutEffect = &[
    ("size_mib", "there is no garbage collector to slow down"),
    ("size_in_percentage", "there is no garbage collector to slow down"),
];

crate::options! {
    /// Options of the `memory_ballast` extension. All are accepted without effect.
    pub struct MemoryBallastConfig {}
    accepted = NO_BALLAST;
    check = MemoryBallastConfig::check
}

impl MemoryBallastConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if at.as_map().is_none_or(<[_]>::is_empty) {
            cx.at_key(at)
                .help("leave it out")
                .warning("accepted without effect: there is no garbage collector to slow down");
        }
    }
}

/// The factory of `memory_ballast`.
pub static FACTORY: ExtensionFactory = Factory {
    kind: "memory_ballast",
    aliases: &[],
    stability: Stability::Beta,
    help: "does nothing; accepted from old configurations of the Collector",
    errors: &[],
    config: ConfigType::of::<MemoryBallastConfig>(),
    build: |_, _| Ok(Arc::new(Ballast)),
};

struct Ballast;

impl Lifecycle for Ballast {}
impl Extension for Ballast {}
