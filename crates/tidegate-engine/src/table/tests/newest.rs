// SPDX-License-Identifier: Apache-2.0

//! Streams that a table shows as they came, and processes that report one series.

use super::*;

#[test]
fn a_table_of_newest_states_shows_points_as_they_came_and_adds_deltas_up() {
    let table = table(vec![Rule::newest()]);
    let counter = series("c", COUNTER, &[("pod", "a")], &[]);
    let delta = series("d", DELTA, &[], &[]);
    let summary = series("s", Data::Summary, &[], &[]);
    table.observe(&point(&counter, NOW, NOW + 1, 10), NOW);
    table.observe(&point(&counter, NOW + 5, NOW + 6, 2), NOW);
    for at in 0..3 {
        table.observe(&point(&delta, NOW + at, NOW + at + 1, 4), NOW);
    }
    let quantiles = Value::Summary(Box::new(Summary {
        count: 3,
        ..Summary::default()
    }));
    table.observe(&point(&summary, 0, NOW, quantiles.clone()), NOW);
    let all = show(&table);
    assert_eq!(
        (&all["c{}"], &all["d{}"], &all["s{}"]),
        (&Value::Int(2), &Value::Int(12), &quantiles)
    );
    table.read(NOW, &mut |reading| {
        if &*reading.series.metric.name == "d" {
            assert_eq!(reading.series.metric.data, COUNTER);
        }
    });
    // A point without a recorded value ends its series, and the next one begins it again.
    table.observe(&point(&counter, NOW + 5, NOW + 7, Value::NoRecordedValue), NOW);
    assert!(!show(&table).contains_key("c{}"));
    table.observe(&point(&counter, NOW + 5, NOW + 8, 3), NOW);
    assert_eq!(int(&table, "c{}"), 3);
}

#[test]
fn processes_shown_as_one_series_add_up_before_and_after_they_expire() {
    let table = table(vec![Rule::newest()]);
    let requests = series("requests", COUNTER, &[], &[]);
    let shown_after = |words: &[(u64, i64)], from: u64| -> Vec<i64> {
        let words = words.iter().enumerate();
        let levels = words.map(|(at, (start, value))| {
            let now = from + at as u64 * SECOND;
            table.observe(&point(&requests, NOW - start, now, *value), now);
            match show(&table).into_values().next() {
                Some(Value::Int(shown)) => shown,
                other => panic!("{other:?}"),
            }
        });
        levels.collect()
    };
    let words = [(200, 10), (100, 3), (200, 11), (100, 4)];
    assert_eq!(shown_after(&words, NOW), [10, 3, 14, 15]);
    assert_eq!(table.stats().colliding_streams, [1, 0, 0]);
    let later = NOW + 3600 * SECOND;
    table.expire(later);
    assert!(show(&table).is_empty());
    let words = [(200, 12), (100, 5), (200, 13), (100, 6)];
    assert_eq!(shown_after(&words, later), [12, 5, 18, 19]);
}

#[test]
fn deltas_that_may_fall_are_added_up_only_where_a_rule_says_so() {
    let falling = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    let falling = series("falling", falling, &[], &[]);
    let words = [(1, 5), (2, -2)];
    let points = words.map(|(second, value)| point(&falling, NOW, NOW + second * SECOND, value));
    let newest = table(vec![Rule::newest()]);
    for point in &points {
        assert_eq!(newest.observe(point, NOW), Outcome::Unmatched);
    }
    assert!(show(&newest).is_empty());
    let asked = table(vec![Rule::new(Pattern::Glob("*".into()))]);
    for point in &points {
        assert_eq!(asked.observe(point, NOW), Outcome::Absorbed);
    }
    assert_eq!(int(&asked, "falling{}"), 3);
}

#[test]
fn processes_of_one_start_time_count_as_colliding_and_restarts_do_not() {
    for start in [0, NOW - SECOND] {
        let table = table(vec![Rule::newest()]);
        let requests = series("requests", COUNTER, &[], &[]);
        let mut now = NOW;
        let mut say = |value: i64| {
            now += SECOND;
            table.observe(&point(&requests, start, now, value), now);
            assert_eq!(int(&table, "requests{}"), value);
            table.stats().colliding_streams
        };
        for _ in 0..5 {
            let said = (1..30).map(&mut say);
            assert_eq!(said.last(), Some([0; 3]), "a process that restarts");
        }
        for turn in 0..10 {
            say(100 + turn);
            say(200 + turn);
        }
        assert_eq!(say(300), [0, 1, 0]);
    }
}

#[test]
fn series_without_a_sign_of_life_go_whether_or_not_anyone_reads() {
    let table = table(vec![Rule::newest()]);
    let (a, b) = (
        series("a", Data::Gauge, &[], &[]),
        series("b", Data::Gauge, &[], &[]),
    );
    table.observe(&point(&a, 0, NOW, 1), NOW);
    table.observe(&point(&b, 0, NOW, 1), NOW);
    table.observe(&point(&b, 0, NOW + 1, 2), NOW + 290 * SECOND);
    let version = table.version();
    table.expire(NOW + 310 * SECOND);
    assert_eq!(show(&table).keys().collect::<Vec<_>>(), ["b{}"]);
    assert!(table.version() > version);
    table.expire(NOW + 3000 * SECOND);
    assert_eq!(
        (table.len(), table.stats().streams, table.stats().expired_series),
        (0, 0, 2)
    );
}

#[test]
fn a_start_that_moves_back_in_a_snapshot_adds_the_increase_only() {
    let hits = series("hits", COUNTER, &[], &[("pod", "a")]);
    for (is_snapshot, expected) in [(true, 12), (false, 17)] {
        let table = table(vec![by("hits", &[])]);
        for (step, age, value) in [(0, 300, 5), (1, 500, 9), (2, 500, 12)] {
            let now = NOW + step * SECOND;
            let mut session = table.session(now).of_snapshot(is_snapshot);
            let outcome = session.observe(&point(&hits, NOW - age * SECOND, now, value));
            assert_eq!(outcome, Outcome::Absorbed);
        }
        let mut shown = Vec::new();
        table.read(NOW, &mut |reading| shown.push(reading.value.clone()));
        assert_eq!(shown, [Value::Int(expected)], "snapshot: {is_snapshot}");
    }
}
