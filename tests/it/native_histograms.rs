//! Queries over native histograms against a real Prometheus that was sent the same samples.
//!
//! Debian's Prometheus is 2.42, which knows fewer functions of native histograms than version 3, whose rules we follow.
//! Where it has another way to say the same, the file of queries has that behind `=>`; what can't be said at all
//! (quantiles between two bounds, which version 3 interpolates over logarithms) is tested in the engine by hand.

use super::kit::{Prometheus, http};
use super::promql::{Answer, BASE, Recorded, TICK, TICKS, differ, matrix, noise, our_instant, theirs};
use prost::Message;
use std::sync::Arc;
use tidegate_engine::query::{
    FloatHistogram, HistogramSample, Labels, Millis, NAME, Query, QuerySeries, Sample,
};
use tidegate_engine::{Buckets, ExponentialHistogram};

/// Whole queries, one a line; behind `=>` what to ask the server.
const QUERIES: &str = include_str!("../data/promql/native_queries.txt");

/// Prometheus's `prompb.WriteRequest`, as far as it is used.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Float>,
    #[prost(message, repeated, tag = "4")]
    histograms: Vec<Histogram>,
}

#[derive(Clone, PartialEq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

#[derive(Clone, PartialEq, Message)]
struct Float {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(uint64, tag = "1")]
    count: u64,
    #[prost(double, tag = "3")]
    sum: f64,
    #[prost(sint32, tag = "4")]
    schema: i32,
    #[prost(double, tag = "5")]
    zero_threshold: f64,
    #[prost(uint64, tag = "6")]
    zero_count: u64,
    #[prost(message, repeated, tag = "8")]
    negative_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "9")]
    negative_deltas: Vec<i64>,
    #[prost(message, repeated, tag = "11")]
    positive_spans: Vec<Span>,
    #[prost(sint64, repeated, tag = "12")]
    positive_deltas: Vec<i64>,
    #[prost(int64, tag = "15")]
    timestamp: i64,
}

#[derive(Clone, PartialEq, Message)]
struct Span {
    #[prost(sint32, tag = "1")]
    offset: i32,
    #[prost(uint32, tag = "2")]
    length: u32,
}

/// A histogram of some observations.
fn of(scale: i32, zero_threshold: f64, values: &[f64]) -> ExponentialHistogram {
    let index = |value: f64| ((value.abs().log2() * f64::from(scale).exp2()).ceil() as i32) - 1;
    let side = |is_mine: &dyn Fn(f64) -> bool| {
        let mine = values
            .iter()
            .copied()
            .filter(|value| value.abs() > zero_threshold && is_mine(*value));
        let indices: Vec<i32> = mine.map(index).collect();
        let (first, last) = (indices.iter().min(), indices.iter().max());
        let mut buckets = Buckets::default();
        if let (Some(first), Some(last)) = (first, last) {
            buckets.offset = *first;
            buckets.counts = vec![0; (last - first + 1) as usize];
            indices
                .iter()
                .for_each(|index| buckets.counts[(index - first) as usize] += 1);
        }
        buckets
    };
    ExponentialHistogram {
        count: values.len() as u64,
        // Sixteenths, so that no order of adding them up matters.
        sum: Some(values.iter().sum()),
        scale,
        zero_count: values
            .iter()
            .filter(|value| value.abs() <= zero_threshold)
            .count() as u64,
        zero_threshold,
        positive: side(&|value| value > 0.0),
        negative: side(&|value| value < 0.0),
        ..ExponentialHistogram::default()
    }
}

/// The observations up to a tick, since the last reset.
fn observed(seed: u64, tick: i64, reset_at: i64, value: impl Fn(f64) -> f64) -> Vec<f64> {
    let from = if tick >= reset_at { reset_at } else { -12 };
    let of_tick = |tick: i64| (0..5).map(move |n| noise(seed * 10 + n, tick));
    (from..=tick)
        .flat_map(of_tick)
        .map(|noise| (value(noise) * 16.0).round() / 16.0)
        .collect()
}

/// Samples of a series: histograms, or numbers in between.
type Mixed = Vec<(Millis, Result<ExponentialHistogram, f64>)>;
type Recording = Vec<(Labels, Mixed)>;

/// Histograms of several resolutions, with resets, gaps and zero buckets of several widths, and numbers.
fn recording() -> Recording {
    let mut all = Recording::new();
    let mut series = |name: &str,
                      pairs: &[(&str, &str)],
                      value: &dyn Fn(i64) -> Option<Result<ExponentialHistogram, f64>>| {
        let labels = pairs.iter().copied().chain([(NAME, name)]).collect();
        let samples = (0..TICKS).filter_map(|tick| Some((BASE + tick * TICK, value(tick)?)));
        all.push((labels, samples.collect()));
    };
    let latency = |noise: f64| 0.0625 + 40.0 * noise.powi(4);
    for (seed, (pod, zone, reset_at)) in [
        ("p1", "x", 1000),
        ("p2", "x", 63),
        ("p3", "y", 38),
        ("p4", "y", 1000),
    ]
    .into_iter()
    .enumerate()
    {
        let pairs = [("pod", pod), ("zone", zone)];
        let seed = seed as u64 + 1;
        series("latency_seconds", &pairs, &|tick| {
            let scale = match pod {
                "p3" => 1,
                "p4" if tick >= 60 => 2,
                _ => 3,
            };
            Some(Ok(of(scale, 1e-9, &observed(seed, tick, reset_at, latency))))
        });
        series("limit_seconds", &pairs, &|tick| {
            Some(Err(noise(seed + 70, tick) * 9.0))
        });
    }
    for (node, threshold) in [("a", 0.125), ("b", 0.5), ("c", 0.125)] {
        series("drift", &[("node", node)], &|tick| {
            let values = observed(20, tick, 1000, |noise| (noise - 0.4) * 6.0);
            Some(Ok(of(2, threshold, &values)))
        });
    }
    series("seldom_seconds", &[("job", "batch")], &|tick| {
        (tick % 40 < 8).then(|| Ok(of(2, 0.0, &observed(31, tick, 1000, latency))))
    });
    series("early", &[("kind", "mixed")], &|tick| {
        Some(match tick < 66 {
            true => Err(tick as f64),
            false => Ok(of(2, 0.0, &observed(33, tick, 1000, latency))),
        })
    });
    all
}

fn in_memory(recording: &Recording) -> Recorded {
    let series = |(labels, samples): &(Labels, Vec<_>)| {
        let mut series = QuerySeries::of_floats(labels.clone(), Vec::new());
        for (time, value) in samples {
            match value {
                Err(value) => series.samples.push(Sample {
                    time: *time,
                    value: *value,
                }),
                Ok(histogram) => series.histograms.push(HistogramSample {
                    time: *time,
                    value: Arc::new(FloatHistogram::from(histogram)),
                }),
            }
        }
        series
    };
    recording.iter().map(series).collect()
}

fn side(buckets: &Buckets) -> (Vec<Span>, Vec<i64>) {
    let before = [0].iter().chain(&buckets.counts);
    let pairs = buckets.counts.iter().zip(before);
    let deltas = pairs.map(|(now, before)| *now as i64 - *before as i64).collect();
    let span = Span {
        offset: buckets.offset + 1,
        length: buckets.counts.len() as u32,
    };
    (
        if buckets.counts.is_empty() {
            Vec::new()
        } else {
            vec![span]
        },
        deltas,
    )
}

fn written(recording: &Recording) -> Vec<u8> {
    let histogram = |timestamp: Millis, of: &ExponentialHistogram| {
        let ((positive_spans, positive_deltas), (negative_spans, negative_deltas)) =
            (side(&of.positive), side(&of.negative));
        Histogram {
            count: of.count,
            sum: of.sum.unwrap(),
            schema: of.scale,
            zero_threshold: of.zero_threshold,
            zero_count: of.zero_count,
            negative_spans,
            negative_deltas,
            positive_spans,
            positive_deltas,
            timestamp,
        }
    };
    let series = |(labels, samples): &(Labels, Mixed)| TimeSeries {
        labels: labels
            .iter()
            .map(|(name, value)| Label {
                name: name.to_string(),
                value: value.to_string(),
            })
            .collect(),
        samples: samples
            .iter()
            .filter_map(|(timestamp, value)| {
                let value = *value.as_ref().err()?;
                Some(Float {
                    value,
                    timestamp: *timestamp,
                })
            })
            .collect(),
        histograms: samples
            .iter()
            .filter_map(|(time, value)| Some(histogram(*time, value.as_ref().ok()?)))
            .collect(),
    };
    let request = WriteRequest {
        timeseries: recording.iter().map(series).collect(),
    };
    snap::raw::Encoder::new()
        .compress_vec(&request.encode_to_vec())
        .unwrap()
}

fn queries() -> impl Iterator<Item = (&'static str, &'static str)> {
    let lines = QUERIES
        .lines()
        .filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(|line| line.split_once(" => ").unwrap_or((line, line)))
}

#[test]
fn queries_over_native_histograms_have_the_values_that_a_real_prometheus_gives() {
    let recording = recording();
    let recorded = in_memory(&recording);
    let server = Prometheus::start("{}");
    let headers = [
        ("content-type", "application/x-protobuf"),
        ("content-encoding", "snappy"),
    ];
    let answer = http::request(
        "POST",
        server.port(),
        "/api/v1/write",
        &headers,
        &written(&recording),
    )
    .unwrap();
    assert_eq!(answer.status, 204, "{}", String::from_utf8_lossy(&answer.body));
    assert!(queries().count() >= 30);
    let mut differences = Vec::new();
    for time in [BASE + 403_900, BASE + 777_100, BASE + 1_203_700] {
        for (ours, asked) in queries() {
            let seconds = (time as f64 / 1000.0).to_string();
            let answer = server.api("/api/v1/query", &[("query", asked), ("time", &seconds)]);
            let difference = differ(ours, &our_instant(&recorded, ours, time), &theirs(&answer));
            differences.extend(difference.map(|what| format!("{ours} at {seconds}: {what}")));
        }
    }
    // Always some seconds behind a sample: what the server is asked instead may look at steps where we look at samples.
    let (start, end, step) = (BASE + 413_600, BASE + 1_170_000, 40_000);
    for (ours, asked) in queries() {
        let bounds = [start, end, step].map(|time| (time as f64 / 1000.0).to_string());
        let form = [
            ("query", asked),
            ("start", &bounds[0]),
            ("end", &bounds[1]),
            ("step", &bounds[2]),
        ];
        let answer = server.api("/api/v1/query_range", &form);
        let range = Query::parse(ours).and_then(|query| query.range(&recorded, start, end, step));
        let range: Answer = range
            .map(|series| ("matrix".to_owned(), matrix(series)))
            .map_err(|error| error.to_string());
        let difference = differ(&format!("range {ours}"), &range, &theirs(&answer));
        differences.extend(difference.map(|what| format!("{ours} in steps: {what}")));
    }
    let shown = differences
        .iter()
        .map(|text| text.chars().take(400).collect::<String>());
    let shown: Vec<String> = shown.take(40).collect();
    assert!(
        differences.is_empty(),
        "{} differ:\n{}",
        differences.len(),
        shown.join("\n")
    );
}
