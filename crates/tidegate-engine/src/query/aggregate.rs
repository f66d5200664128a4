//! Aggregation operators: `sum by (...)`, `topk`, `quantile` and so on.

use std::collections::HashMap;

use promql_parser::parser::LabelModifier;

use super::over_time::{extreme, mean, quantile, sum, variance};
use super::{Labels, NAME, QueryError};

/// One value a group.
type Fold = fn(&[f64]) -> f64;

const FOLDS: &[(&str, Fold)] = &[
    ("sum", |values| sum(values.iter().copied())),
    ("avg", |values| mean(values.iter().copied())),
    ("min", |values| {
        extreme(values.iter().copied(), |new, old| new < old).unwrap_or(f64::NAN)
    }),
    ("max", |values| {
        extreme(values.iter().copied(), |new, old| new > old).unwrap_or(f64::NAN)
    }),
    ("count", |values| values.len() as f64),
    ("group", |_| 1.0),
    ("stdvar", |values| variance(values.iter().copied())),
    ("stddev", |values| variance(values.iter().copied()).sqrt()),
];

/// Operators that look at a number or a text as well.
const WITH_PARAMETER: [&str; 4] = ["topk", "bottomk", "quantile", "count_values"];

pub(super) fn is_supported(operator: &str) -> bool {
    FOLDS.iter().any(|(name, _)| *name == operator) || WITH_PARAMETER.contains(&operator)
}

/// What stands before the vector.
pub(super) enum Parameter {
    None,
    Number(f64),
    Text(String),
}

/// The group that a series belongs to.
fn group(labels: &Labels, modifier: Option<&LabelModifier>) -> Labels {
    match modifier {
        None => Labels::default(),
        Some(LabelModifier::Include(names)) => {
            labels.filter(|name| names.labels.iter().any(|known| known == name))
        }
        Some(LabelModifier::Exclude(names)) => {
            labels.filter(|name| name != NAME && !names.labels.iter().any(|known| known == name))
        }
    }
}

pub(super) fn aggregate(
    operator: &str,
    parameter: &Parameter,
    modifier: Option<&LabelModifier>,
    vector: Vec<(Labels, f64)>,
) -> Result<Vec<(Labels, f64)>, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<(Labels, Vec<(Labels, f64)>)> = Vec::new();
    for (labels, value) in vector {
        let mut of = group(&labels, modifier);
        if let ("count_values", Parameter::Text(label)) = (operator, parameter) {
            of = of.with(label, &show(value));
        }
        let at = *places.entry(of.clone()).or_insert_with(|| {
            groups.push((of, Vec::new()));
            groups.len() - 1
        });
        groups[at].1.push((labels, value));
    }
    let numbers =
        |members: &[(Labels, f64)]| -> Vec<f64> { members.iter().map(|(_, value)| *value).collect() };
    match (operator, parameter) {
        ("topk" | "bottomk", Parameter::Number(k)) => {
            if k.is_nan() {
                return Err(QueryError::Execution(format!("{operator}: the parameter is NaN")));
            }
            let keep = if *k < 1.0 { 0 } else { *k as usize };
            let of_group = |(_, members)| best(members, keep, operator == "topk");
            Ok(groups.into_iter().flat_map(of_group).collect())
        }
        ("quantile", Parameter::Number(q)) => {
            let of_group = |(labels, members): (Labels, Vec<_>)| (labels, quantile(*q, numbers(&members)));
            Ok(groups.into_iter().map(of_group).collect())
        }
        ("count_values", Parameter::Text(_)) => Ok(groups
            .into_iter()
            .map(|(labels, members)| (labels, members.len() as f64))
            .collect()),
        _ => {
            let fold = FOLDS.iter().find(|(name, _)| *name == operator);
            let (_, fold) =
                fold.ok_or_else(|| QueryError::Unsupported(format!("`{operator}` in this form")))?;
            let of_group = |(labels, members): (Labels, Vec<_>)| (labels, fold(&numbers(&members)));
            Ok(groups.into_iter().map(of_group).collect())
        }
    }
}

/// The first `keep` in the order of their values; NaN comes last either way.
fn best(mut members: Vec<(Labels, f64)>, keep: usize, largest: bool) -> Vec<(Labels, f64)> {
    members.sort_by(|(_, a), (_, b)| match (a.is_nan(), b.is_nan()) {
        (false, false) if largest => b.total_cmp(a),
        (false, false) => a.total_cmp(b),
        (a, b) => a.cmp(&b),
    });
    members.truncate(keep);
    members
}

/// A number as Prometheus writes it.
pub(super) fn show(value: f64) -> String {
    match value {
        _ if value.is_nan() => "NaN".to_owned(),
        f64::INFINITY => "+Inf".to_owned(),
        f64::NEG_INFINITY => "-Inf".to_owned(),
        _ => value.to_string(),
    }
}
