//! Evaluation: what every selector needs is fetched once (`fetch`), then the expression is computed at every step.

use std::cell::Cell;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use promql_parser::parser::{AggregateExpr, BinaryExpr, Expr, SubqueryExpr, VectorSelector};

use super::aggregate::{Parameter, aggregate};
use super::binary::{self, Operator};
use super::window::{millis, newest, shifted, within};
use super::{
    FloatHistogram, Instant, LOOK_BACK_MS, Labels, Millis, QueryError, QuerySeries, SUBQUERY_STEP_MS,
    SampleValue, Samples,
};

pub(super) type Vector = Vec<(Labels, SampleValue)>;

/// What an expression comes to at a step.
pub(super) enum Value {
    Scalar(f64),
    Vector(Vector),
    Text(String),
}

pub(super) fn instant(expr: &Expr, samples: &dyn Samples, at: Millis) -> Result<Instant, QueryError> {
    let eval = Eval::prepare(expr, samples, (at, at))?;
    // A range is a value of its own only here.
    if let Some(ranges) = eval.ranges(strip(expr), at)? {
        return Ok(Instant::Matrix(ranges.series));
    }
    Ok(match eval.value(expr, at)? {
        Value::Scalar(number) => Instant::Scalar(number),
        Value::Text(text) => Instant::String(text),
        Value::Vector(mut vector) => {
            unique(&vector)?;
            if !sorts(strip(expr)) {
                vector.sort_by(|(a, _), (b, _)| a.cmp(b));
            }
            Instant::Vector(vector)
        }
    })
}

/// Whether the query says in which order its answer comes.
fn sorts(expr: &Expr) -> bool {
    match expr {
        Expr::Call(call) => call.func.name.starts_with("sort"),
        Expr::Aggregate(node) => matches!(&*node.op.to_string(), "topk" | "bottomk"),
        _ => false,
    }
}

pub(super) fn range(
    expr: &Expr,
    samples: &dyn Samples,
    (start, end, step): (Millis, Millis, Millis),
) -> Result<Vec<QuerySeries>, QueryError> {
    let eval = Eval::prepare(expr, samples, (start, end))?;
    let mut all = BySeries::default();
    let mut time = start;
    while time <= end {
        let vector = match eval.value(expr, time)? {
            Value::Text(_) => {
                return Err(QueryError::Syntax(
                    "invalid expression type \"string\" for range query, must be Scalar or instant Vector"
                        .to_owned(),
                ));
            }
            value => value,
        };
        all.push(time, vector)?;
        time += step;
    }
    Ok(all.into_series())
}

/// The values of an expression step by step.
#[derive(Default)]
struct BySeries(BTreeMap<Labels, QuerySeries>);

impl BySeries {
    fn push(&mut self, time: Millis, value: Value) -> Result<(), QueryError> {
        let vector = match value {
            Value::Scalar(number) => vec![(Labels::default(), SampleValue::Float(number))],
            Value::Vector(vector) => vector,
            Value::Text(_) => return execution("a text has no range"),
        };
        unique(&vector)?;
        for (labels, value) in vector {
            self.0.entry(labels).or_default().push(time, value);
        }
        Ok(())
    }

    fn into_series(self) -> Vec<QuerySeries> {
        let name = |(labels, series)| QuerySeries { labels, ..series };
        self.0.into_iter().map(name).collect()
    }
}

/// No label set twice: dropping names may have made two series one.
pub(super) fn unique<T>(vector: &[(Labels, T)]) -> Result<(), QueryError> {
    let mut seen = HashSet::with_capacity(vector.len());
    match vector.iter().all(|(labels, _)| seen.insert(labels)) {
        true => Ok(()),
        false => Err(QueryError::Execution(
            "vector cannot contain metrics with the same labelset".to_owned(),
        )),
    }
}

/// Without parentheses around it.
pub(super) fn strip(expr: &Expr) -> &Expr {
    match expr {
        Expr::Paren(inner) => strip(&inner.expr),
        other => other,
    }
}

pub(super) fn execution<T>(why: impl Into<String>) -> Result<T, QueryError> {
    Err(QueryError::Execution(why.into()))
}

/// Ranges of many series that end at one time.
pub(super) struct Ranges {
    pub(super) series: Vec<QuerySeries>,
    pub(super) from: Millis,
    pub(super) to: Millis,
}

/// An expression with what its selectors need.
pub(super) struct Eval {
    /// By the selector's place in the expression.
    pub(super) fetched: HashMap<*const VectorSelector, Vec<QuerySeries>>,
    /// First and last time of evaluation.
    pub(super) bounds: (Millis, Millis),
    /// What the query may still look at.
    pub(super) room: Cell<usize>,
}

impl Eval {
    pub(super) fn value(&self, expr: &Expr, now: Millis) -> Result<Value, QueryError> {
        let value = self.compute(expr, now)?;
        self.spend(match &value {
            Value::Vector(vector) => 1 + vector.iter().map(|(_, value)| value.weight()).sum::<usize>(),
            Value::Scalar(_) | Value::Text(_) => 1,
        })?;
        Ok(value)
    }

    /// Notes that so many samples were looked at.
    pub(super) fn spend(&self, samples: usize) -> Result<(), QueryError> {
        let left = self.room.get().checked_sub(samples);
        self.room.set(left.ok_or_else(QueryError::too_many_samples)?);
        Ok(())
    }

    fn compute(&self, expr: &Expr, now: Millis) -> Result<Value, QueryError> {
        Ok(match expr {
            Expr::NumberLiteral(number) => Value::Scalar(number.val),
            Expr::StringLiteral(text) => Value::Text(text.val.clone()),
            Expr::Paren(node) => self.value(&node.expr, now)?,
            Expr::Unary(node) => match self.value(&node.expr, now)? {
                Value::Scalar(number) => Value::Scalar(-number),
                Value::Vector(vector) => Value::Vector(
                    vector
                        .into_iter()
                        .map(|(labels, value)| (labels.nameless(), negative(value)))
                        .collect(),
                ),
                Value::Text(_) => return execution("a text has no sign"),
            },
            Expr::VectorSelector(vs) => {
                let select = |(labels, _, value): (&Labels, Millis, SampleValue)| (labels.clone(), value);
                Value::Vector(self.select(vs, now).map(select).collect())
            }
            Expr::MatrixSelector(_) | Expr::Subquery(_) => {
                return execution("a range can only be the argument of a function");
            }
            Expr::Aggregate(node) => Value::Vector(self.aggregate(node, now)?),
            Expr::Binary(node) => self.binary(node, now)?,
            Expr::Call(node) => self.call(node, now)?,
            Expr::Extension(_) => return Err(QueryError::Unsupported("an extension".to_owned())),
        })
    }

    /// The newest samples that a selector sees.
    pub(super) fn select<'a>(
        &'a self,
        vs: &'a VectorSelector,
        now: Millis,
    ) -> impl Iterator<Item = (&'a Labels, Millis, SampleValue)> {
        let to = shifted(now, vs.at.as_ref(), vs.offset.as_ref(), self.bounds);
        let see = move |series: &'a QuerySeries| {
            let (time, value) = newest(series, to - LOOK_BACK_MS, to)?;
            Some((&series.labels, time, value))
        };
        self.fetched(vs).iter().filter_map(see)
    }

    /// The ranges that an expression stands for; `None`: it is not one of ranges.
    pub(super) fn ranges(&self, expr: &Expr, now: Millis) -> Result<Option<Ranges>, QueryError> {
        match strip(expr) {
            Expr::MatrixSelector(node) => {
                let vs = &node.vs;
                let to = shifted(now, vs.at.as_ref(), vs.offset.as_ref(), self.bounds);
                let from = to - millis(node.range);
                let series = self.fetched(vs).iter().map(|series| within(series, from, to));
                let series: Vec<_> = series.filter(|series| !series.is_empty()).collect();
                self.spend(series.iter().map(QuerySeries::weight).sum())?;
                Ok(Some(Ranges { series, from, to }))
            }
            Expr::Subquery(node) => self.subquery(node, now).map(Some),
            _ => Ok(None),
        }
    }

    /// Steps are multiples of the step, wherever the range begins.
    fn subquery(&self, node: &SubqueryExpr, now: Millis) -> Result<Ranges, QueryError> {
        let to = shifted(now, node.at.as_ref(), node.offset.as_ref(), self.bounds);
        let from = to - millis(node.range);
        let step = node.step.map_or(SUBQUERY_STEP_MS, millis).max(1);
        if (to - from) / step > super::MAX_STEPS {
            return Err(QueryError::TooMuch("a subquery of too many steps".to_owned()));
        }
        let mut time = from.div_euclid(step) * step + step;
        let mut all = BySeries::default();
        while time <= to {
            all.push(time, self.value(&node.expr, time)?)?;
            time += step;
        }
        Ok(Ranges {
            series: all.into_series(),
            from,
            to,
        })
    }

    fn aggregate(&self, node: &AggregateExpr, now: Millis) -> Result<Vector, QueryError> {
        let parameter = match &node.param {
            None => Parameter::None,
            Some(expr) => match self.value(expr, now)? {
                Value::Scalar(number) => Parameter::Number(number),
                Value::Text(text) => Parameter::Text(text),
                Value::Vector(_) => {
                    return execution("the parameter of an aggregation is a number or a text");
                }
            },
        };
        let vector = self.vector(&node.expr, now)?;
        aggregate(&node.op.to_string(), &parameter, node.modifier.as_ref(), vector)
    }

    fn binary(&self, node: &BinaryExpr, now: Millis) -> Result<Value, QueryError> {
        let name = node.op.to_string();
        let operator = binary::operator(&name).ok_or(QueryError::Unsupported(name))?;
        let modifier = node.modifier.as_ref();
        let as_bool = modifier.is_some_and(|modifier| modifier.return_bool);
        let (left, right) = (self.value(&node.lhs, now)?, self.value(&node.rhs, now)?);
        Ok(match (left, right) {
            (Value::Scalar(left), Value::Scalar(right)) => {
                Value::Scalar(binary::scalars(operator, left, right)?)
            }
            (Value::Vector(left), Value::Scalar(right)) => {
                Value::Vector(binary::with_scalar(operator, left, right, false, as_bool))
            }
            (Value::Scalar(left), Value::Vector(right)) => {
                Value::Vector(binary::with_scalar(operator, right, left, true, as_bool))
            }
            (Value::Vector(left), Value::Vector(right)) => Value::Vector(match operator {
                Operator::Set(set) => {
                    let matching = modifier.and_then(|modifier| modifier.matching.as_ref());
                    binary::sets(set, left, right, matching)
                }
                _ => binary::vectors(operator, left, right, modifier)?,
            }),
            _ => return execution("an operator takes numbers and vectors"),
        })
    }

    pub(super) fn vector(&self, expr: &Expr, now: Millis) -> Result<Vector, QueryError> {
        match self.value(expr, now)? {
            Value::Vector(vector) => Ok(vector),
            Value::Scalar(_) | Value::Text(_) => execution("a vector is wanted here"),
        }
    }

    pub(super) fn number(&self, expr: &Expr, now: Millis) -> Result<f64, QueryError> {
        match self.value(expr, now)? {
            Value::Scalar(number) => Ok(number),
            Value::Vector(_) | Value::Text(_) => execution("a number is wanted here"),
        }
    }

    pub(super) fn texts<'a>(
        &self,
        expressions: impl Iterator<Item = &'a Expr>,
        now: Millis,
    ) -> Result<Vec<String>, QueryError> {
        let text = |expr: &Expr| match self.value(expr, now)? {
            Value::Text(text) => Ok(text),
            Value::Scalar(_) | Value::Vector(_) => execution("a text is wanted here"),
        };
        expressions.map(text).collect()
    }
}

fn negative(value: SampleValue) -> SampleValue {
    match value {
        SampleValue::Float(number) => SampleValue::Float(-number),
        SampleValue::Histogram(histogram) => {
            SampleValue::Histogram(Arc::new(FloatHistogram::clone(&histogram).times(-1.0)))
        }
    }
}
