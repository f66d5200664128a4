// SPDX-License-Identifier: Apache-2.0

//! Protobuf pages, right and wrong.

use prost::Message;
use tidegate_exposition::Format;

use super::Case;

#[derive(Clone, PartialEq, Message)]
struct MetricFamily {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    help: String,
    #[prost(int32, tag = "3")]
    kind: i32,
    #[prost(message, repeated, tag = "4")]
    metric: Vec<Metric>,
    #[prost(string, tag = "5")]
    unit: String,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(message, repeated, tag = "1")]
    label: Vec<LabelPair>,
    #[prost(message, optional, tag = "2")]
    gauge: Option<Number>,
    #[prost(message, optional, tag = "3")]
    counter: Option<Number>,
    #[prost(message, optional, tag = "4")]
    summary: Option<Summary>,
    #[prost(message, optional, tag = "5")]
    untyped: Option<Number>,
    #[prost(int64, tag = "6")]
    timestamp_ms: i64,
    #[prost(message, optional, tag = "7")]
    histogram: Option<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct LabelPair {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Number {
    #[prost(double, tag = "1")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Summary {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    quantile: Vec<Quantile>,
}

#[derive(Clone, PartialEq, Message)]
struct Quantile {
    #[prost(double, tag = "1")]
    quantile: f64,
    #[prost(double, tag = "2")]
    value: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    sample_count: u64,
    #[prost(double, tag = "2")]
    sample_sum: f64,
    #[prost(message, repeated, tag = "3")]
    bucket: Vec<Bucket>,
    #[prost(double, tag = "4")]
    sample_count_float: f64,
    #[prost(sint32, tag = "5")]
    schema: i32,
    #[prost(double, tag = "6")]
    zero_threshold: f64,
    #[prost(uint64, tag = "7")]
    zero_count: u64,
    #[prost(double, tag = "8")]
    zero_count_float: f64,
    #[prost(message, repeated, tag = "12")]
    positive_span: Vec<Span>,
    #[prost(sint64, repeated, tag = "13")]
    positive_delta: Vec<i64>,
    #[prost(double, repeated, tag = "14")]
    positive_count: Vec<f64>,
}

#[derive(Clone, PartialEq, Message)]
struct Bucket {
    #[prost(uint64, tag = "1")]
    cumulative_count: u64,
    #[prost(double, tag = "2")]
    upper_bound: f64,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

fn labels(pairs: &[(&str, &str)]) -> Vec<LabelPair> {
    let pair = |(name, value): &(&str, &str)| LabelPair {
        name: (*name).to_owned(),
        value: (*value).to_owned(),
    };
    pairs.iter().map(pair).collect()
}

fn family(name: &str, kind: i32, metric: Metric) -> MetricFamily {
    MetricFamily {
        name: name.to_owned(),
        kind,
        metric: vec![metric],
        ..MetricFamily::default()
    }
}

fn counter(pairs: &[(&str, &str)], value: f64) -> Metric {
    Metric {
        label: labels(pairs),
        counter: Some(Number { value }),
        ..Metric::default()
    }
}

fn histogram(histogram: Histogram) -> MetricFamily {
    let metric = Metric {
        label: labels(&[("a", "b")]),
        histogram: Some(histogram),
        ..Metric::default()
    };
    family("h", 4, metric)
}

/// Two in (1, 2], three in (4, 8].
fn native() -> Histogram {
    Histogram {
        sample_count: 6,
        sample_sum: 21.5,
        zero_count: 1,
        zero_threshold: 0.001,
        positive_span: vec![Span { offset: 1, length: 1 }, Span { offset: 1, length: 1 }],
        positive_delta: vec![2, 1],
        ..Histogram::default()
    }
}

fn buckets(bounds: &[f64]) -> Vec<Bucket> {
    let bucket = |(at, bound): (usize, &f64)| Bucket {
        cumulative_count: at as u64 + 1,
        upper_bound: *bound,
    };
    bounds.iter().enumerate().map(bucket).collect()
}

/// Families one after another, each as a page of its own and all as one; then pages that are broken.
pub(super) fn cases() -> Vec<Case> {
    let right = sound();
    let mut pages: Vec<Vec<u8>> = right
        .iter()
        .map(Message::encode_length_delimited_to_vec)
        .collect();
    pages.push(pages.concat());
    pages.extend(unsound().iter().map(Message::encode_length_delimited_to_vec));
    let whole = pages[0].clone();
    pages.push(whole[..whole.len() - 1].to_vec());
    pages.push([&whole[..], &[200]].concat());
    pages.push([&whole[..], b"\x03abc"].concat());
    // An empty message is not a family, but it is valid.
    pages.push([&whole[..], &[0]].concat());
    let broken = whole.iter().map(|byte| if *byte == b'x' { 0xff } else { *byte });
    pages.push(broken.collect());
    let case = |page: Vec<u8>| Case {
        format: Format::Protobuf,
        page,
        differs: None,
    };
    pages.into_iter().map(case).collect()
}

fn sound() -> Vec<MetricFamily> {
    let gauge = Metric {
        gauge: Some(Number { value: f64::NAN }),
        ..Metric::default()
    };
    let untyped = Metric {
        untyped: Some(Number { value: -0.5 }),
        ..Metric::default()
    };
    let summary = Metric {
        summary: Some(Summary {
            sample_count: 3,
            sample_sum: 4.5,
            quantile: vec![
                Quantile {
                    quantile: 0.5,
                    value: 1.0,
                },
                Quantile {
                    quantile: 1e-7,
                    value: 2.0,
                },
            ],
        }),
        ..Metric::default()
    };
    let bare = Metric {
        summary: Some(Summary::default()),
        ..Metric::default()
    };
    let mut with_unit = family("x_seconds_total", 0, counter(&[], 1.0));
    with_unit.unit = "seconds".to_owned();
    vec![
        family("xyz_total", 0, counter(&[("x", "y"), ("z", "")], 2.0)),
        family("x.y", 0, counter(&[("a.b", "é\n\"")], 2.0)),
        family("g", 1, gauge),
        family("u", 3, untyped),
        family("s", 2, summary),
        family("bare", 2, bare),
        with_unit,
        // A value of another type than the family's is none.
        family("odd", 1, counter(&[], 7.0)),
        histogram(native()),
        histogram(Histogram {
            sample_count: 3,
            sample_sum: 2.0,
            bucket: buckets(&[0.1, 1.0, 1e6]),
            ..Histogram::default()
        }),
        histogram(Histogram {
            sample_count: 3,
            bucket: buckets(&[1.0, f64::INFINITY, 2.0]),
            ..Histogram::default()
        }),
        histogram(Histogram {
            bucket: buckets(&[1.0]),
            ..native()
        }),
        histogram(Histogram {
            sample_count_float: 2.5,
            positive_delta: Vec::new(),
            positive_count: vec![1.0, 1.5],
            ..native()
        }),
        histogram(Histogram::default()),
        MetricFamily::default(),
        family("twice", 0, counter(&[], 1.0)),
        family("twice", 0, counter(&[], 2.0)),
    ]
}

fn unsound() -> Vec<MetricFamily> {
    let mut unit = family("x_seconds", 1, Metric::default());
    unit.unit = "bytes".to_owned();
    vec![
        family("", 0, counter(&[], 1.0)),
        family("a", 9, counter(&[], 1.0)),
        family("a", 0, counter(&[("b", "1"), ("b", "2")], 1.0)),
        family("a", 0, counter(&[("", "1")], 1.0)),
        unit,
        histogram(Histogram {
            sample_count: 99,
            ..native()
        }),
        histogram(Histogram {
            positive_delta: vec![2, -3],
            ..native()
        }),
        histogram(Histogram {
            positive_delta: vec![2],
            ..native()
        }),
        histogram(Histogram {
            positive_span: vec![
                Span { offset: 1, length: 1 },
                Span {
                    offset: -1,
                    length: 1,
                },
            ],
            ..native()
        }),
        histogram(Histogram {
            schema: -53,
            ..native()
        }),
    ]
}
