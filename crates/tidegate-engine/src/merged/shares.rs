// SPDX-License-Identifier: Apache-2.0

//! The parts that producers have of a series, for explanations.

use super::item::{Item, items};
use super::{MergeMode, Merged, ProducerId};
use crate::{Key, UnixNanos};

/// The part that a producer has of a series.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProducerShare {
    /// The producer.
    pub producer: ProducerId,
    /// Number of its runs, with those in its compacted total.
    pub runs: u64,
    /// The newest start of its runs.
    pub start: UnixNanos,
    /// The newest time of its reports.
    pub time: UnixNanos,
    /// Its part of the value, where that is a number: the sum of its totals or levels, otherwise the newest value.
    pub value: Option<f64>,
}

impl ProducerShare {
    fn new(producer: ProducerId) -> Self {
        Self {
            producer,
            runs: 0,
            start: 0,
            time: 0,
            value: Some(0.0),
        }
    }

    fn add(&mut self, item: &Item<'_>) {
        let is_sum = matches!(item.mode, MergeMode::Add | MergeMode::Level);
        let parts = self.value.zip(item.value.as_f64());
        if is_sum || item.value.as_f64().is_none() {
            self.value = parts.map(|(sum, value)| sum + value);
        } else if item.time >= self.time {
            self.value = item.value.as_f64();
        }
        self.start = self.start.max(item.start);
        self.time = self.time.max(item.time);
    }
}

impl Merged {
    /// The parts of the producers of a series, by their ids. An unknown series has none.
    pub fn shares(&self, key: Key) -> Vec<ProducerShare> {
        let slot = self.places.get(&key).copied();
        let Some(series) = self.at(slot) else {
            return Vec::new();
        };
        let mut shares: Vec<ProducerShare> = Vec::new();
        items(&series.runs, &series.compacted, &mut |item| {
            if shares.last().is_none_or(|last| last.producer != item.producer) {
                shares.push(ProducerShare::new(item.producer));
            }
            if let Some(share) = shares.last_mut() {
                share.add(&item);
            }
        });
        for share in &mut shares {
            let compacted = series.compacted_of(share.producer);
            let runs = series
                .runs
                .get(series.runs_of(share.producer))
                .unwrap_or_default();
            let runs = runs.iter().filter(|run| !run.is_hidden).count() as u64;
            share.runs = runs.saturating_add(compacted.map_or(0, |total| total.runs));
        }
        shares
    }
}
