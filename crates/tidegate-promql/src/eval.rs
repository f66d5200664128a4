// SPDX-License-Identifier: Apache-2.0

//! Evaluation: `fetch` gets the samples of every selector once. Then each part of the expression is computed for all
//! steps at once (`rows`).

use std::cell::Cell as Counter;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant as Clock};

use super::labels::Patterns;
use super::need::Steps;
use super::notes::Notebook;
use super::rows::{Cell, Rows, is_absent};
use super::syntax::ast::{Aggregation, Chain, Expr, QuerySpan, Range, Selector, Subquery};
use super::window::{Newest, shifted};
use super::{
    Instant, Labels, Millis, Notes, Options, Patience, QueryError, QuerySeries, SUBQUERY_STEP_MS, Samples,
    Work, binary,
};

/// The value of an expression.
pub(super) enum QueryValue {
    /// One number a step.
    Scalar(Vec<f64>),
    Vector(Rows),
    Text(String),
}

/// The text and the expression of a query.
pub(super) type ParsedQuery<'a> = (&'a str, &'a Expr);

pub(super) fn instant(
    (text, expr): ParsedQuery<'_>,
    samples: &dyn Samples,
    at: Millis,
    options: &Options,
) -> Result<(Instant, Notes), QueryError> {
    let steps = Steps {
        start: at,
        step: 1,
        count: 1,
    };
    let mut clock = Clock::now();
    let eval = Eval::prepare(expr, samples, (steps, at), options)?;
    let preparation = lap(&mut clock);
    // A range is a value of its own only here.
    let mut answer = match eval.ranges(expr.bare(), steps)? {
        Some(ranges) => {
            let series = ranges.into_series(at);
            if matches!(expr.bare(), Expr::Range(_)) {
                eval.count_samples(series.iter().map(QuerySeries::weight).sum());
            }
            Instant::Matrix(series)
        }
        None => match eval.value(expr, steps)? {
            QueryValue::Scalar(numbers) => Instant::Scalar(numbers.first().copied().unwrap_or(f64::NAN)),
            QueryValue::Text(text) => Instant::String(text),
            QueryValue::Vector(rows) => {
                let shown = rows.cells().map(|(row, _, cell)| (rows.shown(row), cell.value()));
                Instant::Vector(shown.collect())
            }
        },
    };
    let evaluation = lap(&mut clock);
    if let Instant::Vector(vector) = &mut answer
        && !sorts(expr.bare())
    {
        vector.sort_by(|(a, _), (b, _)| a.cmp(b));
    }
    let times = [preparation, evaluation, lap(&mut clock)];
    Ok((answer, eval.into_notes(text, times)))
}

/// The time since the last lap.
fn lap(since: &mut Clock) -> Duration {
    let now = Clock::now();
    now - std::mem::replace(since, now)
}

/// Whether the query says in which order its answer comes.
fn sorts(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => call.function.name.starts_with("sort"),
        Expr::Aggregate(node) => matches!(node.operator, Aggregation::Topk | Aggregation::Bottomk),
        _ => false,
    }
}

pub(super) fn range(
    (text, expr): ParsedQuery<'_>,
    samples: &dyn Samples,
    (steps, end): (Steps, Millis),
    options: &Options,
) -> Result<(Vec<QuerySeries>, Notes), QueryError> {
    let mut clock = Clock::now();
    let eval = Eval::prepare(expr, samples, (steps, end), options)?;
    let preparation = lap(&mut clock);
    let rows = match eval.value(expr, steps)? {
        QueryValue::Scalar(numbers) => of_scalars(numbers),
        QueryValue::Vector(rows) => rows,
        QueryValue::Text(_) => Rows::default(),
    };
    let mut series = rows.into_series(steps);
    let evaluation = lap(&mut clock);
    series.sort_by(|a, b| a.labels.cmp(&b.labels));
    let times = [preparation, evaluation, lap(&mut clock)];
    Ok((series, eval.into_notes(text, times)))
}

/// Numbers as a vector of one series without labels.
pub(super) fn of_scalars(numbers: Vec<f64>) -> Rows {
    Rows {
        steps: numbers.len(),
        labels: vec![Labels::default()],
        floats: numbers,
        ..Rows::default()
    }
}

pub(super) fn execution<T>(why: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Execution(why.into()))
}

/// Series with the ranges that are seen of them.
pub(super) struct Ranges<'a> {
    pub(super) series: std::borrow::Cow<'a, [QuerySeries]>,
    /// By step: where the range begins (not included) and ends.
    pub(super) spans: Vec<(Millis, Millis)>,
}

impl Ranges<'_> {
    /// The samples of the first range.
    fn into_series(self, now: Millis) -> Vec<QuerySeries> {
        let (from, to) = self.spans.first().copied().unwrap_or((now, now));
        let cut = |series: &QuerySeries| {
            let mut windows = super::window::Windows::of(series);
            let (samples, histograms) = windows.at(from, to);
            QuerySeries {
                labels: series.labels.clone(),
                samples: samples.to_vec(),
                histograms: histograms.to_vec(),
            }
        };
        let mut all: Vec<_> = self.series.iter().map(cut).collect();
        all.retain(|series| !series.is_empty());
        all.sort_by(|a, b| a.labels.cmp(&b.labels));
        all
    }
}

/// An expression with the samples of its selectors.
pub(super) struct Eval {
    /// By the selector's place in the expression.
    pub(super) fetched: HashMap<*const Selector, Vec<QuerySeries>>,
    /// First and last time of evaluation.
    pub(super) bounds: (Millis, Millis),
    pub(super) look_back: Millis,
    /// The number of samples that the query may still read.
    pub(super) room: Counter<usize>,
    max_samples: usize,
    /// Samples that selectors saw.
    seen: Counter<usize>,
    patience: Patience,
    /// Work since the last look at the patience.
    unlooked: Counter<usize>,
    /// The patterns of its functions.
    pub(super) patterns: Patterns,
    pub(super) notes: Notebook,
}

impl Eval {
    fn prepare(
        expr: &Expr,
        samples: &dyn Samples,
        (steps, end): (Steps, Millis),
        options: &Options,
    ) -> Result<Self, QueryError> {
        let bounds = (steps.start, end);
        let mut eval = Self {
            fetched: HashMap::new(),
            bounds,
            look_back: options.look_back,
            room: Counter::new(options.max_samples),
            max_samples: options.max_samples,
            seen: Counter::new(0),
            patience: options.patience.clone(),
            unlooked: Counter::new(0),
            patterns: Patterns::default(),
            notes: Notebook::default(),
        };
        eval.fetch(expr, samples, (steps, bounds.0 != bounds.1))?;
        Ok(eval)
    }

    pub(super) fn value(&self, expr: &Expr, steps: Steps) -> Result<QueryValue, QueryError> {
        let value = self.compute(expr, steps)?;
        self.spend(match &value {
            QueryValue::Vector(rows) => 1 + rows.weight(),
            QueryValue::Scalar(numbers) => numbers.len(),
            QueryValue::Text(_) => 1,
        })?;
        Ok(value)
    }

    /// Notes that selectors saw `samples` more samples.
    pub(super) fn count_samples(&self, samples: usize) {
        self.seen.set(self.seen.get() + samples);
    }

    fn into_notes(self, text: &str, [preparation, evaluation, sorting]: [Duration; 3]) -> Notes {
        let mut notes = self.notes.into_notes(text);
        notes.work = Work {
            seen: self.seen.get(),
            counted: self.max_samples - self.room.get(),
            preparation,
            evaluation,
            sorting,
        };
        notes
    }

    /// Notes that the query read `samples` more samples.
    pub(super) fn spend(&self, samples: usize) -> Result<(), QueryError> {
        let left = self.room.get().checked_sub(samples);
        let too_many = || {
            let most = self.max_samples;
            QueryError::TooMuch(format!("the query reads more than {most} samples"))
        };
        self.room.set(left.ok_or_else(too_many)?);
        self.go_on(samples)
    }

    /// Notes work, in samples, and checks now and then whether the caller still waits for the answer.
    pub(super) fn go_on(&self, work: usize) -> Result<(), QueryError> {
        /// Some microseconds of work; a look takes a twentieth of one.
        const LOOK_EVERY: usize = 4096;
        let unlooked = self.unlooked.get().saturating_add(work);
        self.unlooked.set(unlooked);
        if unlooked < LOOK_EVERY {
            Ok(())
        } else {
            self.check()
        }
    }

    /// Checks whether the caller still waits for the answer.
    pub(super) fn check(&self) -> Result<(), QueryError> {
        self.unlooked.set(0);
        self.patience.check()
    }

    pub(super) fn patience(&self) -> &Patience {
        &self.patience
    }

    fn compute(&self, expr: &Expr, steps: Steps) -> Result<QueryValue, QueryError> {
        Ok(match expr {
            Expr::Number(number, _) => QueryValue::Scalar(vec![*number; steps.count]),
            Expr::Text(text, _) => QueryValue::Text(text.clone()),
            Expr::Paren(inner, _) => self.value(inner, steps)?,
            Expr::Unary(node) => match (self.value(&node.expr, steps)?, node.is_negative) {
                (value, false) => value,
                (QueryValue::Scalar(numbers), _) => {
                    QueryValue::Scalar(numbers.into_iter().map(|n| -n).collect())
                }
                (QueryValue::Vector(rows), _) => QueryValue::Vector(negative(rows.nameless()?)),
                (QueryValue::Text(_), _) => return execution("a string has no sign"),
            },
            Expr::Selector(vs) => QueryValue::Vector(self.select(vs, steps, |_, cell| cell)?),
            Expr::Range(_) | Expr::Subquery(_) => {
                return execution("a range can only be the argument of a function");
            }
            Expr::Aggregate(node) => QueryValue::Vector(self.aggregate(node, steps)?),
            Expr::Chain(node) => self.chain(node, steps)?,
            Expr::Call(node) => self.call(node, steps)?,
        })
    }

    /// The result of `see` for the newest samples that a selector sees.
    pub(super) fn select<'a>(
        &'a self,
        vs: &Selector,
        steps: Steps,
        see: impl Fn(Millis, Cell<'a>) -> Cell<'a>,
    ) -> Result<Rows, QueryError> {
        let times: Vec<Millis> = steps
            .times()
            .map(|time| shifted(time, vs.at, vs.offset, self.bounds))
            .collect();
        let series = self.fetched(vs);
        // Fetched samples have been counted once.
        let fetched = series.iter().map(QuerySeries::weight).sum();
        self.spend((series.len() * steps.count).saturating_sub(fetched))?;
        let mut rows = Rows::new(steps.count);
        rows.labels.reserve(series.len());
        rows.floats.reserve(series.len() * steps.count);
        let mut seen = 0;
        for series in series {
            let mut newest = Newest::of(series);
            let row = rows.push(series.labels.clone());
            let mut is_empty = true;
            for (step, to) in times.iter().enumerate() {
                let Some((time, cell)) = newest.at(to.saturating_sub(self.look_back), *to) else {
                    continue;
                };
                is_empty = false;
                seen += cell.weight();
                match see(time, cell) {
                    Cell::Float(number) => rows.row_mut(row)[step] = number,
                    cell => rows.set(row, step, cell.value()),
                }
            }
            if is_empty {
                rows.pop();
            }
            self.go_on(1 + times.len())?;
        }
        self.count_samples(seen);
        Ok(rows)
    }

    /// The ranges of an expression; `None`: its type is not that of ranges.
    fn ranges(&self, expr: &Expr, steps: Steps) -> Result<Option<Ranges<'_>>, QueryError> {
        Ok(Some(match expr.bare() {
            Expr::Range(node) => self.of_selector(node, steps),
            Expr::Subquery(node) => self.subquery(node, steps)?,
            _ => return Ok(None),
        }))
    }

    /// The ranges of an argument. The function sees their samples; those that the parts of a subquery saw do not count.
    pub(super) fn ranges_of(&self, argument: &Expr, steps: Steps) -> Result<Ranges<'_>, QueryError> {
        let seen = self.seen.get();
        let ranges = self.ranges(argument, steps)?;
        self.seen.set(seen);
        match ranges {
            Some(ranges) => Ok(ranges),
            None => execution("a range is wanted here"),
        }
    }

    fn of_selector(&self, node: &Range, steps: Steps) -> Ranges<'_> {
        let vs = &node.selector;
        let span = |time| {
            let to = shifted(time, vs.at, vs.offset, self.bounds);
            (to.saturating_sub(node.range), to)
        };
        Ranges {
            series: self.fetched(vs).into(),
            spans: steps.times().map(span).collect(),
        }
    }

    fn subquery(&self, node: &Subquery, steps: Steps) -> Result<Ranges<'_>, QueryError> {
        let (spans, inner) = self.inner(node, steps);
        self.spend(inner.count)?;
        let series = match inner.count {
            0 => Vec::new(),
            _ => self.vector(&node.expr, inner)?.into_series(inner),
        };
        Ok(Ranges {
            series: series.into(),
            spans,
        })
    }

    /// The ranges of a subquery, and the steps within them all: multiples of the step, wherever the range begins.
    pub(super) fn inner(&self, node: &Subquery, steps: Steps) -> (Vec<(Millis, Millis)>, Steps) {
        let span = |time| {
            let to = shifted(time, node.at, node.offset, self.bounds);
            (to.saturating_sub(node.range), to)
        };
        let spans: Vec<_> = steps.times().map(span).collect();
        let from = spans.first().map_or(0, |(from, _)| *from);
        let to = spans.last().map_or(0, |(_, to)| *to);
        let step = node.step.unwrap_or(SUBQUERY_STEP_MS).max(1);
        let start = from.div_euclid(step).saturating_mul(step).saturating_add(step);
        let count = usize::try_from((to - start).div_euclid(step) + 1).unwrap_or(0);
        (spans, Steps { start, step, count })
    }

    fn chain(&self, node: &Chain, steps: Steps) -> Result<QueryValue, QueryError> {
        let mut left = self.value(&node.first, steps)?;
        for link in &node.links {
            let right = self.value(&link.right, steps)?;
            let span = QuerySpan {
                start: node.first.span().start,
                end: link.right.span().end,
            };
            left = binary::link(link, left, right, &self.notes, span)?;
            if let QueryValue::Vector(rows) = &left {
                self.spend(rows.weight())?;
            }
        }
        Ok(left)
    }

    pub(super) fn vector(&self, expr: &Expr, steps: Steps) -> Result<Rows, QueryError> {
        match self.value(expr, steps)? {
            QueryValue::Vector(rows) => Ok(rows),
            QueryValue::Scalar(_) | QueryValue::Text(_) => execution("a vector is wanted here"),
        }
    }

    pub(super) fn numbers(&self, expr: &Expr, steps: Steps) -> Result<Vec<f64>, QueryError> {
        match self.value(expr, steps)? {
            QueryValue::Scalar(numbers) => Ok(numbers),
            QueryValue::Vector(_) | QueryValue::Text(_) => execution("a scalar is wanted here"),
        }
    }

    pub(super) fn text(&self, expr: &Expr, steps: Steps) -> Result<String, QueryError> {
        match self.value(expr, steps)? {
            QueryValue::Text(text) => Ok(text),
            QueryValue::Scalar(_) | QueryValue::Vector(_) => execution("a string is wanted here"),
        }
    }
}

fn negative(mut rows: Rows) -> Rows {
    let present = rows.floats.iter_mut().filter(|number| !is_absent(**number));
    present.for_each(|number| *number = -*number);
    for histogram in rows.histograms.iter_mut().flatten() {
        *histogram = Arc::new((**histogram).clone().times(-1.0));
    }
    rows
}
