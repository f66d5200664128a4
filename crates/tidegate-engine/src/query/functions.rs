//! Functions of vectors and numbers. Native histograms are no numbers: functions of values pass over them.

use regex::Regex;

use super::eval::Vector;
use super::{Labels, Matcher, NAME, QueryError, SampleValue};

/// Functions of each value by itself, with up to two numbers behind the vector. The metric's name goes.
type OfValue = fn(f64, &[f64]) -> f64;

const OF_VALUE: &[(&str, OfValue)] = &[
    ("abs", |value, _| value.abs()),
    ("ceil", |value, _| value.ceil()),
    ("floor", |value, _| value.floor()),
    ("exp", |value, _| value.exp()),
    ("sqrt", |value, _| value.sqrt()),
    ("ln", |value, _| value.ln()),
    ("log2", |value, _| value.log2()),
    ("log10", |value, _| value.log10()),
    ("sgn", |value, _| {
        if value == 0.0 || value.is_nan() {
            value
        } else {
            value.signum()
        }
    }),
    ("sin", |value, _| value.sin()),
    ("cos", |value, _| value.cos()),
    ("tan", |value, _| value.tan()),
    ("asin", |value, _| value.asin()),
    ("acos", |value, _| value.acos()),
    ("atan", |value, _| value.atan()),
    ("sinh", |value, _| value.sinh()),
    ("cosh", |value, _| value.cosh()),
    ("tanh", |value, _| value.tanh()),
    ("asinh", |value, _| value.asinh()),
    ("acosh", |value, _| value.acosh()),
    ("atanh", |value, _| value.atanh()),
    ("deg", |value, _| value.to_degrees()),
    ("rad", |value, _| value.to_radians()),
    ("round", |value, to| {
        let inverse = 1.0 / to.first().unwrap_or(&1.0);
        (value * inverse + 0.5).floor() / inverse
    }),
    ("clamp", |value, bounds| match bounds {
        [low, high, ..] => high.min(value).max(*low),
        _ => value,
    }),
    ("clamp_min", |value, low| {
        low.first().map_or(value, |low| value.max(*low))
    }),
    ("clamp_max", |value, high| {
        high.first().map_or(value, |high| value.min(*high))
    }),
];

pub(super) fn is_of_value(name: &str) -> bool {
    OF_VALUE.iter().any(|(known, _)| *known == name)
}

/// `None`: there is no such function.
pub(super) fn of_value(name: &str, vector: Vector, numbers: &[f64]) -> Option<Vector> {
    let (_, function) = OF_VALUE.iter().find(|(known, _)| *known == name)?;
    // An unknown bound makes everything unknown; between bounds that cross lies nothing.
    let is_unknown = name.starts_with("clamp") && numbers.iter().any(|bound| bound.is_nan());
    let is_void = matches!((name, numbers), ("clamp", [low, high]) if low > high);
    let apply = |(labels, value): (Labels, f64)| {
        let value = if is_unknown {
            f64::NAN
        } else {
            function(value, numbers)
        };
        (labels.nameless(), SampleValue::Float(value))
    };
    Some(floats(vector).filter(|_| !is_void).map(apply).collect())
}

/// The numbers of a vector.
pub(super) fn floats(vector: Vector) -> impl Iterator<Item = (Labels, f64)> {
    vector
        .into_iter()
        .filter_map(|(labels, value)| Some((labels, value.float()?)))
}

/// In the order of values; NaN last.
pub(super) fn sort(vector: Vector, descending: bool) -> Vector {
    let mut vector: Vec<(Labels, f64)> = floats(vector).collect();
    vector.sort_by(|(_, a), (_, b)| match (a.is_nan(), b.is_nan()) {
        (false, false) if descending => b.total_cmp(a),
        (false, false) => a.total_cmp(b),
        (a, b) => a.cmp(&b),
    });
    let sorted = vector.into_iter();
    sorted
        .map(|(labels, value)| (labels, SampleValue::Float(value)))
        .collect()
}

/// What `absent` says is not there: the labels that the selector asks for by value.
pub(super) fn absent_labels(matchers: &[Matcher]) -> Labels {
    let asked = |name: &str| matchers.iter().filter(|matcher| matcher.name() == name).count();
    let wanted = matchers
        .iter()
        .filter(|matcher| matcher.name() != NAME && asked(matcher.name()) == 1);
    wanted
        .filter_map(|matcher| Some((matcher.name(), matcher.equals()?)))
        .collect()
}

pub(super) fn label_replace(vector: Vector, texts: &[String]) -> Result<Vector, QueryError> {
    let [to, replacement, from, pattern] = texts else {
        return Err(QueryError::Execution("label_replace takes four texts".to_owned()));
    };
    let pattern = Regex::new(&format!("^(?s:{pattern})$")).map_err(|_| {
        QueryError::Execution(format!(
            "invalid regular expression in label_replace(): {pattern}"
        ))
    })?;
    check_name(to, "label_replace")?;
    let replace = |(labels, value): (Labels, SampleValue)| {
        let labels = match pattern.captures(labels.get(from)) {
            None => labels.clone(),
            Some(captures) => {
                let mut text = String::new();
                captures.expand(replacement, &mut text);
                labels.with(to, &text)
            }
        };
        (labels, value)
    };
    Ok(vector.into_iter().map(replace).collect())
}

pub(super) fn label_join(vector: Vector, texts: &[String]) -> Result<Vector, QueryError> {
    let [to, separator, from @ ..] = texts else {
        return Err(QueryError::Execution(
            "label_join takes at least two texts".to_owned(),
        ));
    };
    check_name(to, "label_join")?;
    let join = |(labels, value): (Labels, SampleValue)| {
        let values: Vec<&str> = from.iter().map(|name| labels.get(name)).collect();
        (labels.with(to, &values.join(separator)), value)
    };
    Ok(vector.into_iter().map(join).collect())
}

fn check_name(name: &str, function: &str) -> Result<(), QueryError> {
    match name.is_empty() {
        true => Err(QueryError::Execution(format!(
            "invalid destination label name in {function}(): {name}"
        ))),
        false => Ok(()),
    }
}
