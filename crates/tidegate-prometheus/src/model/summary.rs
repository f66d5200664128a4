// SPDX-License-Identifier: Apache-2.0

//! The lines of a summary, merged into one value.

use tidegate_engine::{Quantile, Summary, Value};

use super::sample::{is_stale, whole};

/// Quantiles of a summary beyond which no more are taken.
const MAX_QUANTILES: usize = 256;

/// Quantiles, sum and count of one series as they come. It keeps its quantiles for the next time.
#[derive(Clone, Debug, Default)]
pub struct Quantiles {
    /// All quantiles so far, with the value of each if this round has one.
    quantiles: Vec<(f64, Option<f64>)>,
    sum: Option<f64>,
    count: Option<f64>,
}

impl Quantiles {
    /// The place of a quantile; nothing for one that can't be one and for one too many.
    pub fn index_of(&mut self, quantile: f64) -> Option<usize> {
        let known = self.quantiles.iter().position(|(known, _)| *known == quantile);
        let is_new = !quantile.is_nan() && self.quantiles.len() < MAX_QUANTILES;
        known.or_else(|| {
            is_new.then(|| {
                self.quantiles.push((quantile, None));
                self.quantiles.len() - 1
            })
        })
    }

    /// Whether it has too many quantiles and should be rebuilt.
    pub fn is_crowded(&self) -> bool {
        self.quantiles.len() == MAX_QUANTILES
    }

    /// Records the value of a quantile; false if this round has one already.
    pub fn quantile(&mut self, place: usize, value: f64) -> bool {
        let noted = self.quantiles.get_mut(place);
        noted.is_some_and(|(_, noted)| noted.is_none() && noted.replace(value).is_none())
    }

    /// Records the sum; false if this round has one already.
    pub fn sum(&mut self, sum: f64) -> bool {
        self.sum.is_none() && self.sum.replace(sum).is_none()
    }

    /// Records the count; false if this round has one already.
    pub fn count(&mut self, count: f64) -> bool {
        self.count.is_none() && self.count.replace(count).is_none()
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        self.quantiles.iter_mut().for_each(|(_, value)| *value = None);
        (self.sum, self.count) = (None, None);
    }

    /// The value of what was noted since the last time; nothing without a count, which the specification demands, or
    /// with one that is none. A sum that is missing is 0.
    pub fn take(&mut self) -> Option<Value> {
        let (sum, count) = (self.sum, self.count);
        let noted = self.quantiles.iter().filter_map(|(quantile, value)| {
            let (quantile, value) = (*quantile, (*value)?);
            Some(Quantile { quantile, value })
        });
        let mut quantiles: Vec<Quantile> = noted.collect();
        self.clear();
        let count = count?;
        if is_stale(count) {
            return Some(Value::NoRecordedValue);
        }
        quantiles.sort_by(|a, b| a.quantile.total_cmp(&b.quantile));
        Some(Value::Summary(Box::new(Summary {
            count: whole(count)?,
            sum: sum.unwrap_or(0.0),
            quantiles,
        })))
    }
}
