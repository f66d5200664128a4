// SPDX-License-Identifier: Apache-2.0

//! Once every entry has its slot, neither writing nor reading allocates.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use tidegate_page::{Entry, Page, Reader, State};

struct Counting;

thread_local! {
    /// By thread: the test harness has one of its own, which allocates when it likes.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

// SAFETY: everything is passed on to the system's allocator; only a number is counted.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.set(ALLOCATIONS.get() + 1);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_steady_page_allocates_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut page = Page::create(directory.path().join("page"), 64, 0o600).unwrap();
    let reader = Reader::open(page.path()).unwrap();
    let names: Vec<String> = (0..64).map(|i| format!("name_{i}")).collect();
    let mut entries: Vec<Entry<'_>> = names
        .iter()
        .map(|name| Entry {
            name,
            labels: "k=\"v\"",
            state: State::Fresh,
            ..Entry::default()
        })
        .collect();
    page.publish(1, &entries);
    let handle = reader.find("name_7", "k=\"v\"").unwrap();
    let before = ALLOCATIONS.get();
    for n in 2..1_000 {
        for entry in &mut entries {
            entry.value = Some(n as f64);
            entry.seq = n;
        }
        assert_eq!(page.publish(n, &entries).written, 64);
        assert_eq!(reader.read(&handle).unwrap().seq, n);
        assert_eq!(reader.find("name_7", "k=\"v\""), Ok(handle));
    }
    assert_eq!(ALLOCATIONS.get(), before);
    assert!(before > 0, "the test's own allocations are counted");
}
