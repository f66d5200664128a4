// SPDX-License-Identifier: Apache-2.0

//! Doubles and weighted values of one kind.

use super::Folded;
use crate::{Number, UnixNanos};

/// Statistics of doubles and of weighted values.
#[derive(Clone, Copy, Debug)]
pub(super) struct Double {
    sum: f64,
    count: f64,
    min: f64,
    max: f64,
    last: f64,
    time: UnixNanos,
    pub(super) observe: u32,
    falls: bool,
}

impl Double {
    /// Nothing yet. `falls`: values may be negative.
    pub(super) fn new(observe: u32, falls: bool) -> Self {
        Self {
            sum: 0.0,
            count: 0.0,
            min: f64::INFINITY,
            max: f64::NEG_INFINITY,
            last: 0.0,
            time: 0,
            observe,
            falls,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0.0
    }

    /// Whether there can be such a value.
    pub(super) fn takes(&self, value: f64, weight: f64) -> bool {
        let is_sound = value.is_finite() && weight.is_finite() && weight > 0.0;
        is_sound && (value >= 0.0 || self.falls)
    }

    pub(super) fn add(&mut self, value: f64, weight: f64, time: UnixNanos) {
        self.count += weight;
        self.sum += value * weight;
        self.min = self.min.min(value);
        self.max = self.max.max(value);
        self.last = value;
        self.time = self.time.max(time);
    }

    pub(super) fn take(&mut self) -> Option<Folded> {
        let taken = std::mem::replace(self, Self::new(self.observe, self.falls));
        (taken.count > 0.0).then_some(Folded {
            count: taken.count,
            sum: Number::Double(taken.sum),
            min: taken.min,
            max: taken.max,
            last: Number::Double(taken.last),
            time: taken.time,
            observe: taken.observe,
        })
    }
}
