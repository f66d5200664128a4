// SPDX-License-Identifier: Apache-2.0

//! `histogram_quantile` and `histogram_fraction` over classic buckets and native histograms.

use super::QueryError;
use super::call::of_histograms;
use super::labels::Labels;
use super::native;
use super::notes::{Note, Notebook, go_shortest};
use super::rows::{ABSENT, Groups, Keep, Rows, is_absent};
use super::syntax::ast::QuerySpan;

const LE: &str = "le";

/// A bucket: its upper bound, and how many observations are not above it.
type Bucket = (f64, f64);

/// The quantile of every histogram at every step.
pub(super) fn quantiles(
    ranks: &[f64],
    rows: &Rows,
    notes: &Notebook,
    (of_rank, of_rows): (QuerySpan, QuerySpan),
) -> Result<Rows, QueryError> {
    for rank in ranks {
        note_rank(*rank, notes, of_rank);
    }
    let of_classic = |step: usize, name: &str, buckets: &mut Vec<Bucket>| {
        let (value, is_forced) = quantile(ranks[step], buckets);
        if is_forced {
            notes.add(Note::ForcedMonotonicity(name.to_owned()), of_rows);
        }
        value
    };
    let of_native = |step: usize, name: &str, histogram: &super::FloatHistogram| {
        let value = native::quantile(ranks[step], histogram);
        if histogram.has_nan() && (0.0..=1.0).contains(&ranks[step]) {
            notes.add(Note::NanInQuantile(name.to_owned(), value.is_nan()), of_rows);
        }
        value
    };
    of_both(rows, (notes, of_rows), of_classic, of_native)
}

/// The share of observations between two values of every histogram at every step.
pub(super) fn fractions(
    (lower, upper): (&[f64], &[f64]),
    rows: &Rows,
    notes: &Notebook,
    span: QuerySpan,
) -> Result<Rows, QueryError> {
    let of_classic =
        |step: usize, _: &str, buckets: &mut Vec<Bucket>| fraction(lower[step], upper[step], buckets);
    let of_native = |step: usize, name: &str, histogram: &super::FloatHistogram| {
        if histogram.has_nan() {
            notes.add(Note::NanInFraction(name.to_owned()), span);
        }
        native::fraction(lower[step], upper[step], histogram)
    };
    of_both(rows, (notes, span), of_classic, of_native)
}

pub(super) fn note_rank(rank: f64, notes: &Notebook, span: QuerySpan) {
    if !(0.0..=1.0).contains(&rank) {
        notes.add(Note::InvalidQuantile(go_shortest(rank)), span);
    }
}

/// The buckets of a classic histogram: bounds and rows, by bound.
struct Classic {
    labels: Labels,
    name: String,
    buckets: Vec<(f64, usize)>,
}

/// Classic histograms by their labels without `le`.
fn classic(rows: &Rows, notes: (&Notebook, QuerySpan)) -> Vec<Classic> {
    let mut groups = Groups::new(Keep::All);
    let mut all: Vec<Classic> = Vec::new();
    for row in 0..rows.len() {
        if rows.row(row).iter().all(|value| is_absent(*value)) {
            continue;
        }
        let labels = &rows.labels[row];
        let le = labels.get(LE);
        let Some(bound) = bound(le) else {
            let note = Note::BadBucketLabel(rows.name(row).to_owned(), le.to_owned());
            notes.0.add(note, notes.1);
            continue;
        };
        let of = labels.nameless().filter(|name| name != LE);
        let place = groups.group_index(&of, false);
        if place == all.len() {
            all.push(Classic {
                labels: of,
                name: rows.name(row).to_owned(),
                buckets: Vec::new(),
            });
        }
        all[place].buckets.push((bound, row));
    }
    for histogram in &mut all {
        histogram.buckets.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    all
}

/// A bound as Go reads numbers.
fn bound(text: &str) -> Option<f64> {
    let parsed = text.parse::<f64>().ok();
    parsed.or_else(|| {
        text.replace('_', "")
            .parse()
            .ok()
            .filter(|_| text.starts_with("0x"))
    })
}

/// One number a histogram and step. Where both kinds have the same labels there is no telling which is meant: none.
fn of_both(
    rows: &Rows,
    notes: (&Notebook, QuerySpan),
    of_classic: impl Fn(usize, &str, &mut Vec<Bucket>) -> f64,
    of_native: impl Fn(usize, &str, &super::FloatHistogram) -> f64,
) -> Result<Rows, QueryError> {
    let all = classic(rows, notes);
    let mut made = Rows::of_labels(rows.steps, all.iter().map(|one| one.labels.clone()).collect());
    let mut buckets = Vec::new();
    for (row, histogram) in all.iter().enumerate() {
        for step in 0..rows.steps {
            buckets.clear();
            let counts = histogram.buckets.iter();
            let counts = counts.map(|(bound, of)| (*bound, rows.row(*of)[step]));
            buckets.extend(counts.filter(|(_, count)| !is_absent(*count)));
            if !buckets.is_empty() {
                made.row_mut(row)[step] = of_classic(step, &histogram.name, &mut buckets);
            }
        }
    }
    if !rows.has_histograms() {
        return Ok(made);
    }
    let mut natives = of_histograms(rows, |_| Some(0.0));
    for (row, step, cell) in rows.cells() {
        if let Some(histogram) = cell.histogram() {
            natives.row_mut(row)[step] = of_native(step, rows.name(row), histogram);
        }
    }
    join(made, natives, rows, notes)
}

fn join(
    mut made: Rows,
    natives: Rows,
    rows: &Rows,
    (notes, span): (&Notebook, QuerySpan),
) -> Result<Rows, QueryError> {
    let mut groups = Groups::new(Keep::All);
    for labels in &made.labels {
        groups.group_index(labels, true);
    }
    let natives = natives.nameless()?;
    let classics = made.len();
    for row in 0..natives.len() {
        let place = groups.group_index(&natives.labels[row], true);
        if place == made.len() {
            made.push(natives.labels[row].nameless());
        }
        for step in 0..natives.steps {
            let value = natives.row(row)[step];
            if is_absent(value) {
                continue;
            }
            let there = &mut made.row_mut(place)[step];
            if place < classics && !is_absent(*there) {
                *there = ABSENT;
                let name = if row < rows.len() { rows.name(row) } else { "" };
                notes.add(Note::MixedClassicNative(name.to_owned()), span);
            } else {
                *there = value;
            }
        }
    }
    Ok(made)
}

/// The count of all observations, if the last bucket has no bound; buckets of one bound are joined.
fn whole(buckets: &mut Vec<Bucket>) -> Option<f64> {
    let last = buckets.last()?;
    if last.0 != f64::INFINITY {
        return None;
    }
    buckets.dedup_by(|next, kept| {
        let same = next.0 == kept.0;
        kept.1 += if same { next.1 } else { 0.0 };
        same
    });
    buckets.last().map(|(_, count)| *count)
}

/// With whether counts fell from bucket to bucket, by more than rounding does.
fn quantile(q: f64, buckets: &mut Vec<Bucket>) -> (f64, bool) {
    /// The relative difference up to which two counts are equal.
    const ROUNDING: f64 = 1e-12;
    if q.is_nan() {
        return (f64::NAN, false);
    }
    if !(0.0..=1.0).contains(&q) {
        let value = if q < 0.0 { f64::NEG_INFINITY } else { f64::INFINITY };
        return (value, false);
    }
    if whole(buckets).is_none() || buckets.len() < 2 {
        return (f64::NAN, false);
    }
    // Counts are running totals: a fall means that the buckets were scraped at different times.
    let mut is_forced = false;
    let mut before = buckets[0].1;
    for (_, count) in buckets.iter_mut().skip(1) {
        let is_rounding = (*count - before).abs() <= ROUNDING * count.abs();
        is_forced |= *count < before && !is_rounding;
        if *count < before || is_rounding {
            *count = before;
        }
        before = *count;
    }
    let all = buckets[buckets.len() - 1].1;
    if all == 0.0 || all.is_nan() {
        return (f64::NAN, false);
    }
    let rank = q * all;
    let at = buckets[..buckets.len() - 1].partition_point(|(_, count)| *count < rank);
    let (bound, count) = buckets[at];
    let value = match at {
        _ if at == buckets.len() - 1 => buckets[at - 1].0,
        0 if bound <= 0.0 => bound,
        0 => bound * (rank / count),
        _ => {
            let (below, before) = buckets[at - 1];
            below + (bound - below) * ((rank - before) / (count - before))
        }
    };
    (value, is_forced)
}

/// The share of observations between two values, evenly spread within buckets.
fn fraction(lower: f64, upper: f64, buckets: &mut Vec<Bucket>) -> f64 {
    let Some(all) = whole(buckets) else {
        return f64::NAN;
    };
    if all == 0.0 || lower.is_nan() || upper.is_nan() {
        return f64::NAN;
    }
    if lower >= upper {
        return 0.0;
    }
    // The lower end of the first bucket is unknown, unless it is zero; so is the upper end of the last one.
    let first = if buckets[0].0 > 0.0 { 0.0 } else { buckets[0].0 };
    let rank = |value: f64| {
        let (mut from, mut below) = (first, 0.0);
        for (to, count) in buckets.iter() {
            if from >= value {
                return below;
            }
            if *to > value {
                return below + (count - below) * (value - from) / (to - from);
            }
            (from, below) = (*to, *count);
        }
        all
    };
    let rank = |value: f64| {
        let rank = rank(value);
        if rank > all { all } else { rank }
    };
    (rank(upper) - rank(lower)) / all
}
