// SPDX-License-Identifier: Apache-2.0

//! A reader reads the values that a writer wrote, and histograms come back unchanged.

use proptest::prelude::*;
use tidegate_engine::{Buckets, ExponentialHistogram, Histogram};

use super::super::histogram::{Count, Native, Unfit, WireSpan};
use super::super::read::read;
use super::super::stale;
use super::*;

fn side() -> impl Strategy<Value = Buckets> {
    let counts = prop::collection::vec(prop_oneof![3 => Just(0u64), 2 => 1..1000u64], 0..20);
    (-60..40i32, counts).prop_map(|(offset, counts)| Buckets { offset, counts })
}

pub(super) fn exponential() -> impl Strategy<Value = ExponentialHistogram> {
    (-4..=8i32, side(), side(), 0..100u64, -1e9..1e9f64).prop_map(
        |(scale, positive, negative, zero_count, sum)| {
            let buckets = positive.counts.iter().chain(&negative.counts).sum::<u64>();
            ExponentialHistogram {
                count: buckets + zero_count,
                sum: Some(sum),
                scale,
                zero_count,
                zero_threshold: 0.25,
                positive,
                negative,
                ..ExponentialHistogram::default()
            }
        },
    )
}

pub(super) fn explicit() -> impl Strategy<Value = Histogram> {
    let buckets = prop::collection::btree_map(-1000..1000i32, 0..50u64, 0..12);
    (buckets, 0..50u64, -1e9..1e9f64).prop_map(|(buckets, last, sum)| Histogram {
        count: buckets.values().sum::<u64>() + last,
        sum: Some(sum),
        bounds: buckets.keys().map(|bound| f64::from(*bound) / 8.0).collect(),
        counts: buckets.values().copied().chain([last]).collect(),
        ..Histogram::default()
    })
}

/// Without empty buckets at the ends, which say nothing.
pub(super) fn trimmed(mut histogram: ExponentialHistogram) -> ExponentialHistogram {
    for side in [&mut histogram.positive, &mut histogram.negative] {
        let empty = side.counts.iter().take_while(|count| **count == 0).count();
        side.counts.drain(..empty);
        side.offset += i32::try_from(empty).unwrap();
        while side.counts.pop_if(|count| *count == 0).is_some() {}
        if side.counts.is_empty() {
            side.offset = 0;
        }
    }
    histogram
}

proptest! {
    #[test]
    fn exponential_histograms_come_back(histogram in exponential()) {
        let mut native = Native::of_exponential(&histogram).unwrap();
        let expected = Value::ExponentialHistogram(Box::new(trimmed(histogram)));
        prop_assert_eq!(native.read().unwrap(), (expected, EXPONENTIAL));
    }

    #[test]
    fn explicit_histograms_come_back(histogram in explicit()) {
        let mut native = Native::of_explicit(&histogram).unwrap();
        prop_assert_eq!(native.read().unwrap(), (Value::Histogram(Box::new(histogram)), HISTOGRAM));
    }

    #[test]
    fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        for version in [Version::One, Version::Two] {
            let _ = read(version, &bytes, &mut Ignoring);
        }
    }

    /// For any spans and deltas, the result is valid and of bounded size.
    #[test]
    fn no_histogram_is_too_strange(
        schema in -60..12i32,
        spans in prop::collection::vec((any::<i32>(), 0..9u32), 0..6),
        deltas in prop::collection::vec(-5..9i64, 0..20),
        count in 0..100u64,
    ) {
        let mut native = Native {
            count: Some(Count::Int(count)),
            schema,
            sum: f64::NAN,
            positive_spans: spans.into_iter().map(|(offset, length)| WireSpan { offset, length }).collect(),
            positive_deltas: deltas,
            custom_values: vec![1.0, 2.0, 5.0],
            ..Native::default()
        };
        match native.read() {
            Ok((Value::ExponentialHistogram(histogram), _)) => {
                let filled = histogram.positive.counts.iter().filter(|count| **count > 0).count();
                prop_assert!(histogram.positive.counts.len() <= 256 + 16 * filled);
            },
            Ok((Value::Histogram(histogram), _)) => prop_assert!(histogram.is_sound()),
            Ok(other) => prop_assert!(false, "{other:?}"),
            Err(_) => {}
        }
    }
}

struct Ignoring;

impl<'a> super::super::read::Visitor<'a> for Ignoring {
    fn series(&mut self, series: &mut super::super::read::SeriesIn<'a>) {
        assert!(series.each_exemplar().count() <= series.exemplars.len());
    }

    fn absurd(&mut self, _: &super::super::read::SeriesIn<'a>) {}

    fn metadata(&mut self, _: super::super::read::Metadata<'a>) {}
}

#[test]
fn what_native_histograms_cannot_say_is_refused_by_reason() {
    let histogram = |scale, sum| ExponentialHistogram {
        scale,
        sum,
        ..ExponentialHistogram::default()
    };
    assert_eq!(
        Native::of_exponential(&histogram(-5, Some(1.0))),
        Err(Unfit::Unsayable)
    );
    assert_eq!(Native::of_exponential(&histogram(0, None)), Err(Unfit::Unsayable));
    assert_eq!(
        Native::of_exponential(&histogram(20, Some(1.0))).unwrap().schema,
        8
    );
    let mut gauge = Native {
        reset_hint: 3,
        ..Native::default()
    };
    assert_eq!(gauge.read(), Err(Unfit::Gauge));
    let mut floats = Native {
        count: Some(Count::Float(1.5)),
        ..Native::default()
    };
    assert_eq!(floats.read(), Err(Unfit::Float));
    for schema in [i32::MIN, -128, -54, -52, -5, 9, 127, i32::MAX] {
        let mut unknown = Native {
            schema,
            ..Native::default()
        };
        assert_eq!(unknown.read(), Err(Unfit::Schema(schema)));
    }
}

#[test]
fn the_sum_marks_the_end_of_a_native_histogram() {
    let mut native = Native::stale(false);
    assert_eq!(native.sum.to_bits(), 0x7ff0_0000_0000_0002);
    assert_eq!(stale().to_bits(), 0x7ff0_0000_0000_0002);
    assert_eq!(native.read(), Ok((Value::NoRecordedValue, EXPONENTIAL)));
    assert_eq!(
        Native::stale(true).read(),
        Ok((Value::NoRecordedValue, HISTOGRAM))
    );
}

#[test]
fn content_types_name_versions() {
    let table = [
        ("application/x-protobuf", Some(Version::One)),
        (
            "application/x-protobuf; proto=prometheus.WriteRequest",
            Some(Version::One),
        ),
        (
            "Application/X-Protobuf;proto=\"io.prometheus.write.v2.Request\"",
            Some(Version::Two),
        ),
        ("application/x-protobuf;proto=other", None),
        ("application/json", None),
        ("", None),
    ];
    for (content_type, expected) in table {
        assert_eq!(Version::of_content_type(content_type), expected, "{content_type}");
    }
}

#[test]
fn references_may_be_packed_or_not() {
    // symbols "", "__name__", "x"; one series with its two references as separate fields and one sample.
    let mut bytes = vec![0x22, 0, 0x22, 8];
    bytes.extend(b"__name__");
    bytes.extend([0x22, 1, b'x']);
    let series = [0x08, 1, 0x08, 2, 0x12, 2, 0x10, 7];
    bytes.extend([0x2a, series.len() as u8]);
    bytes.extend(series);
    let request = Request::of(Version::Two, &bytes);
    assert_eq!(request.samples("x{}"), [(7, 0.0)]);
    let odd = [0x22, 0, 0x2a, 2, 0x08, 0];
    assert!(
        read(Version::Two, &odd, &mut Ignoring).is_err(),
        "a name without a value"
    );
    let beyond = [0x22, 0, 0x2a, 4, 0x08, 0, 0x08, 9];
    assert!(
        read(Version::Two, &beyond, &mut Ignoring).is_err(),
        "no such symbol"
    );
}

/// A field with bytes in it.
fn part(number: u32, content: &[u8]) -> Vec<u8> {
    let mut part = Vec::new();
    prost::encoding::bytes::encode(number, &content.to_vec(), &mut part);
    part
}

#[test]
fn a_request_weighs_what_it_is_read_to() {
    const BYTES: usize = 10_000;
    let content = vec![0; BYTES];
    // A byte of a histogram is a bucket of 8 bytes as it is read, and one as it is kept.
    for (version, series, histogram, exemplar) in [(Version::One, 1, 4, 3), (Version::Two, 5, 3, 4)] {
        let of = |number| version.weight(&part(series, &part(number, &content)));
        assert!(of(histogram) >= 16 * BYTES, "{}", of(histogram));
        assert!(of(exemplar) >= 16 * BYTES, "{}", of(exemplar));
        let samples = part(series, &part(2, &[]).repeat(BYTES));
        assert!(version.weight(&samples) >= BYTES * size_of::<Point>());
    }
    let symbols = part(4, &[]).repeat(BYTES);
    assert!(Version::Two.weight(&symbols) >= BYTES * size_of::<&str>());
    assert_eq!(Version::One.weight(&symbols), 0);
}

/// A request of 2.0: symbols, and series each of which has these references as labels, and a sample.
pub(super) fn referring(symbols: &[String], series: &[Vec<u64>]) -> Vec<u8> {
    let symbols = symbols.iter().flat_map(|symbol| part(4, symbol.as_bytes()));
    let series = series.iter().flat_map(|references| {
        let mut labels = Vec::new();
        for reference in references {
            tidegate_pipeline::batch::wire::edit::push_varint(&mut labels, *reference);
        }
        part(5, &[part(1, &labels), part(2, &[0x10, 7])].concat())
    });
    symbols.chain(series).collect()
}

#[test]
fn a_reference_weighs_what_its_symbol_has() {
    const SERIES: usize = 2_000;
    let (name, big) = ("x", "y".repeat(30 << 10));
    let symbols = ["", "__name__", name, "a", &big].map(str::to_owned);
    let request = referring(&symbols, &vec![vec![1, 2, 3, 4]; SERIES]);
    assert!(request.len() <= 64 << 10);
    let weight = Version::Two.weight(&request);
    assert!(weight >= SERIES * big.len(), "{weight}");
    assert!(Version::Two.index_weight(&request) >= symbols.len() * size_of::<&str>());
    // Of a series that is cut out nothing is copied.
    let absurd = referring(&symbols, &[[3, 4].repeat(20_000)]);
    let weight = Version::Two.weight(&absurd);
    assert!(weight < 1 << 20, "{weight}");
}
