//! What makes the series so many is counted some at a time.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use super::*;

#[test]
fn a_census_counts_all_series_once_and_a_query_need_not_wait_for_its_end() {
    let (view, shared) = view();
    let (one, two) = (table(&shared), table(&shared));
    for n in 0..3 * SLICE {
        gauge(&one, &format!("level_{n}"), 1, START);
    }
    // The second of the same name is not seen.
    gauge(&two, "level_0", 2, START);
    gauge(&two, "other", 2, START);
    let census = view.census(START, 3);
    assert_eq!(census.series, 3 * SLICE + 1);
    assert_eq!(census.metrics.len(), 3);
    assert_eq!(
        (&*census.values[0].name, census.values[0].count),
        ("pod=p1", 3 * SLICE + 1)
    );
    assert_eq!(
        (&*census.labels[0].name, census.labels[0].count),
        ("__name__", 3 * SLICE + 1)
    );
    assert_eq!(census.pairs, 3 * SLICE + 2);

    let had_it = AtomicBool::new(false);
    let mut slices = 0;
    std::thread::scope(|scope| {
        view.in_slices(START, &mut |_, _, _| {
            slices += 1;
            match slices {
                1 => {
                    scope.spawn(|| {
                        let state = view.state();
                        had_it.store(true, SeqCst);
                        drop(state);
                    });
                    while view.waiting.load(Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                }
                2 => assert!(had_it.load(SeqCst), "who waits comes first"),
                _ => {}
            }
        });
    });
    assert!(slices > 3, "{slices}");
}
