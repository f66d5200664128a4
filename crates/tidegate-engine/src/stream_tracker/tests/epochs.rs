// SPDX-License-Identifier: Apache-2.0

//! Concurrent epochs of one stream: their total, their collisions, and their end.

use super::*;

/// Restarts, one with a late sample of the epoch before and one of a clock that was set back.
const RESTARTS: [Point; 6] = [
    (5, 10, 100),
    (25, 30, 7),
    (5, 20, 130),
    (25, 40, 9),
    (20, 50, 1),
    (20, 60, 2),
];

/// Points of these starts and values, one after the other.
fn timed(samples: impl Iterator<Item = (u64, i64)>) -> Vec<Point> {
    let timed = samples.zip(100_u64..);
    timed.map(|((start, value), time)| (start, time, value)).collect()
}

/// Three counters in turns; each counts to 10.
fn three_in_turns() -> Vec<Point> {
    timed((1..=10).flat_map(|n| [(1, n), (2, n), (3, n)]))
}

#[test]
fn three_counters_in_turns_add_up_to_what_they_counted() {
    let added = run(COUNTER, &three_in_turns());
    assert_eq!(added.into_iter().sum::<Result<i64, _>>(), Ok(30));
}

#[test]
fn an_older_epoch_counts_at_any_time_and_later_adds_only_its_increase() {
    // The newer one was heard first, and the older one had its last sample long before.
    let points = [
        (TEN_MINUTES, 2 * TEN_MINUTES, 30),
        (5, 10, 100),
        (5, 20, 120),
        (TEN_MINUTES, 2 * TEN_MINUTES + 1, 31),
    ];
    assert_eq!(run(COUNTER, &points), [Ok(30), Ok(100), Ok(20), Ok(1)]);
    let silent = [(5, 10, 100), (20, 30, 7), (5, TEN_MINUTES, 120)];
    assert_eq!(run(COUNTER, &silent), [Ok(100), Ok(7), Ok(20)]);
}

#[test]
fn an_epoch_that_may_be_forgotten_adds_only_its_increase_from_now_on() {
    const DAY: u64 = 144 * TEN_MINUTES;
    let mut points = vec![(5, 10, 100), (DAY, DAY + 1, 7), (2 * DAY, 2 * DAY + 1, 3)];
    // Both are forgotten by now: the second because a third began.
    points.extend([(5, 2 * DAY + 2, 130), (5, 2 * DAY + 3, 131), (DAY, 2 * DAY, 8)]);
    let added = run(COUNTER, &points);
    assert_eq!(added, [Ok(100), Ok(7), Ok(3), Ok(0), Ok(1), Err(Late)]);
}

#[test]
fn more_epochs_than_are_kept_are_refused_while_all_are_alive() {
    let mut points: Vec<Point> = (1..5000).map(|start| (start, 10_000, 1)).collect();
    points.push((5000, 20_000, 1));
    let added = run(COUNTER, &points);
    let taken = added.iter().filter(|added| added.is_ok()).count();
    assert_eq!((taken, added[4998]), (4098, Err(Rejection::Limit)));
    assert_eq!(added[4999], Ok(1), "those that are silent make room");
}

#[test]
fn levels_of_concurrent_epochs_add_up_until_they_fall_silent() {
    const S: u64 = 1_000_000_000;
    let points = [
        (S, 10 * S, 5),
        // A successor takes the place of the one before.
        (11 * S, 12 * S, 3),
        // Both are alive.
        (S, 20 * S, 6),
        (11 * S, 22 * S, 4),
        (S, 30 * S, 5),
        (11 * S, 32 * S, 4),
        // The first is gone after 2.5 of its intervals.
        (11 * S, 42 * S, 4),
        (11 * S, 62 * S, 2),
    ];
    let added = run(UP_DOWN, &points);
    let levels: Vec<i64> = added
        .iter()
        .scan(0, |level, change| {
            *level += change.as_ref().ok()?;
            Some(*level)
        })
        .collect();
    assert_eq!(levels, [5, 3, 9, 10, 9, 9, 9, 2]);
}

/// The collisions that the points of a counter tell of.
fn collisions(points: &[Point]) -> Vec<Collision> {
    let told = each(points, |tracker, sample| {
        if tracker.next_total(COUNTER, sample).is_none() {
            let _ = tracker.advance(COUNTER, sample, LATENESS);
        }
        tracker.take_collision()
    });
    told.into_iter().flatten().collect()
}

#[test]
fn collisions_are_told_once_and_restarts_are_none() {
    let in_turns = |one, other| timed((1..20).flat_map(|n: i64| [(one, n), (other, n + 100)]));
    assert_eq!(collisions(&in_turns(5, 6)), [Collision::Interleaved]);
    assert_eq!(collisions(&in_turns(0, 0)), [Collision::Indistinct]);
    assert_eq!(collisions(&in_turns(6, 6)), [Collision::Indistinct]);
    assert_eq!(collisions(&RESTARTS), []);
    let without_start: Vec<_> = (0..1000).map(|at| (0, 1 + at, (at % 100) as i64)).collect();
    assert_eq!(collisions(&without_start), []);
}

/// The values of a state that shows points unchanged, after each point of a counter.
fn shown(points: &[Point]) -> Vec<i64> {
    let mut level = 0;
    each(points, |tracker, sample| {
        let mut last = || Some(LastValue::Number(Number::Int(level)));
        match tracker.follow(COUNTER, sample, LATENESS, &mut last) {
            Ok(Followed::AsItIs) => level = sample.value.number().map_or(0, |number| number.as_f64() as i64),
            Ok(Followed::Adds(Change::Number(number))) => level += number.as_f64() as i64,
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
        level
    })
}

#[test]
fn a_series_shown_as_it_is_restarts_and_adds_up_concurrent_epochs() {
    assert_eq!(shown(&RESTARTS), [100, 7, 7, 9, 1, 2]);
    // Three processes: from the moment that two are seen alive nothing falls any more.
    let levels = shown(&three_in_turns());
    assert_eq!(levels[..7], [1, 1, 1, 3, 5, 6, 7]);
    assert_eq!(levels.last(), Some(&30));
}
