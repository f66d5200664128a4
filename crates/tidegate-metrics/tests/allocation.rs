// SPDX-License-Identifier: Apache-2.0

//! Recording takes no memory once a label set was used.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod kit;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::sync::Arc;

use kit::{Outcome, Service, work};
use tidegate_metrics::{Fanout, MetricsRegistry, Null, Prometheus, Shm};

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

fn record(service: &Service) {
    for at in 0..1000u16 {
        service.requests.inc();
        service.answers.with(&["200", "GET"]).inc();
        let outcome = Outcome {
            status: 503,
            method: "GET",
        };
        service.answers.of(&outcome).add(2);
        service.joules.add(0.5);
        service.open.dec();
        service.cache.set(f64::from(at));
        service.queue.depth.inc();
        service.ttft.observe(f64::from(at) / 100.0);
        service.transfers.with(&["out"]).observe(f64::from(at));
        let _timer = service.ttft.start_timer();
        let _one = service.cache.track();
        // Misuse is as quiet.
        service.joules.add(-1.0);
        service.answers.with(&["too few"]).inc();
    }
}

#[test]
fn recording_takes_no_memory_once_a_label_set_was_used() {
    let directory = tempfile::tempdir().unwrap();
    let registries: [(&str, Arc<dyn MetricsRegistry>); 4] = [
        ("prometheus", Arc::new(Prometheus::new())),
        ("shm", Arc::new(Shm::create(directory.path(), &[]).unwrap())),
        ("null", Arc::new(Null::new())),
        (
            "fanout",
            Arc::new(Fanout::new(vec![
                Arc::new(Prometheus::new()),
                Arc::new(Null::new()),
            ])),
        ),
    ];
    for (name, registry) in registries {
        let service = work(&registry);
        let before = ALLOCATIONS.get();
        record(&service);
        assert_eq!(ALLOCATIONS.get() - before, 0, "{name}");
        // In a thread that never looked up a series before, too.
        let taken = std::thread::spawn(move || {
            let before = ALLOCATIONS.get();
            record(&service);
            ALLOCATIONS.get() - before
        });
        assert_eq!(taken.join().unwrap(), 0, "{name}, in another thread");
    }
    let before = ALLOCATIONS.get();
    drop(Box::new(1));
    assert_eq!(ALLOCATIONS.get() - before, 1, "the counter counts");
}
