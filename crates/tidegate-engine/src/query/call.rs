//! Calls of functions.

use promql_parser::parser::{Call, Expr};

use super::buckets::histogram_quantile;
use super::check::over_time;
use super::eval::{Eval, Ranges, Value, Vector, execution, strip, unique};
use super::fetch::matchers;
use super::over_time::{OverTime, Range};
use super::{Labels, Millis, QueryError, QuerySeries, SampleValue, functions, native, native_over_time};

impl Eval {
    pub(super) fn call(&self, node: &Call, now: Millis) -> Result<Value, QueryError> {
        let name = node.func.name;
        let arguments: Vec<&Expr> = node.args.args.iter().map(|argument| &**argument).collect();
        if let Some((function, keeps_name)) = over_time(name) {
            return self
                .over_time((name, function, keeps_name), &arguments, now)
                .map(Value::Vector);
        }
        let first = arguments.first().copied();
        let rest = || arguments.iter().skip(1).copied();
        let wanted = || QueryError::Execution(format!("`{name}` takes an argument"));
        Ok(match name {
            "time" => Value::Scalar(now as f64 / 1000.0),
            "pi" => Value::Scalar(std::f64::consts::PI),
            "scalar" => {
                let mut numbers = functions::floats(self.vector(first.ok_or_else(wanted)?, now)?);
                let only = numbers.next().filter(|_| numbers.next().is_none());
                Value::Scalar(only.map_or(f64::NAN, |(_, only)| only))
            }
            "vector" => Value::Vector(vec![(
                Labels::default(),
                SampleValue::Float(self.number(first.ok_or_else(wanted)?, now)?),
            )]),
            "timestamp" => Value::Vector(self.timestamps(first.ok_or_else(wanted)?, now)?),
            "absent" => {
                let first = first.ok_or_else(wanted)?;
                let there = self.vector(first, now)?;
                Value::Vector(absent(there.is_empty(), first))
            }
            "absent_over_time" => {
                let first = first.ok_or_else(wanted)?;
                let there = self.ranges(first, now)?.ok_or_else(wanted)?;
                Value::Vector(absent(there.series.is_empty(), first))
            }
            "sort" => Value::Vector(functions::sort(
                self.vector(first.ok_or_else(wanted)?, now)?,
                false,
            )),
            "sort_desc" => Value::Vector(functions::sort(
                self.vector(first.ok_or_else(wanted)?, now)?,
                true,
            )),
            "histogram_quantile" => {
                let q = self.number(first.ok_or_else(wanted)?, now)?;
                let buckets = self.vector(rest().next().ok_or_else(wanted)?, now)?;
                let quantiles = histogram_quantile(q, buckets);
                unique(&quantiles)?;
                Value::Vector(quantiles)
            }
            _ if let Some(function) = native::function(name) => {
                let (vector, numbers) = arguments.split_last().ok_or_else(wanted)?;
                let numbers: Vec<f64> = numbers
                    .iter()
                    .map(|argument| self.number(argument, now))
                    .collect::<Result<_, _>>()?;
                let of = |(labels, value): (Labels, SampleValue)| match value {
                    SampleValue::Float(_) => None,
                    SampleValue::Histogram(histogram) => Some((
                        labels.nameless(),
                        SampleValue::Float(function(&histogram, &numbers)),
                    )),
                };
                let made: Vector = self.vector(vector, now)?.into_iter().filter_map(of).collect();
                unique(&made)?;
                Value::Vector(made)
            }
            "label_replace" | "label_join" => {
                let vector = self.vector(first.ok_or_else(wanted)?, now)?;
                let texts = self.texts(rest(), now)?;
                let made = match name {
                    "label_join" => functions::label_join(vector, &texts)?,
                    _ => functions::label_replace(vector, &texts)?,
                };
                unique(&made)?;
                Value::Vector(made)
            }
            _ => {
                let vector = self.vector(first.ok_or_else(wanted)?, now)?;
                let numbers: Vec<f64> = rest()
                    .map(|argument| self.number(argument, now))
                    .collect::<Result<_, _>>()?;
                let made = functions::of_value(name, vector, &numbers);
                Value::Vector(made.ok_or_else(|| QueryError::Unsupported(format!("the function `{name}`")))?)
            }
        })
    }

    fn over_time(
        &self,
        (name, function, keeps_name): (&str, OverTime, bool),
        arguments: &[&Expr],
        now: Millis,
    ) -> Result<Vector, QueryError> {
        let (mut ranges, mut number) = (None, f64::NAN);
        for argument in arguments {
            match self.ranges(argument, now)? {
                Some(found) => ranges = Some(found),
                None => number = self.number(argument, now)?,
            }
        }
        let Some(Ranges { series, from, to }) = ranges else {
            return execution("a range is wanted here");
        };
        let apply = |series: QuerySeries| {
            let range = Range {
                samples: &series.samples,
                from,
                to,
                now,
            };
            let value = match series.histograms.is_empty() {
                true => SampleValue::Float(function(&range, number)?),
                false => native_over_time::over_time(name, function, number, &series, &range)?,
            };
            let labels = if keeps_name {
                series.labels
            } else {
                series.labels.nameless()
            };
            Some((labels, value))
        };
        let vector: Vector = series.into_iter().filter_map(apply).collect();
        unique(&vector)?;
        Ok(vector)
    }

    /// When the samples were taken; of everything that is computed, now.
    fn timestamps(&self, expr: &Expr, now: Millis) -> Result<Vector, QueryError> {
        let seconds = |time: Millis| SampleValue::Float(time as f64 / 1000.0);
        match strip(expr) {
            Expr::VectorSelector(vs) => {
                let see = |(labels, time, _): (&Labels, Millis, _)| (labels.nameless(), seconds(time));
                Ok(self.select(vs, now).map(see).collect())
            }
            other => {
                let vector = self.vector(other, now)?.into_iter();
                Ok(vector
                    .map(|(labels, _)| (labels.nameless(), seconds(now)))
                    .collect())
            }
        }
    }
}

fn absent(is_absent: bool, expr: &Expr) -> Vector {
    let labels = match strip(expr) {
        Expr::VectorSelector(vs) => functions::absent_labels(&matchers(vs)),
        Expr::MatrixSelector(node) => functions::absent_labels(&matchers(&node.vs)),
        _ => Labels::default(),
    };
    match is_absent {
        true => vec![(labels, SampleValue::Float(1.0))],
        false => Vec::new(),
    }
}
