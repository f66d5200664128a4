// SPDX-License-Identifier: Apache-2.0

//! Answers of a composite.

use std::time::Duration;

use tidegate_engine::{Answer, Attributes};

use super::State;

/// The state of one group of a composite at an instant.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Snapshot {
    /// The labels that make the group.
    pub labels: Vec<(String, String)>,
    /// The value of the composite; `None` if the window has no values.
    pub value: Option<f64>,
    /// Smallest value in the window. Of counters: no extremes, no mean.
    pub min: Option<f64>,
    /// Mean of the values in the window; of gauges over time.
    pub avg: Option<f64>,
    /// Largest value in the window.
    pub max: Option<f64>,
    /// Sum of the values in the window; of counters their increase.
    pub sum: f64,
    /// How many values the window holds; of gauges how often one was looked at.
    pub count: f64,
    /// Newest value in the window.
    pub last: Option<f64>,
    /// The ranks that were asked for, with their values.
    pub quantiles: Vec<(f64, f64)>,
    /// How long the window is.
    pub window: Duration,
    /// The time since the newest value; `None` if there never was one.
    pub age: Option<Duration>,
    /// How far it can be trusted.
    pub state: State,
    /// Why the composite has no value: its declaration does not suit its instruments.
    pub error: Option<String>,
}

impl Snapshot {
    pub(super) fn of(answer: Answer) -> Self {
        Self {
            labels: labels(&answer.attributes),
            value: answer.value,
            min: answer.min,
            avg: answer.avg,
            max: answer.max,
            sum: answer.sum,
            count: answer.count,
            last: answer.last,
            quantiles: answer.quantiles.iter().map(|q| (q.quantile, q.value)).collect(),
            window: answer.window,
            age: answer.age,
            state: answer.state,
            error: answer.error.as_deref().map(str::to_owned),
        }
    }

    /// Of counters: increases are all that is known.
    pub(super) fn without_extremes(mut self) -> Self {
        (self.min, self.avg, self.max, self.last) = (None, None, None, None);
        self.quantiles.clear();
        self
    }

    /// A single value, of an instrument that is not a composite.
    pub(super) fn of_value(labels: Vec<(String, String)>, value: f64, range: (f64, f64)) -> Self {
        Self {
            labels,
            value: Some(value),
            min: Some(range.0),
            avg: Some(value),
            max: Some(range.1),
            sum: value,
            count: 1.0,
            last: Some(value),
            quantiles: Vec::new(),
            window: Duration::ZERO,
            age: Some(Duration::ZERO),
            state: State::Fresh,
            error: None,
        }
    }

    /// The value of this rank, if it was asked for.
    pub fn quantile(&self, rank: f64) -> Option<f64> {
        self.quantiles
            .iter()
            .find(|(own, _)| *own == rank)
            .map(|(_, value)| *value)
    }

    /// Whether the group has exactly these labels.
    pub fn is_of(&self, labels: &[(&str, &str)]) -> bool {
        let has = |(key, value): &(&str, &str)| self.labels.iter().any(|(k, v)| k == key && v == value);
        self.labels.len() == labels.len() && labels.iter().all(has)
    }

    /// Whether a watcher who knows `other` would see a difference other than age.
    pub(super) fn equals_except_age(&self, other: &Self) -> bool {
        (self.value, self.count, self.sum, self.state) == (other.value, other.count, other.sum, other.state)
            && (self.min, self.max, self.last) == (other.min, other.max, other.last)
            && self.error == other.error
    }
}

fn labels(attributes: &Attributes) -> Vec<(String, String)> {
    let pairs = attributes
        .iter()
        .map(|(key, value)| (key.to_owned(), value.to_string()));
    pairs.collect()
}
