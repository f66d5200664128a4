// SPDX-License-Identifier: Apache-2.0

//! The increase since the last accepted push.

use std::collections::HashMap;

use crate::composite::grown;
use crate::value::{FamilyValues, Value};

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
