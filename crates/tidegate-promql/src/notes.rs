// SPDX-License-Identifier: Apache-2.0

//! Warnings and infos about an answer, in Prometheus's words.

use std::cell::RefCell;
use std::collections::BTreeSet;

use super::Work;
use super::syntax::ast::QuerySpan;
use super::syntax::{position, quoted};

/// The notes on an answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// Warnings: the answer may differ from the intended one.
    pub warnings: Vec<String>,
    /// Something was done that one should know.
    pub infos: Vec<String>,
    /// The work of the query.
    pub work: Work,
}

#[derive(Debug, Default)]
pub(super) struct Notebook(RefCell<BTreeSet<(Note, QuerySpan)>>);

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Note {
    /// The quantile in Go's `%g` format.
    InvalidQuantile(String),
    /// Metric name and value of the label.
    BadBucketLabel(String, String),
    MixedClassicNative(String),
    MixedInRange(String),
    MixedInAggregation,
    NotGauge(String),
    PossibleNonCounter(String),
    ForcedMonotonicity(String),
    /// The kinds of both sides, with the operator between them.
    IncompatibleTypes(&'static str, &'static str, &'static str),
    IgnoredInAggregation(&'static str),
    IgnoredInRange(String),
    NanInFraction(String),
    NanInQuantile(String, bool),
}

impl Note {
    fn is_warning(&self) -> bool {
        matches!(
            self,
            Self::InvalidQuantile(_)
                | Self::BadBucketLabel(..)
                | Self::MixedClassicNative(_)
                | Self::MixedInRange(_)
                | Self::MixedInAggregation
                | Self::NotGauge(_)
        )
    }

    fn text(&self) -> String {
        let for_metric = |name: &String| {
            if name.is_empty() {
                String::new()
            } else {
                format!(" for metric name {}", quoted(name))
            }
        };
        match self {
            Self::InvalidQuantile(q) => format!("quantile value should be between 0 and 1, got {q}"),
            Self::BadBucketLabel(name, le) => format!(
                "bucket label \"le\" is missing or has a malformed value of {}{}",
                quoted(le),
                for_metric(name)
            ),
            Self::MixedClassicNative(name) => format!(
                "vector contains a mix of classic and native histograms{}",
                for_metric(name)
            ),
            Self::MixedInRange(name) => format!(
                "encountered a mix of histograms and floats for metric name {}",
                quoted(name)
            ),
            Self::MixedInAggregation => {
                "encountered a mix of histograms and floats for aggregation".to_owned()
            }
            Self::NotGauge(name) => {
                format!("this native histogram metric is not a gauge: {}", quoted(name))
            }
            Self::PossibleNonCounter(name) => format!(
                "metric might not be a counter, name does not end in _total/_sum/_count/_bucket: {}",
                quoted(name)
            ),
            Self::ForcedMonotonicity(name) => format!(
                "input to histogram_quantile needed to be fixed for monotonicity (see https://prometheus.io/docs/prometheus/latest/querying/functions/#histogram_quantile){}",
                for_metric(name)
            ),
            Self::IncompatibleTypes(left, operator, right) => format!(
                "incompatible sample types encountered for binary operator {}: {left} {operator} {right}",
                quoted(operator)
            ),
            Self::IgnoredInAggregation(operator) => format!("ignored histogram in {operator} aggregation"),
            Self::IgnoredInRange(name) => format!(
                "ignored histograms in a range containing both floats and histograms for metric name {}",
                quoted(name)
            ),
            Self::NanInFraction(name) => format!(
                "input to histogram_fraction has NaN observations, which are excluded from all fractions{}",
                for_metric(name)
            ),
            Self::NanInQuantile(name, is_result) => format!(
                "input to histogram_quantile has NaN observations, result is {}{}",
                if *is_result { "NaN" } else { "skewed higher" },
                for_metric(name)
            ),
        }
    }
}

impl Notebook {
    /// Each note once a place.
    pub(super) fn add(&self, note: Note, span: QuerySpan) {
        self.0.borrow_mut().insert((note, span));
    }

    /// The notes as the API shows them, with their positions in the query.
    pub(super) fn into_notes(self, query: &str) -> Notes {
        let mut notes = Notes::default();
        for (note, span) in self.0.into_inner() {
            let (kind, list) = if note.is_warning() {
                ("warning", &mut notes.warnings)
            } else {
                ("info", &mut notes.infos)
            };
            let text = format!("PromQL {kind}: {} ({})", note.text(), position(query, span.start));
            list.push(text);
        }
        notes.warnings.dedup();
        notes.infos.dedup();
        notes
    }
}

/// A number as Go's `%g` writes it.
pub(super) fn go_shortest(number: f64) -> String {
    match number {
        _ if number.is_nan() => return "NaN".to_owned(),
        f64::INFINITY => return "+Inf".to_owned(),
        f64::NEG_INFINITY => return "-Inf".to_owned(),
        0.0 => return if number.is_sign_negative() { "-0" } else { "0" }.to_owned(),
        _ => {}
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..6).contains(&exponent) {
        number.to_string()
    } else {
        let sign = if exponent < 0 { '-' } else { '+' };
        format!("{digits}e{sign}{:02}", exponent.abs())
    }
}
