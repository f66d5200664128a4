// SPDX-License-Identifier: Apache-2.0

//! Binary operators: arithmetic, comparisons and sets, with vector matching. Native histograms can be added,
//! subtracted, compared for equality and scaled. A pair drops out if the operator is undefined for it.

use std::collections::HashMap;
use std::sync::Arc;

use super::eval::{QueryValue, execution};
use super::notes::{Note, Notebook};
use super::rows::{Cell, Groups, Keep, Rows, is_absent};
use super::syntax::ast::{GroupModifier, Link, Matching, Operator, QuerySpan};
use super::{FloatHistogram, Labels, QueryError, SampleValue};

/// An operator at its place in a query.
struct Operation<'a> {
    link: &'a Link,
    notes: &'a Notebook,
    span: QuerySpan,
}

/// The result of an operator on both sides.
pub(super) fn link(
    link: &Link,
    left: QueryValue,
    right: QueryValue,
    notes: &Notebook,
    span: QuerySpan,
) -> Result<QueryValue, QueryError> {
    let operation = Operation { link, notes, span };
    let operator = link.operator;
    Ok(match (left, right) {
        (QueryValue::Scalar(left), QueryValue::Scalar(right)) => {
            let pairs = left.iter().zip(&right);
            QueryValue::Scalar(
                pairs
                    .map(|(left, right)| number(operator, *left, *right))
                    .collect(),
            )
        }
        (QueryValue::Vector(left), QueryValue::Scalar(right)) => {
            QueryValue::Vector(operation.with_scalar(left, &right, false)?)
        }
        (QueryValue::Scalar(left), QueryValue::Vector(right)) => {
            QueryValue::Vector(operation.with_scalar(right, &left, true)?)
        }
        (QueryValue::Vector(left), QueryValue::Vector(right)) => QueryValue::Vector(if operator.is_set() {
            sets(link, left, right)?
        } else {
            operation.vectors(&left, &right)?
        }),
        _ => return execution("an operator takes scalars and vectors"),
    })
}

/// Whether a comparison holds.
fn holds(operator: Operator, left: f64, right: f64) -> bool {
    match operator {
        Operator::Equal => left == right,
        Operator::NotEqual => left != right,
        Operator::Less => left < right,
        Operator::Greater => left > right,
        Operator::LessOrEqual => left <= right,
        Operator::GreaterOrEqual => left >= right,
        _ => false,
    }
}

/// A comparison is 1 or 0.
fn number(operator: Operator, left: f64, right: f64) -> f64 {
    match operator {
        Operator::Add => left + right,
        Operator::Sub => left - right,
        Operator::Mul => left * right,
        Operator::Div => left / right,
        Operator::Mod => left % right,
        Operator::Pow => left.powf(right),
        Operator::Atan2 => left.atan2(right),
        comparison => f64::from(u8::from(holds(comparison, left, right))),
    }
}

fn as_bool(value: bool) -> SampleValue {
    SampleValue::Float(f64::from(u8::from(value)))
}

impl Operation<'_> {
    /// Whether the result keeps the metric name of the input.
    fn keeps_name(&self) -> bool {
        self.link.operator.is_comparison() && !self.link.matching.as_bool
    }

    /// `kept`: the value that a comparison keeps.
    fn of_cells(&self, left: Cell<'_>, right: Cell<'_>, kept: Cell<'_>) -> Option<SampleValue> {
        let operator = self.link.operator;
        let compared = |holds: bool| {
            if self.link.matching.as_bool {
                Some(as_bool(holds))
            } else {
                holds.then(|| kept.value())
            }
        };
        match (left, right) {
            (Cell::Float(left), Cell::Float(right)) if operator.is_comparison() => {
                compared(holds(operator, left, right))
            }
            (Cell::Float(left), Cell::Float(right)) => {
                Some(SampleValue::Float(number(operator, left, right)))
            }
            (Cell::Histogram(left), Cell::Histogram(right))
                if matches!(operator, Operator::Equal | Operator::NotEqual) =>
            {
                compared(left.is_same(right) == (operator == Operator::Equal))
            }
            _ => {
                let made = arithmetic(operator, left, right);
                if made.is_none() {
                    let note = Note::IncompatibleTypes(kind(left), operator.name(), kind(right));
                    self.notes.add(note, self.span);
                }
                made.map(|made| SampleValue::Histogram(Arc::new(made)))
            }
        }
    }

    /// A vector and numbers; `swapped`: the number stands on the left.
    fn with_scalar(&self, mut rows: Rows, numbers: &[f64], swapped: bool) -> Result<Rows, QueryError> {
        let operator = self.link.operator;
        let is_filter = operator.is_comparison() && !self.link.matching.as_bool;
        for row in 0..rows.len() {
            let plain = rows.row_mut(row).iter_mut().zip(numbers);
            for (value, number_there) in plain.filter(|(value, _)| !is_absent(**value)) {
                let (left, right) = if swapped {
                    (*number_there, *value)
                } else {
                    (*value, *number_there)
                };
                *value = if !is_filter {
                    number(operator, left, right)
                } else if holds(operator, left, right) {
                    *value
                } else {
                    super::rows::ABSENT
                };
            }
        }
        for at in 0..rows.histograms.len() {
            let Some(histogram) = rows.histograms[at].take() else {
                continue;
            };
            let (number, cell) = (Cell::Float(numbers[at % rows.steps]), Cell::Histogram(&histogram));
            let (left, right) = if swapped { (number, cell) } else { (cell, number) };
            if let Some(value) = self.of_cells(left, right, cell) {
                rows.set(at / rows.steps, at % rows.steps, value);
            }
        }
        if self.keeps_name() {
            Ok(rows)
        } else {
            rows.nameless()
        }
    }

    /// Two vectors, series by series.
    fn vectors(&self, left: &Rows, right: &Rows) -> Result<Rows, QueryError> {
        let matching = &self.link.matching;
        let swapped = matching.group == GroupModifier::Right;
        let (many, one) = if swapped { (right, left) } else { (left, right) };
        let mut groups = Groups::new(keep(matching));
        let places = |groups: &mut Groups<'_>, labels: &Labels| groups.group_index(labels, one.is_nameless);
        let ones: Vec<usize> = one
            .labels
            .iter()
            .map(|labels| places(&mut groups, labels))
            .collect();
        let manies = many.labels.iter();
        let manies: Vec<Option<usize>> = manies
            .map(|labels| groups.find(labels, many.is_nameless))
            .collect();
        let mut made = Joined::new(many);
        // The row that represents a group on the one side at a step.
        let mut here = vec![usize::MAX; groups.labels.len()];
        let mut matched = vec![usize::MAX; groups.labels.len()];
        for step in 0..many.steps {
            here.fill(usize::MAX);
            for (row, group) in ones.iter().enumerate() {
                if one.cell(row, step).is_none() {
                    continue;
                }
                let other = std::mem::replace(&mut here[*group], row);
                if other != usize::MAX {
                    let side = if swapped { "left" } else { "right" };
                    return execution(format!(
                        "found duplicate series for the match group {} on the {side} hand-side of the operation: [{}, {}];many-to-many matching not allowed: matching labels must be unique on one side",
                        groups.labels[*group],
                        one.shown(row),
                        one.shown(other)
                    ));
                }
            }
            for (row, group) in manies.iter().enumerate() {
                let Some(group) = group.filter(|group| here[*group] != usize::MAX) else {
                    continue;
                };
                let Some(own) = many.cell(row, step) else { continue };
                let other = here[group];
                let Some(others) = one.cell(other, step) else {
                    continue;
                };
                let place = made.group_index((row, other), || self.labels(many.shown(row), one, other));
                let taken = match matching.group {
                    GroupModifier::None => &mut matched[group],
                    _ => &mut made.taken[place],
                };
                if std::mem::replace(taken, step) == step {
                    return execution(match matching.group {
                        GroupModifier::None => {
                            "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)"
                        }
                        _ => "multiple matches for labels: grouping labels must ensure unique matches",
                    });
                }
                let (l, r) = if swapped { (others, own) } else { (own, others) };
                if let Some(value) = self.of_cells(l, r, l) {
                    made.rows.set(place, step, value);
                }
            }
        }
        Ok(made.rows)
    }

    /// The labels of a match.
    fn labels(&self, labels: Labels, one: &Rows, other: usize) -> Labels {
        let matching = &self.link.matching;
        let mut out = if self.keeps_name() {
            labels
        } else {
            labels.nameless()
        };
        if matching.group == GroupModifier::None
            && let Some(names) = &matching.labels
        {
            out = out.filter(|name| names.iter().any(|known| known == name) == matching.is_on);
        }
        if !matching.include.is_empty() {
            let others = one.shown(other);
            for name in &matching.include {
                out = out.with(name, others.get(name));
            }
        }
        out
    }
}

/// Rows by the labels of matches.
struct Joined {
    rows: Rows,
    /// By row: the last step that has a match.
    taken: Vec<usize>,
    by_labels: HashMap<Labels, usize>,
    /// By row of the many side: the row of the other that it last met, and the row of the match.
    known: Vec<(usize, usize)>,
}

impl Joined {
    fn new(many: &Rows) -> Self {
        Self {
            rows: Rows::new(many.steps),
            taken: Vec::new(),
            by_labels: HashMap::new(),
            known: vec![(usize::MAX, 0); many.len()],
        }
    }

    fn group_index(&mut self, (row, other): (usize, usize), labels: impl FnOnce() -> Labels) -> usize {
        let (known, place) = self.known[row];
        if known == other {
            return place;
        }
        let place = *self.by_labels.entry(labels()).or_insert_with_key(|labels| {
            self.taken.push(usize::MAX);
            self.rows.push(labels.clone())
        });
        self.known[row] = (other, place);
        place
    }
}

fn kind(cell: Cell<'_>) -> &'static str {
    match cell {
        Cell::Float(_) => "float",
        Cell::Histogram(_) => "histogram",
    }
}

/// The result of an operator on two values, one of them a histogram. `None`: the operator is undefined for them.
fn arithmetic(operator: Operator, left: Cell<'_>, right: Cell<'_>) -> Option<FloatHistogram> {
    use Cell::{Float, Histogram};
    let of = |histogram: &FloatHistogram| histogram.clone();
    Some(match (operator, left, right) {
        (Operator::Add, Histogram(left), Histogram(right)) => {
            let mut sum = of(left);
            sum.add(right);
            sum
        }
        (Operator::Sub, Histogram(left), Histogram(right)) => {
            let mut difference = of(left);
            difference.subtract(right);
            difference
        }
        (Operator::Mul, Histogram(histogram), Float(factor))
        | (Operator::Mul, Float(factor), Histogram(histogram)) => of(histogram).times(factor),
        (Operator::Div, Histogram(histogram), Float(divisor)) => of(histogram).over(divisor),
        _ => return None,
    })
}

/// The labels that two series must agree in.
fn keep(matching: &Matching) -> Keep<'_> {
    match &matching.labels {
        None => Keep::Nameless,
        Some(names) if matching.is_on => Keep::By(names),
        Some(names) => Keep::Without(names),
    }
}

/// The groups that have a value at each step.
struct Presence<'a> {
    groups: Groups<'a>,
    steps: usize,
    present: Vec<bool>,
}

impl<'a> Presence<'a> {
    fn of(rows: &Rows, keep: Keep<'a>) -> Self {
        let mut groups = Groups::new(keep);
        let labels = rows.labels.iter();
        let places: Vec<usize> = labels
            .map(|labels| groups.group_index(labels, rows.is_nameless))
            .collect();
        let mut present = vec![false; groups.labels.len() * rows.steps];
        for (row, step, _) in rows.cells() {
            present[places[row] * rows.steps + step] = true;
        }
        Self {
            groups,
            steps: rows.steps,
            present,
        }
    }

    /// Takes the values away whose groups are here, or those whose groups aren't.
    fn filter(&self, mut rows: Rows, keeps_present: bool) -> Rows {
        for row in 0..rows.len() {
            let group = self.groups.find(&rows.labels[row], rows.is_nameless);
            for step in 0..rows.steps {
                let is_present = group.is_some_and(|group| self.present[group * self.steps + step]);
                if is_present != keeps_present {
                    rows.clear(row, step);
                }
            }
        }
        rows
    }
}

fn sets(link: &Link, left: Rows, right: Rows) -> Result<Rows, QueryError> {
    let keep = keep(&link.matching);
    Ok(match link.operator {
        Operator::And => Presence::of(&right, keep).filter(left, true),
        Operator::Unless => Presence::of(&right, keep).filter(left, false),
        _ => {
            let right = Presence::of(&left, keep).filter(right, false);
            appended(left, right).joined()?
        }
    })
}

/// The rows of both.
fn appended(left: Rows, right: Rows) -> Rows {
    let mut made = named(left);
    let right = named(right);
    let before = made.len();
    made.labels.extend(right.labels.iter().cloned());
    made.floats.extend_from_slice(&right.floats);
    if made.has_histograms() || right.has_histograms() {
        made.histograms.resize(before * made.steps, None);
        made.histograms.extend(right.histograms);
        made.histograms.resize(made.floats.len(), None);
    }
    made
}

/// Drops the names from the labels themselves, if the rows are nameless.
pub(super) fn named(mut rows: Rows) -> Rows {
    if rows.is_nameless {
        rows.labels
            .iter_mut()
            .for_each(|labels| *labels = labels.nameless());
        rows.is_nameless = false;
    }
    rows
}
