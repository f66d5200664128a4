// SPDX-License-Identifier: Apache-2.0

//! `ring ls`: one line a file.

use std::path::{Path, PathBuf};

use tidegate_ring::{Error, MpStore, inspect};

use crate::commands::Failure;
use crate::print_line;

/// Arguments of `ring ls`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "The exit code is 1 if a file can't be read, or if a file that you name is not of NIXL.\n\nExample:\n  \
tidegate ring ls /run/nixl"
)]
pub(super) struct ListArgs {
    /// Directories to search, or files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Lists every regular file, with the reason if it is not a ring. Reads all files before it prints.
pub(super) fn run(args: &ListArgs) -> Result<(), Failure> {
    let (mut lines, mut failed) = (Vec::new(), 0);
    for path in &args.paths {
        // Directories may have other files too. A file that the caller names must be a ring or a store.
        let is_named = !path.is_dir();
        for file in files(path)? {
            let (line, state) = describe(&file);
            let is_failed = state == FileState::Unreadable || (is_named && state == FileState::Foreign);
            failed += usize::from(is_failed);
            lines.push(line);
        }
    }
    print_line!(
        "{:<8} {:>9} {:>9} {:>6} {:>6}  FILE",
        "KIND",
        "CAPACITY",
        "WAITING",
        "FILL%",
        "UID"
    );
    for line in lines {
        print_line!("{line}");
    }
    match failed {
        0 => Ok(()),
        1 => Err(Failure::Message(
            "one file is not readable, or not of NIXL: see its line".to_owned(),
        )),
        many => Err(Failure::Message(format!(
            "{many} files are not readable, or not of NIXL: see their lines"
        ))),
    }
}

/// What a file is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileState {
    /// A ring or a store.
    Known,
    /// Another file.
    Foreign,
    /// A file that can't be read.
    Unreadable,
}

fn files(path: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let entries = std::fs::read_dir(path).map_err(Failure::io(format!("listing {}", path.display())))?;
    let mut files: Vec<_> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.is_file())
        .collect();
    files.sort();
    Ok(files)
}

/// The line of a file, and what the file is.
fn describe(path: &Path) -> (String, FileState) {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if MpStore::is_store_name(&name) {
        return store_line(path);
    }
    let found = match inspect(path) {
        Ok(found) => found,
        Err(error) => return refused(&error),
    };
    match found.verdict {
        Ok(ring) => {
            let waiting = found.readable();
            let fill = 100.0 * waiting as f64 / ring.capacity as f64;
            let line = format!(
                "{:<8} {:>9} {waiting:>9} {fill:>6.1} {:>6}  {}",
                format!("ring v{}", ring.layout.label()),
                ring.capacity,
                found.owner_uid,
                path.display()
            );
            (line, FileState::Known)
        }
        Err(reject) => {
            let line = format!("{:<8} {}: {reject}", "-", path.display());
            (line, FileState::Foreign)
        }
    }
}

fn store_line(path: &Path) -> (String, FileState) {
    let read = MpStore::open(path).and_then(|store| Ok((store.alive()?, store)));
    match read {
        Ok((alive, store)) => {
            let line = format!(
                "{:<8} {:>9} {:>9} {:>6} {:>6}  {} (agent {}, {})",
                "store",
                "-",
                "-",
                "-",
                store.owner_uid(),
                path.display(),
                store.identity().agent_name,
                if alive { "alive" } else { "dead" }
            );
            (line, FileState::Known)
        }
        Err(error) => refused(&error),
    }
}

fn refused(error: &Error) -> (String, FileState) {
    let state = match error {
        Error::Rejected { .. } => FileState::Foreign,
        _ => FileState::Unreadable,
    };
    (format!("{:<8} {error}", "-"), state)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_named_file_must_be_of_nixl_and_files_of_a_directory_need_not() {
        let directory = tempfile::tempdir().unwrap();
        let other = directory.path().join("other");
        std::fs::write(&other, "text").unwrap();
        let list = |path: &Path| {
            run(&ListArgs {
                paths: vec![path.to_owned()],
            })
        };
        assert!(list(directory.path()).is_ok());
        assert!(
            list(&other)
                .unwrap_err()
                .to_string()
                .contains("one file is not readable")
        );
        assert!(list(&directory.path().join("absent")).is_err());
    }
}
