// SPDX-License-Identifier: Apache-2.0

//! Which file a plugin is.

use std::path::{Path, PathBuf};

use semver::VersionReq;

use super::Refusal;

/// A plugin that a configuration names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// Its file.
    pub path: PathBuf,
    /// The name that it must have.
    pub name: Option<String>,
    /// Which versions will do.
    pub version: Option<VersionReq>,
}

/// The file name of a plugin.
pub fn file_name(name: &str) -> String {
    format!("libtidegate_exporter_{name}.so")
}

impl Wanted {
    /// The plugin of this name in the first directory that has it.
    ///
    /// # Errors
    /// None has; the refusal lists where was looked.
    pub fn find(name: &str, directories: &[PathBuf]) -> Result<Self, Refusal> {
        let tried: Vec<_> = directories
            .iter()
            .map(|directory| directory.join(file_name(name)))
            .collect();
        match tried.iter().find(|path| path.exists()) {
            Some(path) => Ok(Self {
                path: path.clone(),
                name: Some(name.to_owned()),
                version: None,
            }),
            None => Err(Refusal::NotFound {
                name: name.to_owned(),
                tried,
            }),
        }
    }

    /// Checks what can be checked without running code of the plugin: a shared object of this machine that exports
    /// what the gateway looks up.
    ///
    /// # Errors
    /// It can't be read, or is something else.
    pub fn inspect(&self) -> Result<(), Refusal> {
        super::inspect::inspect(&self.path)
    }

    /// Whether a name can be one of a plugin, and so part of a file's name.
    pub fn is_name(name: &str) -> bool {
        let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        !name.is_empty() && name.bytes().all(fits)
    }

    /// The dynamic loader would look elsewhere for a path without a slash.
    pub(super) fn absolute(&self) -> PathBuf {
        std::path::absolute(&self.path).unwrap_or_else(|_| Path::new(".").join(&self.path))
    }
}
