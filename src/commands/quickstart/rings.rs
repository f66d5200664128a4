// SPDX-License-Identifier: Apache-2.0

//! The directory of the rings, and the directories that killed runs left.

use std::fs::{self, DirBuilder, DirEntry, File};
use std::io::{Error, ErrorKind};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use rustix::io::Errno;
use rustix::process::{Pid, geteuid, test_kill_process};

use crate::commands::Failure;

/// The name of each directory begins with it. The process id follows.
const PREFIX: &str = "tidegate-quickstart-";

/// The name of each ring begins with it. The number of the agent follows.
const RING_PREFIX: &str = "rank_";

/// The most directories of one process id, for example of containers that share a file system.
const MOST: usize = 100;

/// A new directory for the rings. It is removed on drop.
pub(super) struct Rings {
    pub(super) directory: PathBuf,
    /// A lock on the directory. The system releases it at the end of the process, also of a killed one.
    _lock: Option<File>,
}

/// The directories that can contain the rings, in order of preference.
pub(super) fn bases(chosen: Option<&Path>) -> Vec<PathBuf> {
    match chosen {
        Some(directory) => vec![directory.to_owned()],
        None => vec![PathBuf::from("/dev/shm"), std::env::temp_dir()],
    }
}

impl Rings {
    /// A directory in the first of `bases` that is writable.
    ///
    /// # Errors
    /// None of them is writable.
    pub(super) fn create(bases: &[PathBuf]) -> Result<Self, Failure> {
        let mut refused = Vec::new();
        for base in bases {
            match Self::create_in(base) {
                Ok(rings) => return Ok(rings),
                Err(error) => refused.push(format!("{}: {error}", base.display())),
            }
        }
        Err(Failure::Message(format!(
            "no directory for the rings: {} (`--directory` names another one)",
            refused.join("; ")
        )))
    }

    fn create_in(base: &Path) -> Result<Self, Error> {
        let name = format!("{PREFIX}{}", std::process::id());
        let more = (1..MOST).map(|number| format!("{name}-{number}"));
        for name in std::iter::once(name.clone()).chain(more) {
            let directory = base.join(name);
            match DirBuilder::new().mode(0o700).create(&directory) {
                Ok(()) => {
                    // Without locks, for example on NFS, later runs remove nothing.
                    let lock = File::open(&directory).ok().filter(|file| file.lock().is_ok());
                    return Ok(Self {
                        directory,
                        _lock: lock,
                    });
                }
                Err(error) if error.kind() == ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
        }
        Err(ErrorKind::AlreadyExists.into())
    }
}

impl Drop for Rings {
    fn drop(&mut self) {
        // The command does not fail because of a leftover in a temporary directory.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Removes the directories in `base` that killed runs left, and returns their paths.
pub(super) fn remove_leftovers(base: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(base).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| remove_leftover(path).is_some()).collect()
}

/// Removes a directory of this user that no process has, and that contains only rings. `None`: it stays.
fn remove_leftover(directory: &Path) -> Option<()> {
    let owner = owner(directory.file_name()?.to_str()?)?;
    let about = fs::symlink_metadata(directory).ok()?;
    if !about.is_dir() || about.uid() != geteuid().as_raw() || is_alive(owner) {
        return None;
    }
    // The owner can be in a container, where its process id says nothing. Its lock does.
    let lock = File::open(directory).ok()?;
    lock.try_lock().ok()?;
    let entries = fs::read_dir(directory).ok()?;
    let rings: Option<Vec<PathBuf>> = entries.map(|entry| ring(&entry.ok()?)).collect();
    for path in rings? {
        fs::remove_file(path).ok()?;
    }
    fs::remove_dir(directory).ok()
}

/// The process id in the name of a directory.
fn owner(name: &str) -> Option<Pid> {
    let rest = name.strip_prefix(PREFIX)?;
    let number = rest.split_once('-').map_or(rest, |(number, _)| number);
    let number = number.parse().ok().filter(|number: &i32| *number > 0)?;
    Pid::from_raw(number)
}

/// Whether an earlier run with this process id can still be alive.
fn is_alive(pid: Pid) -> bool {
    pid != rustix::process::getpid() && test_kill_process(pid) != Err(Errno::SRCH)
}

/// The path of an entry that is a ring of the simulation.
fn ring(entry: &DirEntry) -> Option<PathBuf> {
    let name = entry.file_name();
    let number = name.to_str()?.strip_prefix(RING_PREFIX)?;
    let is_number = !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit());
    let is_file = entry.file_type().is_ok_and(|kind| kind.is_file());
    (is_number && is_file).then(|| entry.path())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use tempfile::TempDir;

    use super::*;

    /// Above the greatest process id of Linux, 4194304.
    const DEAD: &str = "2000000000";

    fn directory_with(base: &Path, name: &str, file: &str) -> PathBuf {
        let directory = base.join(name);
        fs::create_dir(&directory).unwrap();
        fs::write(directory.join(file), "").unwrap();
        directory
    }

    #[test]
    fn rings_of_dead_processes_are_removed_and_nothing_else() {
        let base = TempDir::new().unwrap();
        let base = base.path();
        let first = directory_with(base, &format!("{PREFIX}{DEAD}"), "rank_0");
        let second = directory_with(base, &format!("{PREFIX}{DEAD}-1"), "rank_12");
        let foreign = directory_with(base, &format!("{PREFIX}{DEAD}-2"), "notes.txt");
        let alive = directory_with(base, &format!("{PREFIX}1"), "rank_0");
        let other = directory_with(base, &format!("tidegate-{DEAD}"), "rank_0");
        let unnumbered = directory_with(base, &format!("{PREFIX}new"), "rank_0");
        symlink(&other, base.join(format!("{PREFIX}{DEAD}-3"))).unwrap();
        let locked = directory_with(base, &format!("{PREFIX}{DEAD}-4"), "rank_0");
        let lock = File::open(&locked).unwrap();
        lock.lock().unwrap();
        let mut removed = remove_leftovers(base);
        removed.sort();
        assert_eq!(removed, [first, second]);
        for kept in [foreign, alive, other, unnumbered, locked] {
            assert_eq!(fs::read_dir(&kept).unwrap().count(), 1, "{}", kept.display());
        }
    }

    #[test]
    fn a_base_that_is_not_writable_is_passed_over() {
        let base = TempDir::new().unwrap();
        let file = base.path().join("file");
        fs::write(&file, "").unwrap();
        let rings = Rings::create(&[file.clone(), base.path().to_owned()]).unwrap();
        let again = Rings::create(&[base.path().to_owned()]).unwrap();
        assert_eq!(rings.directory.parent(), Some(base.path()));
        assert_ne!(rings.directory, again.directory);
        assert!(remove_leftovers(base.path()).is_empty(), "it has a lock");
        let directory = rings.directory.clone();
        drop(rings);
        assert!(!directory.exists());
        let refusal = Rings::create(&[file]).err().unwrap().to_string();
        assert!(refusal.contains("--directory"), "{refusal}");
    }
}
