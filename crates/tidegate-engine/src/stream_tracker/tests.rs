// SPDX-License-Identifier: Apache-2.0

//! The increase of each point of a stream: in order, out of order, repeated, across restarts.

use proptest::prelude::*;

use super::*;
use crate::{ExponentialHistogram, Histogram, Summary};

const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};
const UP_DOWN: Data = Data::Sum {
    monotonic: false,
    temporality: Temporality::Cumulative,
};
const DELTA: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Delta,
};

/// The increase by each point (start, time, value), or its rejection.
fn run(data: Data, points: &[(u64, u64, i64)]) -> Vec<Result<i64, Rejection>> {
    let mut tracker = StreamTracker::default();
    let mut added = Vec::new();
    for (start, time, value) in points {
        let value = Value::Int(*value);
        let sample = PointSample {
            start: *start,
            time: *time,
            value: &value,
            exemplars: &[],
        };
        added.push(match tracker.advance(data, &sample, LATENESS) {
            Ok(Change::Number(Number::Int(number))) => Ok(number),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection),
        });
    }
    added
}

/// The allowed lateness of points in these tests.
const LATENESS: u64 = 1000;

use Rejection::{Duplicate, Invalid, Late};

#[test]
fn a_counter_adds_its_increases_and_begins_anew_by_start_time_or_decrease() {
    let points = [
        (5, 10, 100),
        (5, 20, 130),
        (25, 30, 140),
        (0, 40, 141),
        (0, 50, 3),
    ];
    assert_eq!(run(COUNTER, &points), [Ok(100), Ok(30), Ok(140), Ok(1), Ok(3)]);
}

#[test]
fn a_restart_after_a_clock_step_back_counts_and_ends_the_old_epoch() {
    let points = [(5, 100, 10), (50, 60, 4), (5, 55, 11), (50, 61, 5)];
    assert_eq!(run(COUNTER, &points), [Ok(10), Ok(4), Err(Late), Ok(1)]);
    // The epoch before the first that was heard of, and one of a clock that was set back.
    let points = [(50, 60, 4), (5, 30, 10), (5, 20, 7), (5, 40, 11), (50, 70, 5)];
    assert_eq!(
        run(COUNTER, &points),
        [Ok(4), Ok(10), Err(Duplicate), Ok(1), Ok(1)]
    );
}

#[test]
fn late_points_of_an_old_epoch_count_and_a_clock_step_back_is_a_new_one() {
    let points = [(5, 10, 100), (25, 30, 7), (5, 20, 130), (5, 15, 120), (25, 40, 9)];
    assert_eq!(
        run(COUNTER, &points),
        [Ok(100), Ok(7), Ok(30), Err(Duplicate), Ok(2)]
    );
    // Two epochs that live at the same time and differ only in their start.
    let points = [(5, 10, 1), (25, 30, 10), (5, 31, 2), (25, 32, 20), (5, 33, 3)];
    assert_eq!(run(COUNTER, &points), [Ok(1), Ok(10), Ok(1), Ok(10), Ok(1)]);
    let points = [(500, 600, 10), (400, 650, 4), (400, 660, 5)];
    assert_eq!(run(COUNTER, &points), [Ok(10), Ok(4), Ok(1)]);
    let long_after = [(5, 10, 100), (5000, 5001, 7), (5, 20, 130)];
    assert_eq!(run(COUNTER, &long_after), [Ok(100), Ok(7), Ok(30)]);
}

#[test]
fn deltas_out_of_order_fill_the_gaps_they_left_once() {
    let points = [
        (10, 20, 1),
        (40, 50, 2),
        (20, 30, 4),
        (30, 40, 8),
        (20, 30, 4),
        (5, 10, 16),
        (5, 10, 16),
    ];
    let added = [Ok(1), Ok(2), Ok(4), Ok(8), Err(Late), Ok(16), Err(Late)];
    assert_eq!(run(DELTA, &points), added);
    let too_late = [(10, 20, 1), (4500, 5000, 2), (20, 30, 4), (4200, 4400, 8)];
    assert_eq!(run(DELTA, &too_late), [Ok(1), Ok(2), Err(Late), Ok(8)]);
}

#[test]
fn a_folded_stream_adds_only_what_it_counts_from_now_on_or_in_a_new_epoch() {
    let mut tracker = StreamTracker::folded(5, 100);
    let mut add = |start, time, value| {
        let value = Value::Int(value);
        let sample = PointSample {
            start,
            time,
            value: &value,
            exemplars: &[],
        };
        tracker
            .advance(COUNTER, &sample, LATENESS)
            .ok()
            .map(|change| match change {
                Change::Number(number) => number.as_f64() as i64,
                other => panic!("{other:?}"),
            })
    };
    assert_eq!(
        (add(5, 90, 7), add(5, 110, 9), add(5, 120, 10)),
        (None, Some(0), Some(1))
    );
    let mut again = StreamTracker::folded(5, 100);
    let sample = |value| PointSample {
        start: 50,
        time: 110,
        value,
        exemplars: &[],
    };
    let change = again.advance(COUNTER, &sample(&Value::Int(3)), LATENESS);
    assert!(matches!(change, Ok(Change::Number(Number::Int(3)))));
}

#[test]
fn repeated_points_add_nothing_and_contradicting_ones_are_late() {
    let points = [(5, 10, 100), (5, 10, 100), (5, 10, 101), (5, 9, 90)];
    assert_eq!(
        run(COUNTER, &points),
        [Ok(100), Err(Duplicate), Err(Late), Err(Duplicate)]
    );
    let points = [(5, 10, 7), (5, 10, 7), (10, 20, 7), (5, 10, 7)];
    assert_eq!(run(DELTA, &points), [Ok(7), Err(Duplicate), Ok(7), Err(Late)]);
}

#[test]
fn a_sum_that_may_fall_adds_differences_and_takes_back_all_when_it_leaves() {
    assert_eq!(
        run(UP_DOWN, &[(5, 10, 8), (5, 20, 3), (25, 30, 1)]),
        [Ok(8), Ok(-5), Ok(-2)]
    );
    let mut tracker = StreamTracker::default();
    let data = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    for (time, value) in [(1, 5), (2, -2)] {
        let value = Value::Int(value);
        let sample = PointSample {
            start: 0,
            time,
            value: &value,
            exemplars: &[],
        };
        tracker.advance(data, &sample, LATENESS).unwrap();
    }
    assert_eq!(tracker.withdraw(), Some(Number::Int(3)));
    assert_eq!(tracker.withdraw(), None);
}

#[test]
fn values_that_a_counter_can_not_have_are_invalid() {
    assert_eq!(run(COUNTER, &[(5, 10, -1)]), [Err(Invalid)]);
    assert_eq!(run(DELTA, &[(5, 10, -1)]), [Err(Invalid)]);
}

/// 10 min in nanoseconds.
const TEN_MINUTES: u64 = 600_000_000_000;

#[test]
fn three_counters_in_turns_add_up_to_what_they_counted() {
    let turns = (1..=10).flat_map(|n| [(1, n), (2, n), (3, n)]);
    let points = turns
        .enumerate()
        .map(|(at, (start, n))| (start, 100 + at as u64, n));
    let added = run(COUNTER, &points.collect::<Vec<_>>());
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
    let mut points: Vec<(u64, u64, i64)> = (1..5000).map(|start| (start, 10_000, 1)).collect();
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

/// The collisions that the points (start, time, value) of a counter tell of.
fn collisions(points: &[(u64, u64, i64)]) -> Vec<Collision> {
    let mut tracker = StreamTracker::default();
    let mut told = Vec::new();
    for (start, time, value) in points {
        let value = Value::Int(*value);
        let sample = PointSample {
            start: *start,
            time: *time,
            value: &value,
            exemplars: &[],
        };
        if tracker.next_total(COUNTER, &sample).is_none() {
            let _ = tracker.advance(COUNTER, &sample, LATENESS);
        }
        told.extend(tracker.take_collision());
    }
    told
}

#[test]
fn collisions_are_told_once_and_restarts_are_none() {
    let in_turns = |starts: [u64; 2]| -> Vec<(u64, u64, i64)> {
        let samples = (1..20).flat_map(|n: i64| [(starts[0], n), (starts[1], n + 100)]);
        let timed = samples.enumerate();
        timed
            .map(|(at, (start, n))| (start, 100 + at as u64, n))
            .collect()
    };
    assert_eq!(collisions(&in_turns([5, 6])), [Collision::Interleaved]);
    assert_eq!(collisions(&in_turns([0, 0])), [Collision::Indistinct]);
    assert_eq!(collisions(&in_turns([6, 6])), [Collision::Indistinct]);
    // Restarts, one with a late sample of the epoch before and one of a clock that was set back.
    let restarts = [
        (5, 10, 100),
        (25, 30, 7),
        (5, 20, 130),
        (25, 40, 9),
        (20, 50, 1),
        (20, 60, 2),
    ];
    assert_eq!(collisions(&restarts), []);
    let without_start: Vec<_> = (0..1000).map(|at| (0, 1 + at, (at % 100) as i64)).collect();
    assert_eq!(collisions(&without_start), []);
}

const HISTOGRAM: Data = Data::Histogram {
    temporality: Temporality::Cumulative,
};
const EXPONENTIAL: Data = Data::ExponentialHistogram {
    temporality: Temporality::Cumulative,
};

/// A running total of `n` observations.
fn total(data: Data, n: u64) -> Value {
    match data {
        Data::Histogram { .. } => Value::Histogram(Box::new(Histogram {
            count: n,
            sum: Some(n as f64),
            min: None,
            max: None,
            bounds: [1.0].into(),
            counts: vec![n / 2, n - n / 2],
        })),
        Data::ExponentialHistogram { .. } => Value::ExponentialHistogram(Box::new(ExponentialHistogram {
            count: n,
            sum: Some(n as f64),
            positive: crate::Buckets {
                offset: 0,
                counts: vec![n],
            },
            ..ExponentialHistogram::default()
        })),
        Data::Summary => Value::Summary(Box::new(Summary {
            count: n,
            sum: n as f64,
            quantiles: Vec::new(),
        })),
        _ => Value::Double(n as f64),
    }
}

/// The amount that a change adds.
fn gained(change: &Change<'_>) -> u64 {
    match change {
        Change::Number(number) => number.as_f64() as u64,
        Change::Histogram(increase) => increase.counts.iter().sum(),
        Change::Exponential(increase) => increase.positive.counts.iter().sum(),
        Change::Summary(moments) => moments.count,
        Change::End => 0,
    }
}

/// The values of a state that shows points unchanged, after each point (start, time, value) of a counter.
fn shown(points: &[(u64, u64, i64)]) -> Vec<i64> {
    let mut tracker = StreamTracker::default();
    let (mut level, mut levels) = (0, Vec::new());
    for (start, time, value) in points {
        let value = Value::Int(*value);
        let sample = PointSample {
            start: *start,
            time: *time,
            value: &value,
            exemplars: &[],
        };
        let mut last = || Some(LastValue::Number(Number::Int(level)));
        match tracker.follow(COUNTER, &sample, LATENESS, &mut last) {
            Ok(Followed::AsItIs) => level = value.number().map_or(0, |number| number.as_f64() as i64),
            Ok(Followed::Adds(Change::Number(number))) => level += number.as_f64() as i64,
            Ok(other) => panic!("{other:?}"),
            Err(_) => {}
        }
        levels.push(level);
    }
    levels
}

#[test]
fn a_series_shown_as_it_is_restarts_and_adds_up_concurrent_epochs() {
    // A restart, a late sample of the epoch before, and a clock that was set back.
    let restarts = [
        (5, 10, 100),
        (25, 30, 7),
        (5, 20, 130),
        (25, 40, 9),
        (20, 50, 1),
        (20, 60, 2),
    ];
    assert_eq!(shown(&restarts), [100, 7, 7, 9, 1, 2]);
    // Three processes: from the moment that two are seen alive nothing falls any more.
    let turns = (1..=10).flat_map(|n| [(1, n), (2, n), (3, n)]);
    let points: Vec<_> = turns
        .enumerate()
        .map(|(at, (start, n))| (start, 100 + at as u64, n))
        .collect();
    let levels = shown(&points);
    assert_eq!(levels[..7], [1, 1, 1, 3, 5, 6, 7]);
    assert_eq!(levels.last(), Some(&30));
}

proptest! {
    /// Processes that report as one series, in any order, with repetitions and samples that come late,
    /// across saved state: the total is the sum of what each said last.
    #[test]
    fn epochs_that_interleave_in_any_order_add_up(
        data in prop::sample::select(vec![COUNTER, HISTOGRAM, EXPONENTIAL, Data::Summary]),
        samples in prop::collection::vec((1u64..9, 1u64..200), 1..120),
        saved_at in 0usize..120,
    ) {
        let mut tracker = StreamTracker::default();
        let (mut sum, mut model) = (0, std::collections::HashMap::new());
        for (at, (start, time)) in samples.into_iter().enumerate() {
            // The count of an epoch grows with time, each at a pace of its own.
            let n = time * start;
            let value = total(data, n);
            let sample = PointSample { start, time: TEN_MINUTES + time, value: &value, exemplars: &[] };
            if at == saved_at {
                let mut bytes = Vec::new();
                tracker.save(&mut bytes);
                let mut from = &bytes[..];
                tracker = StreamTracker::load(tracker.start, tracker.time, &mut from).expect("it is ours");
                prop_assert!(from.is_empty());
            }
            match tracker.advance(data, &sample, LATENESS) {
                Ok(change) => sum += gained(&change),
                Err(rejection) => prop_assert_eq!(rejection, Duplicate),
            }
            let known = model.entry(start).or_insert(0);
            *known = n.max(*known);
            prop_assert_eq!(sum, model.values().sum::<u64>());
        }
    }

    /// Whatever came before, where the short way says something it says what the long one does, and leaves the same.
    #[test]
    fn the_short_way_of_a_running_total_is_the_long_one(
        data in prop::sample::select(vec![COUNTER, UP_DOWN, DELTA, Data::Gauge]),
        points in prop::collection::vec((0u64..4, 0u64..30, -3i64..30), 1..40),
    ) {
        let mut tracker = StreamTracker::default();
        for (start, time, value) in points {
            let value = if value == 7 { Value::Double(7.5) } else { Value::Int(value) };
            let sample = PointSample { start, time: 1 + time, value: &value, exemplars: &[] };
            let mut short = tracker.clone();
            let by_short = short.next_total(data, &sample);
            let by_long = tracker.advance(data, &sample, LATENESS);
            if let Some(increase) = by_short {
                prop_assert!(matches!(by_long, Ok(Change::Number(number)) if number.same(increase)), "{by_long:?}");
                prop_assert_eq!(format!("{short:?}"), format!("{tracker:?}"));
            }
        }
    }
}

#[test]
fn what_is_kept_of_a_late_point_goes_when_the_stream_goes_on() {
    let mut tracker = StreamTracker::default();
    let sample = |time, value| PointSample {
        start: 5,
        time,
        value,
        exemplars: &[],
    };
    let [one, two, three] = [Value::Int(1), Value::Int(2), Value::Int(3)];
    tracker.advance(COUNTER, &sample(10, &one), LATENESS).unwrap();
    tracker.advance(COUNTER, &sample(20, &two), LATENESS).unwrap();
    assert!(tracker.out_of_order.is_none());
    tracker.note_anomaly(COUNTER, &sample(15, &one), 21, None);
    assert!(tracker.out_of_order.is_some());
    tracker.advance(COUNTER, &sample(30, &three), LATENESS).unwrap();
    assert!(tracker.out_of_order.is_none());
    // The total of a sum that fell is not forgotten.
    tracker.advance(COUNTER, &sample(40, &one), LATENESS).unwrap();
    tracker.advance(COUNTER, &sample(50, &two), LATENESS).unwrap();
    assert!(tracker.out_of_order.is_some());
}
