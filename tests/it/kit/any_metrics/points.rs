// SPDX-License-Identifier: Apache-2.0

//! Points of every kind, with numbers that no sane source would send.

use super::any_attributes;
use opentelemetry_proto::tonic::metrics::v1::exponential_histogram_data_point::Buckets;
use opentelemetry_proto::tonic::metrics::v1::metric::Data;
use opentelemetry_proto::tonic::metrics::v1::summary_data_point::ValueAtQuantile;
use opentelemetry_proto::tonic::metrics::v1::{
    Exemplar, ExponentialHistogram, ExponentialHistogramDataPoint, Gauge, Histogram, HistogramDataPoint,
    NumberDataPoint, Sum, Summary, SummaryDataPoint, exemplar, number_data_point,
};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

const NUMBERS: &[f64] = &[
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    1e-9,
    1e21,
    -1e300,
    f64::MIN_POSITIVE,
    5e-324,
    f64::MAX,
    f64::MIN,
    f64::INFINITY,
    f64::NEG_INFINITY,
    f64::NAN,
    9_007_199_254_740_993.0,
];

const FLAG_NO_RECORDED_VALUE: u32 = 1;

/// Of one of the kinds, or of none.
pub(super) fn any_data() -> impl Strategy<Value = Option<Data>> {
    let numbers = || prop_oneof![40 => vec(number_point(), 0..4), 1 => vec(number_point(), 50..100)];
    // Unspecified, delta, cumulative, and an unknown one.
    let temporality = || prop_oneof![1 => Just(0), 2 => Just(1), 8 => Just(2), 1 => Just(7)];
    prop_oneof![
        1 => Just(None),
        6 => numbers().prop_map(|data_points| Some(Data::Gauge(Gauge { data_points }))),
        8 => (numbers(), temporality(), any::<bool>()).prop_map(|(data_points, aggregation_temporality, is_monotonic)| {
            Some(Data::Sum(Sum { data_points, aggregation_temporality, is_monotonic }))
        }),
        6 => (vec(histogram_point(), 0..3), temporality()).prop_map(|(data_points, aggregation_temporality)| {
            Some(Data::Histogram(Histogram { data_points, aggregation_temporality }))
        }),
        6 => (vec(exponential_point(), 0..3), temporality()).prop_map(|(data_points, aggregation_temporality)| {
            Some(Data::ExponentialHistogram(ExponentialHistogram { data_points, aggregation_temporality }))
        }),
        4 => vec(summary_point(), 0..3).prop_map(|data_points| Some(Data::Summary(Summary { data_points }))),
    ]
}

/// Any double, extremes often.
pub(crate) fn any_number() -> impl Strategy<Value = f64> {
    prop_oneof![4 => select(NUMBERS), 2 => -100.0..100.0f64, 1 => any::<f64>()]
}

fn number_point() -> impl Strategy<Value = NumberDataPoint> {
    let value = prop_oneof![
        1 => Just(None),
        6 => any_number().prop_map(|value| Some(number_data_point::Value::AsDouble(value))),
        6 => any_integer().prop_map(|value| Some(number_data_point::Value::AsInt(value))),
    ];
    (
        any_attributes(),
        times(),
        value,
        vec(any_exemplar(), 0..3),
        flags(),
    )
        .prop_map(
            |(attributes, (start_time_unix_nano, time_unix_nano), value, exemplars, flags)| NumberDataPoint {
                attributes,
                start_time_unix_nano,
                time_unix_nano,
                value,
                exemplars,
                flags,
            },
        )
}

fn any_integer() -> impl Strategy<Value = i64> {
    prop_oneof![4 => -2..10i64, 1 => select(&[i64::MIN, i64::MAX][..]), 1 => any::<i64>()]
}

/// Start and time: none, sensible, the end of time. Whole milliseconds, which is all that Prometheus knows.
fn times() -> impl Strategy<Value = (u64, u64)> {
    const NANOS_PER_MILLI: u64 = 1_000_000;
    let time = || {
        let millis = prop_oneof![
            1 => Just(0),
            8 => 1_700_000_000_000..1_800_000_000_000u64,
            1 => Just(u64::MAX / NANOS_PER_MILLI),
            1 => Just(1),
        ];
        millis.prop_map(|millis| millis * NANOS_PER_MILLI)
    };
    (time(), time())
}

fn flags() -> impl Strategy<Value = u32> {
    prop_oneof![12 => Just(0), 1 => Just(FLAG_NO_RECORDED_VALUE), 1 => any::<u32>()]
}

fn any_exemplar() -> impl Strategy<Value = Exemplar> {
    let id = |length: usize| prop_oneof![2 => vec(any::<u8>(), length), 1 => Just(Vec::new()), 1 => vec(any::<u8>(), 0..40)];
    let value = prop_oneof![
        1 => Just(None),
        4 => any_number().prop_map(|value| Some(exemplar::Value::AsDouble(value))),
        2 => any_integer().prop_map(|value| Some(exemplar::Value::AsInt(value))),
    ];
    (any_attributes(), times(), value, id(16), id(8)).prop_map(
        |(filtered_attributes, (_, time_unix_nano), value, trace_id, span_id)| Exemplar {
            filtered_attributes,
            time_unix_nano,
            value,
            trace_id,
            span_id,
        },
    )
}

fn any_count() -> impl Strategy<Value = u64> {
    prop_oneof![8 => 0..9u64, 1 => Just(u64::MAX), 1 => any::<u64>()]
}

fn optional_number() -> impl Strategy<Value = Option<f64>> {
    proptest::option::weighted(0.8, any_number())
}

/// Bounds and counts that agree, as often as not.
fn histogram_point() -> impl Strategy<Value = HistogramDataPoint> {
    let tidy = vec((1u8..5, 0u64..9), 0..6).prop_map(|steps| {
        let mut bound = -3.0;
        let rise = |(step, _): &(u8, u64)| {
            bound += f64::from(*step) / 2.0;
            bound
        };
        let bounds: Vec<f64> = steps.iter().map(rise).collect();
        let mut counts: Vec<u64> = steps.iter().map(|(_, count)| *count).collect();
        counts.push(1);
        (bounds, counts.iter().sum(), counts)
    });
    let wild = (vec(any_number(), 0..6), any_count(), vec(any_count(), 0..7));
    let buckets = prop_oneof![
        3 => tidy,
        2 => wild.prop_map(|(bounds, count, counts)| (bounds, count, counts)),
    ];
    (
        any_attributes(),
        times(),
        buckets,
        (optional_number(), optional_number(), optional_number()),
        vec(any_exemplar(), 0..4),
        flags(),
    )
        .prop_map(
            |(
                attributes,
                (start, time),
                (explicit_bounds, count, bucket_counts),
                (sum, min, max),
                exemplars,
                flags,
            )| {
                HistogramDataPoint {
                    attributes,
                    start_time_unix_nano: start,
                    time_unix_nano: time,
                    count,
                    sum,
                    bucket_counts,
                    explicit_bounds,
                    exemplars,
                    flags,
                    min,
                    max,
                }
            },
        )
}

fn exponential_point() -> impl Strategy<Value = ExponentialHistogramDataPoint> {
    let offset = prop_oneof![6 => -20..20i32, 1 => select(&[i32::MIN, i32::MAX, 1 << 20, -(1 << 20)][..]), 1 => any::<i32>()];
    let counts = prop_oneof![
        6 => vec(prop_oneof![2 => Just(0), 3 => 0..9u64], 0..12),
        1 => vec(any_count(), 0..12),
        1 => vec(0..3u64, 100..400),
    ];
    let buckets = (offset, counts).prop_map(|(offset, bucket_counts)| Buckets {
        offset,
        bucket_counts,
    });
    let buckets = proptest::option::weighted(0.8, buckets).boxed();
    let scale = prop_oneof![8 => -5..12i32, 1 => select(&[i32::MIN, i32::MAX, 20, -11, -10][..])];
    let threshold = prop_oneof![6 => Just(0.0), 2 => 0.0..2.0f64, 1 => any_number()];
    (
        any_attributes(),
        times(),
        (
            scale,
            any_count(),
            threshold,
            buckets.clone(),
            buckets,
            any::<bool>(),
        ),
        (
            any_count(),
            optional_number(),
            optional_number(),
            optional_number(),
        ),
        vec(any_exemplar(), 0..4),
        flags(),
    )
        .prop_map(
            |(
                attributes,
                (start, time),
                (scale, zero_count, zero_threshold, positive, negative, agrees),
                said,
                exemplars,
                flags,
            )| {
                let (count, sum, min, max) = said;
                let sides = [&positive, &negative].into_iter().flatten();
                let summed = sides
                    .flat_map(|side| &side.bucket_counts)
                    .fold(zero_count, |sum, count| sum.saturating_add(*count));
                ExponentialHistogramDataPoint {
                    attributes,
                    start_time_unix_nano: start,
                    time_unix_nano: time,
                    count: if agrees { summed } else { count },
                    sum,
                    scale,
                    zero_count,
                    positive,
                    negative,
                    flags,
                    exemplars,
                    min,
                    max,
                    zero_threshold,
                }
            },
        )
}

fn summary_point() -> impl Strategy<Value = SummaryDataPoint> {
    let quantile = prop_oneof![6 => select(&[0.0, 0.5, 0.9, 0.99, 1.0][..]), 1 => any_number()];
    let quantiles = vec((quantile, any_number()), 0..5);
    (
        any_attributes(),
        times(),
        any_count(),
        any_number(),
        quantiles,
        flags(),
    )
        .prop_map(
            |(attributes, (start, time), count, sum, quantiles, flags)| SummaryDataPoint {
                attributes,
                start_time_unix_nano: start,
                time_unix_nano: time,
                count,
                sum,
                quantile_values: quantiles
                    .into_iter()
                    .map(|(quantile, value)| ValueAtQuantile { quantile, value })
                    .collect(),
                flags,
            },
        )
}
