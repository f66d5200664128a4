// SPDX-License-Identifier: Apache-2.0

//! Whether two programs that hold the same samples give the same answer to a query.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::BenchError;

/// How far two numbers of the same samples may be apart, of the larger one: sums are made in different orders.
const ROUNDING: f64 = 1e-9;
/// Our past has a sample a second, of what was newest then. A step may see a request one second after Prometheus does; the
/// sampler takes half a second for a pass, in which the next request may come.
const STEPS_BEHIND: usize = 2;
const STEPS_BEFORE: usize = 1;

/// The parts of two answers that have to be equal.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Likeness {
    /// Labels and values.
    Equal,
    /// Values, the largest first: the answer may name any of the series with the same value.
    Ranks,
    /// Labels, and values up to this part: rates over samples of other moments.
    Near(f64),
}

/// The values of a series, by time in milliseconds.
type SeriesValues = BTreeMap<i64, f64>;
/// By labels.
type QueryResult = BTreeMap<BTreeMap<String, String>, SeriesValues>;

/// Whether both are the same; the error says in what they differ.
pub(super) fn compare(ours: &str, theirs: &str, likeness: Likeness) -> Result<(), BenchError> {
    let both = [read(ours)?, read(theirs)?];
    let [ours, theirs] = match likeness {
        Likeness::Ranks => both.map(|answer| ranks(&answer)),
        Likeness::Equal | Likeness::Near(_) => both,
    };
    for (one, other, whose) in [(&ours, &theirs, "tidegate"), (&theirs, &ours, "Prometheus")] {
        if let Some(series) = one.keys().find(|series| !other.contains_key(*series)) {
            return Err(format!("only {whose} has {series:?}").into());
        }
    }
    let tolerance = match likeness {
        Likeness::Equal | Likeness::Ranks => ROUNDING,
        Likeness::Near(part) => part,
    };
    for ((series, ours), theirs) in ours.iter().zip(theirs.values()) {
        compare_values(ours, theirs, tolerance).map_err(|why| format!("{series:?} {why}"))?;
    }
    Ok(())
}

/// A single value must be the other's; one of a range, one of those that the other has about that time.
fn compare_values(ours: &SeriesValues, theirs: &SeriesValues, tolerance: f64) -> Result<(), String> {
    if !ours.keys().eq(theirs.keys()) {
        let steps = [ours, theirs].map(SeriesValues::len);
        return Err(format!("has {steps:?} steps, or others"));
    }
    let all: Vec<f64> = theirs.values().copied().collect();
    let is_range = all.len() > 1;
    for (at, (time, value)) in ours.iter().enumerate() {
        if is_range && at < STEPS_BEHIND {
            continue;
        }
        let about = if is_range {
            &all[at - STEPS_BEHIND..all.len().min(at + STEPS_BEFORE + 1)]
        } else {
            &all[..]
        };
        let least = about.iter().copied().fold(f64::INFINITY, f64::min);
        let most = about.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let room = tolerance * least.abs().max(most.abs());
        if !(least - room..=most + room).contains(value) {
            return Err(format!("at {time} is {value}, not {least} to {most}"));
        }
    }
    Ok(())
}

/// The series of each step in the order of their values, the largest first.
fn ranks(answer: &QueryResult) -> QueryResult {
    let mut steps: BTreeMap<i64, Vec<f64>> = BTreeMap::new();
    for (time, value) in answer.values().flatten() {
        steps.entry(*time).or_default().push(*value);
    }
    let mut ranks = QueryResult::new();
    for (time, mut values) in steps {
        values.sort_by(|a, b| b.total_cmp(a));
        for (rank, value) in values.into_iter().enumerate() {
            let rank = BTreeMap::from([("rank".to_owned(), rank.to_string())]);
            ranks.entry(rank).or_default().insert(time, value);
        }
    }
    ranks
}

fn read(answer: &str) -> Result<QueryResult, BenchError> {
    let answer: Value = serde_json::from_str(answer)?;
    let broken = || format!("no answer to a query: {answer}");
    let all = answer["data"]["result"].as_array().ok_or_else(broken)?;
    let series = all.iter().map(|one| {
        let labels = one["metric"].as_object()?.iter();
        let labels = labels.map(|(name, value)| Some((name.clone(), value.as_str()?.to_owned())));
        let values = match &one["value"] {
            // Each is of its own present.
            Value::Array(sample) => BTreeMap::from([(0, number(sample.get(1)?)?)]),
            _ => one["values"]
                .as_array()?
                .iter()
                .map(sample)
                .collect::<Option<SeriesValues>>()?,
        };
        Some((labels.collect::<Option<_>>()?, values))
    });
    Ok(series.collect::<Option<QueryResult>>().ok_or_else(broken)?)
}

fn sample(sample: &Value) -> Option<(i64, f64)> {
    let seconds = sample[0].as_f64()?;
    Some(((seconds * 1e3).round() as i64, number(&sample[1])?))
}

fn number(value: &Value) -> Option<f64> {
    value.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vector(values: &[(&str, f64)]) -> String {
        let series = values
            .iter()
            .map(|(zone, value)| json!({"metric": {"zone": zone}, "value": [1.5, value.to_string()]}));
        json!({"data": {"result": series.collect::<Vec<_>>()}}).to_string()
    }

    fn matrix(values: &[f64]) -> String {
        let samples = values
            .iter()
            .enumerate()
            .map(|(at, value)| json!([at, value.to_string()]));
        json!({"data": {"result": [{"metric": {}, "values": samples.collect::<Vec<_>>()}]}}).to_string()
    }

    fn differ(ours: &str, theirs: &str, likeness: Likeness) -> Option<String> {
        compare(ours, theirs, likeness)
            .err()
            .map(|error| error.to_string())
    }

    #[test]
    fn labels_and_values_must_be_the_same() {
        let ours = vector(&[("a", 3.0), ("b", 4.0)]);
        assert_eq!(differ(&ours, &ours, Likeness::Equal), None);
        let rounded = vector(&[("a", 3.0 + 1e-10), ("b", 4.0)]);
        assert_eq!(differ(&ours, &rounded, Likeness::Equal), None);
        let other = vector(&[("a", 3.0001), ("b", 4.0)]);
        let why = differ(&ours, &other, Likeness::Equal).unwrap();
        assert!(why.contains("\"a\"") && why.contains("is 3, not 3.0001"), "{why}");
        assert_eq!(differ(&ours, &other, Likeness::Near(0.01)), None);
        for (ours, theirs, whose) in [
            (&ours, &vector(&[("a", 3.0)]), "tidegate"),
            (&vector(&[("a", 3.0)]), &ours, "Prometheus"),
        ] {
            let why = differ(ours, theirs, Likeness::Near(0.5)).unwrap();
            assert!(why.starts_with(&format!("only {whose} has")), "{why}");
        }
    }

    #[test]
    fn any_series_of_a_tie_is_accepted() {
        let (ours, theirs) = (
            vector(&[("a", 3.0), ("b", 3.0)]),
            vector(&[("c", 3.0), ("d", 3.0)]),
        );
        assert_eq!(differ(&ours, &theirs, Likeness::Ranks), None);
        assert!(differ(&ours, &vector(&[("c", 3.0)]), Likeness::Ranks).is_some());
        assert!(differ(&ours, &vector(&[("c", 3.0), ("d", 4.0)]), Likeness::Ranks).is_some());
    }

    #[test]
    fn a_step_of_a_range_may_see_a_request_a_little_later() {
        let theirs = matrix(&[1.0, 2.0, 3.0, 4.0, 5.0]);
        for (values, is_same) in [
            ([1.0, 2.0, 3.0, 4.0, 5.0], true),
            ([9.0, 9.0, 1.0, 2.0, 4.0], true),
            ([1.0, 2.0, 4.0, 5.0, 5.0], true),
            ([1.0, 2.0, 0.9, 4.0, 5.0], false),
            ([1.0, 2.0, 3.0, 4.0, 5.1], false),
        ] {
            let found = differ(&matrix(&values), &theirs, Likeness::Equal);
            assert_eq!(found.is_none(), is_same, "{values:?}: {found:?}");
        }
        assert!(differ(&matrix(&[1.0, 2.0]), &theirs, Likeness::Equal).is_some());
    }
}
