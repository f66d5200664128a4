// SPDX-License-Identifier: Apache-2.0

//! Functions of single values, of labels and of orders. Functions of values ignore native histograms.

use super::binary::named;
use super::eval::{Eval, execution};
use super::labels::Compiled;
use super::rows::{Rows, is_absent};
use super::{Labels, QueryError};

/// Functions of each single value, with up to two more arguments after the vector. `None`: the value drops out.
pub(super) type OfValue = fn(f64, [Option<f64>; 2]) -> Option<f64>;

const OF_VALUE: &[(&str, OfValue)] = &[
    ("abs", |value, _| Some(value.abs())),
    ("ceil", |value, _| Some(value.ceil())),
    ("floor", |value, _| Some(value.floor())),
    ("exp", |value, _| Some(value.exp())),
    ("sqrt", |value, _| Some(value.sqrt())),
    ("ln", |value, _| Some(value.ln())),
    ("log2", |value, _| Some(value.log2())),
    ("log10", |value, _| Some(value.log10())),
    ("sgn", |value, _| {
        let is_zero_or_nan = value == 0.0 || value.is_nan();
        Some(if is_zero_or_nan { value } else { value.signum() })
    }),
    ("sin", |value, _| Some(value.sin())),
    ("cos", |value, _| Some(value.cos())),
    ("tan", |value, _| Some(value.tan())),
    ("asin", |value, _| Some(value.asin())),
    ("acos", |value, _| Some(value.acos())),
    ("atan", |value, _| Some(value.atan())),
    ("sinh", |value, _| Some(value.sinh())),
    ("cosh", |value, _| Some(value.cosh())),
    ("tanh", |value, _| Some(value.tanh())),
    ("asinh", |value, _| Some(asinh(value))),
    ("acosh", |value, _| Some(acosh(value))),
    ("atanh", |value, _| Some(value.atanh())),
    ("deg", |value, _| Some(value * 180.0 / std::f64::consts::PI)),
    ("rad", |value, _| Some(value * std::f64::consts::PI / 180.0)),
    ("round", |value, [to, _]| {
        let inverse = 1.0 / to.unwrap_or(1.0);
        Some((value * inverse + 0.5).floor() / inverse)
    }),
    // A NaN bound makes the result NaN; no value is between crossed bounds.
    ("clamp", |value, bounds| match bounds {
        [Some(low), Some(high)] if low > high => None,
        [Some(low), Some(high)] => Some(above(below(value, high), low)),
        _ => Some(value),
    }),
    ("clamp_min", |value, [low, _]| {
        Some(above(value, low.unwrap_or(f64::NEG_INFINITY)))
    }),
    ("clamp_max", |value, [high, _]| {
        Some(below(value, high.unwrap_or(f64::INFINITY)))
    }),
];

/// The larger of both; NaN where one is and the other is not infinite.
fn above(value: f64, low: f64) -> f64 {
    let is_known = value == f64::INFINITY || low == f64::INFINITY;
    match (value.is_nan() || low.is_nan(), is_known) {
        (true, false) => f64::NAN,
        _ => value.max(low),
    }
}

/// The smaller of both; NaN where one is and the other is not infinite.
fn below(value: f64, high: f64) -> f64 {
    -above(-value, -high)
}

/// The inverse of `sinh`, of large numbers too.
fn asinh(value: f64) -> f64 {
    const LARGE: f64 = 1e150;
    if value.abs() > LARGE && value.is_finite() {
        (value.abs().ln() + std::f64::consts::LN_2).copysign(value)
    } else {
        value.asinh()
    }
}

/// The inverse of `cosh`, of large numbers too.
fn acosh(value: f64) -> f64 {
    if value < 1.0 {
        f64::NAN
    } else if value > 1e150 {
        asinh(value)
    } else {
        value.acosh()
    }
}

/// `None`: no function has this name.
pub(super) fn of_value(name: &str) -> Option<OfValue> {
    let found = OF_VALUE.iter().find(|(known, _)| *known == name);
    found.map(|(_, function)| *function)
}

/// In the order of the first step's values, NaN last; ranges have no order.
pub(super) fn sort(rows: &Rows, is_falling: bool) -> Rows {
    let value = |row: usize| rows.row(row).first().copied().unwrap_or(f64::NAN);
    let numbers = (0..rows.len()).filter(|row| rows.row(*row).iter().any(|value| !is_absent(*value)));
    let mut order: Vec<usize> = numbers.collect();
    if rows.steps == 1 {
        order.sort_by(|a, b| match (value(*a), value(*b)) {
            (a, b) if a.is_nan() || b.is_nan() => a.is_nan().cmp(&b.is_nan()),
            (a, b) if is_falling => b.total_cmp(&a),
            (a, b) => a.total_cmp(&b),
        });
    }
    let mut made = Rows {
        is_nameless: rows.is_nameless,
        ..Rows::new(rows.steps)
    };
    for row in order {
        let place = made.push(rows.labels[row].clone());
        made.row_mut(place).copy_from_slice(rows.row(row));
    }
    made
}

/// In the order of these labels' values, numbers in them by size; then of all labels.
pub(super) fn sort_by_label(rows: Rows, names: &[String], is_falling: bool) -> Rows {
    let rows = named(rows);
    let compare = |a: &Labels, b: &Labels| {
        let mut by_name = names.iter().map(|name| natural(a.get(name), b.get(name)));
        let first = by_name.find(|order| order.is_ne());
        first.unwrap_or_else(|| a.cmp(b))
    };
    let mut order: Vec<usize> = (0..rows.len()).collect();
    if rows.steps == 1 {
        order.sort_by(|a, b| {
            let order = compare(&rows.labels[*a], &rows.labels[*b]);
            if is_falling { order.reverse() } else { order }
        });
    }
    let mut made = Rows::new(rows.steps);
    for row in order {
        let place = made.push(rows.labels[row].clone());
        for step in 0..rows.steps {
            if let Some(cell) = rows.cell(row, step) {
                made.set(place, step, cell.value());
            }
        }
    }
    made
}

/// The order of texts in which runs of digits count as numbers.
fn natural(a: &str, b: &str) -> std::cmp::Ordering {
    let (mut a, mut b) = (a, b);
    loop {
        let ((one, rest_of_a), (other, rest_of_b)) = (run(a), run(b));
        if one.is_empty() || other.is_empty() {
            return a.cmp(b);
        }
        let are_numbers = starts_with_digit(one) && starts_with_digit(other);
        let order = if are_numbers {
            let (one, other) = (one.trim_start_matches('0'), other.trim_start_matches('0'));
            one.len().cmp(&other.len()).then_with(|| one.cmp(other))
        } else {
            one.cmp(other)
        };
        if order.is_ne() {
            return order;
        }
        (a, b) = (rest_of_a, rest_of_b);
    }
}

fn starts_with_digit(text: &str) -> bool {
    text.starts_with(|c: char| c.is_ascii_digit())
}

/// The longest beginning of digits only, or of none.
fn run(text: &str) -> (&str, &str) {
    let is_number = starts_with_digit(text);
    let end = text.find(|c: char| c.is_ascii_digit() != is_number);
    text.split_at(end.unwrap_or(text.len()))
}

/// The bytes of a sample, and the unit in which other work counts.
const SAMPLE_BYTES: usize = 16;

/// Bytes of a pattern times bytes of a value: some milliseconds of matching at worst.
const MAX_MATCHING: usize = 256 << 20;

/// The same that takes about as long as looking at a sample.
const MATCHING_OF_A_SAMPLE: usize = 64 << 10;

/// The most bytes of a label value that a function makes: the limit of received samples.
const MAX_VALUE_BYTES: usize = 64 << 10;

/// A label's new value, unless it is too long. It counts as the samples that take as much memory.
fn new_value(value: String, function: &str, eval: &Eval) -> Result<String, QueryError> {
    eval.spend(value.len() / SAMPLE_BYTES)?;
    if value.len() <= MAX_VALUE_BYTES {
        Ok(value)
    } else {
        too_long(function)
    }
}

fn too_long<T>(function: &str) -> Result<T, QueryError> {
    execution(format!(
        "{function}() makes a label value of more than {MAX_VALUE_BYTES} bytes"
    ))
}

/// A replacement with the captures inserted; `None`: it is too long.
fn expanded(captures: &regex::Captures<'_>, replacement: &str) -> Option<String> {
    let (mut rest, mut text) = (replacement, String::new());
    while !rest.is_empty() {
        // One reference, or two dollars that mean one, and the text until the next.
        let begin = if rest.starts_with("$$") { 2 } else { 1 };
        let behind = rest.as_bytes().get(begin..).unwrap_or_default();
        let next = behind.iter().position(|byte| *byte == b'$');
        let (part, behind) = rest.split_at(next.map_or(rest.len(), |next| begin + next));
        captures.expand(part, &mut text);
        if text.len() > MAX_VALUE_BYTES {
            return None;
        }
        rest = behind;
    }
    Some(text)
}

pub(super) fn label_replace(rows: Rows, texts: &[String], eval: &Eval) -> Result<Rows, QueryError> {
    let [to, replacement, from, pattern] = texts else {
        return execution("label_replace takes four strings");
    };
    let Ok(Compiled { regex, bytes }) = eval.patterns.compile(pattern) else {
        return execution(format!(
            "invalid regular expression in label_replace(): {pattern}"
        ));
    };
    // Compiled within the time that it takes to look at as many samples.
    eval.spend(bytes / SAMPLE_BYTES)?;
    check_name(to, "label_replace")?;
    let mut rows = named(rows);
    for labels in &mut rows.labels {
        let value = labels.get(from);
        // The cost of a match in the worst case: some nanoseconds for each byte of the value times each state of the
        // pattern.
        let work = value.len().saturating_mul(bytes);
        if work > MAX_MATCHING {
            return execution(format!(
                "label_replace() matches a pattern of this size only with shorter values than {} bytes",
                value.len()
            ));
        }
        eval.go_on(1 + work / MATCHING_OF_A_SAMPLE)?;
        if let Some(captures) = regex.captures(value) {
            let Some(text) = expanded(&captures, replacement) else {
                return too_long("label_replace");
            };
            *labels = labels.with(to, &new_value(text, "label_replace", eval)?);
        }
    }
    rows.joined()
}

pub(super) fn label_join(rows: Rows, texts: &[String], eval: &Eval) -> Result<Rows, QueryError> {
    let [to, separator, from @ ..] = texts else {
        return execution("label_join takes at least two strings");
    };
    check_name(to, "label_join")?;
    let mut rows = named(rows);
    for labels in &mut rows.labels {
        let values: Vec<&str> = from.iter().map(|name| labels.get(name)).collect();
        let separators = separator.len().saturating_mul(values.len().saturating_sub(1));
        let bytes = values
            .iter()
            .map(|value| value.len())
            .fold(separators, usize::saturating_add);
        if bytes > MAX_VALUE_BYTES {
            return too_long("label_join");
        }
        let value = new_value(values.join(separator), "label_join", eval)?;
        *labels = labels.with(to, &value);
    }
    rows.joined()
}

fn check_name(name: &str, function: &str) -> Result<(), QueryError> {
    if name.is_empty() {
        execution(format!("invalid destination label name in {function}(): {name}"))
    } else {
        Ok(())
    }
}
