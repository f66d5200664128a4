// SPDX-License-Identifier: Apache-2.0

//! Evaluates a recording rule: from series to series.

use std::collections::BTreeSet;

use tidegate_promql::{NAME, SampleValue};

use crate::alerting::Evaluation;
use crate::backend::{QueryAnswer, RuleSample};

/// The samples of a rule.
///
/// # Errors
/// Two series become one, or there are too many.
pub(crate) fn record(evaluation: &Evaluation<'_>, answer: QueryAnswer) -> Result<Vec<RuleSample>, String> {
    let (rule, count) = (evaluation.rule, answer.vector.len());
    if evaluation.limit > 0 && count > evaluation.limit {
        return Err(format!(
            "exceeded limit of {} with {count} series",
            evaluation.limit
        ));
    }
    let most = evaluation.options.max_alerts;
    if count > most {
        return Err(format!("{count} series: `max_alerts` allows {most}"));
    }
    let mut known = BTreeSet::new();
    let mut samples = Vec::with_capacity(count);
    for (series, value) in answer.vector {
        let mut labels = series.with(NAME, &rule.name);
        for (name, value) in &rule.labels {
            labels = labels.with(name, value);
        }
        if !known.insert(labels.clone()) {
            let why = "vector contains metrics with the same labelset after applying rule labels";
            return Err(why.to_owned());
        }
        samples.push(RuleSample {
            labels,
            time: evaluation.query_at,
            value: plain(value),
        });
    }
    Ok(samples)
}

/// A value that is not a stale marker: only the end of a series is marked.
fn plain(value: SampleValue) -> SampleValue {
    match value {
        SampleValue::Float(number) if number.is_nan() => SampleValue::Float(f64::NAN),
        other => other,
    }
}
