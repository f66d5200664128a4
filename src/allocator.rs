// SPDX-License-Identifier: Apache-2.0

//! The allocator of the binary, and the thread that gives back memory that nothing needs any more.

use std::fs;
use std::hint::black_box;
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
            give_back_start();
        }
        mi_collect(true);
        tidegate::telemetry::note_live_memory();
        thread::sleep(GIVE_BACK_EVERY);
    }
}

/// Unmaps the program's code and constants, most of which only the start needs. The kernel keeps them in its cache, and maps a
/// page again when something needs it. Without this they stay resident as long as the process runs.
fn give_back_start() {
    for (start, bytes) in program_segments() {
        // SAFETY: the range is a private mapping of the program's file that is not writable and has no pages of its own, in
        // memory or swapped out. So each page is equal to the file, and a later read gets the same bytes. The mapping stays
        // as long as the process. Only a debugger changes such a page, and loses a breakpoint that it sets just now.
        let _ =
            unsafe { rustix::mm::madvise(ptr::without_provenance_mut(start), bytes, Advice::LinuxDontNeed) };
    }
}

/// Address and bytes of the segments of the program that are equal to its file. None, if the system does not say.
fn program_segments() -> Vec<(usize, usize)> {
    let program = std::env::current_exe().unwrap_or_default();
    let maps = fs::read_to_string("/proc/self/smaps").unwrap_or_default();
    match program.to_str() {
        Some(program) if !program.is_empty() => unchanged_segments(&maps, program),
        _ => Vec::new(),
    }
}

/// The segments of a file in the text of `/proc/self/smaps`. A line `START-END PERMISSIONS OFFSET DEVICE INODE PATH` begins a
/// segment. `Anonymous: N kB` and, later, `Swap: N kB` have the size of the pages that differ from the file: those that the
/// loader has relocated, or in which a debugger has set a breakpoint.
fn unchanged_segments(maps: &str, program: &str) -> Vec<(usize, usize)> {
    let mut current = None;
    let mut unchanged = Vec::new();
    for line in maps.lines() {
        let mut fields = line.split_ascii_whitespace();
        let (first, second) = (
            fields.next().unwrap_or_default(),
            fields.next().unwrap_or_default(),
        );
        if let Some((start, end)) = first.split_once('-') {
            let is_code = line.ends_with(program) && matches!(second, "r--p" | "r-xp");
            current = is_code.then(|| range(start, end)).flatten();
        } else if first == "Anonymous:" && second != "0" {
            current = None;
        } else if first == "Swap:" {
            unchanged.extend(current.take().filter(|_| second == "0"));
        }
    }
    unchanged
}

fn range(start: &str, end: &str) -> Option<(usize, usize)> {
    let start = usize::from_str_radix(start, 16).ok()?;
    Some((start, usize::from_str_radix(end, 16).ok()?.checked_sub(start)?))
}

#[cfg(test)]
mod tests {
    use super::unchanged_segments;

    #[test]
    fn only_segments_of_the_program_without_changes_are_given_back() {
        let maps = [
            ("10-30 r--p 00000000 08:01 131 /usr/bin/tidegate", 0, 0),
            ("30-70 r-xp 00020000 08:01 131 /usr/bin/tidegate", 0, 0),
            ("70-80 r--p 00060000 08:01 131 /usr/bin/tidegate", 4, 0),
            ("80-90 r--p 00070000 08:01 131 /usr/bin/tidegate", 0, 4),
            ("90-a0 rw-p 00070000 08:01 131 /usr/bin/tidegate", 0, 0),
            ("a0-b0 r--s 00070000 08:01 131 /usr/bin/tidegate", 0, 0),
            ("b0-c0 r-xp 00000000 08:01 132 /usr/lib/libc.so.6", 0, 0),
            ("c0-d0 rw-p 00000000 00:00 0", 0, 0),
        ];
        let text = maps.map(|(head, own, swapped)| {
            format!("{head}\nSize: 8 kB\nAnonymous:   {own} kB\nSwap:   {swapped} kB\nVmFlags: rd mr\n")
        });
        let found = unchanged_segments(&text.concat(), "/usr/bin/tidegate");
        assert_eq!(found, [(0x10, 0x20), (0x30, 0x40)]);
        assert!(unchanged_segments("", "/usr/bin/tidegate").is_empty());
        assert!(unchanged_segments("30-10 r-xp 0 0 0 /a\nAnonymous: 0 kB\nSwap: 0 kB", "/a").is_empty());
    }
}
