// SPDX-License-Identifier: Apache-2.0

//! Compares conversions with sums of the input, through restarts of the producer and of the reader.

use proptest::prelude::*;

use super::*;
use crate::{Attributes, Histogram, Number, Resource, Scope};

const BORN: UnixNanos = 1000;
const LIMITS: ConverterLimits = ConverterLimits {
    streams: 1000,
    expiry_ns: u64::MAX,
    future: FUTURE,
};

const FUTURE: Future = Future {
    tolerance: std::time::Duration::from_mins(10),
    action: FutureAction::Refuse,
};

fn series(data: Data, name: &str) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::new(Resource::default()),
        scope: Arc::new(Scope::default()),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: Attributes::default(),
    })
}

fn counter(temporality: Temporality) -> Data {
    Data::Sum {
        monotonic: true,
        temporality,
    }
}

fn id(series: &Series) -> StreamId {
    let mut id = [0; 16];
    let name = series.metric.name.as_bytes();
    id[..name.len()].copy_from_slice(name);
    id
}

/// A reader and a series that it reads.
struct Reader {
    converter: Converter,
    series: Arc<Series>,
    cursor: Vec<u8>,
}

impl Reader {
    fn new(wanted: Temporality, data: Data) -> Self {
        Self {
            converter: Converter::new(wanted, BORN, LIMITS),
            series: series(data, "s"),
            cursor: Vec::new(),
        }
    }

    fn say(&mut self, start: u64, time: u64, value: Value) -> Converted {
        self.say_at(time, start, time, value)
    }

    /// The same, as it comes at `now`.
    fn say_at(&mut self, now: u64, start: u64, time: u64, value: Value) -> Converted {
        let sample = PointSample {
            start,
            time,
            value: &value,
            exemplars: &[],
        };
        let series = self.series.clone();
        let key = Key::of(&series);
        let cursor = Some(&mut self.cursor);
        self.converter
            .convert(key, sample, now, &mut || Some(series.clone()), &id, cursor)
    }

    /// The conversion of a number: start, time, value.
    fn number(&mut self, start: u64, time: u64, value: i64) -> Result<(u64, u64, i64), Converted> {
        match self.say(start, time, Value::Int(value)) {
            Converted::Point(Point {
                start,
                time,
                value: Value::Int(value),
                ..
            }) => Ok((start, time, value)),
            other => Err(other),
        }
    }
}

#[test]
fn only_what_has_the_other_temporality_is_concerned() {
    let deltas = Converter::new(Temporality::Delta, BORN, LIMITS);
    let totals = Converter::new(Temporality::Cumulative, BORN, LIMITS);
    let up_down = |temporality| Data::Sum {
        monotonic: false,
        temporality,
    };
    assert!(deltas.concerns(counter(Temporality::Cumulative)));
    assert!(!deltas.concerns(counter(Temporality::Delta)));
    assert!(!deltas.concerns(up_down(Temporality::Cumulative)), "as SDKs do");
    assert!(!deltas.concerns(Data::Gauge) && !deltas.concerns(Data::Summary));
    assert!(totals.concerns(up_down(Temporality::Delta)));
    assert!(!totals.concerns(counter(Temporality::Cumulative)));
    assert!(!totals.concerns(counter(Temporality::Unspecified)));
}

#[test]
fn a_stream_that_began_before_the_reader_is_counted_from_its_first_word() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    assert_eq!(reader.number(5, 1010, 700), Err(Converted::Baseline));
    assert_eq!(reader.number(5, 1020, 730), Ok((1010, 1020, 30)));
    // A restart by start time, and one that only a fall shows.
    assert_eq!(reader.number(1025, 1030, 8), Ok((1025, 1030, 8)));
    assert_eq!(reader.number(1025, 1040, 3), Ok((1030, 1040, 3)));
    let late = reader.number(1025, 1035, 5);
    assert_eq!(late, Err(Converted::Rejected(Rejection::Late)));
    assert_eq!(
        reader.number(1025, 1040, 3),
        Err(Converted::Rejected(Rejection::Duplicate))
    );
}

#[test]
fn a_stream_that_began_under_the_readers_eyes_is_counted_whole() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    assert_eq!(reader.number(1001, 1010, 7), Ok((1001, 1010, 7)));
}

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
        let early = reader.say_at(1015, 1010, 1016 + TOLERANCE, Value::Int(8));
        assert_eq!(early, Converted::Rejected(Rejection::Future));
        assert_eq!(reader.cursor, cursor, "its place is where it was");
        assert!(matches!(
            reader.say_at(1015, 1010, 1020, Value::Int(9)),
            Converted::Point(Point { time: 1020, .. })
        ));
    }
}

#[test]
fn a_point_from_the_future_gets_the_time_of_its_arrival_where_that_is_asked_for() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    reader.converter.limits.future.action = FutureAction::Arrival;
    assert_eq!(reader.number(1001, 1010, 7), Ok((1001, 1010, 7)));
    for (now, time, total) in [(1015, 1016 + TOLERANCE, 9), (1025, u64::MAX, 11), (1035, 0, 13)] {
        match reader.say_at(now, 1001, time, Value::Int(total)) {
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
        if let Converted::Point(point) = reader.say_at(now, begun, time, Value::Int(push)) {
            heard += point.value.number().unwrap().as_f64() as i64;
            taken.push(push);
        }
    }
    assert_eq!(heard, 39);
    assert!(taken.contains(&20), "{taken:?}");
}

#[test]
fn deltas_come_to_totals_since_the_first() {
    let mut reader = Reader::new(Temporality::Cumulative, counter(Temporality::Delta));
    assert_eq!(reader.number(10, 20, 5), Ok((10, 20, 5)));
    assert_eq!(reader.number(20, 30, 6), Ok((10, 30, 11)));
    assert_eq!(
        reader.number(10, 20, 5),
        Err(Converted::Rejected(Rejection::Late))
    );
    assert_eq!(reader.number(30, 40, 0), Ok((10, 40, 11)));
}

#[test]
fn the_end_of_a_stream_is_passed_on() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    assert_eq!(reader.number(1001, 1010, 7), Ok((1001, 1010, 7)));
    let end = reader.say(1001, 1020, Value::NoRecordedValue);
    assert!(
        matches!(
            end,
            Converted::Point(Point {
                value: Value::NoRecordedValue,
                ..
            })
        ),
        "{end:?}"
    );
}

#[test]
fn too_many_streams_are_refused_and_the_known_ones_go_on() {
    let limits = ConverterLimits {
        streams: 16,
        ..LIMITS
    };
    let converter = Converter::new(Temporality::Delta, 0, limits);
    let value = Value::Int(1);
    let say = |name: usize, time| {
        let series = series(counter(Temporality::Cumulative), &name.to_string());
        let sample = PointSample {
            start: 1,
            time,
            value: &value,
            exemplars: &[],
        };
        converter.convert(
            Key::of(&series),
            sample,
            time,
            &mut || Some(series.clone()),
            &id,
            None,
        )
    };
    let refused = |converted| converted == Converted::Rejected(Rejection::Limit);
    let known: Vec<_> = (0..200).filter(|name| !refused(say(*name, 10))).collect();
    assert_eq!(known.len(), 16);
    assert!(known.into_iter().all(|name| !refused(say(name, 20))));
}

fn bounds(bytes: usize) -> Arc<Bounds> {
    let bounds = Arc::new(Bounds::default());
    bounds.set_bytes(bytes);
    bounds
}

/// Whether a total of the stream of this name, with a long label, is refused.
fn is_refused(converter: &Converter, name: usize, now: UnixNanos) -> bool {
    let (name, value) = (name.to_string(), Value::Int(1));
    let text = format!("{name}{}", "x".repeat(20_000));
    let series = Arc::new(Series {
        attributes: [("text", &*text)].into_iter().collect(),
        ..Series::clone(&series(counter(Temporality::Cumulative), &name))
    });
    let sample = PointSample {
        start: 1,
        time: now,
        value: &value,
        exemplars: &[],
    };
    let converted = converter.convert(
        Key::of(&series),
        sample,
        now,
        &mut || Some(series.clone()),
        &id,
        None,
    );
    converted == Converted::Rejected(Rejection::Limit)
}

#[test]
fn streams_of_long_labels_stay_below_the_bound_and_their_bytes_come_back() {
    let limits = ConverterLimits {
        expiry_ns: 100,
        ..LIMITS
    };
    let bounds = bounds(1 << 20);
    let converter = Converter::new(Temporality::Delta, 0, limits).bounded_by(bounds.clone());
    let known: Vec<_> = (0..200)
        .filter(|name| !is_refused(&converter, *name, 10))
        .collect();
    assert!((45..53).contains(&known.len()), "{}", known.len());
    assert!(converter.bytes() > 900_000 && converter.bytes() <= 1 << 20);
    assert!(known.iter().all(|name| !is_refused(&converter, *name, 11)));
    // Memory is short, whatever the bound.
    bounds.set_bytes(1 << 30);
    bounds.set_tight(true);
    assert!(is_refused(&converter, 1000, 12));
    assert!(known.iter().all(|name| !is_refused(&converter, *name, 12)));
    bounds.set_tight(false);
    converter.expire(1000);
    assert_eq!((converter.len(), converter.bytes()), (0, 0));
    assert!(!is_refused(&converter, 1000, 1000));
}

#[test]
fn a_known_stream_whose_histogram_finds_no_room_is_refused_until_it_is_smaller() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let mut reader = Reader::new(Temporality::Delta, data);
    reader.converter = Converter::new(Temporality::Delta, BORN, LIMITS).bounded_by(bounds(100_000));
    let mut say = |time: u64, buckets: u32| {
        let bounds: Arc<[f64]> = (0..buckets).map(f64::from).collect();
        let mut histogram = Histogram::empty(bounds);
        histogram.observe(0.5, time);
        reader.say(1001, time, Value::Histogram(Box::new(histogram)))
    };
    assert!(matches!(say(1010, 2), Converted::Point(_)));
    assert_eq!(say(1020, 20_000), Converted::Rejected(Rejection::Limit));
    assert!(matches!(say(1030, 3000), Converted::Point(_)));
    assert!(matches!(say(1040, 2), Converted::Point(_)));
    assert!(reader.converter.bytes() < 2000, "{}", reader.converter.bytes());
}

#[test]
fn places_of_a_former_process_count_and_go_when_nobody_comes_back() {
    let limits = ConverterLimits {
        expiry_ns: 100,
        ..LIMITS
    };
    let former = Converter::new(Temporality::Delta, 0, limits);
    assert!((0..50).all(|name| !is_refused(&former, name, 1000)));
    let converter = Converter::new(Temporality::Delta, 1000, limits).bounded_by(bounds(1 << 20));
    assert_eq!(converter.restore(&former.save()), 50);
    let restored = converter.bytes();
    assert!(restored > 50 * 64, "{restored}");
    assert_eq!(converter.restore(&former.save()), 50);
    assert_eq!(converter.bytes(), restored, "the later ones stand for the former");
    converter.expire(1050);
    assert_eq!(converter.bytes(), restored);
    converter.expire(1200);
    assert_eq!(converter.bytes(), 0);
    let few = Converter::new(Temporality::Delta, 1000, limits).bounded_by(bounds(1000));
    let kept = few.restore(&former.save());
    assert!(kept < 10 && few.bytes() < 1200);
    assert_eq!((few.take_lost(), few.take_lost()), (50 - kept, 0));
    assert_eq!(converter.take_lost(), 0);
}

/// A count of a producer, or a restart of it or of the reader.
#[derive(Clone, Debug)]
enum Event {
    Count(u8),
    ProducerRestarts,
    ReaderRestarts { from_cursor: bool },
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let event = prop_oneof![
        8 => any::<u8>().prop_map(Event::Count),
        1 => Just(Event::ProducerRestarts),
        2 => any::<bool>().prop_map(|from_cursor| Event::ReaderRestarts { from_cursor }),
    ];
    prop::collection::vec(event, 1..60)
}

fn histogram(count: u64) -> Histogram {
    let mut histogram = Histogram::empty(Arc::from([1.0, 2.0]));
    histogram.observe(0.5, count);
    histogram.observe(1.5, count / 2);
    histogram
}

proptest! {
    #[test]
    fn deltas_add_up_to_what_was_counted_whoever_restarts(events in events(), whole: bool) {
        let data = if whole {
            counter(Temporality::Cumulative)
        } else {
            Data::Histogram { temporality: Temporality::Cumulative }
        };
        let mut reader = Reader::new(Temporality::Delta, data);
        let (mut start, mut time, mut count) = (BORN, BORN, 0u64);
        let (mut said, mut heard) = (0, 0);
        for event in events {
            time += 10;
            match event {
                Event::Count(more) => {
                    count += u64::from(more) + 1;
                    let value = if whole {
                        Value::Int(count as i64)
                    } else {
                        Value::Histogram(Box::new(histogram(count)))
                    };
                    said += u64::from(more) + 1;
                    match reader.say(start, time, value) {
                        Converted::Point(Point { value: Value::Int(number), .. }) => heard += number as u64,
                        Converted::Point(Point { value: Value::Histogram(histogram), .. }) => {
                            prop_assert!(histogram.is_sound());
                            heard += histogram.counts[0];
                        }
                        other => prop_assert!(false, "{:?}", other),
                    }
                }
                Event::ProducerRestarts => (start, count) = (time, 0),
                Event::ReaderRestarts { from_cursor } => {
                    let saved = if from_cursor {
                        reader.cursor.clone()
                    } else {
                        reader.converter.save()
                    };
                    let former = std::mem::replace(&mut reader, Reader::new(Temporality::Delta, data));
                    reader.converter.restore(&saved);
                    reader.cursor = former.cursor;
                }
            }
            prop_assert_eq!(heard, said);
        }
    }

    #[test]
    fn totals_come_back_as_the_deltas_they_are_made_of(counts in prop::collection::vec(0i64..1000, 1..50)) {
        let mut totals = Reader::new(Temporality::Cumulative, counter(Temporality::Delta));
        let mut deltas = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
        for (at, count) in counts.into_iter().enumerate() {
            let (start, time) = (BORN + at as u64 * 10, BORN + at as u64 * 10 + 10);
            let (since, until, total) = totals.number(start, time, count).unwrap();
            prop_assert_eq!(deltas.number(since, until, total), Ok((start, time, count)));
        }
    }

    #[test]
    fn places_are_the_same_as_bytes_and_no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let mut from = &bytes[..];
        while LastValue::load(&mut from).is_some() {}
        let converter = Converter::new(Temporality::Delta, BORN, LIMITS);
        converter.restore(&bytes);
        let again = Converter::new(Temporality::Delta, BORN, LIMITS);
        again.restore(&converter.save());
        prop_assert_eq!(converter.save().len(), again.save().len());
    }
}

#[test]
fn places_are_those_of_one_moment_whatever_is_converted_while_they_are_written() {
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
        match converter.convert(key, sample, BORN, &mut || Some(series.clone()), &id, None) {
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
