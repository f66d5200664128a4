// SPDX-License-Identifier: Apache-2.0

//! The namespaces of a run as root: a network that loses packets, and file systems that get full.
//!
//! `cargo xtask cluster --namespaces` starts the harness in them, and the kernel removes all rules and mounts at its end.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use parking_lot::Mutex;

use crate::BenchError;

/// The rules: packets of these ports, in both directions, do not arrive.
const RULES: &str = "add table inet cluster
add set inet cluster cut { type inet_service; }
add chain inet cluster arriving { type filter hook input priority 0; }
add rule inet cluster arriving tcp dport @cut drop
add rule inet cluster arriving tcp sport @cut drop
";

/// The routes of the network of this process.
const ROUTES: &str = "/proc/net/route";

/// The bytes that one write adds to the file which fills a disk.
const WRITE: usize = 64 << 10;

/// The network of this process, on which packets of some ports get lost.
#[derive(Debug, Default)]
pub(super) struct LossyNetwork {
    cut: Mutex<BTreeSet<u16>>,
}

impl LossyNetwork {
    /// Prepares the network of this process, which must not be that of the system.
    pub(super) fn prepare() -> Result<Self, BenchError> {
        // A new network has no route. The file has a line of titles.
        if fs::read_to_string(ROUTES)?.lines().count() > 1 {
            return Err(
                "--namespaces wants a network of its own: run it as root by `cargo xtask cluster`".into(),
            );
        }
        run("ip", ["link", "set", "lo", "up"])?;
        run("nft", [RULES])?;
        Ok(Self::default())
    }

    /// Loses all packets from and to a port, or none.
    pub(super) fn cut(&self, port: u16, is_cut: bool) -> Result<(), BenchError> {
        let mut cut = self.cut.lock();
        if cut.contains(&port) != is_cut {
            let verb = if is_cut { "add" } else { "delete" };
            run("nft", [format!("{verb} element inet cluster cut {{ {port} }}")])?;
            if is_cut {
                cut.insert(port);
            } else {
                cut.remove(&port);
            }
        }
        Ok(())
    }

    pub(super) fn is_cut(&self, port: u16) -> bool {
        self.cut.lock().contains(&port)
    }
}

/// A file system in memory with a limit.
#[derive(Debug)]
pub(super) struct Disk {
    filler: PathBuf,
}

impl Disk {
    /// Mounts one of this size at a directory.
    pub(super) fn mount(directory: &Path, bytes: usize) -> Result<Self, BenchError> {
        let size = format!("size={bytes}");
        let options = ["-t", "tmpfs", "-o", &size, "tmpfs"].map(OsStr::new);
        run("mount", options.into_iter().chain([directory.as_os_str()]))?;
        Ok(Self {
            filler: directory.join("filler"),
        })
    }

    /// Writes a file until the disk has no room.
    pub(super) fn fill(&self) -> Result<(), BenchError> {
        let mut file = File::create(&self.filler)?;
        loop {
            match file.write(&[b'x'; WRITE]) {
                Err(error) if error.kind() == ErrorKind::StorageFull => return Ok(()),
                written => written?,
            };
        }
    }

    /// Removes this file. It may be gone already.
    pub(super) fn empty(&self) -> Result<(), BenchError> {
        match fs::remove_file(&self.filler) {
            Err(error) if error.kind() != ErrorKind::NotFound => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// Runs a program of the system.
fn run<A: AsRef<OsStr>>(program: &str, arguments: impl IntoIterator<Item = A>) -> Result<(), BenchError> {
    let output = Command::new(program).args(arguments).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let printed = String::from_utf8_lossy(&output.stderr);
    Err(format!("{program}: {}: {}", output.status, printed.trim()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_fails_has_its_output_in_the_error() {
        let error = run("ls", ["/no-such-file"]).unwrap_err().to_string();
        assert!(
            error.starts_with("ls: exit status") && error.contains("no-such-file"),
            "{error}"
        );
        assert!(run("no-such-program", [""]).is_err());
    }
}
