// SPDX-License-Identifier: Apache-2.0

//! Measures the memory of the process and of the machine.

use std::io;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// The mount point of cgroups.
const CGROUPS: &str = "/sys/fs/cgroup";

/// Resident memory of this process, in bytes. The call takes some microseconds: `statm` has only a few numbers.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no second number"))?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// See [`live_bytes`]; 0 before the first note.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// Notes the memory in use. Call it right after the allocator returned its free memory.
pub fn note_live() {
    if let Ok(bytes) = resident_bytes() {
        LIVE.store(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
    }
}

/// The bytes that were resident right after the allocator last returned its free memory. The allocator itself does not
/// count the bytes in use. `None` before the first note.
pub fn live_bytes() -> Option<usize> {
    Some(LIVE.load(Relaxed)).filter(|bytes| *bytes > 0)
}

/// Memory of the machine in bytes, or of the container if that is less.
///
/// # Errors
/// The system does not report its memory.
pub fn total_bytes() -> io::Result<u64> {
    let machine = read_field("/proc/meminfo", "MemTotal:")?;
    // A kernel without cgroups has no such file.
    let memberships = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let files = limit_files(Path::new(CGROUPS), &memberships);
    let limits = files.iter().filter_map(|path| cgroup_limit(path));
    Ok(limits.fold(machine, u64::min))
}

/// The files with the memory limits of a process's cgroup and of all cgroups above it, of version 2 and version 1. A
/// container sees its own cgroup as the root; a systemd service is some levels below.
fn limit_files(root: &Path, memberships: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    let mut add = |root: PathBuf, group: &str, name: &str| {
        let parts = Path::new(group).components();
        let mut folder = root;
        files.push(folder.join(name));
        for part in parts.filter(|part| matches!(part, Component::Normal(_))) {
            folder.push(part);
            files.push(folder.join(name));
        }
    };
    add(root.to_owned(), "", "memory.max");
    add(root.join("memory"), "", "memory.limit_in_bytes");
    for line in memberships.lines() {
        // `0::/a/b` of version 2, `7:memory:/a/b` of version 1.
        let mut fields = line.splitn(3, ':').skip(1);
        match (fields.next(), fields.next()) {
            (Some(""), Some(group)) => add(root.to_owned(), group, "memory.max"),
            (Some(of), Some(group)) if of.split(',').any(|one| one == "memory") => {
                add(root.join("memory"), group, "memory.limit_in_bytes");
            }
            _ => {}
        }
    }
    files
}

fn read_field(path: &str, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    parse_field(&text, field).ok_or_else(|| io::Error::other(format!("{path} has no {field}")))
}

/// A limit in bytes; `max` means none.
fn cgroup_limit(path: &Path) -> Option<u64> {
    std::fs::read_to_string(path).ok()?.trim().parse().ok()
}

/// `VmRSS:     16384 kB`, where kB means 1,024 bytes.
fn parse_field(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_uses_some_memory_but_not_more_than_there_is() {
        let used = resident_bytes().unwrap();
        assert!(used > 1 << 20 && used < total_bytes().unwrap(), "{used}");
    }

    #[test]
    fn what_is_live_is_known_once_memory_was_given_back() {
        note_live();
        let live = live_bytes().unwrap();
        assert!(live > 1 << 20 && live < total_bytes().unwrap() as usize, "{live}");
    }

    #[test]
    fn fields_count_in_kibibytes() {
        assert_eq!(parse_field("MemFree: 1 kB\n", "MemTotal:"), None);
        let text = "MemTotal:       2048 kB\nMemFree: 1 kB";
        assert_eq!(parse_field(text, "MemTotal:"), Some(2 << 20));
    }

    #[test]
    fn the_limits_of_all_cgroups_above_a_process_count() {
        let files = |memberships: &str| {
            let files = limit_files(Path::new("/root"), memberships);
            let names = files.iter().map(|file| file.display().to_string());
            names.collect::<std::collections::BTreeSet<_>>()
        };
        let roots = ["/root/memory.max", "/root/memory/memory.limit_in_bytes"];
        let and = |more: &[&str]| roots.iter().chain(more).map(|&path| path.to_owned()).collect();
        assert_eq!(files(""), and(&[]));
        assert_eq!(files("0::/"), and(&[]));
        assert_eq!(files("0::/../../x"), and(&["/root/x/memory.max"]));
        let service = [
            "/root/system.slice/memory.max",
            "/root/system.slice/gate/memory.max",
        ];
        assert_eq!(files("0::/system.slice/gate\n"), and(&service));
        let docker = ["/root/memory/docker/memory.limit_in_bytes"];
        assert_eq!(files("9:cpu,cpuacct:/a\n7:memory:/docker\nbroken"), and(&docker));
    }

    #[test]
    fn a_cgroup_without_a_limit_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.max");
        std::fs::write(&file, "max\n").unwrap();
        assert_eq!(cgroup_limit(&file), None);
        std::fs::write(&file, "1048576\n").unwrap();
        assert_eq!(cgroup_limit(&file), Some(1 << 20));
    }
}
