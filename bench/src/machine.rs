// SPDX-License-Identifier: Apache-2.0

//! The machine, as far as figures depend on it, and its cores.

use std::io;
use std::sync::LazyLock;

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// One line on processor, cores, memory, kernel and time.
pub(crate) fn describe() -> io::Result<String> {
    let cpuinfo = std::fs::read_to_string("/proc/cpuinfo")?;
    let model = field(&cpuinfo, "model name").unwrap_or("unknown processor");
    let meminfo = std::fs::read_to_string("/proc/meminfo")?;
    let kib: u64 = field(&meminfo, "MemTotal")
        .and_then(|value| value.split(' ').next()?.parse().ok())
        .unwrap_or(0);
    let kernel = rustix::system::uname();
    Ok(format!(
        "{model}, {} cores, {:.0} GiB, Linux {}",
        cores().len(),
        kib as f64 / f64::from(1 << 20),
        kernel.release().to_string_lossy(),
    ))
}

/// The value of the first line `name: value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim())
    })
}

/// Numbers of the cores that we were given, looked up before anything is pinned.
fn cores() -> &'static [usize] {
    static CORES: LazyLock<Vec<usize>> = LazyLock::new(|| {
        let allowed = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
        (0..CpuSet::MAX_CPU)
            .filter(|core| allowed.is_set(*core))
            .collect()
    });
    &CORES
}

/// Runs `start` on the first core, which its children inherit, and leaves us on the others; where there is only
/// one, everything shares it.
pub(crate) fn on_a_core_of_its_own<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    let [first, rest @ ..] = cores() else {
        return Ok(start());
    };
    if rest.is_empty() {
        return Ok(start());
    }
    sched_setaffinity(None, &set(&[*first]))?;
    let started = start();
    sched_setaffinity(None, &set(rest))?;
    Ok(started)
}

/// Runs `start` on each core, which its children inherit, and leaves us on those that are not a process's own.
pub(crate) fn on_each_core<T>(mut start: impl FnMut() -> T) -> io::Result<Vec<T>> {
    let mut started = Vec::new();
    for core in cores() {
        sched_setaffinity(None, &set(&[*core]))?;
        started.push(start());
    }
    back()?;
    Ok(started)
}

/// Runs `start` with all cores for its children, and leaves us on those that are not a process's own.
pub(crate) fn on_all_cores<T>(start: impl FnOnce() -> T) -> io::Result<T> {
    sched_setaffinity(None, &set(cores()))?;
    let started = start();
    back()?;
    Ok(started)
}

/// To all cores but the first, where there are others.
fn back() -> io::Result<()> {
    match cores() {
        [_, rest @ ..] if !rest.is_empty() => sched_setaffinity(None, &set(rest)),
        all => sched_setaffinity(None, &set(all)),
    }
    .map_err(io::Error::from)
}

fn set(cores: &[usize]) -> CpuSet {
    let mut set = CpuSet::new();
    for core in cores {
        set.set(*core);
    }
    set
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_field_is_found_by_its_whole_name() {
        let text = "model\t: 1\nmodel name\t: EPYC\nMemTotal:  1024 kB\n";
        assert_eq!(field(text, "model name"), Some("EPYC"));
        assert_eq!(field(text, "MemTotal"), Some("1024 kB"));
        assert_eq!(field(text, "name"), None);
    }
}
