// SPDX-License-Identifier: Apache-2.0

//! Creates files: their identity, their names, and the reservation of every byte before its use.

use std::fs::{DirBuilder, File, OpenOptions};
use std::hash::{BuildHasher, RandomState};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use tidegate_shm::{memory_file, reserve, try_lock};

use crate::error::Error;
use crate::layout::{Header, Identity, Role};

/// The suffix of files of processes.
pub(crate) const SUFFIX: &str = ".cells";
/// The suffix of unfinished files; their names begin with a dot.
pub(crate) const UNFINISHED: &str = ".new";
/// The most times that a file may vanish before it has its name: a cleaner may take it for that of a dead process.
const ATTEMPTS: usize = 8;
/// The most attempts to lock a new file. A reader that tests the lock has it for some microseconds.
const LOCK_ATTEMPTS: usize = 16;

/// Nanoseconds since 1970.
pub(crate) fn now_ns() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}

/// The header of a new file of this process.
pub(crate) fn header(role: Role) -> Header {
    static DRAWN: AtomicU64 = AtomicU64::new(0);
    // The standard library draws its hash keys once a thread and then counts up. A child of fork continues with the
    // same keys, so the id also includes the process and the time.
    let pid = std::process::id();
    let drawn = (pid, now_ns(), DRAWN.fetch_add(1, Ordering::Relaxed));
    let epoch = RandomState::new().hash_one(drawn).max(1);
    Header {
        role,
        identity: Identity {
            pid,
            start: start_time(),
            epoch,
        },
        boot: boot(),
        created_ns: now_ns(),
    }
}

/// Field 22 of `/proc/self/stat`; 0 without `/proc`, where the epoch still distinguishes processes.
fn start_time() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // The second field, the name, is in parentheses and may contain anything.
    let after_name = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let field = after_name.split_ascii_whitespace().nth(22 - 3);
    field.and_then(|field| field.parse().ok()).unwrap_or(0)
}

fn boot() -> u64 {
    let id = std::fs::read("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    // FNV-1a: the same in every process, whatever its libraries.
    id.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// A file before it is visible to others.
pub(crate) struct Content<'a> {
    /// Length, all of it reserved.
    pub(crate) size: u64,
    /// Bytes by their offset.
    pub(crate) parts: &'a [(u64, &'a [u8])],
    pub(crate) mode: u32,
}

/// A file of ours, or memory that is used like one.
#[derive(Debug)]
pub(crate) struct Open {
    pub(crate) file: File,
    /// A second open file for the lock, which says that we live. A mapping keeps its open file and lock, and children
    /// of fork inherit mappings.
    pub(crate) lock: Option<File>,
}

/// Makes a file under another name, locked, whole, and renames it.
pub(crate) fn create(path: &Path, content: &Content<'_>) -> Result<Open, Error> {
    for _ in 0..ATTEMPTS {
        if let Some(file) = try_create(path, content)? {
            return Ok(file);
        }
    }
    let why = io::Error::other("another process removes or locks each new file");
    Err(Error::io("create", path, why))
}

/// `None`: it vanished before it had its name, or another process had its lock.
fn try_create(path: &Path, content: &Content<'_>) -> Result<Option<Open>, Error> {
    let unfinished = unfinished(path);
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).mode(content.mode);
    let opened = tidegate_shm::open(&mut options, &unfinished);
    let (file, _) = opened.map_err(|e| Error::io("create", &unfinished, e))?;
    let made = fill(&file, &unfinished, content).map_err(|e| Error::io("write", &unfinished, e));
    let renamed = made.and_then(|lock| match std::fs::rename(&unfinished, path) {
        Ok(()) => Ok(Open {
            file,
            lock: Some(lock),
        }),
        Err(e) => Err(Error::io("rename to", path, e)),
    });
    match renamed {
        Err(Error::Io { source, .. }) if source.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => {
            let _ = std::fs::remove_file(&unfinished); // the first error is the one to tell
            let is_locked =
                matches!(&error, Error::Io { source, .. } if source.kind() == ErrorKind::WouldBlock);
            if is_locked { Ok(None) } else { Err(error) }
        }
        Ok(open) => Ok(Some(open)),
    }
}

fn fill(file: &File, path: &Path, content: &Content<'_>) -> io::Result<File> {
    let (lock, _) = tidegate_shm::open(OpenOptions::new().read(true), path)?;
    lock_soon(&lock)?;
    reserve(file, 0, content.size)?;
    write_parts(file, content)?;
    Ok(lock)
}

/// Locks a new file. A reader that tests the lock delays it. It does not wait for another process that keeps a lock, which
/// takes no more than the right to read.
fn lock_soon(file: &File) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        if try_lock(file)? {
            return Ok(());
        }
        std::thread::yield_now();
    }
    Err(ErrorKind::WouldBlock.into())
}

fn write_parts(file: &File, content: &Content<'_>) -> io::Result<()> {
    let mut parts = content.parts.iter();
    parts.try_for_each(|(offset, bytes)| file.write_all_at(bytes, *offset))
}

/// The path of a file until it is complete.
pub(crate) fn unfinished(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}{UNFINISHED}"))
}

/// Memory that is not a file, but can be put somewhere else.
pub(crate) fn memory(content: &Content<'_>) -> io::Result<Open> {
    let file = memory_file(c"tidegate-cells")?;
    reserve(&file, 0, content.size)?;
    write_parts(&file, content)?;
    Ok(Open { file, lock: None })
}

/// Makes the directory and those above it.
pub(crate) fn create_directory(directory: &Path) -> Result<(), Error> {
    let made = DirBuilder::new().recursive(true).mode(0o755).create(directory);
    made.map_err(|e| Error::io("create", directory, e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lock_of_another_process_does_not_hold_up_a_new_file() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(".retained.cells.new");
        let file = File::create_new(&path).unwrap();
        let other = File::open(&path).unwrap();
        other.lock_shared().unwrap();
        let content = Content {
            size: 8,
            parts: &[(0, b"12345678")],
            mode: 0o644,
        };
        let refused = fill(&file, &path, &content).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::WouldBlock);
        other.unlock().unwrap();
        assert!(fill(&file, &path, &content).is_ok());
    }
}
