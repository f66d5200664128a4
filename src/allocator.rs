// SPDX-License-Identifier: Apache-2.0

//! The allocator of the binary, and the thread that gives back memory that nothing needs any more.

use std::fs::File;
use std::hint::black_box;
use std::io::{BufRead, BufReader};
use std::ptr;
use std::thread;
use std::time::Duration;

use rustix::mm::Advice;

/// Decoding and table work allocate in bursts: docs/decisions/0021-the-allocator-is-mimalloc.md has it beside others.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

// SAFETY: mimalloc, which is linked as the allocator, declares it as `void mi_collect(bool)`. It takes no pointers, and
// any thread may call it at any time.
unsafe extern "C" {
    safe fn mi_collect(force: bool);
}

// SAFETY: mimalloc declares it so. It writes through each pointer that is not null, and any thread may call it.
unsafe extern "C" {
    fn mi_process_info(
        elapsed_ms: *mut usize,
        user_ms: *mut usize,
        system_ms: *mut usize,
        rss: *mut usize,
        peak_rss: *mut usize,
        commit: *mut usize,
        peak_commit: *mut usize,
        page_faults: *mut usize,
    );
}

/// Bytes that the allocator has from the system for the heap, in use or ready for use. They do not fall when memory is
/// given back, and this build of the allocator counts no blocks.
fn heap_bytes() -> usize {
    let (none, mut commit) = (std::ptr::null_mut(), 0);
    // SAFETY: one pointer is to a variable that outlives the call, the others are null.
    unsafe { mi_process_info(none, none, none, none, none, &raw mut commit, none, none) };
    commit
}

/// The interval at which freed memory is given back. A thread that frees memory also gives back memory that has been
/// free for a second, and may delay a request by it: for a page of a million series it takes 10 ms.
const GIVE_BACK_EVERY: Duration = Duration::from_millis(400);

/// After so many intervals, 1.2 s, the gateway has read its configuration, or has ended.
const START_ROUNDS: u64 = 3;

/// Starts the thread that gives memory back, and tells the gateway how to measure the heap. The gateway works without
/// the thread, with more memory.
pub(crate) fn start() {
    let _ = thread::Builder::new()
        .name("tidegate-memory".into())
        .spawn(give_back);
    tidegate::telemetry::measure_heap(heap_bytes);
}

/// The allocator looks for memory to give back to the system only on request, or after thousands of
/// allocations of one thread: the memory of a large page or a burst would stay resident while little happens.
fn give_back() {
    // A thread that has never allocated has no heap, so `mi_collect` would do nothing.
    drop(black_box(Box::new(0_u8)));
    for round in 0_u64.. {
        if round == START_ROUNDS {
            give_back_loader_tables();
        }
        mi_collect(true);
        tidegate::telemetry::note_live_memory();
        thread::sleep(GIVE_BACK_EVERY);
    }
}

/// Unmaps the tables that only the dynamic loader reads, more than 1 MiB, and the constants beside them. The kernel maps
/// a page again when something reads it. Without this the tables stay resident as long as the process runs.
fn give_back_loader_tables() {
    let Some((start, bytes)) = constants() else {
        return;
    };
    // SAFETY: the range is one private mapping of the program's file that was never writable, so each of its pages is
    // equal to the file, and a later read gets the same bytes. The mapping stays as long as the process.
    let _ = unsafe { rustix::mm::madvise(ptr::without_provenance_mut(start), bytes, Advice::LinuxDontNeed) };
}

/// Address and bytes of the program's first segment: headers, tables of the loader, and constants without addresses.
/// `None`: the system does not say, or the first segment is writable or executable.
fn constants() -> Option<(usize, usize)> {
    let program = std::env::current_exe().ok()?;
    let program = program.to_str()?;
    let maps = BufReader::new(File::open("/proc/self/maps").ok()?);
    let mut lines = maps.lines().map_while(Result::ok);
    let line = lines.find(|line| line.ends_with(program))?;
    first_segment(&line)
}

/// The range of a line of `/proc/self/maps`: `START-END r--p OFFSET DEVICE INODE PATH`, with offset 0.
fn first_segment(line: &str) -> Option<(usize, usize)> {
    let mut fields = line.split_ascii_whitespace();
    let (start, end) = fields.next()?.split_once('-')?;
    if fields.next()? != "r--p" || usize::from_str_radix(fields.next()?, 16).ok()? != 0 {
        return None;
    }
    let start = usize::from_str_radix(start, 16).ok()?;
    Some((start, usize::from_str_radix(end, 16).ok()?.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::first_segment;

    #[test]
    fn only_a_first_segment_for_reading_is_given_back() {
        let path = "08:01 131 /usr/bin/tidegate";
        let segment = |rest: &str| first_segment(&format!("7f10-7f30 {rest} {path}"));
        assert_eq!(segment("r--p 00000000"), Some((0x7f10, 0x20)));
        assert_eq!(
            segment("r--p 00005000"),
            None,
            "relocated constants have an offset"
        );
        assert_eq!(segment("r-xp 00000000"), None);
        assert_eq!(segment("rw-p 00000000"), None);
        assert_eq!(segment("r--s 00000000"), None, "shared memory of a file");
        assert_eq!(first_segment("7f30-7f10 r--p 00000000 08:01 131 /x"), None);
        assert_eq!(first_segment(""), None);
    }
}
