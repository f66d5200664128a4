// SPDX-License-Identifier: Apache-2.0

//! A table with other limits that takes over the state of tables that show points as they came.

use proptest::prelude::*;

use super::*;
use crate::table::Restored;

const HISTOGRAM: Data = Data::Histogram {
    temporality: Temporality::Cumulative,
};

const KINDS: [(&str, Data); 4] = [("c", COUNTER), ("d", DELTA), ("u", UP_DOWN), ("h", HISTOGRAM)];

fn limited(series: usize, series_per_metric: usize) -> Arc<Table> {
    let limits = Limits {
        series,
        series_per_metric,
        ..Limits::default()
    };
    Arc::new(Table::new("test", vec![Rule::newest()], limits))
}

/// A table with these limits that replaces `olds`, the newest first.
fn replacing(olds: &[Arc<Table>], series: usize, series_per_metric: usize) -> (Arc<Table>, Restored) {
    let new = limited(series, series_per_metric);
    let tables: Vec<&Table> = olds.iter().map(|old| &**old).collect();
    let restored = new.succeed(&tables);
    (new, restored)
}

fn report(table: &Table, (name, data): (&str, Data), user: usize, time: u64, total: i64) -> Outcome {
    let series = series(name, data, &[("pod", "a")], &[("user", &user.to_string())]);
    let start = if data == DELTA { time - 1 } else { NOW };
    let value = match data {
        Data::Histogram { .. } => Value::Histogram(Box::new(Histogram {
            count: total as u64,
            sum: Some(total as f64),
            min: None,
            max: None,
            bounds: Arc::from([5.0]),
            counts: vec![total as u64, 0],
        })),
        _ => Value::Int(total),
    };
    table.observe(&point(&series, start, time, value), time)
}

/// By metric: the number of series that are not for overflow, and the sum of all.
fn sums(table: &Table) -> BTreeMap<String, (usize, i64)> {
    let mut all: BTreeMap<String, (usize, i64)> = BTreeMap::new();
    table.read(NOW, &mut |reading| {
        let is_overflow = reading.series.attributes.get("otel.metric.overflow").is_some();
        let amount = match reading.value {
            Value::Int(number) => *number,
            Value::Histogram(histogram) => histogram.count as i64,
            other => panic!("{other:?}"),
        };
        let (count, sum) = all.entry(reading.series.metric.name.to_string()).or_default();
        *count += usize::from(!is_overflow);
        *sum += amount;
    });
    all
}

const OVERFLOW: &str = "{otel.metric.overflow=Bool(true)}";

#[test]
fn the_end_of_a_stream_in_overflow_leaves_the_counts_of_others() {
    let table = limited(5000, 1);
    for user in 0..3 {
        report(&table, ("c", COUNTER), user, NOW + 1, 10);
    }
    assert_eq!(sums(&table)["c"], (1, 30));
    let ended = series("c", COUNTER, &[("pod", "a")], &[("user", "2")]);
    table.observe(&point(&ended, NOW, NOW + 2, Value::NoRecordedValue), NOW + 2);
    assert_eq!(sums(&table)["c"], (1, 30));
    report(&table, ("c", COUNTER), 1, NOW + 3, 15);
    assert_eq!(sums(&table)["c"], (1, 35));
}

/// Four streams count 10 each, the last two in the overflow series. Then only the last one reports. So the series of the first
/// two expire, and leave their room.
fn silence_all_but_one(table: &Table, kind: (&str, Data)) {
    for user in 0..4 {
        report(table, kind, user, NOW + 1, 10);
    }
    assert_eq!(sums(table)[kind.0], (2, 40));
    for second in [200, 400] {
        let now = NOW + second * SECOND;
        report(table, kind, 3, now, 10);
        table.expire(now);
    }
    assert_eq!(sums(table)[kind.0], (0, 20));
    assert_eq!(table.stats().streams, 2, "the third one is remembered");
}

#[test]
fn a_counter_that_returns_to_a_table_with_room_stays_in_overflow() {
    for kind in [KINDS[0], KINDS[3]] {
        for reloads in [false, true] {
            let mut table = limited(5000, 2);
            silence_all_but_one(&table, kind);
            if reloads {
                table = replacing(&[table], 5000, 2).0;
            }
            let now = NOW + 401 * SECOND;
            report(&table, kind, 2, now, 15);
            assert_eq!(sums(&table)[kind.0], (0, 25), "{kind:?}, reload: {reloads}");
            report(&table, kind, 9, now, 5);
            assert_eq!(sums(&table)[kind.0], (1, 30), "a new one has room");
        }
    }
}

/// A failed scrape ends all series of its target so.
#[test]
fn streams_that_end_and_return_go_back_to_their_series() {
    let table = limited(5000, 2);
    for user in 0..4 {
        report(&table, ("c", COUNTER), user, NOW + 1, 10);
    }
    for user in 0..4 {
        let ended = series("c", COUNTER, &[("pod", "a")], &[("user", &user.to_string())]);
        table.observe(&point(&ended, NOW, NOW + 2, Value::NoRecordedValue), NOW + 2);
    }
    assert_eq!(sums(&table)["c"], (0, 20), "the counts in overflow stay");
    for user in [2, 3, 0, 1] {
        report(&table, ("c", COUNTER), user, NOW + 3, 11);
    }
    assert_eq!(
        sums(&table)["c"],
        (1, 44),
        "the overflow series counts as one of two"
    );
}

#[test]
fn a_forgotten_counter_that_returns_stays_in_overflow() {
    for reloads in [false, true] {
        // So few streams are allowed that one is forgotten after four expiry times, or 20 minutes.
        let limits = Limits {
            series_per_metric: 2,
            streams: 16,
            ..Limits::default()
        };
        let mut table = Arc::new(Table::new("test", vec![Rule::newest()], limits));
        silence_all_but_one(&table, ("c", COUNTER));
        for second in (600..=2000).step_by(200) {
            let now = NOW + second * SECOND;
            report(&table, ("c", COUNTER), 3, now, 10);
            table.expire(now);
        }
        assert_eq!(table.stats().streams, 1, "the third one is forgotten");
        if reloads {
            let new = Arc::new(Table::new("test", vec![Rule::newest()], limits));
            new.succeed(&[&*table]);
            table = new;
        }
        // The first value is the baseline.
        for (second, total, expected) in [(2001, 15, 20), (2002, 16, 21)] {
            report(&table, ("c", COUNTER), 2, NOW + second * SECOND, total);
            assert_eq!(sums(&table)["c"], (0, expected), "reload: {reloads}");
        }
    }
}

#[test]
fn a_counter_gets_its_own_series_if_the_overflow_series_has_gone() {
    let table = limited(5000, 2);
    silence_all_but_one(&table, ("c", COUNTER));
    table.expire(NOW + 1000 * SECOND);
    assert!(!sums(&table).contains_key("c"));
    report(&table, ("c", COUNTER), 2, NOW + 1001 * SECOND, 15);
    assert_eq!(sums(&table)["c"], (1, 15));
}

#[test]
fn a_stream_that_has_left_is_no_source_of_its_overflow_series() {
    let table = limited(5000, 2);
    silence_all_but_one(&table, ("c", COUNTER));
    let mut overflow = None;
    table.read(NOW, &mut |reading| overflow = Some(reading.series.clone()));
    let explained = table.explain(&overflow.unwrap(), NOW + 400 * SECOND, 10).unwrap();
    assert_eq!((explained.sources_total, explained.sources[0].streams), (1, 1));
}

#[test]
fn series_beyond_a_lower_limit_go_to_overflow_and_room_is_left_for_others() {
    let old = limited(5000, usize::MAX);
    for user in 0..2500 {
        report(&old, ("m2", COUNTER), user, NOW + 1, 10);
    }
    let (new, restored) = replacing(std::slice::from_ref(&old), 1, usize::MAX);
    let Restored {
        series,
        overflowed,
        outdated,
        ..
    } = restored;
    assert_eq!((series, overflowed, outdated), (1, 2499, 0));
    assert_eq!(sums(&new)["m2"], (1, 25_000));
    for user in 0..2500 {
        assert_eq!(
            report(&new, ("m2", COUNTER), user, NOW + 2, 11),
            Outcome::Absorbed
        );
    }
    assert_eq!(sums(&new)["m2"], (1, 27_500));
    assert_eq!(report(&new, ("d", DELTA), 0, NOW + 2, 7), Outcome::Absorbed);
    assert_eq!(int(&new, &format!("d{OVERFLOW}")), 7);
    assert_eq!(new.stats().overflowed_streams[Overflow::Series as usize], 2500);
}

#[test]
fn a_counter_in_overflow_stays_there_after_the_limit_rises() {
    let old = limited(100, 2);
    for value in [10, 12] {
        for user in 0..3 {
            report(&old, ("c", COUNTER), user, NOW + value as u64, value);
        }
    }
    let (new, _) = replacing(std::slice::from_ref(&old), 100, 10);
    for user in 0..3 {
        report(&new, ("c", COUNTER), user, NOW + 13, 13);
    }
    assert_eq!(int(&new, &format!("c{OVERFLOW}")), 13);
    assert_eq!(sums(&new)["c"], (2, 39));
    // A new one has room.
    report(&new, ("c", COUNTER), 3, NOW + 14, 5);
    assert_eq!(int(&new, "c{user=3}"), 5);
}

#[test]
fn a_return_to_a_higher_limit_counts_nothing_twice() {
    let first = limited(100, 100);
    for user in 0..3 {
        report(&first, ("c", COUNTER), user, NOW + 1, 10);
    }
    let (second, _) = replacing(std::slice::from_ref(&first), 100, 2);
    assert_eq!(sums(&second)["c"], (2, 30));
    let (third, _) = replacing(&[second, first], 100, 100);
    assert_eq!(sums(&third)["c"], (2, 30));
    for user in 0..3 {
        report(&third, ("c", COUNTER), user, NOW + 2, 11);
    }
    assert_eq!(sums(&third)["c"], (2, 33));
}

#[derive(Clone, Debug)]
enum Step {
    /// A stream counts this much more and reports: kind of metric, user, amount.
    Report(usize, usize, i64),
    /// A reload changes the limits: all series, those of one metric.
    Reload(usize, usize),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..KINDS.len(), 0..5usize, 0..50i64).prop_map(|(kind, user, more)| Step::Report(kind, user, more)),
        1 => (1..20usize, 1..6usize).prop_map(|(series, of_metric)| Step::Reload(series, of_metric)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn totals_stay_right_and_limits_hold_over_any_reloads(steps in prop::collection::vec(step(), 1..100)) {
        let mut limits = (6, 2);
        // The newest is first.
        let mut tables = vec![limited(limits.0, limits.1)];
        let mut totals = [[0i64; 5]; KINDS.len()];
        let mut now = NOW;
        for step in steps {
            now += SECOND;
            match step {
                Step::Reload(series, of_metric) => {
                    limits = (series, of_metric);
                    let (new, restored) = replacing(&tables, series, of_metric);
                    prop_assert_eq!(restored.outdated, 0);
                    tables.insert(0, new);
                }
                Step::Report(kind, user, more) => {
                    let data = KINDS[kind].1;
                    let total = &mut totals[kind][user];
                    *total = if data == UP_DOWN { more - 20 } else { *total + more };
                    let sent = if data == DELTA { more } else { *total };
                    let outcome = report(&tables[0], KINDS[kind], user, now, sent);
                    prop_assert_eq!(outcome, Outcome::Absorbed);
                }
            }
            let shown = sums(&tables[0]);
            let all: usize = shown.values().map(|(count, _)| count).sum();
            prop_assert!(all <= limits.0, "{:?}", shown);
            for ((name, _), users) in KINDS.into_iter().zip(&totals) {
                let (count, sum) = shown.get(name).copied().unwrap_or_default();
                prop_assert!(count <= limits.1, "{}: {:?}", name, shown);
                prop_assert_eq!(sum, users.iter().sum::<i64>(), "{}", name);
            }
        }
    }
}
