// SPDX-License-Identifier: Apache-2.0

//! The increase of each point of a stream: in order, out of order, repeated, across restarts.

mod epochs;
mod properties;

use super::*;

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

/// A point: its start, its time and its value.
type Point = (u64, u64, i64);

/// The answers of a new tracker to the points, in order.
fn each<T>(points: &[Point], mut take: impl FnMut(&mut StreamTracker, &PointSample<'_>) -> T) -> Vec<T> {
    let mut tracker = StreamTracker::default();
    let told = points.iter().map(|&(start, time, value)| {
        let value = Value::Int(value);
        let sample = PointSample {
            start,
            time,
            value: &value,
            exemplars: &[],
        };
        take(&mut tracker, &sample)
    });
    told.collect()
}

/// The increase by each point, or its rejection.
fn run(data: Data, points: &[Point]) -> Vec<Result<i64, Rejection>> {
    each(points, |tracker, sample| {
        let change = tracker.advance(data, sample, LATENESS);
        change.map(|change| match change {
            Change::Number(Number::Int(number)) => number,
            other => panic!("{other:?}"),
        })
    })
}

/// The allowed lateness of points in these tests.
const LATENESS: u64 = 1000;

/// 10 min in nanoseconds.
const TEN_MINUTES: u64 = 600_000_000_000;

use Rejection::{Duplicate, Invalid, Late};

#[test]
fn a_counter_adds_increases_and_resets_by_start_time_or_decrease() {
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

#[test]
fn a_sum_without_a_temporality_says_so() {
    let data = Data::Sum {
        monotonic: true,
        temporality: Temporality::Unspecified,
    };
    let refused = run(data, &[(1, 2, 3)]).remove(0).unwrap_err();
    assert_eq!(refused, Rejection::NoTemporality);
    assert!(
        refused.to_string().contains("delta (1) or cumulative (2)"),
        "{refused}"
    );
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
