//! PromQL over samples: a parsed query, and its value at an instant or over a range.
//!
//! The parser is a crate; the evaluation is ours. It follows Prometheus 3: ranges and the look-back are open on the
//! left, a stale marker ends a series, what it does not support is refused by name. Where the samples are kept is not
//! its business ([`Samples`]).

mod aggregate;
mod binary;
mod buckets;
mod call;
mod check;
mod eval;
mod fetch;
mod float_histogram;
mod functions;
mod guard;
mod labels;
mod native;
mod native_over_time;
#[cfg(test)]
mod native_tests;
mod over_time;
mod sample;
#[cfg(test)]
mod tests;
mod window;

use promql_parser::parser::{self, Expr};

pub use float_histogram::{Boundary, Bucket, FloatHistogram};
pub use labels::{Labels, Matcher, NAME};
pub use sample::{HistogramSample, QuerySeries, Sample, SampleValue};

/// Milliseconds since the Unix epoch, as Prometheus counts time.
pub type Millis = i64;

/// How far an instant looks back for a sample, where nothing else is said: 5 min.
pub const LOOK_BACK_MS: Millis = 300_000;

/// The step of a subquery that names none: Prometheus's default evaluation interval.
const SUBQUERY_STEP_MS: Millis = 60_000;

/// Steps of one range query, as in Prometheus.
pub const MAX_STEPS: Millis = 11_000;

/// Samples that one query may look at, each time that it looks: about a second of work.
const MAX_SAMPLES: usize = if cfg!(test) { 200_000 } else { 20_000_000 };

/// A longer query is refused.
const MAX_QUERY_BYTES: usize = 64 << 10;

/// Expressions within expressions; the evaluation of each takes stack.
const MAX_DEPTH: usize = 150;

/// Why there is no answer.
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
}

impl QueryError {
    /// The query looks at more samples than it may.
    pub fn too_many_samples() -> Self {
        Self::TooMuch(format!("the query looks at more than {MAX_SAMPLES} samples"))
    }
}

/// What a selector wants to see.
#[derive(Clone, Debug)]
pub struct Selection {
    /// All of these accept its series.
    pub matchers: Vec<Matcher>,
    /// Samples later than this.
    pub from: Millis,
    /// Samples not later than this.
    pub to: Millis,
    /// Whether the newest of them alone would not do.
    pub needs_past: bool,
    /// How many samples there may be.
    pub max_samples: usize,
}

impl Selection {
    /// Every series, for the whole of time.
    pub fn everything() -> Self {
        Self {
            matchers: Vec::new(),
            from: Millis::MIN,
            to: Millis::MAX,
            needs_past: false,
            max_samples: MAX_SAMPLES,
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

/// Where samples come from.
pub trait Samples {
    /// The series that every matcher accepts, with their samples in the selection's time.
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
        let cut = |series: &QuerySeries| QuerySeries {
            labels: series.labels.clone(),
            samples: series
                .samples
                .iter()
                .filter(|sample| is_within(sample.time))
                .copied()
                .collect(),
            histograms: series
                .histograms
                .iter()
                .filter(|sample| is_within(sample.time))
                .cloned()
                .collect(),
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

/// A parsed query.
#[derive(Debug)]
pub struct Query {
    expr: Expr,
}

impl Query {
    /// Parses PromQL.
    ///
    /// # Errors
    /// `Syntax`, or `Unsupported` by name.
    pub fn parse(text: &str) -> Result<Self, QueryError> {
        if text.len() > MAX_QUERY_BYTES {
            return Err(QueryError::TooMuch(format!(
                "a query of {} bytes: {MAX_QUERY_BYTES} are allowed",
                text.len()
            )));
        }
        guard::check(text)?;
        let expr = parser::parse(text).map_err(QueryError::Syntax)?;
        check::check(&expr, MAX_DEPTH)?;
        Ok(Self { expr })
    }

    /// The names that its selectors ask for, where they ask for one.
    pub fn names(&self) -> Vec<String> {
        self.asked().into_iter().flatten().collect()
    }

    /// The names that its selectors ask for; `None`: one of them asks for more than one.
    pub fn only_names(&self) -> Option<Vec<String>> {
        self.asked().into_iter().collect()
    }

    /// What each of its selectors asks for.
    fn asked(&self) -> Vec<Option<String>> {
        let mut names = Vec::new();
        fetch::selectors(&self.expr, &mut |selector| {
            names.push(labels::name(&fetch::matchers(selector)).map(str::to_owned));
        });
        names
    }

    /// The selector that it is, for the whole of time; `None`: it is more than a selector.
    pub fn selection(&self) -> Option<Selection> {
        match &self.expr {
            Expr::VectorSelector(selector) => Some(Selection {
                matchers: fetch::matchers(selector),
                ..Selection::everything()
            }),
            _ => None,
        }
    }

    /// Whether it says itself what is to be where nothing is: `absent`, `or`.
    pub fn handles_absence(&self) -> bool {
        check::handles_absence(&self.expr)
    }

    /// Its value at one time.
    ///
    /// # Errors
    /// See [`QueryError`].
    pub fn instant(&self, samples: &dyn Samples, at: Millis) -> Result<Instant, QueryError> {
        eval::instant(&self.expr, samples, at)
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
        if step <= 0 {
            return Err(QueryError::Syntax("zero or negative step".to_owned()));
        }
        if end < start {
            return Err(QueryError::Syntax(
                "the end must not be before the start".to_owned(),
            ));
        }
        if (end - start) / step > MAX_STEPS {
            return Err(QueryError::TooMuch(format!(
                "more than {MAX_STEPS} points a series: take a longer step"
            )));
        }
        eval::range(&self.expr, samples, (start, end, step))
    }
}
