// SPDX-License-Identifier: Apache-2.0

//! Aggregations: `sum by (...)`, `topk`, `quantile` and so on. Those for numbers alone ignore native histograms.

use std::collections::BinaryHeap;
use std::sync::Arc;

use super::eval::{Eval, QueryValue, execution};
use super::float_histogram::Total;
use super::need::Steps;
use super::notes::{Note, go_shortest};
use super::over_time::{Sum, mean, quantile, variance};
use super::rows::{ABSENT, Cell, Groups, Keep, Rows, is_absent};
use super::syntax::ast::{Aggregate, Aggregation};
use super::syntax::quoted;
use super::{FloatHistogram, Labels, QueryError, SampleValue};

/// The number of samples that a value counts as when it becomes a label.
const LABELLING: usize = 8;

/// The group of each row, and the groups' labels.
struct Grouped {
    places: Vec<usize>,
    labels: Vec<Labels>,
}

fn grouped(node: &Aggregate, rows: &Rows) -> Grouped {
    let grouping = &node.grouping;
    let keep = if grouping.is_without {
        Keep::Without(&grouping.labels)
    } else {
        Keep::By(&grouping.labels)
    };
    let mut groups = Groups::new(keep);
    let places = rows.labels.iter();
    let places = places
        .map(|labels| groups.group_index(labels, rows.is_nameless))
        .collect();
    Grouped {
        places,
        labels: groups.labels,
    }
}

impl Eval {
    pub(super) fn aggregate(&self, node: &Aggregate, steps: Steps) -> Result<Rows, QueryError> {
        let parameter = match &node.parameter {
            None => QueryValue::Scalar(Vec::new()),
            Some(expr) => self.value(expr, steps)?,
        };
        let rows = self.vector(&node.expr, steps)?;
        if rows.has_histograms() {
            self.note_ignored(node, &rows);
        }
        let groups = grouped(node, &rows);
        match (node.operator, parameter) {
            (Aggregation::CountValues, QueryValue::Text(label)) => {
                // Each value becomes a label, which costs more than looking at it.
                self.spend(LABELLING * rows.floats.len())?;
                count_values(&label, &rows, &groups)
            }
            (Aggregation::Quantile, QueryValue::Scalar(ranks)) => {
                self.note_ranks(node, &ranks);
                Ok(by_cell(&rows, &groups, |step, members| {
                    let number = |member: &GroupMember<'_>| member.cell.float();
                    let numbers: Vec<f64> = members.iter().filter_map(number).collect();
                    (!numbers.is_empty()).then(|| SampleValue::Float(quantile(ranks[step], numbers)))
                }))
            }
            (Aggregation::Topk | Aggregation::Bottomk | Aggregation::Limitk, QueryValue::Scalar(counts)) => {
                choose(node.operator, &counts, rows, &groups)
            }
            (Aggregation::Count | Aggregation::Group, _) => Ok(counted(node.operator, &rows, &groups)),
            (operator, _) if !rows.has_histograms() => Ok(of_numbers(operator, &rows, &groups)),
            (operator, _) => Ok(by_cell(&rows, &groups, |_, members| {
                self.of_members(operator, node, members)
            })),
        }
    }

    /// One value of numbers and histograms.
    fn of_members(
        &self,
        operator: Aggregation,
        node: &Aggregate,
        members: &[GroupMember<'_>],
    ) -> Option<SampleValue> {
        let numbers: Vec<f64> = members.iter().filter_map(|member| member.cell.float()).collect();
        let histograms = members.iter().filter_map(|member| member.cell.histogram());
        let histograms: Vec<&FloatHistogram> = histograms.map(|histogram| &**histogram).collect();
        let is_sum = matches!(operator, Aggregation::Sum | Aggregation::Avg);
        match (is_sum, numbers.is_empty(), histograms.is_empty()) {
            (true, false, false) => {
                self.notes.add(Note::MixedInAggregation, node.expr.span());
                None
            }
            (true, true, _) => {
                let total = Total::of(histograms.iter().copied())?;
                Some(SampleValue::Histogram(Arc::new(match operator {
                    Aggregation::Avg => total.mean(histograms),
                    _ => total.whole(),
                })))
            }
            (_, true, _) => None,
            (_, false, _) => Some(SampleValue::Float(fold(operator, &numbers))),
        }
    }

    fn note_ignored(&self, node: &Aggregate, rows: &Rows) {
        use Aggregation::{Bottomk, Max, Min, Quantile, Stddev, Stdvar, Topk};
        let ignores = matches!(
            node.operator,
            Min | Max | Stddev | Stdvar | Quantile | Topk | Bottomk
        );
        if ignores && rows.histograms.iter().any(Option::is_some) {
            let note = Note::IgnoredInAggregation(node.operator.name());
            // Prometheus points to different places.
            let span = match node.operator {
                Topk | Bottomk => node.span,
                _ => node.expr.span(),
            };
            self.notes.add(note, span);
        }
    }

    fn note_ranks(&self, node: &Aggregate, ranks: &[f64]) {
        for rank in ranks.iter().filter(|rank| !(0.0..=1.0).contains(*rank)) {
            let span = node
                .parameter
                .as_ref()
                .map_or(node.span, super::syntax::ast::Expr::span);
            self.notes.add(Note::InvalidQuantile(go_shortest(*rank)), span);
        }
    }
}

fn fold(operator: Aggregation, numbers: &[f64]) -> f64 {
    let all = || numbers.iter().copied();
    match operator {
        Aggregation::Sum => Sum::of(all()),
        Aggregation::Avg => mean(all()),
        Aggregation::Min => all().reduce(smaller).unwrap_or(f64::NAN),
        Aggregation::Max => all().reduce(larger).unwrap_or(f64::NAN),
        Aggregation::Stdvar => variance(all()),
        Aggregation::Stddev => variance(all()).sqrt(),
        _ => f64::NAN,
    }
}

/// NaN only where there is nothing else.
fn smaller(best: f64, value: f64) -> f64 {
    if best.is_nan() || value < best {
        value
    } else {
        best
    }
}

fn larger(best: f64, value: f64) -> f64 {
    if best.is_nan() || value > best {
        value
    } else {
        best
    }
}

/// Numbers only, row by row.
fn of_numbers(operator: Aggregation, rows: &Rows, groups: &Grouped) -> Rows {
    match operator {
        Aggregation::Min => folded(rows, groups, smaller),
        Aggregation::Max => folded(rows, groups, larger),
        Aggregation::Sum | Aggregation::Avg => summed(operator, rows, groups),
        _ => by_cell(rows, groups, |_, members| {
            let numbers: Vec<f64> = members.iter().filter_map(|member| member.cell.float()).collect();
            (!numbers.is_empty()).then(|| SampleValue::Float(fold(operator, &numbers)))
        }),
    }
}

fn folded(rows: &Rows, groups: &Grouped, join: fn(f64, f64) -> f64) -> Rows {
    let mut made = Rows::of_labels(rows.steps, groups.labels.clone());
    for (row, group) in groups.places.iter().enumerate() {
        for (best, value) in made.row_mut(*group).iter_mut().zip(rows.row(row)) {
            match (is_absent(*best), is_absent(*value)) {
                (_, true) => {}
                (true, false) => *best = *value,
                (false, false) => *best = join(*best, *value),
            }
        }
    }
    made
}

fn summed(operator: Aggregation, rows: &Rows, groups: &Grouped) -> Rows {
    let mut sums = vec![(Sum::default(), 0_u32); groups.labels.len() * rows.steps];
    for (row, group) in groups.places.iter().enumerate() {
        let of_group = sums.iter_mut().skip(group * rows.steps);
        for ((sum, count), value) in of_group.zip(rows.row(row)) {
            if !is_absent(*value) {
                sum.add(*value);
                *count += 1;
            }
        }
    }
    let mut overflown = false;
    let mut made = Rows::of_labels(rows.steps, groups.labels.clone());
    for ((sum, count), to) in sums.iter().zip(&mut made.floats) {
        *to = match (operator, count) {
            (_, 0) => ABSENT,
            (Aggregation::Avg, count) => {
                overflown |= !sum.value().is_finite();
                sum.mean(f64::from(*count))
            }
            _ => sum.value(),
        };
    }
    if overflown {
        // The mean may be finite where the sum is not.
        by_cell(rows, groups, |_, members| {
            let numbers: Vec<f64> = members.iter().filter_map(|member| member.cell.float()).collect();
            (!numbers.is_empty()).then(|| SampleValue::Float(fold(operator, &numbers)))
        })
    } else {
        made
    }
}

fn counted(operator: Aggregation, rows: &Rows, groups: &Grouped) -> Rows {
    let mut made = Rows::of_labels(rows.steps, groups.labels.clone());
    let mut count = |group: usize, step: usize| {
        let count = &mut made.row_mut(group)[step];
        *count = match (operator, is_absent(*count)) {
            (Aggregation::Count, false) => *count + 1.0,
            _ => 1.0,
        };
    };
    for (row, group) in groups.places.iter().enumerate() {
        let present = rows.row(row).iter().enumerate();
        let present = present.filter(|(_, value)| !is_absent(**value));
        present.for_each(|(step, _)| count(*group, step));
    }
    for (at, _) in rows
        .histograms
        .iter()
        .enumerate()
        .filter(|(_, one)| one.is_some())
    {
        count(groups.places[at / rows.steps], at % rows.steps);
    }
    made
}

/// A value of a group at a step.
#[derive(Clone, Copy)]
struct GroupMember<'a> {
    row: usize,
    cell: Cell<'a>,
}

impl<'a> Cell<'a> {
    pub(super) fn float(self) -> Option<f64> {
        match self {
            Self::Float(number) => Some(number),
            Self::Histogram(_) => None,
        }
    }

    pub(super) fn histogram(self) -> Option<&'a Arc<FloatHistogram>> {
        match self {
            Self::Float(_) => None,
            Self::Histogram(histogram) => Some(histogram),
        }
    }
}

/// Shows the members of every group at every step to `each`.
fn members<'a>(rows: &'a Rows, groups: &Grouped, each: &mut dyn FnMut(usize, usize, &[GroupMember<'a>])) {
    let mut of_group = vec![Vec::new(); groups.labels.len()];
    for step in 0..rows.steps {
        for (row, group) in groups.places.iter().enumerate() {
            let cell = rows.cell(row, step);
            of_group[*group].extend(cell.map(|cell| GroupMember { row, cell }));
        }
        for (group, members) in of_group.iter_mut().enumerate() {
            if !members.is_empty() {
                each(step, group, members);
                members.clear();
            }
        }
    }
}

/// One value a group and step.
fn by_cell(
    rows: &Rows,
    groups: &Grouped,
    fold: impl Fn(usize, &[GroupMember<'_>]) -> Option<SampleValue>,
) -> Rows {
    let mut made = Rows::of_labels(rows.steps, groups.labels.clone());
    members(rows, groups, &mut |step, group, members| {
        if let Some(value) = fold(step, members) {
            made.set(group, step, value);
        }
    });
    made
}

fn count_values(label: &str, rows: &Rows, groups: &Grouped) -> Result<Rows, QueryError> {
    if label.is_empty() {
        return execution(format!("invalid label name {}", quoted(label)));
    }
    let mut places = Groups::new(Keep::All);
    let mut made = Rows::new(rows.steps);
    for (row, step, cell) in rows.cells() {
        let shown = match cell {
            Cell::Float(number) => super::show_number(number),
            Cell::Histogram(histogram) => histogram.to_string(),
        };
        let labels = groups.labels[groups.places[row]].with(label, &shown);
        let place = places.group_index(&labels, false);
        if place == made.len() {
            made.push(labels);
        }
        let count = &mut made.row_mut(place)[step];
        *count = if is_absent(*count) { 1.0 } else { *count + 1.0 };
    }
    Ok(made)
}

/// Keeps the values of the first series of each group, as many as `counts` gives for the step.
fn choose(
    operator: Aggregation,
    counts: &[f64],
    mut rows: Rows,
    groups: &Grouped,
) -> Result<Rows, QueryError> {
    for count in counts {
        if count.is_nan() {
            return execution("Parameter value is NaN");
        }
        if count.abs() >= i64::MAX as f64 {
            return execution(format!("Scalar value {} overflows int64", go_shortest(*count)));
        }
    }
    let count = |step: usize| counts[step].max(0.0) as usize;
    let kept = match operator {
        Aggregation::Limitk => first_by_labels(&rows, groups, count),
        _ => best(&rows, groups, count, operator == Aggregation::Topk),
    };
    let mut made = Rows {
        is_nameless: rows.is_nameless,
        ..Rows::new(rows.steps)
    };
    let mut places = vec![usize::MAX; rows.len()];
    for (row, step) in kept {
        if places[row] == usize::MAX {
            places[row] = made.push(std::mem::take(&mut rows.labels[row]));
        }
        if let Some(cell) = rows.cell(row, step) {
            made.set(places[row], step, cell.value());
        }
    }
    Ok(made)
}

/// Rows and steps of the first `count` series of each group, by labels.
fn first_by_labels(rows: &Rows, groups: &Grouped, count: impl Fn(usize) -> usize) -> Vec<(usize, usize)> {
    let mut kept = Vec::new();
    members(rows, groups, &mut |step, _, members| {
        let mut first = members.to_vec();
        first.sort_by(|a, b| rows.labels[a.row].cmp(&rows.labels[b.row]));
        kept.extend(first.iter().take(count(step)).map(|member| (member.row, step)));
    });
    kept
}

/// Rows and steps of the best `count` numbers of each group, in their order. Among equal numbers, the first ones win.
fn best(
    rows: &Rows,
    groups: &Grouped,
    count: impl Fn(usize) -> usize,
    is_falling: bool,
) -> Vec<(usize, usize)> {
    // The last of those that are kept is on top.
    let mut heaps = vec![BinaryHeap::new(); groups.labels.len() * rows.steps];
    let counts: Vec<usize> = (0..rows.steps).map(count).collect();
    for (row, group) in groups.places.iter().enumerate() {
        let of_group = heaps.iter_mut().skip(group * rows.steps);
        for ((heap, count), value) in of_group.zip(&counts).zip(rows.row(row)) {
            if is_absent(*value) {
                continue;
            }
            let ranked = (rank(*value, is_falling), row);
            if heap.len() < *count {
                heap.push(ranked);
            } else if let Some(mut last) = heap.peek_mut()
                && ranked < *last
            {
                *last = ranked;
            }
        }
    }
    let heaps = heaps.into_iter().enumerate();
    let mut kept: Vec<(usize, usize, usize)> = heaps
        .flat_map(|(at, heap)| {
            let (group, step) = (at / rows.steps, at % rows.steps);
            let sorted = heap.into_sorted_vec().into_iter();
            sorted.map(move |(_, row)| (step, group, row))
        })
        .collect();
    // Stable: the order within a group and step stays.
    kept.sort_by_key(|(step, group, _)| (*step, *group));
    kept.into_iter().map(|(step, _, row)| (row, step)).collect()
}

/// A number that sorts values as `topk` or `bottomk` does; NaN is last either way.
fn rank(value: f64, is_falling: bool) -> u64 {
    if value.is_nan() {
        return u64::MAX;
    }
    let bits = if is_falling { -value } else { value }.to_bits();
    match bits >> 63 {
        0 => bits | 1 << 63,
        _ => !bits,
    }
}
