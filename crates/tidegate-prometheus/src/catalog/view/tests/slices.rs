// SPDX-License-Identifier: Apache-2.0

//! The view reads its series in slices, and counts all of them once.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};

use tidegate_promql::{Patience, QueryError};

use super::super::entry::SeriesEntry;
use super::super::state::ViewState;
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
    let stats = view.series_stats(START, 3, true, &Patience::default()).unwrap();
    assert_eq!(stats.series, 3 * SLICE + 1);
    assert_eq!(stats.metrics.len(), 3);
    assert_eq!(
        (&*stats.values[0].name, stats.values[0].count),
        ("pod=p1", 3 * SLICE + 1)
    );
    assert_eq!(
        (&*stats.labels[0].name, stats.labels[0].count),
        ("__name__", 3 * SLICE + 1)
    );
    assert_eq!(stats.pairs, 3 * SLICE + 2);

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
            true
        });
    });
    assert!(slices > 3, "{slices}");
}

#[test]
fn labels_of_many_selections_come_once_and_the_state_is_free_in_between() {
    let (view, shared) = view();
    let one = table(&shared);
    for n in 0..3 * SLICE {
        gauge(&one, &format!("level_{n}"), 1, START);
    }
    let all = Selection::everything();
    let patience = Patience::default();
    view.refresh_for(START, std::slice::from_ref(&all), &patience)
        .unwrap();
    let labels = view.labels(&[all.clone(), all.clone(), all.clone()], &patience);
    let labels = labels.unwrap();
    assert_eq!(labels.len(), 3 * SLICE);
    assert!(labels.is_sorted());
    let had_it = AtomicBool::new(false);
    let mut looked = 0;
    std::thread::scope(|scope| {
        let look_at = &mut |_: &ViewState, _: &SeriesEntry| {
            looked += 1;
            match looked {
                1 => {
                    scope.spawn(|| {
                        drop(view.state());
                        had_it.store(true, SeqCst);
                    });
                    while view.waiting.load(Relaxed) == 0 {
                        std::thread::yield_now();
                    }
                }
                _ if looked > 2 * SLICE => assert!(had_it.load(SeqCst), "who waits comes first"),
                _ => {}
            }
        };
        view.each(&all, &patience, look_at).unwrap();
    });
    assert_eq!(looked, 3 * SLICE);
    assert_eq!(view.cost(&[all.clone(), all], 4 * SLICE), 4 * SLICE);
}

#[test]
fn a_query_that_was_dropped_reads_no_more_series() {
    let (view, shared) = view();
    gauge(&table(&shared), "level", 1, START);
    let (all, patience) = ([Selection::everything()], Patience::default());
    patience.give_up();
    let canceled = QueryError::Canceled;
    assert_eq!(view.refresh_for(START, &all, &patience), Err(canceled.clone()));
    assert_eq!(view.labels(&all, &patience).err(), Some(canceled.clone()));
    assert_eq!(view.about(&patience).err(), Some(canceled.clone()));
    assert_eq!(
        view.found(START, &all, 9, &patience).err(),
        Some(canceled.clone())
    );
    assert_eq!(
        view.accepted(START, &all, &patience).err(),
        Some(canceled.clone())
    );
    assert_eq!(
        view.series_stats(START, 9, true, &patience).err(),
        Some(canceled.clone())
    );
}
