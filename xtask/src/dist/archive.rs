// SPDX-License-Identifier: Apache-2.0

//! Compressed archives whose bytes depend on their files alone.

use std::path::Path;

use super::Release;
use super::tree::Tree;
use crate::{Outcome, process};

/// Packs a tree as `NAME.tar.gz`. All its files are in one directory `NAME`: the root of the tree.
pub(super) fn pack(release: &Release, tree: &Tree, name: &str) -> Outcome {
    tree.set_modes()?;
    let level = if release.is_debug { 1 } else { 9 };
    let mut tar = release.command("tar");
    tar.args([
        "--create",
        "--format=gnu",
        "--sort=name",
        "--owner=0",
        "--group=0",
        "--numeric-owner",
    ])
    .arg(format!("--mtime=@{}", release.epoch))
    // The name and the time of the input are not in the output.
    .arg(format!("--use-compress-program=gzip -n -{level}"))
    .arg("--file")
    .arg(release.output.join(format!("{name}.tar.gz")))
    .arg("--directory")
    .arg(tree.root().parent().unwrap_or(&release.stage))
    .arg(name);
    process::run(&mut tar)
}

/// Compresses a file of a tree.
pub(super) fn compress(release: &Release, file: &Path) -> Outcome {
    process::run(release.command("gzip").args(["-n", "-9"]).arg(file))
}
