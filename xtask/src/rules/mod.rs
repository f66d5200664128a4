// SPDX-License-Identifier: Apache-2.0

//! `cargo xtask rules`: rules about the source that neither the compiler nor clippy knows.
//!
//! [`layers`] holds the directions of imports, [`words`] the names that are not used. [`types`] limits how many files
//! declare a type of the same name. [`licences`] checks that each source names its licence, and [`links`] checks
//! documents.

mod crates;
mod layers;
mod licences;
mod links;
mod source;
mod tokens;
mod types;
mod words;

use std::fmt;
use std::path::{Path, PathBuf};

use crate::Outcome;
use crate::test::workspace;

/// A broken rule, as the check prints it.
#[derive(Debug, Eq, PartialEq)]
struct Breach {
    /// A path below the root of the repository, with a line if there is one.
    at: String,
    /// The rule, and the remedy.
    message: String,
}

impl fmt::Display for Breach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.at, self.message)
    }
}

/// Checks the layers of folders and crates, the names, the licences, and the links of documents. It builds nothing.
pub(crate) fn rules(arguments: &[String]) -> Outcome {
    if !arguments.is_empty() {
        return Err("usage: cargo xtask rules".into());
    }
    let root = workspace();
    let mut breaches = layers::check(root)?;
    breaches.extend(crates::check()?);
    breaches.extend(words::check(root)?);
    breaches.extend(types::check(root)?);
    breaches.extend(licences::check(root)?);
    breaches.extend(links::check(root)?);
    for breach in &breaches {
        eprintln!("{breach}");
    }
    match breaches.len() {
        0 => {
            println!("no broken rule of the source");
            Ok(())
        }
        count => Err(format!("{count} broken rules of the source: see the lines above")),
    }
}

/// The Rust files below a directory, as [`files`] lists them.
///
/// # Errors
/// A directory or a file that cannot be read.
fn rust_files(root: &Path, directory: &str) -> Result<Vec<(String, String)>, String> {
    files(root, directory, "rs")
}

/// The files with an extension below a directory, or the file at that place. Each has its text. They are in the order
/// of their paths, which start at `root`.
///
/// # Errors
/// A directory or a file that cannot be read.
fn files(root: &Path, place: &str, extension: &str) -> Result<Vec<(String, String)>, String> {
    let mut files = Vec::new();
    let mut rest = vec![root.join(place)];
    while let Some(path) = rest.pop() {
        if path.is_dir() {
            rest.extend(entries(&path)?);
        } else if path.extension().is_some_and(|found| found == extension) {
            let below = path.strip_prefix(root).unwrap_or(&path);
            files.push((below.display().to_string(), text(&path)?));
        }
    }
    files.sort();
    Ok(files)
}

/// The entries of a directory, without build output.
fn entries(directory: &Path) -> Result<Vec<PathBuf>, String> {
    let failed = |error: std::io::Error| format!("{}: {error}", directory.display());
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(directory).map_err(failed)? {
        paths.push(entry.map_err(failed)?.path());
    }
    paths.retain(|path| !path.ends_with("target"));
    Ok(paths)
}

fn text(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}
