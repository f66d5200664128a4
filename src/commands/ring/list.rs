// SPDX-License-Identifier: Apache-2.0

//! `ring ls`: one line a file.

use std::path::{Path, PathBuf};

use tidegate_ring::{MpStore, inspect};

use crate::commands::Failure;
use crate::print_line;

/// Arguments of `ring ls`.
#[derive(Debug, clap::Args)]
#[command(after_help = "Example:\n  tidegate ring ls /run/nixl")]
pub(super) struct ListArgs {
    /// Directories to search, or files
    #[arg(required = true)]
    paths: Vec<PathBuf>,
}

/// Lists every regular file, with the reason if it is not a ring.
pub(super) fn run(args: &ListArgs) -> Result<(), Failure> {
    print_line!(
        "{:<8} {:>9} {:>9} {:>6} {:>6}  FILE",
        "KIND",
        "CAPACITY",
        "WAITING",
        "FILL%",
        "UID"
    );
    for path in &args.paths {
        for file in files(path)? {
            print_line!("{}", line(&file));
        }
    }
    Ok(())
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

fn line(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    if MpStore::is_store_name(&name) {
        return store_line(path);
    }
    let found = match inspect(path) {
        Ok(found) => found,
        Err(error) => return format!("{:<8} {error}", "-"),
    };
    match found.verdict {
        Ok(ring) => {
            let waiting = found.readable();
            let fill = 100.0 * waiting as f64 / ring.capacity as f64;
            format!(
                "{:<8} {:>9} {waiting:>9} {fill:>6.1} {:>6}  {}",
                format!("ring v{}", ring.layout.label()),
                ring.capacity,
                found.owner_uid,
                path.display()
            )
        }
        Err(reject) => format!("{:<8} {}: {reject}", "-", path.display()),
    }
}

fn store_line(path: &Path) -> String {
    let read = MpStore::open(path).and_then(|store| Ok((store.alive()?, store)));
    match read {
        Ok((alive, store)) => format!(
            "{:<8} {:>9} {:>9} {:>6} {:>6}  {} (agent {}, {})",
            "store",
            "-",
            "-",
            "-",
            store.owner_uid(),
            path.display(),
            store.identity().agent_name,
            if alive { "alive" } else { "dead" }
        ),
        Err(error) => format!("{:<8} {error}", "-"),
    }
}
