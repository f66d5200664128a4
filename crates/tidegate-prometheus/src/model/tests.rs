// SPDX-License-Identifier: Apache-2.0

//! The meaning of Prometheus' data.

use tidegate_engine::{AttributesBuilder, Data, Temporality, Value};
use tidegate_exposition::{BucketSpan, Counts, NativeHistogram, Side};

use super::*;

#[test]
fn unit_words_are_ucum() {
    for (word, unit) in [
        ("seconds", "s"),
        ("bytes", "By"),
        ("ratio", "1"),
        ("bytes_per_second", "By/s"),
        ("meters_per_hour", "m/h"),
        ("requests_per_second", "requests/s"),
        ("parsecs", "parsecs"),
        ("", ""),
    ] {
        assert_eq!(ucum(word), unit, "{word}");
    }
}

#[test]
fn a_label_set_is_sorted_and_has_nothing_empty() {
    let mut labels = LabelSet::from_iter([("b", "1"), ("a", "2"), ("c", ""), ("a", "3")]);
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("a", "3"), ("b", "1")]);
    labels.set("b", "");
    labels.set_default("a", "4");
    labels.set_default("0", "5");
    assert_eq!(labels.iter().collect::<Vec<_>>(), [("0", "5"), ("a", "3")]);
    assert_eq!(
        (labels.get("a"), labels.get("b"), labels.has("b")),
        ("3", "", false)
    );
}

#[test]
fn identity_is_divided_up() {
    let labels = LabelSet::from_iter([
        ("__name__", "m"),
        ("job", "j"),
        ("instance", "i"),
        ("le", "1"),
        ("otel_scope_schema_url", "u"),
        ("x", "y"),
    ]);
    let identity = SeriesIdentity::of(&labels, "le", &mut AttributesBuilder::default());
    assert_eq!((&*identity.job, &*identity.instance), ("j", "i"));
    assert_eq!(identity.attributes.to_string(), "x=y");
    assert_eq!(identity.scope.map(|scope| scope.schema_url), Some("u".into()));
}

#[test]
fn ids_of_exemplars_are_lifted_where_they_are_ids() {
    let mut builder = AttributesBuilder::default();
    let labels = [
        ("trace_id", "0AF7651916cd43dd8448eb211c80319c"),
        ("span_id", "00f067aa0ba902b7"),
    ];
    let example = exemplar(labels.into_iter(), 1.0, 5, &mut builder);
    assert_eq!((example.trace_id.len(), example.span_id.len()), (16, 8));
    assert!(example.filtered_attributes.is_empty());
    let labels = [("trace_id", "0000000000000000"), ("span_id", "0000000000000000")];
    let example = exemplar(labels.into_iter(), 1.0, 5, &mut builder);
    assert!(example.trace_id.is_empty() && example.span_id.is_empty());
    assert_eq!(example.filtered_attributes.len(), 2);
}

fn side(spans: &[(i32, u32)], deltas: &[i64]) -> Side {
    let span = |(offset, length): &(i32, u32)| BucketSpan {
        offset: *offset,
        length: *length,
    };
    Side {
        spans: spans.iter().map(span).collect(),
        deltas: deltas.to_vec(),
        floats: Vec::new(),
    }
}

/// One in (1, 2], two in (4, 8], one infinite; one in [-1, -0.5).
fn sample() -> NativeHistogram {
    NativeHistogram {
        count: 7,
        sum: 20.0,
        zero_count: 2,
        zero_threshold: 0.25,
        positive: side(&[(1, 1), (1, 1), (1021, 1)], &[1, 1, -1]),
        negative: side(&[(0, 1)], &[1]),
        ..NativeHistogram::default()
    }
}

#[test]
fn native_histograms_are_exponential() {
    let histogram = sample();
    assert_eq!(histogram.check(), Ok(()));
    let (value, data) = native(&histogram, 0).expect("no limit").expect("a counter");
    let temporality = Temporality::Cumulative;
    assert_eq!(data, Data::ExponentialHistogram { temporality });
    let Value::ExponentialHistogram(value) = value else {
        panic!("{value:?}");
    };
    assert_eq!(
        (value.count, value.zero_count),
        (6, 2),
        "infinity is in no bucket"
    );
    assert_eq!(
        (value.positive.offset, &*value.positive.counts),
        (0, &[1, 0, 2][..])
    );
    assert_eq!((value.negative.offset, &*value.negative.counts), (-1, &[1][..]));
    assert!(value.is_sound());
}

#[test]
fn too_many_buckets_are_made_wider_as_far_as_that_helps() {
    let scale = |limit| match native(&sample(), limit) {
        Ok(Some((Value::ExponentialHistogram(value), _))) => Ok((value.scale, value.count)),
        Err(limit) => Err(limit),
        other => panic!("{other:?}"),
    };
    assert_eq!(scale(3), Ok((0, 6)));
    // (1, 16] holds all above zero.
    assert_eq!(scale(2), Ok((-2, 6)));
    assert_eq!(scale(1), Err(BucketLimit));
}

#[test]
fn buckets_grow_by_the_factor_that_is_asked_for() {
    let table = [
        (0.0, 8),
        (f64::NAN, 8),
        (1.0, 8),
        (1.002, 8),
        (1.1, 2),
        (1.4, 1),
        (2.0, 0),
        (2.1, -1),
        (4.0, -1),
        (1e300, -4),
    ];
    for (factor, expected) in table {
        assert_eq!(Resolution::schema_of_factor(factor), expected, "{factor}");
    }
    for schema in [8, 0, -1, -4] {
        let resolution = Resolution { buckets: 0, schema };
        let Ok(Some((Value::ExponentialHistogram(value), _))) = native_within(&sample(), resolution) else {
            panic!("{schema}");
        };
        assert_eq!((value.scale, value.count), (schema.min(0), 6));
    }
}

#[test]
fn buckets_far_apart_are_made_wider() {
    let histogram = NativeHistogram {
        schema: 8,
        count: 2,
        positive: side(&[(-100_000, 1), (199_999, 1)], &[1, 0]),
        ..NativeHistogram::default()
    };
    let value = native(&histogram, 0).expect("no limit").expect("a counter").0;
    let Value::ExponentialHistogram(value) = value else {
        panic!("{value:?}");
    };
    assert!(value.positive.counts.len() <= 256 + 2 * 16 && value.is_sound());
    assert_eq!((value.scale, value.count), (-2, 2));
}

#[test]
fn what_measures_nanoseconds_to_minutes_keeps_its_buckets() {
    let histogram = NativeHistogram {
        schema: 3,
        count: 4,
        positive: side(&[(-240, 1), (99, 2), (217, 1)], &[1, 0, 0, 0]),
        ..NativeHistogram::default()
    };
    let value = native(&histogram, 0).expect("no limit").expect("a counter").0;
    let Value::ExponentialHistogram(value) = value else {
        panic!("{value:?}");
    };
    assert_eq!((value.scale, value.positive.counts.len()), (3, 320));
}

#[test]
fn custom_buckets_are_bounds_and_gauges_and_fractions_are_nothing() {
    let custom = NativeHistogram {
        schema: NativeHistogram::CUSTOM,
        count: 4,
        positive: side(&[(0, 1), (1, 1)], &[1, 2]),
        custom_values: vec![1.0, 2.0],
        ..NativeHistogram::default()
    };
    assert_eq!(custom.check(), Ok(()));
    let Ok(Some((Value::Histogram(value), _))) = native(&custom, 0) else {
        panic!();
    };
    assert_eq!(
        (&*value.bounds, &*value.counts),
        (&[1.0, 2.0][..], &[1, 0, 3][..])
    );
    let gauge = NativeHistogram {
        is_gauge: true,
        ..sample()
    };
    let float = NativeHistogram {
        counts: Counts::Float,
        ..sample()
    };
    assert_eq!((native(&gauge, 0), native(&float, 0)), (Ok(None), Ok(None)));
    let stale = NativeHistogram {
        sum: f64::from_bits(STALE_NAN),
        ..NativeHistogram::default()
    };
    assert!(matches!(native(&stale, 0), Ok(Some((Value::NoRecordedValue, _)))));
}

#[test]
fn totals_of_a_producer_that_counts_on_are_made_to_rise() {
    let mut classic = Classic::default();
    let places: Vec<_> = [1.0, 2.0, 3.0]
        .map(|bound| classic.index_of(bound))
        .into_iter()
        .flatten()
        .collect();
    for (place, total) in places.into_iter().zip([3.0, 2.0, 9.0]) {
        assert!(classic.bucket(place, total));
    }
    assert!(classic.count(5.0) && !classic.count(6.0));
    let Some(Value::Histogram(value)) = classic.take() else {
        panic!();
    };
    assert_eq!(value.counts, [3, 0, 2, 0]);
    assert!(value.is_sound() && classic.take().is_none());
}

#[test]
fn a_label_that_a_page_leaves_empty_keeps_that_of_the_target_away() {
    let page = [("instance", ""), ("a", "1"), ("b", "")];
    let mut labels = LabelSet::of_page(page.into_iter());
    labels.set_default("instance", "target");
    labels.set_default("job", "target");
    labels.end_empty();
    let left: Vec<_> = labels.iter().collect();
    assert_eq!(left, [("a", "1"), ("job", "target")]);
}
