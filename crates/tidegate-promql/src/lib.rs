// SPDX-License-Identifier: Apache-2.0

//! PromQL over samples: a parsed query, and its value at an instant or over a range.
//!
//! It follows Prometheus 3: ranges and the look-back are open on the left, and a stale marker ends a series. It refuses
//! unsupported syntax by name. A caller supplies the samples ([`Samples`]); [`History`] keeps recent ones in bounded
//! memory.
//!
//! It does no I/O and has no async code. Callers pass the time of a query in. A clock serves only deadlines
//! ([`Patience`]) and [`Work`].

#![forbid(unsafe_code)]

mod aggregate;
mod binary;
mod buckets;
mod call;
mod dates;
mod eval;
mod fetch;
mod float_histogram;
mod functions;
mod history;
mod labels;
mod native;
mod native_over_time;
#[cfg(test)]
mod native_tests;
mod need;
#[cfg(test)]
mod need_tests;
mod notes;
mod over_time;
mod patience;
mod rows;
mod sample;
mod syntax;
#[cfg(test)]
mod tests;
mod window;
mod work;

use syntax::ast::{Expr, Type};

pub use dates::{Date, days_in_month, days_since_1970};
pub use float_histogram::{Boundary, Bucket, FloatHistogram};
pub use history::{History, HistoryLimits, PastCopy, SeriesId};
pub use labels::{Labels, Matcher, NAME};
pub use need::{Need, Steps};
pub use notes::Notes;
pub use patience::Patience;
pub use sample::{HistogramSample, QuerySeries, Sample, SampleValue};
pub use syntax::durations::{parse as parse_duration, show as show_duration};
pub use work::Work;

/// Milliseconds since the Unix epoch, as Prometheus counts time.
pub type Millis = i64;

/// The default look-back of an instant for a sample: 5 min.
pub const LOOK_BACK_MS: Millis = 300_000;

/// The step of a subquery that names none: Prometheus's default evaluation interval.
const SUBQUERY_STEP_MS: Millis = 60_000;

/// Steps of one range query, as in Prometheus.
pub const MAX_STEPS: Millis = 11_000;

/// Samples that one query may look at, each time that it looks, where nothing else is said: about a second of work.
pub const MAX_SAMPLES: usize = if cfg!(test) { 200_000 } else { 20_000_000 };

/// A longer query is refused.
const MAX_QUERY_BYTES: usize = 64 << 10;

/// The reason why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum QueryError {
    /// It is not PromQL.
    #[error("{0}")]
    Syntax(String),
    /// It is PromQL that is not supported here.
    #[error("{0} is not supported")]
    Unsupported(String),
    /// It is PromQL that has no value.
    #[error("{0}")]
    Execution(String),
    /// It asks for more than is allowed.
    #[error("{0}")]
    TooMuch(String),
    /// The samples can't be had.
    #[error("{0}")]
    Samples(String),
    /// It took longer than it may.
    #[error("query timed out in expression evaluation")]
    Timeout,
    /// The caller no longer waits for the answer.
    #[error("query was canceled in expression evaluation")]
    Canceled,
    /// Memory became short while it was computed.
    #[error("not enough memory to continue the query")]
    Memory,
}

impl QueryError {
    /// The query looks at more samples than it may.
    pub fn too_many_samples() -> Self {
        Self::TooMuch("the query reads more samples than the limit".to_owned())
    }
}

/// The samples that a selector needs.
#[derive(Clone, Debug)]
pub struct Selection {
    /// All of these accept its series.
    pub matchers: Vec<Matcher>,
    /// Samples later than this.
    pub from: Millis,
    /// Samples not later than this.
    pub to: Millis,
    /// The subset of them that the selector needs.
    pub need: Need,
    /// The most samples that it may give.
    pub max_samples: usize,
    /// The limits of the wait for them.
    pub patience: Patience,
}

impl Selection {
    /// The earliest time of which it needs a value. A value may be older than its time by the look-back.
    pub fn since(&self) -> Millis {
        match self.need {
            Need::Newest => self.to,
            Need::Steps(steps) => steps.start,
            Need::All => self.from,
        }
    }

    /// Every series, for the whole of time.
    pub fn everything() -> Self {
        Self {
            matchers: Vec::new(),
            from: Millis::MIN,
            to: Millis::MAX,
            need: Need::Newest,
            max_samples: MAX_SAMPLES,
            patience: Patience::default(),
        }
    }

    /// Whether a series with these labels is wanted.
    pub fn accepts(&self, labels: &Labels) -> bool {
        self.matchers.iter().all(|matcher| matcher.accepts(labels))
    }

    /// The one metric name that it asks for, if it does.
    pub fn name(&self) -> Option<&str> {
        labels::name(&self.matchers)
    }
}

/// A source of samples.
pub trait Samples {
    /// The series that every matcher accepts, with the samples in the selection's time that it needs, or more of them.
    ///
    /// # Errors
    /// There are too many, or they are not kept.
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError>;
}

/// Series in memory.
impl Samples for Vec<QuerySeries> {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        let wanted = self.iter().filter(|series| selection.accepts(&series.labels));
        let is_within = |time: Millis| time > selection.from && time <= selection.to;
        let need = selection.need;
        let cut = |series: &QuerySeries| {
            let mut cut = QuerySeries::of_floats(series.labels.clone(), Vec::new());
            let floats = series.samples.iter().filter(|sample| is_within(sample.time));
            need.keep(floats.copied(), &mut cut.samples, |sample| sample.time);
            let histograms = series.histograms.iter().filter(|sample| is_within(sample.time));
            need.keep(histograms.cloned(), &mut cut.histograms, |sample| sample.time);
            cut
        };
        Ok(wanted.map(cut).collect())
    }
}

/// The value of a query at an instant.
#[derive(Clone, Debug, PartialEq)]
pub enum Instant {
    /// A number.
    Scalar(f64),
    /// A value a series; no label set twice. In order where the query sorts, else by labels.
    Vector(Vec<(Labels, SampleValue)>),
    /// The samples of a range.
    Matrix(Vec<QuerySeries>),
    /// A text.
    String(String),
}

/// The options of an evaluation.
#[derive(Clone, Debug)]
pub struct Options {
    /// The look-back of an instant for a sample, in milliseconds.
    pub look_back: Millis,
    /// The limits of the wait for the answer.
    pub patience: Patience,
    /// Samples that it may look at, each time that it looks.
    pub max_samples: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            look_back: LOOK_BACK_MS,
            patience: Patience::default(),
            max_samples: MAX_SAMPLES,
        }
    }
}

/// A parsed query.
#[derive(Debug)]
pub struct Query {
    text: String,
    expr: Expr,
}

impl Query {
    /// Parses PromQL.
    ///
    /// # Errors
    /// `Syntax`, with line and column; `TooMuch`.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(QueryError::TooMuch(format!(
                "a query of {} bytes: {MAX_QUERY_BYTES} are allowed",
                text.len()
            )));
        }
        let expr = syntax::parse(text).map_err(|wrong| QueryError::Syntax(wrong.shown(text)))?;
        Ok(Self {
            text: text.to_owned(),
            expr,
        })
    }

    /// The metric names in its selectors, as far as they have one.
    pub fn names(&self) -> Vec<String> {
        self.asked().into_iter().flatten().collect()
    }

    /// The names that its selectors ask for; `None`: one of them asks for more than one.
    pub fn only_names(&self) -> Option<Vec<String>> {
        self.asked().into_iter().collect()
    }

    /// The metric name in each of its selectors, if the selector has one.
    fn asked(&self) -> Vec<Option<String>> {
        let mut names = Vec::new();
        fetch::selectors(&self.expr, &mut |selector| {
            names.push(labels::name(&selector.matchers).map(str::to_owned));
        });
        names
    }

    /// The selector that it is, for the whole of time; `None`: it is more than a selector.
    pub fn selection(&self) -> Option<Selection> {
        match &self.expr {
            Expr::Selector(selector) => Some(Selection {
                matchers: selector.matchers.clone(),
                ..Selection::everything()
            }),
            _ => None,
        }
    }

    /// Each of its selectors, for all times.
    pub fn selections(&self) -> Vec<Selection> {
        let mut all = Vec::new();
        fetch::selectors(&self.expr, &mut |selector| {
            all.push(Selection {
                matchers: selector.matchers.clone(),
                ..Selection::everything()
            });
        });
        all
    }

    /// Its parts as JSON, as Prometheus's `parse_query` shows them.
    pub fn tree(&self) -> String {
        syntax::json(&self.expr)
    }

    /// Whether it defines a value for missing series itself: by `absent` or `or`.
    pub fn handles_absence(&self) -> bool {
        syntax::handles_absence(&self.expr)
    }

    /// Its value at one time.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn instant(&self, samples: &dyn Samples, at: Millis) -> Result<Instant, QueryError> {
        let answer = self.instant_with(samples, at, &Options::default());
        answer.map(|(value, _)| value)
    }

    /// Its value at one time, with notes.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn instant_with(
        &self,
        samples: &dyn Samples,
        at: Millis,
        options: &Options,
    ) -> Result<(Instant, Notes), QueryError> {
        eval::instant((&self.text, &self.expr), samples, at, options)
    }

    /// Its values at `start`, `start + step`, ... up to `end`, by series.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn range(
        &self,
        samples: &dyn Samples,
        start: Millis,
        end: Millis,
        step: Millis,
    ) -> Result<Vec<QuerySeries>, QueryError> {
        let answer = self.range_with(samples, (start, end, step), &Options::default());
        answer.map(|(series, _)| series)
    }

    /// Its values at start, start + step, ... up to the end, by series, with notes.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn range_with(
        &self,
        samples: &dyn Samples,
        (start, end, step): (Millis, Millis, Millis),
        options: &Options,
    ) -> Result<(Vec<QuerySeries>, Notes), QueryError> {
        if step <= 0 {
            return Err(QueryError::Syntax(
                "zero or negative query resolution step widths are not accepted. Try a positive integer"
                    .to_owned(),
            ));
        }
        if end < start {
            return Err(QueryError::Syntax(
                "end timestamp must not be before start time".to_owned(),
            ));
        }
        if (end - start) / step > MAX_STEPS {
            return Err(QueryError::TooMuch(
                "exceeded maximum resolution of 11,000 points per timeseries. Try decreasing the query resolution (?step=XX)".to_owned(),
            ));
        }
        let kind = self.expr.kind();
        if !matches!(kind, Type::Scalar | Type::Vector) {
            return Err(QueryError::Syntax(format!(
                "invalid expression type {} for range query, must be Scalar or instant Vector",
                syntax::quoted(kind.documented())
            )));
        }
        let steps = Steps {
            start,
            step,
            count: ((end - start) / step + 1) as usize,
        };
        eval::range((&self.text, &self.expr), samples, (steps, end), options)
    }
}

/// The query on one line, as the language writes it.
impl std::fmt::Display for Query {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.expr.fmt(f)
    }
}

/// A number as Prometheus writes it.
fn show_number(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => value.to_string(),
    }
}
