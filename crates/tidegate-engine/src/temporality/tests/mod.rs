// SPDX-License-Identifier: Apache-2.0

//! Compares conversions with sums of the input, through restarts of the producer and of the reader.

mod memory;
mod positions;
mod properties;
mod times;

use super::*;
use crate::{Attributes, Histogram, Resource, Scope};

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
    /// Whether a table has the series.
    is_snapshot: bool,
}

impl Reader {
    fn new(wanted: Temporality, data: Data) -> Self {
        Self {
            converter: Converter::new(wanted, BORN, LIMITS),
            series: series(data, "s"),
            cursor: Vec::new(),
            is_snapshot: false,
        }
    }

    fn convert(&mut self, start: u64, time: u64, value: Value) -> Converted {
        self.convert_at(time, start, time, value)
    }

    /// The same, as it comes at `now`.
    fn convert_at(&mut self, now: u64, start: u64, time: u64, value: Value) -> Converted {
        let sample = PointSample {
            start,
            time,
            value: &value,
            exemplars: &[],
        };
        let series = self.series.clone();
        let key = Key::of(&series);
        let cursor = Some(&mut self.cursor);
        self.converter.convert(
            key,
            sample,
            PointArrival {
                now,
                is_snapshot: self.is_snapshot,
            },
            &mut || Some(series.clone()),
            &id,
            cursor,
        )
    }

    /// The conversion of a number: start, time, value.
    fn number(&mut self, start: u64, time: u64, value: i64) -> Result<(u64, u64, i64), Converted> {
        match self.convert(start, time, Value::Int(value)) {
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

/// A point of a sender.
fn sent(now: UnixNanos) -> PointArrival {
    PointArrival {
        now,
        is_snapshot: false,
    }
}

#[test]
fn a_total_of_a_table_whose_start_moves_back_is_increased_once() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    reader.is_snapshot = true;
    assert_eq!(reader.number(1500, 1510, 10), Ok((1500, 1510, 10)));
    // The table comes to know a process that began earlier and has counted 5.
    assert_eq!(reader.number(1300, 1520, 15), Ok((1510, 1520, 5)));
    assert_eq!(reader.number(1300, 1530, 17), Ok((1520, 1530, 2)));
    assert_eq!(reader.number(1100, 1540, 20), Ok((1530, 1540, 3)));
    // What a sender says of an earlier process is the total of that process.
    reader.is_snapshot = false;
    assert_eq!(reader.number(1200, 1550, 20).map(|(_, _, value)| value), Ok(20));
}

#[test]
fn totals_of_a_table_that_an_edit_made_one_series_add_up() {
    let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
    reader.is_snapshot = true;
    let mut sum = 0;
    for (time, first, second) in [(1510, 10, 3), (1520, 12, 4), (1530, 15, 9)] {
        for (start, total) in [(1100, first), (1200, second)] {
            sum += reader.number(start, time, total).unwrap().2;
        }
    }
    assert_eq!(sum, 24);
}

#[test]
fn silent_streams_stay_if_the_reader_keeps_them() {
    for (keeps, increase) in [(true, 2), (false, 9)] {
        let mut reader = Reader::new(Temporality::Delta, counter(Temporality::Cumulative));
        let limits = ConverterLimits {
            expiry_ns: 100,
            ..LIMITS
        };
        reader.converter = Converter::new(Temporality::Delta, BORN, limits);
        if keeps {
            reader.converter.keep_silent();
        }
        assert_eq!(reader.number(1001, 1010, 7).unwrap().2, 7);
        reader.converter.expire(5000);
        assert_eq!(reader.number(1001, 5010, 9).unwrap().2, increase);
    }
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
    let end = reader.convert(1001, 1020, Value::NoRecordedValue);
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

fn histogram(count: u64) -> Histogram {
    let mut histogram = Histogram::empty(Arc::from([1.0, 2.0]));
    histogram.observe(0.5, count);
    histogram.observe(1.5, count / 2);
    histogram
}
