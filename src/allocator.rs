// SPDX-License-Identifier: Apache-2.0

//! The allocator of the binary, and the thread that gives its free memory back.

use std::hint::black_box;
use std::thread;
use std::time::Duration;

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
    loop {
        mi_collect(true);
        tidegate::telemetry::note_live_memory();
        thread::sleep(GIVE_BACK_EVERY);
    }
}
