// SPDX-License-Identifier: Apache-2.0

//! Everything that reads bytes from outside, fed with whatever libFuzzer makes up. `TIDEGATE_FUZZ_TARGET` names which;
//! a panic, a fault that AddressSanitizer sees, or an assertion here is a finding.
#![no_main]

mod targets;

use std::sync::LazyLock;

use libfuzzer_sys::fuzz_target;
use targets::TARGETS;

static TARGET: LazyLock<fn(&[u8])> = LazyLock::new(|| {
    let name = std::env::var("TIDEGATE_FUZZ_TARGET").unwrap_or_default();
    let found = TARGETS.iter().find(|(known, _)| *known == name);
    let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    found.map_or_else(
        || panic!("TIDEGATE_FUZZ_TARGET is none of {names:?}"),
        |(_, target)| *target,
    )
});

fuzz_target!(|data: &[u8]| TARGET(data));
