// SPDX-License-Identifier: Apache-2.0

//! The lines of a classic histogram, merged into one value.

use std::sync::Arc;

use tidegate_engine::{Histogram, Value};

use super::sample::{is_stale, whole};

/// Buckets of a histogram beyond which no more are taken. Searching for a place takes time proportional to them.
const MAX_BUCKETS: usize = 1024;

/// The number of old bounds that it tolerates.
const SPARE: usize = 32;

/// Buckets, sum and count of one series as they come. It keeps its bounds for the next time.
#[derive(Clone, Debug, Default)]
pub struct Classic {
    /// The bounds that were ever added, in the order in which they were.
    bounds: Vec<f64>,
    /// The running total of each bucket, if this round has one.
    totals: Vec<Option<f64>>,
    sum: Option<f64>,
    count: Option<f64>,
    /// Places of the bounds of the last value without +Inf, and these bounds.
    order: Vec<usize>,
    uppers: Arc<[f64]>,
}

impl Classic {
    /// The place of a bound; nothing for one that can't be a bound and for one too many.
    pub fn index_of(&mut self, bound: f64) -> Option<usize> {
        let known = self.bounds.iter().position(|known| *known == bound);
        let is_new = !bound.is_nan() && self.bounds.len() < MAX_BUCKETS;
        known.or_else(|| {
            is_new.then(|| {
                self.bounds.push(bound);
                self.totals.push(None);
                self.bounds.len() - 1
            })
        })
    }

    /// Whether most of its bounds are old: the caller should make it again.
    pub fn is_crowded(&self) -> bool {
        self.bounds.len() > 2 * (self.order.len() + SPARE)
    }

    /// Records the running total of a bucket; false if this round has one already.
    #[inline]
    pub fn bucket(&mut self, place: usize, total: f64) -> bool {
        self.totals
            .get_mut(place)
            .is_some_and(|noted| first(noted, total))
    }

    /// Records the sum; false if this round has one already.
    pub fn sum(&mut self, sum: f64) -> bool {
        first(&mut self.sum, sum)
    }

    /// Records the count; false if this round has one already.
    pub fn count(&mut self, count: f64) -> bool {
        first(&mut self.count, count)
    }

    /// Forgets what was noted.
    pub fn clear(&mut self) {
        self.totals.fill(None);
        (self.sum, self.count) = (None, None);
    }

    /// The value of this round; `None` without a valid count. The `+Inf` bucket replaces a missing count.
    ///
    /// Totals that fall, or exceed the count, come from a producer that was read while it counted. They are
    /// replaced by the highest lower total, or by the count.
    pub fn take(&mut self) -> Option<Value> {
        let value = self.value();
        self.clear();
        value
    }

    fn value(&mut self) -> Option<Value> {
        let count = self.count.or_else(|| self.whole_total())?;
        if is_stale(count) {
            return Some(Value::NoRecordedValue);
        }
        let count = whole(count)?;
        self.sort();
        let mut running = 0;
        let totals = self
            .order
            .iter()
            .map(|place| self.totals.get(*place).copied().flatten());
        let mut counts = Vec::with_capacity(self.order.len() + 1);
        for total in totals {
            let total = whole(total?)?.clamp(running, count);
            counts.push(total - running);
            running = total;
        }
        counts.push(count - running);
        Some(Value::Histogram(Box::new(Histogram {
            count,
            sum: self.sum,
            bounds: self.uppers.clone(),
            counts,
            ..Histogram::default()
        })))
    }

    /// The total of the bucket `+Inf`.
    fn whole_total(&self) -> Option<f64> {
        let is_whole = |bound: &f64| *bound == f64::INFINITY;
        let place = self.bounds.iter().position(is_whole)?;
        self.totals.get(place).copied().flatten()
    }

    /// Brings the bounds in order, unless they are those of the last time.
    fn sort(&mut self) {
        let is_noted = |place: &usize| self.totals.get(*place).is_some_and(Option::is_some);
        let is_finite = |place: &usize| {
            self.bounds
                .get(*place)
                .is_some_and(|bound| *bound < f64::INFINITY)
        };
        let noted = (0..self.bounds.len()).filter(|place| is_noted(place) && is_finite(place));
        if noted.clone().count() == self.order.len() && self.order.iter().all(is_noted) {
            return;
        }
        let mut order: Vec<usize> = noted.collect();
        order.sort_by(|a, b| self.bounds[*a].total_cmp(&self.bounds[*b]));
        self.uppers = order.iter().map(|place| self.bounds[*place]).collect();
        self.order = order;
    }
}

/// Sets the place if it is empty.
#[inline]
fn first(place: &mut Option<f64>, number: f64) -> bool {
    let is_first = place.is_none();
    if is_first {
        *place = Some(number);
    }
    is_first
}
