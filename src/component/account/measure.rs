//! How much memory the process uses, and how much there is.

use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Where the kernel says how much memory a container may use: cgroup version 2, then version 1.
const CGROUP_LIMITS: [&str; 2] = [
    "/sys/fs/cgroup/memory.max",
    "/sys/fs/cgroup/memory/memory.limit_in_bytes",
];

/// Resident memory of this process. Takes some microseconds: the kernel writes nothing else of the process here.
pub(crate) fn resident_bytes() -> io::Result<u64> {
    let text = std::fs::read_to_string("/proc/self/statm")?;
    let pages: Option<u64> = text.split(' ').nth(1).and_then(|pages| pages.parse().ok());
    let pages = pages.ok_or_else(|| io::Error::other("/proc/self/statm has no second number"))?;
    Ok(pages.saturating_mul(rustix::param::page_size() as u64))
}

/// See [`live_bytes`]; 0: nobody has said it yet.
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The allocator has just given back what is free: what is resident now is in use.
pub(crate) fn note_live() {
    if let Ok(bytes) = resident_bytes() {
        LIVE.store(usize::try_from(bytes).unwrap_or(usize::MAX), Relaxed);
    }
}

/// What was resident right after the allocator last gave back what was free. It keeps no count of what is in use.
pub(crate) fn live_bytes() -> Option<usize> {
    Some(LIVE.load(Relaxed)).filter(|bytes| *bytes > 0)
}

/// Memory of the machine, or of the container where that is less.
pub(crate) fn total_bytes() -> io::Result<u64> {
    let limits = CGROUP_LIMITS
        .iter()
        .filter_map(|path| cgroup_limit(Path::new(path)));
    let machine = read_field("/proc/meminfo", "MemTotal:")?;
    Ok(limits.fold(machine, u64::min))
}

fn read_field(path: &str, field: &str) -> io::Result<u64> {
    let text = std::fs::read_to_string(path)?;
    parse_field(&text, field).ok_or_else(|| io::Error::other(format!("{path} has no {field}")))
}

/// A limit in bytes; `max` stands for none.
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
    fn a_cgroup_without_a_limit_has_none() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("memory.max");
        std::fs::write(&file, "max\n").unwrap();
        assert_eq!(cgroup_limit(&file), None);
        std::fs::write(&file, "1048576\n").unwrap();
        assert_eq!(cgroup_limit(&file), Some(1 << 20));
    }
}
