//! What each point of a stream adds: in order, out of order, repeated, across restarts.

use proptest::prelude::*;

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

/// What each point (start, time, value) adds, or why it does not.
fn run(data: Data, points: &[(u64, u64, i64)]) -> Vec<Result<i64, Rejection>> {
    let mut progress = Progress::default();
    let mut added = Vec::new();
    for (start, time, value) in points {
        let value = Value::Int(*value);
        let sample = Sample {
            start: *start,
            time: *time,
            value: &value,
            exemplars: &[],
        };
        added.push(match progress.advance(data, &sample, LATENESS) {
            Ok(Change::Number(Number::Int(number))) => Ok(number),
            Ok(other) => panic!("{other:?}"),
            Err(rejection) => Err(rejection),
        });
    }
    added
}

/// How late points may come in these tests.
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
fn a_restart_counts_even_when_the_clock_was_set_back_and_the_old_run_no_longer_does() {
    let points = [(5, 100, 10), (50, 60, 4), (5, 55, 11), (50, 61, 5)];
    assert_eq!(run(COUNTER, &points), [Ok(10), Ok(4), Err(Late), Ok(1)]);
    // The run before the first that was heard of, and one of a clock that was set back.
    let points = [(50, 60, 4), (5, 30, 10), (5, 20, 7), (5, 40, 11), (50, 70, 5)];
    assert_eq!(
        run(COUNTER, &points),
        [Ok(4), Ok(10), Err(Duplicate), Ok(1), Ok(1)]
    );
}

#[test]
fn late_points_of_a_former_run_count_and_a_clock_that_was_set_back_is_a_new_run() {
    let points = [(5, 10, 100), (25, 30, 7), (5, 20, 130), (5, 15, 120), (25, 40, 9)];
    assert_eq!(
        run(COUNTER, &points),
        [Ok(100), Ok(7), Ok(30), Err(Duplicate), Ok(2)]
    );
    // Two that live at the same time and can't be told apart but by when they began.
    let points = [(5, 10, 1), (25, 30, 10), (5, 31, 2), (25, 32, 20), (5, 33, 3)];
    assert_eq!(run(COUNTER, &points), [Ok(1), Ok(10), Ok(1), Ok(10), Ok(1)]);
    let points = [(500, 600, 10), (400, 650, 4), (400, 660, 5)];
    assert_eq!(run(COUNTER, &points), [Ok(10), Ok(4), Ok(1)]);
    let too_late = [(5, 10, 100), (5000, 5001, 7), (5, 20, 130)];
    assert_eq!(run(COUNTER, &too_late), [Ok(100), Ok(7), Err(Late)]);
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
fn a_folded_stream_adds_only_what_it_counts_from_now_on_or_in_a_new_run() {
    let mut progress = Progress::folded(5, 100);
    let mut add = |start, time, value| {
        let value = Value::Int(value);
        let sample = Sample {
            start,
            time,
            value: &value,
            exemplars: &[],
        };
        progress
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
    let mut again = Progress::folded(5, 100);
    let sample = |value| Sample {
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
    let mut progress = Progress::default();
    let data = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    for (time, value) in [(1, 5), (2, -2)] {
        let value = Value::Int(value);
        let sample = Sample {
            start: 0,
            time,
            value: &value,
            exemplars: &[],
        };
        progress.advance(data, &sample, LATENESS).unwrap();
    }
    assert_eq!(progress.withdraw(), Some(Number::Int(3)));
    assert_eq!(progress.withdraw(), None);
}

#[test]
fn values_that_a_counter_can_not_have_are_invalid() {
    assert_eq!(run(COUNTER, &[(5, 10, -1)]), [Err(Invalid)]);
    assert_eq!(run(DELTA, &[(5, 10, -1)]), [Err(Invalid)]);
}

proptest! {
    /// Whatever came before, where the short way says something it says what the long one does, and leaves the same.
    #[test]
    fn the_short_way_of_a_running_total_is_the_long_one(
        data in prop::sample::select(vec![COUNTER, UP_DOWN, DELTA, Data::Gauge]),
        points in prop::collection::vec((0u64..4, 0u64..30, -3i64..30), 1..40),
    ) {
        let mut progress = Progress::default();
        for (start, time, value) in points {
            let value = if value == 7 { Value::Double(7.5) } else { Value::Int(value) };
            let sample = Sample { start, time: 1 + time, value: &value, exemplars: &[] };
            let mut short = progress.clone();
            let by_short = short.next_total(data, &sample);
            let by_long = progress.advance(data, &sample, LATENESS);
            if let Some(increase) = by_short {
                prop_assert!(matches!(by_long, Ok(Change::Number(number)) if number.same(increase)), "{by_long:?}");
                prop_assert_eq!(format!("{short:?}"), format!("{progress:?}"));
            }
        }
    }
}
