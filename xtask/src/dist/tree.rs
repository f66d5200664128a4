// SPDX-License-Identifier: Apache-2.0

//! A directory whose files become a package.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::{Outcome, testenv};

pub(super) struct Tree {
    root: PathBuf,
}

impl Tree {
    /// An empty directory.
    pub(super) fn new(root: PathBuf) -> Result<Self, String> {
        testenv::clear(&root)?;
        Ok(Self { root })
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    /// Copies a file, with its permission to execute.
    pub(super) fn add(&self, path: &str, from: &Path) -> Outcome {
        let to = self.parent_of(path)?;
        fs::copy(from, &to)
            .map(|_| ())
            .map_err(|error| format!("{} to {}: {error}", from.display(), to.display()))
    }

    pub(super) fn add_program(&self, path: &str, from: &Path) -> Outcome {
        self.add(path, from)?;
        set_mode(&self.root.join(path), 0o755)
    }

    pub(super) fn write(&self, path: &str, text: &str) -> Outcome {
        let to = self.parent_of(path)?;
        fs::write(&to, text).map_err(|error| format!("{}: {error}", to.display()))
    }

    /// Copies the files of a directory, and of those in it, whose names end with one of `ends`.
    pub(super) fn add_all(&self, path: &str, from: &Path, ends: &[&str]) -> Outcome {
        for file in files(from, ends)? {
            self.add(&format!("{path}/{file}"), &from.join(&file))?;
        }
        Ok(())
    }

    /// Makes the modes of all files and directories independent of the user's mask.
    pub(super) fn set_modes(&self) -> Outcome {
        set_modes(&self.root)
    }

    /// The bytes of all files.
    ///
    /// # Errors
    /// A directory that can't be read.
    pub(super) fn bytes(&self) -> Result<u64, String> {
        bytes(&self.root)
    }

    /// Makes the directory of a file, and gives the path of the file.
    fn parent_of(&self, path: &str) -> Result<PathBuf, String> {
        let file = self.root.join(path);
        let parent = file.parent().unwrap_or(&self.root);
        fs::create_dir_all(parent).map_err(|error| format!("{}: {error}", parent.display()))?;
        Ok(file)
    }
}

fn set_modes(path: &Path) -> Outcome {
    let found = fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if found.is_symlink() {
        return Ok(());
    }
    if !found.is_dir() {
        let is_program = found.permissions().mode() & 0o100 != 0;
        return set_mode(path, if is_program { 0o755 } else { 0o644 });
    }
    set_mode(path, 0o755)?;
    let names = names(path)?;
    names.iter().try_for_each(|name| set_modes(&path.join(name)))
}

fn bytes(path: &Path) -> Result<u64, String> {
    let found = fs::symlink_metadata(path).map_err(|error| format!("{}: {error}", path.display()))?;
    if !found.is_dir() {
        return Ok(found.len());
    }
    let names = names(path)?;
    names.iter().map(|name| bytes(&path.join(name))).sum()
}

fn set_mode(path: &Path, mode: u32) -> Outcome {
    fs::set_permissions(path, Permissions::from_mode(mode))
        .map_err(|error| format!("{}: {error}", path.display()))
}

/// The files of a directory, and of those in it, whose names end with one of `ends`: their paths from the directory.
///
/// # Errors
/// A directory that can't be read.
pub(super) fn files(directory: &Path, ends: &[&str]) -> Result<Vec<String>, String> {
    let mut found = Vec::new();
    for name in names(directory)? {
        let path = directory.join(&name);
        if path.is_dir() {
            let inner = files(&path, ends)?;
            found.extend(inner.iter().map(|file| format!("{name}/{file}")));
        } else if ends.iter().any(|end| name.ends_with(end)) {
            found.push(name);
        }
    }
    Ok(found)
}

/// The names in a directory, sorted.
fn names(directory: &Path) -> Result<Vec<String>, String> {
    let describe = |error| format!("{}: {error}", directory.display());
    let mut names = Vec::new();
    for entry in fs::read_dir(directory).map_err(describe)? {
        let name = entry.map_err(describe)?.file_name();
        names.push(name.to_string_lossy().into_owned());
    }
    names.sort();
    Ok(names)
}
