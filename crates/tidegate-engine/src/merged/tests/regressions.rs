// SPDX-License-Identifier: Apache-2.0

//! Cases that earlier designs got wrong.

use super::*;

#[test]
fn a_run_that_was_folded_while_it_lived_adds_what_it_says_later() {
    let (mut leader, mut reader) = (Merged::new(limits()), Merged::new(limits()));
    take_all(&mut leader, [report(1, 10, 1, 50), report(1, 20, 1, 55)]);
    assert_eq!(leader.fold(id(1), 10, true), 1);
    assert_eq!(value(&mut leader), Some(Value::Int(105)));
    publish(&leader, 1, &mut reader);
    for merged in [&mut leader, &mut reader] {
        take_all(merged, [report(1, 10, 2, 100), report(1, 20, 1, 55)]);
        assert_eq!(value(merged), Some(Value::Int(155)));
    }
    // The old record comes again.
    let (mut old, mut late) = (Merged::new(limits()), reader);
    take_all(&mut old, [report(1, 10, 1, 50)]);
    old.fold(id(1), 10, true);
    publish(&old, 1, &mut late);
    assert_eq!(value(&mut late), Some(Value::Int(155)));
}

#[test]
fn a_run_that_begins_before_a_folded_one_counts() {
    let mut merged = Merged::new(limits());
    take_all(&mut merged, [report(1, 1000, 7, 40)]);
    merged.fold(id(1), 1000, true);
    take_all(&mut merged, [report(1, 3, 1, 2)]);
    assert_eq!(shown(&mut merged)["x"], (3, Value::Int(42)));
    // So it does beside a compacted total.
    let mut merged = Merged::new(MergedLimits {
        kept_runs: 0,
        ..limits()
    });
    take_all(&mut merged, [report(1, 1000, 7, 40)]);
    merged.fold(id(1), 1000, true);
    take_all(&mut merged, [report(1, 3, 1, 2)]);
    assert_eq!(shown(&mut merged)["x"], (3, Value::Int(42)));
}

#[test]
fn the_queue_depth_of_a_dead_producer_goes_with_its_lease() {
    for mode in [MergeMode::Level, MergeMode::Max] {
        let mut merged = Merged::new(limits());
        for (producer, depth) in [(1, 7), (2, 3)] {
            merged.touch(id(producer), 5, 100, 100).unwrap();
            take(&mut merged, "x", level(mode, producer, 5, 1, depth)).unwrap();
        }
        merged.touch(id(2), 5, 109, 109).unwrap();
        merged.sweep(111, 111);
        assert_eq!(value(&mut merged), Some(Value::Int(3)));
        assert_eq!(merged.fold(id(1), 5, true), 0, "levels are not folded");
        assert_eq!(value(&mut merged), Some(Value::Int(3)));
        audit(&merged);
    }
}

#[test]
fn other_bounds_of_a_producer_that_sorts_first_do_not_change_the_shown() {
    let mut merged = Merged::new(limits());
    take_all(
        &mut merged,
        [report(5, 10, 1, histogram(&[1.0, 10.0], &[0.5, 5.0]))],
    );
    take_all(&mut merged, [report(1, 20, 1, histogram(&[5.0], &[3.0, 7.0]))]);
    assert_eq!(merged.stats().unequal_bounds, 1);
    let Some(Value::Histogram(shown)) = value(&mut merged) else {
        panic!()
    };
    assert_eq!(
        (&*shown.bounds, shown.counts.clone()),
        (&[1.0, 10.0][..], vec![1, 2, 1])
    );
    assert_eq!((shown.count, shown.sum), (4, Some(15.5)));
    // A run that began earlier decides, whenever it is known.
    take_all(&mut merged, [report(7, 9, 1, histogram(&[5.0], &[1.0]))]);
    let Some(Value::Histogram(shown)) = value(&mut merged) else {
        panic!()
    };
    assert_eq!((&*shown.bounds, shown.counts.clone()), (&[5.0][..], vec![3, 2]));
}

#[test]
fn a_report_of_another_kind_is_refused_counted_and_named() {
    let mut merged = Merged::new(limits());
    take_all(&mut merged, [report(1, 10, 1, 5)]);
    let refusal = take(&mut merged, "x", report(2, 20, 1, summary(3, 1.0))).unwrap_err();
    let text = refusal.to_string();
    assert!(
        text.contains(&id(2).to_string()) && text.contains("`add` of summaries"),
        "{text}"
    );
    assert!(text.contains("`add` of numbers"), "{text}");
    assert_eq!(
        (value(&mut merged), merged.stats().mixed_kinds),
        (Some(Value::Int(5)), 1)
    );
    // A run with a smaller start decides for its kind. The one that counted until then is counted as refused.
    take_all(&mut merged, [report(3, 5, 1, summary(4, 2.0))]);
    assert_eq!(
        (value(&mut merged), merged.stats().mixed_kinds),
        (Some(summary(7, 3.0)), 2)
    );
}

#[test]
fn a_series_that_expires_and_returns_in_one_run_counts_all() {
    let mut merged = Merged::new(limits());
    let of = |start, sequence, value: i64| RunReport {
        epoch: 10,
        ..report(1, start, sequence, value)
    };
    take_all(&mut merged, [of(10, 1, 30), of(500, 9, 2)]);
    assert_eq!(merged.fold(id(1), 10, false), 1, "only the replaced start");
    take_all(&mut merged, [of(500, 10, 4), of(10, 1, 30)]);
    assert_eq!(shown(&mut merged)["x"], (10, Value::Int(34)));
}

#[test]
fn a_stream_that_moves_between_gateways_counts_once() {
    // The producer is the stream itself, so both gateways pass on reports of one run.
    let (mut a, mut b) = (Merged::new(limits()), Merged::new(limits()));
    take_all(&mut a, [report(1, 10, 1, 100)]);
    take_all(&mut b, [report(1, 10, 2, 150)]);
    a.merge(&b).unwrap();
    b.merge(&a).unwrap();
    assert_eq!(
        (value(&mut a), value(&mut b)),
        (Some(Value::Int(150)), Some(Value::Int(150)))
    );
}

#[test]
fn the_order_and_age_of_runs_do_not_matter() {
    let reports = [
        report(1, 10, 1, 100),
        report(1, 5000, 1, 30),
        report(1, 10, 2, 120),
    ];
    for order in [[0, 1, 2], [1, 0, 2], [1, 2, 0], [2, 1, 0]] {
        let mut merged = Merged::new(limits());
        take_all(&mut merged, order.map(|at: usize| reports[at].clone()));
        assert_eq!(value(&mut merged), Some(Value::Int(150)));
    }
}

#[test]
fn the_time_of_a_series_falls_with_that_of_its_newest_report() {
    let report = |sequence, time| RunReport {
        time,
        ..report(1, 10, sequence, 7)
    };
    let (mut both, mut last) = (Merged::new(limits()), Merged::new(limits()));
    take_all(&mut both, [report(1, 100), report(2, 50)]);
    take_all(&mut last, [report(2, 50)]);
    assert_eq!(state(&both), state(&last));
}

#[test]
fn three_producers_in_turns_add_up_to_what_they_counted() {
    let mut merged = Merged::new(limits());
    for n in 1..=10 {
        take_all(
            &mut merged,
            [1, 2, 3].map(|producer| report(producer, 10, n, n as i64)),
        );
    }
    assert_eq!(value(&mut merged), Some(Value::Int(30)));
}
