// SPDX-License-Identifier: Apache-2.0

//! Answers of both, and what differs between them.

use serde_json::Value as Json;
use std::collections::{BTreeMap, BTreeSet};
use tidegate_promql::{FloatHistogram, Instant, Labels, Millis, Notes, QueryError, QuerySeries, SampleValue};

/// Labels, and times with the numbers that make a value.
type Shown = (BTreeMap<String, String>, Vec<(f64, Vec<f64>)>);

#[derive(Debug)]
pub(super) enum Answer {
    /// `bad_data` or `execution`, and the text.
    Error(String, String),
    /// A type, its series, warnings and infos.
    Value(String, Vec<Shown>, BTreeSet<String>),
}

fn labels(labels: &Labels) -> BTreeMap<String, String> {
    let pairs = labels.iter();
    pairs
        .map(|(name, value)| (name.to_string(), value.to_string()))
        .collect()
}

/// A number is itself; a native histogram its count, its sum, and its buckets as the API shows them.
fn at(time: Millis, value: &SampleValue) -> (f64, Vec<f64>) {
    let numbers = match value {
        SampleValue::Float(number) => vec![*number],
        SampleValue::Histogram(histogram) => numbers(histogram),
    };
    (time as f64 / 1000.0, numbers)
}

fn numbers(histogram: &FloatHistogram) -> Vec<f64> {
    let buckets = histogram.buckets().into_iter();
    let buckets = buckets.flat_map(|b| [f64::from(b.rule as u8), b.lower, b.upper, b.count]);
    [histogram.count, histogram.sum]
        .into_iter()
        .chain(buckets)
        .collect()
}

fn matrix(series: &[QuerySeries]) -> Vec<Shown> {
    let samples = |series: &QuerySeries| {
        let floats = series.samples.iter();
        let floats = floats.map(|sample| at(sample.time, &SampleValue::Float(sample.value)));
        let histograms = series.histograms.iter();
        let histograms =
            histograms.map(|sample| at(sample.time, &SampleValue::Histogram(sample.value.clone())));
        floats.chain(histograms).collect()
    };
    series
        .iter()
        .map(|series| (labels(&series.labels), samples(series)))
        .collect()
}

fn note_set(notes: &Notes) -> BTreeSet<String> {
    notes.warnings.iter().chain(&notes.infos).cloned().collect()
}

fn failed(error: &QueryError) -> Answer {
    let kind = match error {
        QueryError::Syntax(_) | QueryError::Unsupported(_) | QueryError::TooMuch(_) => "bad_data",
        _ => "execution",
    };
    Answer::Error(kind.to_owned(), error.to_string())
}

impl Answer {
    pub(super) fn of_instant(answer: Result<(Instant, Notes), QueryError>) -> Self {
        let (value, notes) = match answer {
            Ok(answer) => answer,
            Err(error) => return failed(&error),
        };
        let (kind, series) = match &value {
            Instant::Scalar(number) => ("scalar", vec![(BTreeMap::new(), vec![(0.0, vec![*number])])]),
            Instant::String(text) => {
                return Self::Value(format!("string {text}"), Vec::new(), note_set(&notes));
            }
            Instant::Vector(vector) => {
                let series = vector.iter();
                let series = series.map(|(names, value)| (labels(names), vec![(0.0, at(0, value).1)]));
                ("vector", series.collect())
            }
            Instant::Matrix(series) => ("matrix", matrix(series)),
        };
        Self::Value(kind.to_owned(), series, note_set(&notes))
    }

    pub(super) fn of_range(answer: Result<(Vec<QuerySeries>, Notes), QueryError>) -> Self {
        match answer {
            Ok((series, notes)) => Self::Value("matrix".to_owned(), matrix(&series), note_set(&notes)),
            Err(error) => failed(&error),
        }
    }

    pub(super) fn of_json(answer: &Json) -> Self {
        let text = |json: &Json| json.as_str().unwrap_or_default().to_owned();
        if answer["status"] != "success" {
            let why = text(&answer["error"]);
            let why = why.strip_prefix("invalid parameter \"query\": ").unwrap_or(&why);
            return Self::Error(text(&answer["errorType"]), why.to_owned());
        }
        let all = |name: &str| answer[name].as_array().into_iter().flatten().map(text);
        let notes = all("warnings").chain(all("infos")).collect();
        let (kind, result) = (text(&answer["data"]["resultType"]), &answer["data"]["result"]);
        match &*kind {
            "string" => Self::Value(format!("string {}", text(&result[1])), Vec::new(), notes),
            "scalar" => {
                let value = (0.0, vec![number(&result[1])]);
                Self::Value(kind, vec![(BTreeMap::new(), vec![value])], notes)
            }
            _ => {
                let is_vector = kind == "vector";
                let series = result.as_array().into_iter().flatten();
                let series = series.map(|series| shown(series, is_vector)).collect();
                Self::Value(kind, series, notes)
            }
        }
    }
}

/// A series of the API. A vector's values have the time of the query.
fn shown(series: &Json, is_vector: bool) -> Shown {
    let labels = series["metric"].as_object().into_iter().flatten();
    let labels = labels.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
    let sample = |sample: &Json| {
        let value = &sample[1];
        let buckets = value["buckets"].as_array().into_iter().flatten();
        let buckets = buckets.flat_map(|bucket| bucket.as_array().unwrap());
        let numbers = match value {
            Json::String(_) => vec![number(value)],
            _ => [&value["count"], &value["sum"]]
                .into_iter()
                .chain(buckets)
                .map(number)
                .collect(),
        };
        let time = if is_vector {
            0.0
        } else {
            sample[0].as_f64().unwrap()
        };
        (time, numbers)
    };
    let of = |kind: &str| series[kind].as_array().into_iter().flatten();
    let one = ["value", "histogram"].map(|kind| series.get(kind));
    let values = of("values").chain(of("histograms"));
    let values = values.chain(one.into_iter().flatten()).map(sample);
    (labels.collect(), values.collect())
}

fn number(text: &Json) -> f64 {
    match text {
        Json::String(text) => text.parse().unwrap(),
        other => other.as_f64().unwrap(),
    }
}

/// Equal but for the last bits of sums that are added up in another order.
fn close(a: f64, b: f64) -> bool {
    let scale = a.abs().max(b.abs()).max(1e-6);
    a == b || (a.is_nan() && b.is_nan()) || (a - b).abs() <= 1e-9 * scale
}

fn same(a: &[Shown], b: &[Shown]) -> bool {
    let values = |a: &[f64], b: &[f64]| a.len() == b.len() && a.iter().zip(b).all(|(a, b)| close(*a, *b));
    let samples = |a: &(f64, Vec<f64>), b: &(f64, Vec<f64>)| a.0 == b.0 && values(&a.1, &b.1);
    a.len() == b.len()
        && a.iter().zip(b).all(|(a, b)| {
            a.0 == b.0 && a.1.len() == b.1.len() && a.1.iter().zip(&b.1).all(|(a, b)| samples(a, b))
        })
}

/// Notes without what version 3.5 says otherwise: it names a metric that has no name, says what it says of a metric once
/// more of none, and places what it says of a subquery at the beginning of the query.
fn comparable(notes: &BTreeSet<String>, has_subquery: bool) -> BTreeSet<String> {
    let clean = |note: &String| {
        let note = note.replace(" for metric name \"\" (", " (");
        match note.rsplit_once(" (") {
            Some((text, _)) if has_subquery => text.to_owned(),
            _ => note,
        }
    };
    let nameless = |note: &String| {
        let (before, behind) = note.split_once(" for metric name \"")?;
        let place = behind.split_once("\" ").map_or("", |(_, place)| place);
        Some(format!("{before} {place}").trim_end().to_owned())
    };
    let cleaned: BTreeSet<String> = notes.iter().map(clean).collect();
    let repeated: BTreeSet<String> = cleaned.iter().filter_map(nameless).collect();
    cleaned.difference(&repeated).cloned().collect()
}

/// The difference, if there is one. The order counts where the query says it, but not among equal values.
pub(super) fn differ(query: &str, ours: &Answer, theirs: &Answer) -> Option<String> {
    let same = match (ours, theirs) {
        (Answer::Error(a, b), Answer::Error(c, d)) => (a, b) == (c, d),
        (Answer::Value(our_kind, ours, our_notes), Answer::Value(their_kind, theirs, their_notes)) => {
            let (mut ours, mut theirs) = (ours.clone(), theirs.clone());
            let first =
                |shown: &[Shown]| -> Vec<f64> { shown.iter().map(|(_, values)| values[0].1[0]).collect() };
            let in_order = match query {
                _ if query.starts_with("sort_by_label") => same(&ours, &theirs),
                _ if ["sort", "topk(", "bottomk("]
                    .iter()
                    .any(|word| query.starts_with(word)) =>
                {
                    first(&ours).iter().zip(first(&theirs)).all(|(a, b)| close(*a, b))
                }
                _ => true,
            };
            ours.sort_by(|a, b| a.0.cmp(&b.0));
            theirs.sort_by(|a, b| a.0.cmp(&b.0));
            let notes = |notes| comparable(notes, notes_of_subqueries(our_notes, their_notes));
            in_order
                && our_kind == their_kind
                && same(&ours, &theirs)
                && notes(our_notes) == notes(their_notes)
        }
        _ => false,
    };
    (!same).then(|| format!("{ours:?}\n  theirs {theirs:?}"))
}

/// Whether both say the same but for places, which they do of subqueries.
fn notes_of_subqueries(ours: &BTreeSet<String>, theirs: &BTreeSet<String>) -> bool {
    let is_at_start = |note: &String| note.ends_with(" (1:1)");
    theirs.iter().any(is_at_start) && !ours.iter().any(is_at_start)
}
