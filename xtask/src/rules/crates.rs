// SPDX-License-Identifier: Apache-2.0

//! Levels: which crate of the workspace may depend on which other.

use super::Breach;
use crate::bench;
use crate::metadata::{Package, packages};

/// The crates of the workspace and the harness, the lowest level first. A crate may depend on lower levels, never on its
/// own.
///
/// Dependencies of tests and benches are free.
const LEVELS: &[&[&str]] = &[
    &["tidegate-shm"],
    &[
        "tidegate-account",
        "tidegate-config",
        "tidegate-metrics-derive",
        "tidegate-model",
        "tidegate-page",
        "tidegate-plugin",
        "tidegate-profiler",
        "tidegate-requests",
        "tidegate-ring",
    ],
    &[
        "tidegate-cells",
        "tidegate-engine",
        "tidegate-exporter-csv-rust",
        "tidegate-exposition",
    ],
    &["tidegate-otlp", "tidegate-promql", "tidegate-runtime"],
    &[
        "tidegate-cluster",
        "tidegate-metrics",
        "tidegate-nixl-plugin",
        "tidegate-rules",
        "tidegate-wal",
    ],
    &[
        "tidegate-capi",
        "tidegate-direct",
        "tidegate-nats",
        "tidegate-kafka",
        "tidegate-pipeline",
        "tidegate-python",
    ],
    &["tidegate-kubernetes", "tidegate-prometheus"],
    &["tidegate-scrape"],
    &["tidegate"],
    &["tidegate-bench", "xtask"],
];

/// Checks the crates of the workspace and the harness.
///
/// # Errors
/// A manifest that cargo refuses.
pub(super) fn check() -> Result<Vec<Breach>, String> {
    let mut breaches = Vec::new();
    for manifest in ["Cargo.toml", bench::MANIFEST] {
        breaches.extend(packages(manifest)?.iter().flat_map(breaches_of));
    }
    Ok(breaches)
}

fn breaches_of(package: &Package) -> Vec<Breach> {
    let name = &package.name;
    let breach = |message: String| Breach {
        at: package.manifest.clone(),
        message,
    };
    let Some(ours) = level(name) else {
        return vec![breach(format!(
            "`{name}` has no level: add it to LEVELS in xtask/src/rules/crates.rs"
        ))];
    };
    let is_lower = |name: &str| level(name).is_some_and(|theirs| theirs < ours);
    let refused = package.uses.iter().filter(|used| !is_lower(used));
    refused
        .map(|used| {
            breach(format!(
                "`{used}` is not on a lower level than `{name}`: it may not depend on it"
            ))
        })
        .collect()
}

fn level(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The first name in the message of each breach.
    fn found(name: &str, uses: &[&str]) -> Vec<String> {
        let breaches = breaches_of(&Package {
            name: name.to_owned(),
            description: String::new(),
            manifest: "Cargo.toml".to_owned(),
            uses: uses.iter().map(|used| (*used).to_owned()).collect(),
        });
        let names = breaches
            .iter()
            .filter_map(|breach| breach.message.split('`').nth(1));
        names.map(str::to_owned).collect()
    }

    #[test]
    fn a_crate_depends_on_lower_levels_only() {
        let uses = ["tidegate", "tidegate-capi", "tidegate-cells"];
        assert_eq!(found("tidegate-metrics", &uses), ["tidegate", "tidegate-capi"]);
    }

    #[test]
    fn crates_of_one_level_do_not_depend_on_each_other() {
        assert_eq!(found("tidegate-page", &["tidegate-ring"]), ["tidegate-ring"]);
    }

    #[test]
    fn a_crate_without_a_level_is_a_breach() {
        assert_eq!(found("tidegate-novel", &[]), ["tidegate-novel"]);
        assert_eq!(found("tidegate", &["tidegate-novel"]), ["tidegate-novel"]);
    }
}
