// SPDX-License-Identifier: Apache-2.0

//! The increase since the last accepted push.

use std::collections::HashMap;

use crate::value::{FamilyValues, HistogramValue, Value};

/// Cumulative values as of the last push that was taken.
#[derive(Debug, Default)]
pub(super) struct Baseline(HashMap<String, HashMap<Vec<(String, String)>, Value>>);

impl Baseline {
    /// Everything in it has been taken.
    pub(super) fn set(&mut self, families: Vec<FamilyValues>) {
        let series = |family: FamilyValues| {
            let series = family
                .series
                .into_iter()
                .map(|series| (series.labels, series.value));
            (family.name, series.collect())
        };
        self.0 = families.into_iter().map(series).collect();
    }

    /// The same families with what came since. Gauges and up-down counters stay as they are.
    pub(super) fn since(&self, mut families: Vec<FamilyValues>) -> Vec<FamilyValues> {
        for family in &mut families {
            let before = self.0.get(&family.name);
            for series in &mut family.series {
                if let Some(before) = before.and_then(|before| before.get(&series.labels)) {
                    series.value = grown(&series.value, before);
                }
            }
        }
        families
    }
}

/// The increase between two values of a series; a value without an increase (a gauge) stays.
fn grown(value: &Value, before: &Value) -> Value {
    match (value, before) {
        (Value::Counter(value), Value::Counter(before)) => Value::Counter(value.wrapping_sub(*before)),
        (Value::FloatCounter(value), Value::FloatCounter(before)) => Value::FloatCounter(value - before),
        (Value::Histogram(value), Value::Histogram(before)) => {
            let counts = value.counts.iter().zip(&before.counts);
            Value::Histogram(HistogramValue {
                bounds: value.bounds.clone(),
                counts: counts
                    .map(|(value, before)| value.wrapping_sub(*before))
                    .collect(),
                sum: value.sum - before.sum,
            })
        }
        (Value::Exponential(now), Value::Exponential(before)) => {
            // Without a difference, it began again.
            now.since(before)
                .map_or_else(|| value.clone(), Value::Exponential)
        }
        _ => value.clone(),
    }
}
