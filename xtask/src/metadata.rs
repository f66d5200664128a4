// SPDX-License-Identifier: Apache-2.0

//! The crates of a workspace and their dependencies, as `cargo metadata` lists them.

use std::collections::BTreeSet;
use std::path::Path;

use serde_json::Value;

use crate::{process, test::workspace};

/// A crate of a workspace.
pub(crate) struct Package {
    pub(crate) name: String,
    pub(crate) description: String,
    /// Below the root of the repository.
    pub(crate) manifest: String,
    /// The crates of the repository that it depends on. Dependencies of tests are free, so they are omitted.
    pub(crate) uses: BTreeSet<String>,
}

/// Lists the crates of the workspace with this manifest, in the order of their names. It builds nothing.
///
/// # Errors
/// A manifest that cargo refuses.
pub(crate) fn packages(manifest: &str) -> Result<Vec<Package>, String> {
    let mut cargo = process::cargo();
    cargo
        .args(["metadata", "--no-deps", "--format-version", "1", "--locked"])
        .args(["--manifest-path", manifest])
        .current_dir(workspace());
    let (printed, ended) = process::printed(&mut cargo)?;
    ended?;
    let metadata: Value =
        serde_json::from_str(&printed).map_err(|error| format!("cargo metadata: {error}"))?;
    let mut packages: Vec<_> = items(&metadata["packages"]).iter().map(Package::of).collect();
    packages.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(packages)
}

impl Package {
    fn of(package: &Value) -> Self {
        let dependencies = items(&package["dependencies"]).iter();
        let ours = dependencies.filter(|dependency| dependency["path"].is_string());
        let used = ours.filter(|dependency| dependency["kind"] != "dev");
        let manifest = Path::new(text(&package["manifest_path"]));
        Self {
            name: text(&package["name"]).to_owned(),
            description: text(&package["description"]).to_owned(),
            manifest: manifest
                .strip_prefix(workspace())
                .unwrap_or(manifest)
                .display()
                .to_string(),
            uses: used
                .map(|dependency| text(&dependency["name"]).to_owned())
                .collect(),
        }
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map(Vec::as_slice).unwrap_or_default()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_uses_crates_of_the_repository_outside_tests() {
        let package = Package::of(&serde_json::json!({
            "name": "a",
            "description": null,
            "manifest_path": workspace().join("crates/a/Cargo.toml"),
            "dependencies": [
                {"name": "tokio", "kind": null},
                {"name": "c", "kind": "build", "path": "/c"},
                {"name": "d", "kind": "dev", "path": "/d"},
                {"name": "b", "kind": null, "path": "/b"},
                {"name": "b", "kind": null, "path": "/b", "target": "cfg(unix)"},
            ],
        }));
        let uses: Vec<&str> = package.uses.iter().map(String::as_str).collect();
        assert_eq!(uses, ["b", "c"]);
        assert_eq!(package.manifest, "crates/a/Cargo.toml");
    }
}
