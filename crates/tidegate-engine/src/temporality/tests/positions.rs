// SPDX-License-Identifier: Apache-2.0

//! Positions as bytes.

use super::*;
use crate::Number;

#[test]
fn saved_states_are_of_one_moment_despite_conversions_during_the_write() {
    let data = counter(Temporality::Cumulative);
    let convert = |converter: &Converter, stream: u64, count: i64| {
        let series = series(data, &stream.to_string());
        let value = Value::Int(count);
        let sample = PointSample {
            start: BORN,
            time: BORN + count as u64,
            value: &value,
            exemplars: &[],
        };
        let key = Key::of(&series);
        match converter.convert(key, sample, sent(BORN), &mut || Some(series.clone()), &id, None) {
            Converted::Point(point) => point.value,
            other => panic!("{other:?}"),
        }
    };
    let former = Converter::new(Temporality::Delta, BORN, LIMITS);
    (0..200).for_each(|stream| drop(convert(&former, stream, 100)));
    let converter = Converter::new(Temporality::Delta, BORN, LIMITS);
    converter.restore(&former.save());
    // Some have reported again; the others are still in the restored state of the previous process.
    (0..100).for_each(|stream| drop(convert(&converter, stream, 200)));
    let frozen = converter.freeze();
    (50..150)
        .chain(300..400)
        .for_each(|stream| drop(convert(&converter, stream, 300)));
    let mut bytes = Vec::new();
    frozen.write(&mut bytes).unwrap();
    let next = Converter::new(Temporality::Delta, BORN, LIMITS);
    assert_eq!(next.restore(&bytes), 200);
    for (stream, expected) in [(0, 200), (70, 200), (120, 300), (170, 300), (320, 400)] {
        assert_eq!(convert(&next, stream, 400), Value::Int(expected), "{stream}");
    }
}

#[test]
fn every_kind_of_place_survives_as_bytes() {
    let mut exponential = crate::ExponentialHistogram {
        count: 3,
        sum: Some(1.5),
        scale: -2,
        zero_count: 1,
        zero_threshold: 0.25,
        ..Default::default()
    };
    exponential.positive.offset = -7;
    exponential.positive.counts = vec![1, 0, 2];
    let lasts = [
        LastValue::Nothing,
        LastValue::Number(Number::Int(-5)),
        LastValue::Number(Number::Double(0.1)),
        LastValue::Histogram(Box::new(histogram(9))),
        LastValue::Exponential(Box::new(exponential)),
    ];
    for last in lasts {
        let mut bytes = Vec::new();
        last.save(&mut bytes);
        let mut from = &bytes[..];
        let back = LastValue::load(&mut from).unwrap();
        assert_eq!(format!("{back:?}"), format!("{last:?}"));
        assert!(from.is_empty());
    }
}
