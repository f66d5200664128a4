// SPDX-License-Identifier: Apache-2.0

//! Points from the future, and senders that set their clock back.

use super::*;

const SECOND: u64 = 1_000_000_000;
const TOLERANCE: u64 = 600 * SECOND;

#[test]
fn a_point_from_the_future_is_refused_and_its_stream_goes_on() {
    for (wanted, given) in [
        (Temporality::Delta, Temporality::Cumulative),
        (Temporality::Cumulative, Temporality::Delta),
    ] {
        let mut reader = Reader::new(wanted, counter(given));
        assert_eq!(reader.number(1001, 1010, 7), Ok((1001, 1010, 7)));
        let cursor = reader.cursor.clone();
        let early = reader.convert_at(1015, 1010, 1016 + TOLERANCE, Value::Int(8));
        assert_eq!(early, Converted::Rejected(Rejection::Future));
        assert_eq!(reader.cursor, cursor, "its place is where it was");
        assert!(matches!(
            reader.convert_at(1015, 1010, 1020, Value::Int(9)),
            Converted::Point(Point { time: 1020, .. })
        ));
    }
}

#[test]
fn a_point_from_the_future_gets_its_arrival_time_if_the_policy_says_so() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    reader.converter.limits.future.action = FutureAction::Arrival;
    assert_eq!(reader.number(1001, 1010, 7), Ok((1001, 1010, 7)));
    for (now, time, total) in [(1015, 1016 + TOLERANCE, 9), (1025, u64::MAX, 11), (1035, 0, 13)] {
        match reader.convert_at(now, 1001, time, Value::Int(total)) {
            Converted::Point(point) => assert_eq!((point.time, point.value), (now, Value::Int(2))),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn a_stream_whose_sender_sets_its_clock_back_goes_on_and_loses_nothing() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    let (begun, back) = (10_000 * SECOND, 300 * SECOND);
    let mut heard = 0;
    let mut taken = Vec::new();
    for push in 1..40_i64 {
        let now = begun + push as u64 * 2 * SECOND;
        let time = if push < 5 { now } else { now - back };
        if let Converted::Point(point) = reader.convert_at(now, begun, time, Value::Int(push)) {
            heard += point.value.number().unwrap().as_f64() as i64;
            taken.push(push);
        }
    }
    assert_eq!(heard, 39);
    assert!(taken.contains(&20), "{taken:?}");
}
