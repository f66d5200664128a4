//! Aggregation operators: `sum by (...)`, `topk`, `quantile` and so on. Those that are of numbers only pass over
//! native histograms.

use std::collections::HashMap;
use std::sync::Arc;

use promql_parser::parser::LabelModifier;

use super::eval::Vector;
use super::over_time::{extreme, mean, quantile, sum, variance};
use super::{FloatHistogram, Labels, NAME, QueryError, SampleValue};

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
    ("stdvar", |values| variance(values.iter().copied())),
    ("stddev", |values| variance(values.iter().copied()).sqrt()),
];

/// Operators that look at a number or a text as well.
const WITH_PARAMETER: [&str; 4] = ["topk", "bottomk", "quantile", "count_values"];

/// Operators that only look at how many there are.
const COUNTS: [&str; 2] = ["count", "group"];

pub(super) fn is_supported(operator: &str) -> bool {
    FOLDS.iter().any(|(name, _)| *name == operator)
        || WITH_PARAMETER.contains(&operator)
        || COUNTS.contains(&operator)
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
    vector: Vector,
) -> Result<Vector, QueryError> {
    let mut places: HashMap<Labels, usize> = HashMap::new();
    let mut groups: Vec<(Labels, Members)> = Vec::new();
    for (labels, value) in vector {
        let mut of = group(&labels, modifier);
        if let ("count_values", Parameter::Text(label)) = (operator, parameter) {
            let number = value.float();
            let number = number.ok_or_else(|| unsupported("`count_values` of native histograms"))?;
            of = of.with(label, &show(number));
        }
        let at = *places.entry(of.clone()).or_insert_with(|| {
            groups.push((of, Members::default()));
            groups.len() - 1
        });
        match value {
            SampleValue::Float(number) => groups[at].1.floats.push((labels, number)),
            SampleValue::Histogram(histogram) => groups[at].1.histograms.push(histogram),
        }
    }
    let groups = groups.into_iter();
    match (operator, parameter) {
        ("topk" | "bottomk", Parameter::Number(k)) => {
            if k.is_nan() {
                return Err(QueryError::Execution(format!("{operator}: the parameter is NaN")));
            }
            let keep = if *k < 1.0 { 0 } else { *k as usize };
            let of_group = |(_, members): (_, Members)| best(members.floats, keep, operator == "topk");
            let best = groups.flat_map(of_group);
            Ok(best
                .map(|(labels, value)| (labels, SampleValue::Float(value)))
                .collect())
        }
        ("quantile", Parameter::Number(q)) => Ok(groups
            .filter_map(|(labels, members)| {
                Some((labels, members.fold(|values| quantile(*q, values.to_vec()))?))
            })
            .collect()),
        ("count", _) | ("count_values", Parameter::Text(_)) => Ok(groups
            .map(|(labels, members)| (labels, SampleValue::Float(members.len() as f64)))
            .collect()),
        ("group", _) => Ok(groups
            .map(|(labels, _)| (labels, SampleValue::Float(1.0)))
            .collect()),
        _ => {
            let fold = FOLDS.iter().find(|(name, _)| *name == operator);
            let (_, fold) = fold.ok_or_else(|| unsupported(&format!("`{operator}` in this form")))?;
            let of_group = |(labels, members): (_, Members)| {
                let value = match (operator, members.histograms.is_empty()) {
                    ("sum" | "avg", false) => members.merge(operator == "avg"),
                    _ => members.fold(fold),
                };
                Some((labels, value?))
            };
            Ok(groups.filter_map(of_group).collect())
        }
    }
}

fn unsupported(what: &str) -> QueryError {
    QueryError::Unsupported(what.to_owned())
}

/// The members of a group.
#[derive(Default)]
struct Members {
    floats: Vec<(Labels, f64)>,
    histograms: Vec<Arc<FloatHistogram>>,
}

impl Members {
    fn len(&self) -> usize {
        self.floats.len() + self.histograms.len()
    }

    /// One number of the numbers, if there are any.
    fn fold(&self, fold: impl Fn(&[f64]) -> f64) -> Option<SampleValue> {
        let numbers: Vec<f64> = self.floats.iter().map(|(_, value)| *value).collect();
        (!numbers.is_empty()).then(|| SampleValue::Float(fold(&numbers)))
    }

    /// One histogram of the histograms; nothing where numbers are among them.
    fn merge(&self, is_mean: bool) -> Option<SampleValue> {
        let whole = total(self.histograms.iter().map(|histogram| &**histogram))?;
        let divisor = if is_mean { self.len() as f64 } else { 1.0 };
        self.floats
            .is_empty()
            .then(|| SampleValue::Histogram(Arc::new(whole.over(divisor))))
    }
}

/// The sum of histograms.
pub(super) fn total<'a>(histograms: impl IntoIterator<Item = &'a FloatHistogram>) -> Option<FloatHistogram> {
    let mut histograms = histograms.into_iter();
    let mut whole = histograms.next()?.clone();
    histograms.for_each(|histogram| whole.add(histogram));
    Some(whole)
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
