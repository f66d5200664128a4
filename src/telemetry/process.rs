// SPDX-License-Identifier: Apache-2.0

//! The resource usage of the process, read from `/proc/self` on demand.

use std::fs;
use std::sync::OnceLock;
use std::time::Instant;

use crate::component::account::measure;

/// Kernel clock ticks a second in `/proc`: fixed at 100 by the Linux ABI on every architecture we build for.
const TICKS_PER_SECOND: f64 = 100.0;

/// Resources in use.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Usage {
    /// User and system time since the start, in seconds.
    pub(crate) cpu_seconds: f64,
    /// Resident memory in bytes.
    pub(crate) resident_bytes: u64,
    /// Memory for data in bytes: private and writable, touched or not.
    pub(crate) data_bytes: u64,
}

/// The current usage; zeros if `/proc` can't be read.
pub(crate) fn usage() -> Usage {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let page = rustix::param::page_size() as u64;
    let bytes = |field: usize| {
        let pages: u64 = statm
            .split(' ')
            .nth(field)
            .and_then(|pages| pages.parse().ok())
            .unwrap_or(0);
        pages * page
    };
    Usage {
        cpu_seconds: cpu_ticks(&stat) / TICKS_PER_SECOND,
        resident_bytes: bytes(1),
        data_bytes: bytes(5),
    }
}

static HEAP: OnceLock<fn() -> usize> = OnceLock::new();

/// Sets the function that asks the allocator for the bytes of the heap. Call it once a process.
pub fn measure_heap(bytes: fn() -> usize) {
    let _ = HEAP.set(bytes);
}

/// Records that the allocator has just returned free memory. Call it each time.
pub fn note_live_memory() {
    measure::note_live();
}

/// The bytes that the allocator holds for the heap, if it can tell.
pub(super) fn heap_bytes() -> Option<usize> {
    HEAP.get().map(|bytes| bytes())
}

/// utime + stime: fields 14 and 15. The name in field 2 may contain spaces, so counting starts after its
/// parenthesis.
fn cpu_ticks(stat: &str) -> f64 {
    let behind_name = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
    behind_name
        .split(' ')
        .skip(11)
        .take(2)
        .filter_map(|ticks| ticks.parse::<f64>().ok())
        .sum()
}

/// The start of the process's uptime.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started(Instant);

impl Started {
    pub(super) fn now() -> Self {
        Self(Instant::now())
    }

    pub(super) fn seconds(self) -> f64 {
        self.0.elapsed().as_secs_f64()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_time_is_found_behind_a_name_with_spaces() {
        let stat = "1 (a b) c) S 1 1 1 0 -1 0 0 0 0 0 250 50 0 0";
        assert_eq!(cpu_ticks(stat), 300.0);
    }

    #[test]
    fn this_process_uses_memory() {
        let used = usage();
        assert!(
            used.resident_bytes > 100_000 && used.data_bytes > 100_000,
            "{used:?}"
        );
    }
}
