// SPDX-License-Identifier: Apache-2.0

//! Function calls.

use super::eval::{Eval, QueryValue, Ranges, execution, of_scalars};
use super::need::Steps;
use super::notes::Note;
use super::over_time::{self, OverTime, Range};
use super::rows::{ABSENT, Cell, Rows, is_absent};
use super::sample::weight;
use super::syntax::ast::{Call, Expr, Type};
use super::window::Windows;
use super::{
    Labels, Matcher, NAME, QueryError, SampleValue, buckets, dates, functions, native, native_over_time,
};

impl Eval {
    pub(super) fn call(&self, node: &Call, steps: Steps) -> Result<QueryValue, QueryError> {
        let (name, arguments) = (node.function.name, &*node.arguments);
        if let Some((function, keeps_name)) = over_time::find(name) {
            return Ok(QueryValue::Vector(self.over_time(
                node,
                (function, keeps_name),
                steps,
            )?));
        }
        let argument = |at: usize| {
            let missing = || QueryError::Execution(format!("an argument of {name} is missing"));
            arguments.get(at).ok_or_else(missing)
        };
        Ok(QueryValue::Vector(match name {
            "time" => return Ok(QueryValue::Scalar(seconds(steps))),
            "pi" => return Ok(QueryValue::Scalar(vec![std::f64::consts::PI; steps.count])),
            "scalar" => return Ok(QueryValue::Scalar(only(&self.vector(argument(0)?, steps)?))),
            "vector" => of_scalars(self.numbers(argument(0)?, steps)?),
            "timestamp" => self.timestamps(argument(0)?, steps)?,
            "absent" => {
                let there = self.vector(argument(0)?, steps)?.presence();
                absent(&there, argument(0)?)
            }
            "absent_over_time" => self.absent_over_time(argument(0)?, steps)?,
            "sort" | "sort_desc" => functions::sort(&self.vector(argument(0)?, steps)?, name == "sort_desc"),
            "sort_by_label" | "sort_by_label_desc" => {
                let names = self.texts(&arguments[1..], steps)?;
                let rows = self.vector(argument(0)?, steps)?;
                functions::sort_by_label(rows, &names, name == "sort_by_label_desc")
            }
            "histogram_quantile" => {
                let ranks = self.numbers(argument(0)?, steps)?;
                let rows = self.vector(argument(1)?, steps)?;
                let spans = (argument(0)?.span(), argument(1)?.span());
                buckets::quantiles(&ranks, &rows, &self.notes, spans)?
            }
            "histogram_fraction" => {
                let lower = self.numbers(argument(0)?, steps)?;
                let upper = self.numbers(argument(1)?, steps)?;
                let rows = self.vector(argument(2)?, steps)?;
                buckets::fractions((&lower, &upper), &rows, &self.notes, argument(2)?.span())?
            }
            "label_replace" => {
                let texts = self.texts(&arguments[1..], steps)?;
                functions::label_replace(self.vector(argument(0)?, steps)?, &texts, self)?
            }
            "label_join" => {
                let texts = self.texts(&arguments[1..], steps)?;
                functions::label_join(self.vector(argument(0)?, steps)?, &texts, self)?
            }
            _ => self.of_cells(node, steps)?,
        }))
    }

    fn texts(&self, expressions: &[Expr], steps: Steps) -> Result<Vec<String>, QueryError> {
        expressions.iter().map(|expr| self.text(expr, steps)).collect()
    }

    /// Functions of each value by itself.
    fn of_cells(&self, node: &Call, steps: Steps) -> Result<Rows, QueryError> {
        let name = node.function.name;
        if let Some(part) = dates::find(name) {
            let rows = match node.arguments.first() {
                Some(expr) => self.vector(expr, steps)?,
                None => of_scalars(seconds(steps)),
            };
            return of_floats(rows, |_, number| Some(part(number))).nameless();
        }
        let Some((first, rest)) = node.arguments.split_first() else {
            return execution(format!("an argument of {name} is missing"));
        };
        let rows = self.vector(first, steps)?;
        if let Some(function) = native::function(name) {
            return of_histograms(&rows, |histogram| Some(function(histogram))).nameless();
        }
        let numbers: Vec<Vec<f64>> = rest
            .iter()
            .map(|expr| self.numbers(expr, steps))
            .collect::<Result<_, _>>()?;
        let Some(function) = functions::of_value(name) else {
            return Err(QueryError::Unsupported(format!("the function `{name}`")));
        };
        let given = |step: usize| {
            let at = |of: usize| numbers.get(of).and_then(|all| all.get(step)).copied();
            [at(0), at(1)]
        };
        of_floats(rows, |step, number| function(number, given(step))).nameless()
    }

    fn over_time(
        &self,
        node: &Call,
        (function, keeps_name): (OverTime, bool),
        steps: Steps,
    ) -> Result<Rows, QueryError> {
        /// Looking at a sample once more costs this part of fetching it.
        const AGAIN: usize = 16;
        let name = node.function.name;
        let is_range = |expr: &&Expr| expr.kind() == Type::Matrix;
        let Some(range) = node.arguments.iter().find(is_range) else {
            return execution("a range is wanted here");
        };
        let numbers: Vec<Vec<f64>> = node
            .arguments
            .iter()
            .filter(|expr| !is_range(expr))
            .map(|expr| self.numbers(expr, steps))
            .collect::<Result<_, _>>()?;
        let given = |step: usize| {
            let at = |of: usize| numbers.get(of).map_or(f64::NAN, |all: &Vec<f64>| all[step]);
            [at(0), at(1)]
        };
        Self::check_parameters(node, &numbers)?;
        let is_quantile = name == "quantile_over_time";
        let Ranges { series, spans } = self.ranges_of(range, steps)?;
        self.spend(series.len() * steps.count)?;
        let mut rows = Rows::new(steps.count);
        rows.floats.reserve(series.len() * steps.count);
        let mut seen = 0;
        for series in &*series {
            let mut windows = Windows::of(series);
            let row = rows.push(series.labels.clone());
            let (mut visited, mut is_empty) = (0, true);
            for (step, (from, to)) in spans.iter().enumerate() {
                let (samples, histograms) = windows.at(*from, *to);
                if samples.is_empty() && histograms.is_empty() {
                    continue;
                }
                if is_quantile && !samples.is_empty() {
                    buckets::note_rank(given(step)[0], &self.notes, node.arguments[0].span());
                }
                let weighs = weight(samples, histograms);
                visited += samples.len() + 16 * histograms.len();
                seen += weighs;
                self.go_on(weighs)?;
                let range = Range {
                    samples,
                    from: *from,
                    to: *to,
                    now: steps.time(step),
                };
                if histograms.is_empty() {
                    if let Some(number) = function(&range, given(step)) {
                        rows.row_mut(row)[step] = number;
                        is_empty = false;
                    }
                    continue;
                }
                let metric = series.labels.get(NAME);
                let (value, note) =
                    native_over_time::over_time(name, (function, given(step)), &range, histograms, metric);
                note.into_iter()
                    .for_each(|note| self.notes.add(note, node.arguments[0].span()));
                if let Some(value) = value {
                    rows.set(row, step, value);
                    is_empty = false;
                }
            }
            self.spend(visited / AGAIN)?;
            if is_empty {
                rows.pop();
            }
        }
        self.count_samples(seen);
        if matches!(name, "rate" | "increase") {
            self.note_gauges(&rows, range);
        }
        if keeps_name { Ok(rows) } else { rows.nameless() }
    }

    /// Refuses numbers that a function of ranges has no use for.
    fn check_parameters(node: &Call, numbers: &[Vec<f64>]) -> Result<(), QueryError> {
        if node.function.name != "double_exponential_smoothing" {
            return Ok(());
        }
        for (factor, of) in numbers.iter().zip(["smoothing", "trend"]) {
            if let Some(wrong) = factor.iter().find(|factor| **factor <= 0.0 || **factor >= 1.0) {
                return execution(format!(
                    "invalid {of} factor. Expected: 0 < {}f < 1, got: {wrong:.6}",
                    &of[..1]
                ));
            }
        }
        Ok(())
    }

    /// Notes rates of series that do not look like counters.
    fn note_gauges(&self, rows: &Rows, range: &Expr) {
        const COUNTERS: [&str; 4] = ["_total", "_sum", "_count", "_bucket"];
        let mut before = "";
        for row in 0..rows.len() {
            let name = rows.name(row);
            let is_known = name == before || COUNTERS.iter().any(|suffix| name.ends_with(suffix));
            if is_known || rows.row(row).iter().all(|value| is_absent(*value)) {
                continue;
            }
            before = name;
            self.notes
                .add(Note::PossibleNonCounter(name.to_owned()), range.span());
        }
    }

    /// When the samples were taken; of everything that is computed, now.
    fn timestamps(&self, expr: &Expr, steps: Steps) -> Result<Rows, QueryError> {
        if let Expr::Selector(vs) = expr.bare() {
            let seen = self.select(vs, steps, |time, _| Cell::Float(time as f64 / 1000.0));
            return seen?.nameless();
        }
        let mut rows = self.vector(expr, steps)?;
        let now = seconds(steps);
        let there: Vec<_> = rows.cells().map(|(row, step, _)| (row, step)).collect();
        rows.histograms.clear();
        for (row, step) in there {
            rows.row_mut(row)[step] = now[step];
        }
        rows.nameless()
    }

    fn absent_over_time(&self, expr: &Expr, steps: Steps) -> Result<Rows, QueryError> {
        let Ranges { series, spans } = self.ranges_of(expr, steps)?;
        let mut there = vec![false; steps.count];
        let mut seen = 0;
        for series in &*series {
            let mut windows = Windows::of(series);
            for (there, (from, to)) in there.iter_mut().zip(&spans) {
                let (samples, histograms) = windows.at(*from, *to);
                *there |= !samples.is_empty() || !histograms.is_empty();
                seen += weight(samples, histograms);
            }
            self.spend(spans.len())?;
        }
        self.count_samples(seen);
        Ok(absent(&there, expr))
    }
}

/// The times of evaluation.
fn seconds(steps: Steps) -> Vec<f64> {
    steps.times().map(|time| time as f64 / 1000.0).collect()
}

/// The only number of each step.
fn only(rows: &Rows) -> Vec<f64> {
    let of_step = |step: usize| {
        let mut all = (0..rows.len())
            .map(|row| rows.row(row)[step])
            .filter(|number| !is_absent(*number));
        let first = all.next();
        first.filter(|_| all.next().is_none()).unwrap_or(f64::NAN)
    };
    (0..rows.steps).map(of_step).collect()
}

/// A function of numbers; histograms are none.
fn of_floats(mut rows: Rows, function: impl Fn(usize, f64) -> Option<f64>) -> Rows {
    rows.histograms.clear();
    let steps = rows.steps.max(1);
    for (at, number) in rows.floats.iter_mut().enumerate() {
        if !is_absent(*number) {
            *number = function(at % steps, *number).unwrap_or(ABSENT);
        }
    }
    rows
}

/// A function of histograms; numbers are none.
pub(super) fn of_histograms(rows: &Rows, function: impl Fn(&super::FloatHistogram) -> Option<f64>) -> Rows {
    let mut made = Rows::of_labels(rows.steps, rows.labels.clone());
    made.is_nameless = rows.is_nameless;
    for (row, step, cell) in rows.cells() {
        if let Some(number) = cell.histogram().and_then(|histogram| function(histogram)) {
            made.set(row, step, SampleValue::Float(number));
        }
    }
    made
}

fn absent(there: &[bool], expr: &Expr) -> Rows {
    let matchers: &[Matcher] = match expr.bare() {
        Expr::Selector(vs) => &vs.matchers,
        Expr::Range(node) => &node.selector.matchers,
        _ => &[],
    };
    let values = there.iter().map(|there| if *there { ABSENT } else { 1.0 });
    Rows {
        steps: there.len(),
        labels: vec![absent_labels(matchers)],
        floats: values.collect(),
        ..Rows::default()
    }
}

/// The labels of the series that `absent` returns: those that the selector matches by value.
fn absent_labels(matchers: &[Matcher]) -> Labels {
    let asked = |name: &str| matchers.iter().filter(|matcher| matcher.name() == name).count();
    let wanted = matchers
        .iter()
        .filter(|matcher| matcher.name() != NAME && asked(matcher.name()) == 1);
    wanted
        .filter_map(|matcher| Some((matcher.name(), matcher.equals()?)))
        .collect()
}
