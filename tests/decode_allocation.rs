// SPDX-License-Identifier: Apache-2.0

//! A page whose lines are known takes no memory but for the points that it becomes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::fmt::Write;

use tidegate::prom::model::LabelSet;
use tidegate::prom::scrape::{ScrapeDecoder, Settings, Target};
use tidegate_engine::Attributes;
use tidegate_exposition::Format;

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

struct Plain;

impl Target for Plain {
    fn relabel(&mut self, labels: &mut LabelSet) -> bool {
        labels.set("job", "j");
        labels.get("drop").is_empty()
    }

    fn resource(&self, _: &str, _: &str) -> Attributes {
        Attributes::default()
    }
}

/// Counters, dropped lines, a summary, metadata; in the order of `numbers`.
fn page(numbers: impl Iterator<Item = u32> + Clone, value: u32) -> String {
    let mut page = "# HELP c what\n# TYPE c counter\n".to_owned();
    for number in numbers {
        let _ = writeln!(page, "c{{series=\"{number}\"}} {value}.5");
        let _ = writeln!(page, "c{{series=\"{number}\",drop=\"x\"}} {value}");
    }
    page.push_str("# TYPE target_info gauge\ntarget_info{a=\"b\"} 1\n");
    page
}

/// The number of allocations for a page, if its points have room.
fn allocations(decoder: &mut ScrapeDecoder, page: &str, scrape: u64) -> u64 {
    let mut points = Vec::with_capacity(4096);
    let before = ALLOCATIONS.get();
    let counts = decoder
        .page(Format::Text, page.as_bytes(), scrape * 1_000_000_000, &mut points)
        .expect("a sound page");
    let allocations = ALLOCATIONS.get() - before;
    assert_eq!((counts.samples, points.len()), (2001, 1000));
    allocations
}

#[test]
fn a_known_page_allocates_nothing() {
    let mut decoder = ScrapeDecoder::new(Settings::default(), Box::new(Plain));
    let there = allocations(&mut decoder, &page(0..1000, 1), 1);
    assert!(there > 1000, "the first time is counted: {there}");
    // The list of what was written is made twice, and swapped.
    allocations(&mut decoder, &page(0..1000, 2), 2);
    for scrape in 3..20 {
        let value = u32::try_from(scrape).expect("small");
        let in_order = allocations(&mut decoder, &page(0..1000, value), scrape);
        assert_eq!(in_order, 0, "scrape {scrape}");
    }
    // The other way round no line follows the one that it followed.
    assert_eq!(allocations(&mut decoder, &page((0..1000).rev(), 99), 99), 0);
}
