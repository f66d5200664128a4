// SPDX-License-Identifier: Apache-2.0

//! The protobuf format, read back with a decoder that is not ours.

use std::collections::HashSet;

use prost::Message;
use tidegate_engine::{AttributeValue, Exemplar};

use super::validity::{any_value, hostile_name};
use super::*;

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    of_type: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<PbMetric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, PartialEq, Message)]
struct PbMetric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<Pair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Scalar>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Scalar>,
    #[prost(message, optional, tag = "4")]
    summary: Option<PbSummary>,
    #[prost(message, optional, tag = "5")]
    untyped: Option<Scalar>,
    #[prost(message, optional, tag = "7")]
    histogram: Option<PbHistogram>,
    #[prost(int64, optional, tag = "6")]
    timestamp_ms: Option<i64>,
}

#[derive(Clone, PartialEq, Message)]
struct Pair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Scalar {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(message, optional, tag = "2")]
    exemplar: Option<PbExemplar>,
    #[prost(message, optional, tag = "3")]
    created: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct Timestamp {
    #[prost(int64, tag = "1")]
    seconds: i64,
    #[prost(int32, tag = "2")]
    nanos: i32,
}

#[derive(Clone, PartialEq, Message)]
struct PbExemplar {
    #[prost(message, repeated, tag = "1")]
    label: Vec<Pair>,
    #[prost(double, tag = "2")]
    value: f64,
    #[prost(message, optional, tag = "3")]
    timestamp: Option<Timestamp>,
}

#[derive(Clone, PartialEq, Message)]
struct PbSummary {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    quantile: Vec<PbQuantile>,
}

#[derive(Clone, PartialEq, Message)]
struct PbQuantile {
    #[prost(double, tag = "1")]
    quantile: f64,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct PbHistogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(message, repeated, tag = "9")]
    negative_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "10")]
    negative_delta: Vec<i64>,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(message, optional, tag = "15")]
    created: Option<Timestamp>,
    #[prost(message, repeated, tag = "16")]
    exemplars: Vec<PbExemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "2")]
    bound: f64,
    #[prost(message, optional, tag = "3")]
    exemplar: Option<PbExemplar>,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

fn read(mut page: &[u8]) -> Vec<MetricFamily> {
    let mut families = Vec::new();
    while !page.is_empty() {
        families.push(MetricFamily::decode_length_delimited(&mut page).expect("a family"));
    }
    families
}

fn families(points: &[Point]) -> Vec<MetricFamily> {
    let tables = [table("test")];
    points.iter().for_each(|point| _ = tables[0].observe(point, NOW));
    let mut renderer = renderer(Format::Protobuf);
    let first = read(&renderer.render(&tables, NOW).body);
    // Sizes are known by now: the second page is written another way.
    renderer.kept = None;
    assert_eq!(
        format!("{first:?}"),
        format!("{:?}", read(&renderer.render(&tables, NOW).body))
    );
    first
}

fn point(name: &str, unit: &str, data: Data, value: Value) -> Point {
    let exemplar = Exemplar {
        filtered_attributes: [("k", "a \"quote\"")].into_iter().collect(),
        time: 3_500_000_000,
        value: AttributeValue::Double(1.5),
        trace_id: Vec::new(),
        span_id: Vec::new(),
    };
    Point {
        series: series(
            name,
            unit,
            data,
            &[("service.name", "j"), ("z", "1")],
            &[("a.b", "c\n")],
        ),
        start: 2_000_000_001,
        time: NOW,
        value,
        exemplars: vec![exemplar],
    }
}

fn expected_exemplar() -> Option<PbExemplar> {
    Some(PbExemplar {
        label: pairs(&[("k", "a \"quote\"")]),
        value: 1.5,
        timestamp: Some(Timestamp {
            seconds: 3,
            nanos: 500_000_000,
        }),
    })
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<Pair> {
    let pair = |(name, value): &(&str, &str)| Pair {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    pairs.iter().map(pair).collect()
}

const CREATED: Option<Timestamp> = Some(Timestamp { seconds: 2, nanos: 1 });

#[test]
fn numbers_have_type_unit_labels_exemplar_and_beginning() {
    let all = families(&[
        point("io", "By", COUNTER, Value::Int(7)),
        point("heat", "", Data::Gauge, Value::Double(-0.5)),
    ]);
    let labels = pairs(&[("a_b", "c\n"), ("instance", ""), ("job", "j")]);
    let [heat, io, target] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        (&*io.name, &*io.help, io.of_type, &*io.unit),
        ("io_bytes_total", "What it is", 0, "bytes")
    );
    assert_eq!(
        io.metric,
        [PbMetric {
            label: labels.clone(),
            counter: Some(Scalar {
                value: 7.0,
                exemplar: expected_exemplar(),
                created: CREATED,
            }),
            ..PbMetric::default()
        }]
    );
    assert_eq!((&*heat.name, heat.of_type), ("heat", 1));
    let gauge = heat.metric[0].gauge.as_ref().unwrap();
    assert_eq!(
        (gauge.value, &gauge.exemplar, &gauge.created),
        (-0.5, &None, &None)
    );
    assert_eq!((&*target.name, target.of_type), ("target_info", 1));
    assert_eq!(
        target.metric[0].label,
        pairs(&[("instance", ""), ("job", "j"), ("z", "1")])
    );
}

#[test]
fn an_exponential_histogram_is_a_native_one() {
    let data = Data::ExponentialHistogram {
        temporality: Temporality::Cumulative,
    };
    let value = |scale, sum| {
        Value::ExponentialHistogram(Box::new(ExponentialHistogram {
            count: 6,
            sum,
            scale,
            zero_count: 1,
            positive: Buckets {
                offset: 0,
                counts: vec![2, 0, 3],
            },
            ..ExponentialHistogram::default()
        }))
    };
    let all = families(&[point("d", "s", data, value(2, Some(9.5)))]);
    assert_eq!(
        (&*all[0].name, all[0].of_type, &*all[0].unit),
        ("d_seconds", 4, "seconds")
    );
    assert_eq!(
        all[0].metric[0].histogram,
        Some(PbHistogram {
            count: 6,
            sum: 9.5,
            schema: 2,
            zero_threshold: 1e-128,
            zero_count: 1,
            positive_span: vec![Span { offset: 1, length: 3 }],
            positive_delta: vec![2, -2, 3],
            created: CREATED,
            exemplars: expected_exemplar().into_iter().collect(),
            ..PbHistogram::default()
        })
    );
    let mut other = point("d", "s", data, value(-5, Some(9.5)));
    other.series = Arc::new(Series {
        attributes: [("other", "1")].into_iter().collect(),
        ..(*other.series).clone()
    });
    let both = families(&[point("d", "s", data, value(2, Some(9.5))), other]);
    let is_native = |family: &MetricFamily| {
        let histograms = family
            .metric
            .iter()
            .map(|metric| metric.histogram.as_ref().unwrap());
        histograms
            .map(|histogram| histogram.zero_threshold > 0.0)
            .collect::<Vec<_>>()
    };
    assert_eq!((&*both[0].name, is_native(&both[0])), ("d_seconds", vec![false]));
    assert_eq!((&*both[1].name, is_native(&both[1])), ("d_seconds", vec![true]));
    assert_eq!(both[0].unit, both[1].unit);
    for classic in [value(-5, Some(9.5)), value(2, None)] {
        let all = families(&[point("d", "", data, classic)]);
        let histogram = all[0].metric[0].histogram.as_ref().unwrap();
        assert!(histogram.positive_span.is_empty() && histogram.zero_threshold == 0.0);
        assert_eq!(
            (histogram.bucket.last().unwrap().bound, histogram.count),
            (f64::INFINITY, 6)
        );
    }
}

#[test]
fn classic_histograms_and_summaries_are_messages_of_their_kind() {
    let histogram = Value::Histogram(Box::new(Histogram {
        count: 301,
        sum: None,
        min: None,
        max: None,
        bounds: [1.0, 2.0].into(),
        counts: vec![300, 0, 1],
    }));
    let summary = Value::Summary(Box::new(Summary {
        count: 2,
        sum: 5.0,
        quantiles: vec![Quantile {
            quantile: 0.5,
            value: 2.5,
        }],
    }));
    let all = families(&[
        point("d", "", HISTOGRAM, histogram),
        point("s", "", Data::Summary, summary),
    ]);
    let histogram = all[0].metric[0].histogram.clone().unwrap();
    let bucket = |count, bound, exemplar| Bucket {
        count,
        bound,
        exemplar,
    };
    assert_eq!(
        histogram.bucket,
        [
            bucket(300, 1.0, None),
            bucket(300, 2.0, expected_exemplar()),
            bucket(301, f64::INFINITY, None)
        ]
    );
    assert_eq!(histogram.count, 301);
    assert!(histogram.sum.is_nan(), "there is none");
    let summary = all[1].metric[0].summary.clone().unwrap();
    assert_eq!((summary.count, summary.sum, summary.quantile.len()), (2, 5.0, 1));
}

proptest! {
    #[test]
    fn whatever_comes_the_messages_can_be_read(
        all in prop::collection::vec(
            (hostile_name(), "(|s|By|1|\\PC{0,3})", any_value(),
             prop::collection::vec((hostile_name(), "\\PC{0,4}"), 0..3)), 0..12),
    ) {
        let all: Vec<_> = all
            .into_iter()
            .map(|(name, unit, (data, value), labels)| {
                let labels: Vec<_> = labels.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
                (series(&name, &unit, data, &[("service.name", "s")], &labels), value)
            })
            .collect();
        let tables = [table("test")];
        put(&tables[0], &all);
        let mut renderer = renderer(Format::Protobuf);
        let mut names = HashSet::new();
        for family in read(&renderer.render(&tables, NOW).body) {
            // Native and classic histograms of one name have a message each.
            let first = family.metric.first().and_then(|metric| metric.histogram.as_ref());
            let is_native = first.is_some_and(|histogram| histogram.bucket.is_empty());
            prop_assert!(names.insert((family.name.clone(), is_native)), "{} twice", family.name);
            let mut labels = HashSet::new();
            for metric in family.metric {
                let text = format!("{:?}", metric.label);
                prop_assert!(labels.insert(text));
                if let Some(histogram) = metric.histogram {
                    prop_assert!(histogram.bucket.windows(2).all(|two| two[0].bound < two[1].bound && two[0].count <= two[1].count));
                    let (mut count, mut total) = (0, histogram.zero_count);
                    for delta in &histogram.positive_delta {
                        count += delta;
                        total += count as u64;
                    }
                    count = 0;
                    for delta in &histogram.negative_delta {
                        count += delta;
                        total += count as u64;
                    }
                    prop_assert!(!histogram.bucket.is_empty() || total == histogram.count);
                }
            }
        }
    }
}
