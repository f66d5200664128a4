// SPDX-License-Identifier: Apache-2.0

//! The binary of the gateway, with what it says about itself: manual page, completions, the C library that it needs.

use std::path::{Path, PathBuf};
use std::process::Command;

use super::documents::PackageFiles;
use super::tree::Tree;
use super::{Release, absolute, archive, epoch};
use crate::test::workspace;
use crate::{Outcome, process};

/// Files in the root of the repository that a package has.
const ROOT: &[&str] = &[
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CODE_OF_CONDUCT.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "README.md",
    "SECURITY.md",
];

/// Folders of the repository that a package has, each with its name there, and the ends of the names of its files.
const FOLDERS: &[(&str, &str, &[&str])] = &[
    ("docs", "docs", &[".md", ".png", ".svg"]),
    ("config", "examples", &[".yaml"]),
    ("examples", "examples", &[".c", ".cpp", ".rs", ".yaml"]),
    ("crates/tidegate-plugin/include", "include", &[".h"]),
    ("proto", "proto", &[".proto"]),
];

pub(super) struct Gateway {
    pub(super) binary: PathBuf,
    pub(super) manual: String,
    pub(super) completions: Completions,
    /// The oldest version of glibc that it runs with.
    pub(super) glibc: String,
}

pub(super) struct Completions {
    pub(super) bash: String,
    pub(super) zsh: String,
    pub(super) fish: String,
}

impl Gateway {
    /// Asks the named binary, or one that it builds.
    pub(super) fn of(binary: Option<&Path>, is_debug: bool) -> Result<Self, String> {
        let binary = match binary {
            Some(binary) => absolute(binary)?,
            None => build(is_debug)?,
        };
        let answer = |arguments: &[&str]| answer(&binary, arguments);
        let completions = Completions {
            bash: answer(&["completion", "bash"])?,
            zsh: answer(&["completion", "zsh"])?,
            fish: answer(&["completion", "fish"])?,
        };
        Ok(Self {
            manual: answer(&["man"])?,
            completions,
            glibc: glibc(&binary)?,
            binary,
        })
    }

    /// Puts the files of a Linux package into a tree. `zsh` is the directory of its completions.
    pub(super) fn install(&self, release: &Release, tree: &Tree, zsh: &str) -> Outcome {
        const DOCUMENTS: &str = "usr/share/doc/tidegate";
        const MANUAL: &str = "usr/share/man/man1/tidegate.1";
        let systemd = workspace().join("deploy/systemd");
        tree.add_program("usr/bin/tidegate", &self.binary)?;
        for (path, file) in [
            ("etc/tidegate/config.yaml", "config.yaml"),
            ("usr/lib/systemd/system/tidegate.service", "tidegate.service"),
            ("usr/lib/sysusers.d/tidegate.conf", "tidegate.sysusers"),
            ("usr/lib/tmpfiles.d/tidegate.conf", "tidegate.tmpfiles"),
        ] {
            tree.add(path, &systemd.join(file))?;
        }
        tree.write(MANUAL, &self.manual)?;
        archive::compress(release, &tree.root().join(MANUAL))?;
        let Completions {
            bash,
            zsh: of_zsh,
            fish,
        } = &self.completions;
        tree.write("usr/share/bash-completion/completions/tidegate", bash)?;
        tree.write(&format!("{zsh}/_tidegate"), of_zsh)?;
        tree.write("usr/share/fish/vendor_completions.d/tidegate.fish", fish)?;
        add_documents(release, tree, DOCUMENTS)
    }
}

/// Puts what a reader needs into a directory of the tree: licences, documents with their pictures, and examples.
pub(super) fn add_documents(release: &Release, tree: &Tree, directory: &str) -> Outcome {
    let mut files = PackageFiles::default();
    for name in ROOT {
        files.add(name, name);
    }
    for (folder, to, ends) in FOLDERS {
        files.add_all(folder, to, ends)?;
    }
    files.copy(tree, directory)?;
    tree.add(&format!("{directory}/THIRD-PARTY-NOTICES.txt"), &release.notices)
}

fn build(is_debug: bool) -> Result<PathBuf, String> {
    let mut cargo = process::cargo();
    cargo
        .args(["build", "--locked", "--bin", "tidegate", "--target-dir"])
        .arg(process::target())
        .current_dir(workspace());
    if !is_debug {
        // C code has the time of its compilation, which is the only difference between two builds.
        cargo.arg("--release").env("SOURCE_DATE_EPOCH", epoch()?);
    }
    process::stream(&mut cargo)?;
    let profile = if is_debug { "debug" } else { "release" };
    Ok(process::target().join(profile).join("tidegate"))
}

/// What a command of the binary prints.
fn answer(binary: &Path, arguments: &[&str]) -> Result<String, String> {
    let (text, ended) = process::printed(Command::new(binary).args(arguments))?;
    ended?;
    Ok(text)
}

/// The version of glibc that the symbols of a binary need.
fn glibc(binary: &Path) -> Result<String, String> {
    let (text, ended) = process::printed(
        Command::new("readelf")
            .args(["--version-info", "--wide"])
            .arg(binary)
            .env("LC_ALL", "C"),
    )?;
    ended?;
    let newest = newest_glibc(&text);
    newest.ok_or_else(|| format!("{}: no dynamic program of glibc", binary.display()))
}

fn newest_glibc(symbols: &str) -> Option<String> {
    let words = symbols.split(|c: char| !c.is_ascii_alphanumeric() && !"_.".contains(c));
    let versions = words.filter_map(|word| word.strip_prefix("GLIBC_"));
    let newest = versions
        .filter_map(|version| Some((numbers(version)?, version)))
        .max()?;
    Some(newest.1.to_owned())
}

/// The numbers of `2.34`; nothing of `PRIVATE`.
fn numbers(version: &str) -> Option<Vec<u32>> {
    version.split('.').map(|number| number.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_symbol_decides() {
        let symbols =
            "  0x0010:   Name: GLIBC_2.9  Flags: none\n  0x0020: Name: GLIBC_2.34\n GLIBC_2.2.5 (2)";
        assert_eq!(newest_glibc(symbols).as_deref(), Some("2.34"));
        assert_eq!(newest_glibc("GLIBC_PRIVATE GCC_3.0"), None);
    }
}
