//! Binary operators: arithmetic, comparisons and sets, with vector matching. Native histograms can be added,
//! subtracted, compared for equality and scaled; pairs that an operator has no meaning for drop out.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use promql_parser::parser::{BinModifier, LabelModifier, VectorMatchCardinality};

use super::eval::Vector;
use super::{FloatHistogram, Labels, NAME, QueryError, SampleValue};

/// An operator between two values.
#[derive(Clone, Copy)]
pub(super) enum Operator {
    /// Gives a number of numbers; its name says what it makes of histograms.
    Arithmetic(&'static str, fn(f64, f64) -> f64),
    /// Lets the left number pass, or not; `Some`: histograms pass if their being the same is this.
    Comparison(Option<bool>, fn(f64, f64) -> bool),
    /// On whole vectors.
    Set(Set),
}

#[derive(Clone, Copy)]
pub(super) enum Set {
    And,
    Or,
    Unless,
}

const OPERATORS: &[(&str, Operator)] = &[
    ("+", Operator::Arithmetic("+", |a, b| a + b)),
    ("-", Operator::Arithmetic("-", |a, b| a - b)),
    ("*", Operator::Arithmetic("*", |a, b| a * b)),
    ("/", Operator::Arithmetic("/", |a, b| a / b)),
    ("%", Operator::Arithmetic("%", |a, b| a % b)),
    ("^", Operator::Arithmetic("^", f64::powf)),
    ("atan2", Operator::Arithmetic("atan2", f64::atan2)),
    ("==", Operator::Comparison(Some(true), |a, b| a == b)),
    ("!=", Operator::Comparison(Some(false), |a, b| a != b)),
    ("<", Operator::Comparison(None, |a, b| a < b)),
    (">", Operator::Comparison(None, |a, b| a > b)),
    ("<=", Operator::Comparison(None, |a, b| a <= b)),
    (">=", Operator::Comparison(None, |a, b| a >= b)),
    ("and", Operator::Set(Set::And)),
    ("or", Operator::Set(Set::Or)),
    ("unless", Operator::Set(Set::Unless)),
];

pub(super) fn operator(name: &str) -> Option<Operator> {
    OPERATORS
        .iter()
        .find(|(known, _)| *known == name)
        .map(|(_, operator)| *operator)
}

impl Operator {
    fn apply(self, left: f64, right: f64, kept: f64, as_bool: bool) -> Option<f64> {
        match self {
            Self::Arithmetic(_, compute) => Some(compute(left, right)),
            Self::Comparison(_, holds) if as_bool => Some(f64::from(u8::from(holds(left, right)))),
            Self::Comparison(_, holds) => holds(left, right).then_some(kept),
            Self::Set(_) => None,
        }
    }

    /// `kept`: what a comparison lets pass.
    fn of_values(
        self,
        left: &SampleValue,
        right: &SampleValue,
        kept: &SampleValue,
        as_bool: bool,
    ) -> Option<SampleValue> {
        if let (SampleValue::Float(left), SampleValue::Float(right)) = (left, right) {
            return self
                .apply(*left, *right, kept.float()?, as_bool)
                .map(SampleValue::Float);
        }
        match self {
            Self::Arithmetic(name, _) => arithmetic(name, left, right),
            Self::Comparison(sameness, _) => {
                let same = match (left, right) {
                    (SampleValue::Histogram(left), SampleValue::Histogram(right)) => left.is_same(right),
                    _ => return as_bool.then_some(SampleValue::Float(0.0)),
                };
                let holds = sameness == Some(same);
                match as_bool {
                    true => Some(SampleValue::Float(f64::from(u8::from(holds)))),
                    false => holds.then(|| kept.clone()),
                }
            }
            Self::Set(_) => None,
        }
    }

    /// Whether what comes out is still the metric that went in.
    fn keeps_name(self, as_bool: bool) -> bool {
        matches!(self, Self::Comparison(..)) && !as_bool
    }
}

/// What an operator makes of two values one of which is a histogram, if it means anything.
fn arithmetic(name: &str, left: &SampleValue, right: &SampleValue) -> Option<SampleValue> {
    use SampleValue::{Float, Histogram};
    let of = |histogram: &FloatHistogram| histogram.clone();
    let made = match (name, left, right) {
        ("+", Histogram(left), Histogram(right)) => {
            let mut sum = of(left);
            sum.add(right);
            sum
        }
        ("-", Histogram(left), Histogram(right)) => {
            let mut difference = of(left);
            difference.subtract(right);
            difference
        }
        ("*", Histogram(histogram), Float(factor)) | ("*", Float(factor), Histogram(histogram)) => {
            of(histogram).times(*factor)
        }
        ("/", Histogram(histogram), Float(divisor)) => of(histogram).over(*divisor),
        _ => return None,
    };
    Some(Histogram(Arc::new(made)))
}

pub(super) fn scalars(operator: Operator, left: f64, right: f64) -> Result<f64, QueryError> {
    operator
        .apply(left, right, left, true)
        .ok_or_else(|| QueryError::Execution("set operators need vectors".to_owned()))
}

/// A vector and a number; `swapped`: the number stands on the left.
pub(super) fn with_scalar(
    operator: Operator,
    vector: Vector,
    scalar: f64,
    swapped: bool,
    as_bool: bool,
) -> Vector {
    let scalar = SampleValue::Float(scalar);
    let apply = |(labels, value): (Labels, SampleValue)| {
        let (left, right) = if swapped {
            (&scalar, &value)
        } else {
            (&value, &scalar)
        };
        let result = operator.of_values(left, right, &value, as_bool)?;
        let labels = match operator.keeps_name(as_bool) {
            true => labels,
            false => labels.nameless(),
        };
        Some((labels, result))
    };
    vector.into_iter().filter_map(apply).collect()
}

/// What two series must agree in.
fn signature(labels: &Labels, matching: Option<&LabelModifier>) -> Labels {
    match matching {
        None => labels.nameless(),
        Some(LabelModifier::Include(names)) => {
            labels.filter(|name| names.labels.iter().any(|known| known == name))
        }
        Some(LabelModifier::Exclude(names)) => {
            labels.filter(|name| name != NAME && !names.labels.iter().any(|known| known == name))
        }
    }
}

pub(super) fn sets(set: Set, left: Vector, right: Vector, matching: Option<&LabelModifier>) -> Vector {
    let signatures = |vector: &Vector| -> HashSet<Labels> {
        vector
            .iter()
            .map(|(labels, _)| signature(labels, matching))
            .collect()
    };
    let is_in = |all: &HashSet<Labels>, labels: &Labels| all.contains(&signature(labels, matching));
    match set {
        Set::And => {
            let others = signatures(&right);
            left.into_iter()
                .filter(|(labels, _)| is_in(&others, labels))
                .collect()
        }
        Set::Unless => {
            let others = signatures(&right);
            left.into_iter()
                .filter(|(labels, _)| !is_in(&others, labels))
                .collect()
        }
        Set::Or => {
            let own = signatures(&left);
            let more = right.into_iter().filter(|(labels, _)| !is_in(&own, labels));
            left.into_iter().chain(more).collect()
        }
    }
}

/// Two vectors, series by series.
pub(super) fn vectors(
    operator: Operator,
    left: Vector,
    right: Vector,
    modifier: Option<&BinModifier>,
) -> Result<Vector, QueryError> {
    let one_to_one = VectorMatchCardinality::OneToOne;
    let cardinality = modifier.map_or(&one_to_one, |modifier| &modifier.card);
    let matching = modifier.and_then(|modifier| modifier.matching.as_ref());
    let as_bool = modifier.is_some_and(|modifier| modifier.return_bool);
    let (swapped, include) = match cardinality {
        VectorMatchCardinality::OneToOne => (false, None),
        VectorMatchCardinality::ManyToOne(include) => (false, Some(include)),
        VectorMatchCardinality::OneToMany(include) => (true, Some(include)),
        VectorMatchCardinality::ManyToMany => {
            return Err(QueryError::Execution(
                "many-to-many only allowed for set operators".to_owned(),
            ));
        }
    };
    let (many, one) = if swapped { (right, left) } else { (left, right) };
    let mut ones: HashMap<Labels, (Labels, SampleValue)> = HashMap::with_capacity(one.len());
    for (labels, value) in one {
        match ones.entry(signature(&labels, matching)) {
            Vacant(place) => drop(place.insert((labels, value))),
            Occupied(place) => {
                let side = if swapped { "left" } else { "right" };
                return Err(QueryError::Execution(format!(
                    "found duplicate series for the match group {} on the {side} hand-side of the operation: {} and {}; \
                     many-to-many matching not allowed: matching labels must be unique on one side",
                    show(place.key()),
                    show(&place.get().0),
                    show(&labels)
                )));
            }
        }
    }
    let mut seen: HashSet<(Labels, Labels)> = HashSet::new();
    let mut result = Vec::new();
    for (labels, value) in many {
        let signature = signature(&labels, matching);
        let Some((other, other_value)) = ones.get(&signature) else {
            continue;
        };
        let (l, r) = if swapped {
            (other_value, &value)
        } else {
            (&value, other_value)
        };
        let Some(made) = operator.of_values(l, r, l, as_bool) else {
            continue;
        };
        let mut out = match operator.keeps_name(as_bool) {
            true => labels,
            false => labels.nameless(),
        };
        match include {
            None => {
                out = match matching {
                    None => out,
                    Some(LabelModifier::Include(names)) => {
                        out.filter(|name| names.labels.iter().any(|known| known == name))
                    }
                    Some(LabelModifier::Exclude(names)) => {
                        out.filter(|name| !names.labels.iter().any(|known| known == name))
                    }
                };
            }
            Some(include) => {
                for name in &include.labels {
                    out = out.with(name, other.get(name));
                }
            }
        }
        let unique = match include {
            None => seen.insert((signature, Labels::default())),
            Some(_) => seen.insert((signature, out.clone())),
        };
        if !unique {
            return Err(QueryError::Execution(match include {
                None => "multiple matches for labels: many-to-one matching must be explicit (group_left/group_right)",
                Some(_) => "multiple matches for labels: grouping labels must ensure unique matches",
            }.to_owned()));
        }
        result.push((out, made));
    }
    Ok(result)
}

pub(super) fn show(labels: &Labels) -> String {
    let pairs: Vec<String> = labels
        .iter()
        .map(|(name, value)| format!("{name}={value:?}"))
        .collect();
    format!("{{{}}}", pairs.join(", "))
}
