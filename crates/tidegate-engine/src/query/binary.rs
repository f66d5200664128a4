//! Binary operators: arithmetic, comparisons and sets, with vector matching.

use std::collections::hash_map::Entry::{Occupied, Vacant};
use std::collections::{HashMap, HashSet};

use promql_parser::parser::{BinModifier, LabelModifier, VectorMatchCardinality};

use super::{Labels, NAME, QueryError};

/// An operator between two numbers.
#[derive(Clone, Copy)]
pub(super) enum Operator {
    /// Gives a number.
    Arithmetic(fn(f64, f64) -> f64),
    /// Lets the left number pass, or not.
    Comparison(fn(f64, f64) -> bool),
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
    ("+", Operator::Arithmetic(|a, b| a + b)),
    ("-", Operator::Arithmetic(|a, b| a - b)),
    ("*", Operator::Arithmetic(|a, b| a * b)),
    ("/", Operator::Arithmetic(|a, b| a / b)),
    ("%", Operator::Arithmetic(|a, b| a % b)),
    ("^", Operator::Arithmetic(f64::powf)),
    ("atan2", Operator::Arithmetic(f64::atan2)),
    ("==", Operator::Comparison(|a, b| a == b)),
    ("!=", Operator::Comparison(|a, b| a != b)),
    ("<", Operator::Comparison(|a, b| a < b)),
    (">", Operator::Comparison(|a, b| a > b)),
    ("<=", Operator::Comparison(|a, b| a <= b)),
    (">=", Operator::Comparison(|a, b| a >= b)),
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

type Vector = Vec<(Labels, f64)>;

impl Operator {
    /// `kept`: what a comparison lets pass.
    fn apply(self, left: f64, right: f64, kept: f64, as_bool: bool) -> Option<f64> {
        match self {
            Self::Arithmetic(compute) => Some(compute(left, right)),
            Self::Comparison(holds) if as_bool => Some(f64::from(u8::from(holds(left, right)))),
            Self::Comparison(holds) => holds(left, right).then_some(kept),
            Self::Set(_) => None,
        }
    }

    /// Whether what comes out is still the metric that went in.
    fn keeps_name(self, as_bool: bool) -> bool {
        matches!(self, Self::Comparison(_)) && !as_bool
    }
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
    let apply = |(labels, value): (Labels, f64)| {
        let (left, right) = if swapped { (scalar, value) } else { (value, scalar) };
        let result = operator.apply(left, right, value, as_bool)?;
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
    let mut ones: HashMap<Labels, (Labels, f64)> = HashMap::with_capacity(one.len());
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
            (*other_value, value)
        } else {
            (value, *other_value)
        };
        let Some(number) = operator.apply(l, r, l, as_bool) else {
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
        result.push((out, number));
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
