//! Levels: which crate of the workspace may depend on which other.

use std::path::Path;

use super::{Breach, entries, text};

/// The crates of the workspace, the lowest level first. A crate may depend on lower levels, never on its own.
///
/// Dependencies of tests and benches are free.
const LEVELS: &[&[&str]] = &[
    &[
        "tidegate-account",
        "tidegate-cells",
        "tidegate-config",
        "tidegate-engine",
        "tidegate-exposition",
        "tidegate-metrics-derive",
        "tidegate-page",
        "tidegate-plugin",
        "tidegate-profiler",
        "tidegate-requests",
        "tidegate-ring",
    ],
    &[
        "tidegate-exporter-csv-rust",
        "tidegate-otlp",
        "tidegate-promql",
        "tidegate-runtime",
    ],
    &["tidegate-metrics", "tidegate-nixl-plugin", "tidegate-wal"],
    &["tidegate-capi", "tidegate-pipeline", "tidegate-python"],
    &["tidegate-prometheus"],
    &["tidegate"],
    &["tidegate-bench", "xtask"],
];

/// The part of a manifest that is about crates of the workspace.
struct Manifest {
    /// Below the root of the repository.
    path: String,
    name: String,
    /// Lines with the names of the dependencies.
    dependencies: Vec<(usize, String)>,
}

/// Checks the manifests of all members of the workspace.
///
/// # Errors
/// A file that cannot be read.
pub(super) fn check(root: &Path) -> Result<Vec<Breach>, String> {
    let mut breaches = Vec::new();
    for member in members(root)? {
        let path = Path::new(&member).join("Cargo.toml");
        let manifest = Manifest::of(&path.display().to_string(), &text(&root.join(&path))?);
        breaches.extend(breaches_of(&manifest));
    }
    Ok(breaches)
}

/// The directories of the members of the workspace, below its root, in order.
fn members(root: &Path) -> Result<Vec<String>, String> {
    let manifest = text(&root.join("Cargo.toml"))?;
    let line = manifest.lines().find_map(|line| line.strip_prefix("members = "));
    let patterns = line.ok_or("Cargo.toml: the members are not on one line")?;
    let mut members = Vec::new();
    for pattern in patterns.split('"').skip(1).step_by(2) {
        match pattern.strip_suffix("/*") {
            Some(directory) => {
                let mut paths = entries(&root.join(directory))?;
                paths.retain(|path| path.join("Cargo.toml").exists());
                let below = paths.iter().filter_map(|path| path.strip_prefix(root).ok());
                members.extend(below.map(|path| path.display().to_string()));
            }
            None => members.push(pattern.trim_start_matches('.').to_owned()),
        }
    }
    // The harness is a workspace of its own.
    members.push("bench".to_owned());
    members.sort();
    Ok(members)
}

impl Manifest {
    fn of(path: &str, text: &str) -> Self {
        let mut manifest = Self {
            path: path.to_owned(),
            name: String::new(),
            dependencies: Vec::new(),
        };
        let mut section = "";
        for (index, line) in text.lines().enumerate() {
            let line = line.trim();
            if let Some(header) = line.strip_prefix('[') {
                section = header.trim_end_matches(']');
                continue;
            }
            let key = line.split(['.', '=', ' ']).next().unwrap_or_default();
            if section == "package" && key == "name" {
                manifest.name = line.split('"').nth(1).unwrap_or_default().to_owned();
            } else if is_dependencies(section) && key.starts_with("tidegate") {
                manifest.dependencies.push((index + 1, key.to_owned()));
            }
        }
        manifest
    }
}

/// Whether a section names crates that the crate itself needs, on any target.
fn is_dependencies(section: &str) -> bool {
    let kind = section.rsplit('.').next().unwrap_or_default();
    section != "workspace.dependencies" && ["dependencies", "build-dependencies"].contains(&kind)
}

fn breaches_of(manifest: &Manifest) -> Vec<Breach> {
    let Manifest {
        path,
        name,
        dependencies,
    } = manifest;
    let Some(ours) = level(name) else {
        return vec![Breach {
            at: path.clone(),
            message: format!("`{name}` has no level: add it to LEVELS in xtask/src/rules/crates.rs"),
        }];
    };
    let is_lower = |name: &str| level(name).is_some_and(|theirs| theirs < ours);
    let refused = dependencies.iter().filter(|(_, name)| !is_lower(name));
    refused
        .map(|(line, dependency)| Breach {
            at: format!("{path}:{line}"),
            message: format!("`{dependency}` is not on a lower level than `{name}`: it may not depend on it"),
        })
        .collect()
}

fn level(name: &str) -> Option<usize> {
    LEVELS.iter().position(|level| level.contains(&name))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(manifest: &str) -> Vec<String> {
        let breaches = breaches_of(&Manifest::of("Cargo.toml", manifest));
        breaches.into_iter().map(|breach| breach.at).collect()
    }

    #[test]
    fn a_crate_depends_on_lower_levels_only() {
        let manifest = "[package]\nname = \"tidegate-metrics\"\n[dependencies]\nbytes = \"1\"\n\
                        tidegate-cells.workspace = true\ntidegate = { path = \"../..\" }\n\
                        [target.'cfg(unix)'.dependencies]\ntidegate-capi = { path = \"../x\" }\n";
        assert_eq!(found(manifest), ["Cargo.toml:6", "Cargo.toml:8"]);
    }

    #[test]
    fn crates_of_one_level_do_not_depend_on_each_other() {
        let manifest =
            "[package]\nname = \"tidegate-engine\"\n[build-dependencies]\ntidegate-ring.workspace = true\n";
        assert_eq!(found(manifest), ["Cargo.toml:4"]);
    }

    #[test]
    fn tests_may_depend_on_everything_and_the_workspace_names_all() {
        let manifest = "[package]\nname = \"tidegate-ring\"\n[dev-dependencies]\ntidegate.workspace = true\n\
                        [target.'cfg(loom)'.dev-dependencies]\ntidegate.workspace = true\n\
                        [workspace.dependencies]\ntidegate-bench = \"1\"\n";
        assert_eq!(found(manifest), Vec::<String>::new());
    }

    #[test]
    fn a_crate_without_a_level_is_a_breach() {
        assert_eq!(found("[package]\nname = \"tidegate-novel\"\n"), ["Cargo.toml"]);
    }
}
