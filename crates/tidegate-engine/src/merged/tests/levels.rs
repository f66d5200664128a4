// SPDX-License-Identifier: Apache-2.0

use super::*;

fn alive() -> Merged {
    let mut merged = Merged::new(limits());
    for producer in 1..=3 {
        merged.touch(id(producer), 5, 100, 100).unwrap();
    }
    merged
}

fn combined(mode: MergeMode, values: [f64; 3]) -> Option<Value> {
    let mut merged = alive();
    for (at, value) in values.into_iter().enumerate() {
        let report = level(mode, at as u8 + 1, 5, 1, Value::Double(value));
        take(&mut merged, "x", report).unwrap();
    }
    value(&mut merged)
}

#[test]
fn levels_combine_by_mode() {
    let values = [4.0, 1.0, 1.0];
    assert_eq!(combined(MergeMode::Level, values), Some(Value::Double(6.0)));
    assert_eq!(combined(MergeMode::Min, values), Some(Value::Double(1.0)));
    assert_eq!(combined(MergeMode::Max, values), Some(Value::Double(4.0)));
    assert_eq!(combined(MergeMode::Mean, values), Some(Value::Double(2.0)));
    assert_eq!(
        combined(MergeMode::Last, [4.0, 1.0, 2.0]),
        Some(Value::Double(2.0)),
        "of equal times the last"
    );
}

#[test]
fn a_mean_weighs_summaries_by_their_counts() {
    let mut merged = alive();
    for (producer, count, sum) in [(1, 3, 30.0), (2, 1, 2.0)] {
        let report = level(MergeMode::Mean, producer, 5, 1, summary(count, sum));
        take(&mut merged, "x", report).unwrap();
    }
    assert_eq!(value(&mut merged), Some(Value::Double(8.0)));
}

#[test]
fn a_level_needs_a_lease_and_a_late_one_does_not_return() {
    let mut merged = Merged::new(limits());
    let report = level(MergeMode::Level, 1, 5, 1, 7);
    let refused = Err(MergeRefusal::LeaseEnded(id(1)));
    assert_eq!(take(&mut merged, "x", report.clone()), refused);
    merged.touch(id(1), 5, 100, 100).unwrap();
    assert_eq!(take(&mut merged, "x", report.clone()), Ok(true));
    assert_eq!(take(&mut merged, "x", report.clone()), Ok(false), "repeated");
    merged.end(id(1), 5, 101).unwrap();
    assert_eq!((value(&mut merged), merged.len()), (None, 0));
    assert_eq!(take(&mut merged, "x", report), refused);
    assert_eq!(merged.stats().lease_ended, 2);
    audit(&merged);
}

#[test]
fn a_lease_that_is_touched_again_brings_levels_back() {
    let mut merged = alive();
    let level = level(MergeMode::Level, 1, 5, 1, 7);
    take(&mut merged, "x", level.clone()).unwrap();
    // A run with a total is listed until a leader folds it.
    for producer in 1..=3 {
        take(&mut merged, "total", report(producer, 5, 1, 1)).unwrap();
    }
    merged.sweep(111, 111);
    assert_eq!(value(&mut merged), None);
    assert_eq!(merged.lapsed(111, 0).len(), 3);
    merged.touch(id(1), 5, 100, 112).unwrap();
    assert_eq!(value(&mut merged), None, "an old message");
    merged.touch(id(1), 5, 112, 112).unwrap();
    assert_eq!(merged.lapsed(112, 0).len(), 2);
    assert_eq!(merged.lapsed(112, 5), [], "not for long enough");
    assert_eq!(value(&mut merged), Some(Value::Int(7)));
    assert_eq!(take(&mut merged, "x", level), Ok(false), "repeated");
    audit(&merged);
}

#[test]
fn a_level_of_a_silent_run_is_hidden_until_the_run_is_seen() {
    let mut merged = Merged::new(limits());
    merged.touch(id(1), 5, 50, 100).unwrap();
    for sequence in [1, 2] {
        let report = level(MergeMode::Last, 1, 5, sequence, sequence as i64);
        assert_eq!(take(&mut merged, "x", report), Ok(true));
        assert_eq!(value(&mut merged), None);
    }
    assert_eq!(merged.shares(Key::of(&identity("x"))), []);
    // Another run has another kind. It counts alone, until the first run returns.
    take(&mut merged, "x", report(2, 7, 1, summary(3, 1.0))).unwrap();
    assert_eq!(value(&mut merged), Some(summary(3, 1.0)));
    audit(&merged);
    merged.touch(id(1), 5, 95, 100).unwrap();
    assert_eq!(value(&mut merged), Some(Value::Int(2)));
    audit(&merged);
}

#[test]
fn hidden_levels_go_after_their_term_or_with_the_end_of_the_run() {
    let mut merged = Merged::new(MergedLimits {
        hidden_ns: 50,
        ..limits()
    });
    for producer in [1, 2] {
        merged.touch(id(producer), 5, 100, 100).unwrap();
        take(&mut merged, "x", level(MergeMode::Level, producer, 5, 1, 7)).unwrap();
    }
    merged.sweep(111, 111);
    merged.end(id(2), 5, 120).unwrap();
    merged.sweep(161, 161);
    assert_eq!(
        (merged.places.len(), merged.len(), value(&mut merged)),
        (1, 0, None),
        "it may come back"
    );
    // The clock of the reader may be set back.
    merged.sweep(100, 100);
    merged.sweep(150, 150);
    assert_eq!(merged.places.len(), 1);
    merged.sweep(151, 151);
    assert_eq!(merged.places.len(), 0);
    audit(&merged);
    // A level that comes later has the whole term.
    merged.touch(id(1), 5, 100, 200).unwrap();
    take(&mut merged, "x", level(MergeMode::Level, 1, 5, 2, 8)).unwrap();
    merged.sweep(250, 250);
    merged.touch(id(1), 5, 250, 250).unwrap();
    assert_eq!(value(&mut merged), Some(Value::Int(8)));
    audit(&merged);
}

#[test]
fn a_merge_takes_no_level_of_a_run_whose_lease_has_no_room() {
    let mut merged = Merged::new(MergedLimits {
        max_runs: 1,
        ..limits()
    });
    merged.touch(id(1), 1, 100, 100).unwrap();
    let mut other = Merged::new(limits());
    other.touch(id(1), 2, 100, 100).unwrap();
    take(&mut other, "x", level(MergeMode::Level, 1, 2, 1, 5)).unwrap();
    assert_eq!(merged.merge(&other), Err(MergeRefusal::ProducerRuns(id(1))));
    assert_eq!((value(&mut merged), merged.len()), (None, 0));
    audit(&merged);
}

#[test]
fn a_touch_of_the_future_keeps_a_lease_alive_for_one_term() {
    let mut merged = Merged::new(limits());
    merged.touch(id(1), 5, u64::MAX, 100).unwrap();
    take(&mut merged, "x", level(MergeMode::Level, 1, 5, 1, 7)).unwrap();
    merged.sweep(110, 110);
    assert_eq!(value(&mut merged), Some(Value::Int(7)));
    merged.sweep(111, 111);
    assert_eq!(value(&mut merged), None);
}

#[test]
fn a_clock_that_was_set_back_ends_leases_after_one_term() {
    let mut merged = Merged::new(limits());
    merged.touch(id(1), 5, 1000, 1000).unwrap();
    take(&mut merged, "x", level(MergeMode::Level, 1, 5, 1, 7)).unwrap();
    merged.sweep(100, 100);
    assert_eq!(value(&mut merged), Some(Value::Int(7)));
    merged.sweep(111, 111);
    assert_eq!(value(&mut merged), None);
}

#[test]
fn a_sweep_changes_each_series_once_however_many_runs_ended() {
    let mut merged = Merged::new(limits());
    for (producer, epoch) in (1..=20).flat_map(|producer| [(producer, 5), (producer, 6)]) {
        merged.touch(id(producer), epoch, 100, 100).unwrap();
        for name in ["x", "y"] {
            let report = level(MergeMode::Level, producer, epoch, 1, 7);
            take(&mut merged, name, report).unwrap();
        }
    }
    merged.touch(id(1), 6, 105, 105).unwrap();
    let before = merged.changes;
    merged.sweep(111, 111);
    assert_eq!(merged.changes - before, 2);
    assert_eq!(value(&mut merged), Some(Value::Int(7)));
    audit(&merged);
}

#[test]
fn totals_of_a_producer_stay_when_its_levels_go() {
    let mut merged = alive();
    take(&mut merged, "x", level(MergeMode::Last, 1, 5, 1, 7)).unwrap();
    take(&mut merged, "total", report(1, 5, 1, 3)).unwrap();
    merged.end(id(1), 5, 100).unwrap();
    let all = shown(&mut merged);
    assert_eq!((all.len(), &all["total"].1), (1, &Value::Int(3)));
    audit(&merged);
}

#[test]
fn a_run_may_drop_the_level_of_one_series_and_keep_the_others() {
    let mut merged = alive();
    for name in ["x", "y"] {
        take(&mut merged, name, level(MergeMode::Level, 1, 5, 1, 7)).unwrap();
    }
    take(&mut merged, "x", level(MergeMode::Level, 2, 5, 1, 3)).unwrap();
    let key = Key::of(&identity("x"));
    assert!(merged.drop_level(key, id(1), 5));
    assert!(!merged.drop_level(key, id(1), 5), "repeated");
    assert_eq!(value(&mut merged), Some(Value::Int(3)));
    audit(&merged);
    assert!(merged.drop_level(key, id(2), 5));
    assert_eq!((value(&mut merged), merged.len()), (None, 1));
    audit(&merged);
}

#[test]
fn a_reader_that_is_behind_hides_no_levels_of_runs_that_may_be_alive() {
    let mut merged = alive();
    take(&mut merged, "x", level(MergeMode::Level, 1, 5, 1, 7)).unwrap();
    merged.sweep(200, 110);
    assert_eq!(value(&mut merged), Some(Value::Int(7)));
    // It has read the rest, and there is no message of the run.
    merged.sweep(200, 200);
    assert_eq!(value(&mut merged), None);
}

#[test]
fn hidden_levels_go_when_little_room_is_left() {
    let mut merged = alive();
    take(&mut merged, "x", level(MergeMode::Level, 1, 5, 1, 7)).unwrap();
    merged.sweep(111, 111);
    assert_eq!(merged.places.len(), 1);
    merged.set_max_bytes(merged.bytes());
    merged.sweep(111, 111);
    assert_eq!(merged.places.len(), 0);
    audit(&merged);
}

#[test]
fn a_run_that_returns_changes_only_its_own_series() {
    let mut merged = Merged::new(limits());
    for producer in 1..=20 {
        merged.touch(id(producer), 5, 100, 100).unwrap();
        for name in ["shared".to_owned(), format!("own {producer}")] {
            take(&mut merged, &name, level(MergeMode::Level, producer, 5, 1, 7)).unwrap();
        }
    }
    merged.sweep(111, 111);
    let before = merged.changes;
    merged.touch(id(3), 5, 112, 112).unwrap();
    assert_eq!(merged.changes - before, 2);
    let all = shown(&mut merged);
    assert_eq!((all.len(), &all["shared"].1), (2, &Value::Int(7)));
    audit(&merged);
}
