// SPDX-License-Identifier: Apache-2.0

//! Explicit-bounds histograms: observations, sums, differences, and other bounds.

use std::sync::Arc;

use crate::Histogram;

impl Histogram {
    /// A histogram without observations, with one count a bucket.
    pub fn empty(bounds: Arc<[f64]>) -> Self {
        Self {
            count: 0,
            sum: Some(0.0),
            min: None,
            max: None,
            counts: vec![0; bounds.len() + 1],
            bounds,
        }
    }

    /// Whether the buckets fit the bounds (or were omitted) and their counts add up.
    pub fn is_sound(&self) -> bool {
        let increasing = self
            .bounds
            .iter()
            .zip(self.bounds.iter().skip(1))
            .all(|(a, b)| a < b);
        let total = self
            .counts
            .iter()
            .try_fold(0u64, |sum, count| sum.checked_add(*count));
        let buckets = match self.counts.len() {
            0 => self.bounds.is_empty(),
            buckets => buckets == self.bounds.len() + 1 && total == Some(self.count),
        };
        increasing && buckets && !self.bounds.iter().any(|bound| bound.is_nan())
    }

    /// Adds one observation `weight` times.
    #[inline]
    pub fn observe(&mut self, value: f64, weight: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < value);
        if let Some(count) = self.counts.get_mut(bucket) {
            *count = count.saturating_add(weight);
        }
        self.count = self.count.saturating_add(weight);
        self.sum = self.sum.map(|sum| value.mul_add(weight as f64, sum));
        self.min = Some(self.min.map_or(value, |min| min.min(value)));
        self.max = Some(self.max.map_or(value, |max| max.max(value)));
    }

    /// Adds the observations of another histogram. This histogram keeps its bounds.
    ///
    /// If bounds differ, each observation goes to the bucket that holds the upper bound of its old bucket. Running
    /// totals are exact at every common bound, and never too high at the others. An observation moves by less than the
    /// width of its old bucket. A histogram without buckets has only (-Inf, +Inf].
    pub fn merge(&mut self, other: &Self) {
        if self.bounds == other.bounds && self.counts.len() == other.counts.len() {
            for (mine, theirs) in self.counts.iter_mut().zip(&other.counts) {
                *mine = mine.saturating_add(*theirs);
            }
        } else if other.counts.is_empty() {
            self.add_at(f64::INFINITY, other.count);
        } else {
            let uppers = other.bounds.iter().copied().chain([f64::INFINITY]);
            for (upper, count) in uppers.zip(&other.counts) {
                self.add_at(upper, *count);
            }
        }
        self.add_moments(other.count, other.sum, other.min, other.max);
    }

    /// Adds to the bucket that holds `upper`.
    pub(crate) fn add_at(&mut self, upper: f64, count: u64) {
        let bucket = self.bounds.partition_point(|bound| *bound < upper);
        if let Some(mine) = self.counts.get_mut(bucket) {
            *mine = mine.saturating_add(count);
        }
    }

    /// Adds everything but the buckets.
    #[inline]
    pub fn add_moments(&mut self, count: u64, sum: Option<f64>, min: Option<f64>, max: Option<f64>) {
        if count == 0 {
            return;
        }
        let first = self.count == 0;
        self.count = self.count.saturating_add(count);
        self.sum = pair(self.sum, sum, |a, b| a + b);
        self.min = if first { min } else { pair(self.min, min, f64::min) };
        self.max = if first { max } else { pair(self.max, max, f64::max) };
    }

    /// Joins neighbouring buckets until there are at most `max` (at least one). Running totals stay exact at the bounds
    /// that are left, which depend on the bounds alone: histograms of one series stay comparable. Whether it changed.
    pub fn coarsen(&mut self, max: usize) -> bool {
        let (buckets, max) = (self.counts.len(), max.max(1));
        if buckets <= max {
            return false;
        }
        // Bucket `at` of those that are left ends where this one ends; the last one is (…, +Inf].
        let end = |at: usize| (at + 1) * buckets / max;
        let joined = (0..max).map(|at| {
            let from = at.checked_sub(1).map_or(0, end);
            self.counts[from..end(at)]
                .iter()
                .fold(0, |sum: u64, count| sum.saturating_add(*count))
        });
        let counts = joined.collect();
        let bounds = (0..max - 1).filter_map(|at| self.bounds.get(end(at) - 1).copied());
        self.bounds = bounds.collect();
        self.counts = counts;
        true
    }

    /// Shows (place, bound, observations up to it) of every bucket but the last one, bounds rising. Gives the number of
    /// all observations, which the buckets determine: the last running total and the count of a page must agree.
    pub fn running(&self, mut each: impl FnMut(usize, f64, u64)) -> u64 {
        let (mut running, mut below) = (0u64, f64::NEG_INFINITY);
        for (at, (bound, count)) in self.bounds.iter().zip(&self.counts).enumerate() {
            running = running.saturating_add(*count);
            // Bounds must rise, and `+Inf` is implied. Invalid entries merge into the next bucket.
            if *bound > below && *bound < f64::INFINITY {
                each(at, *bound, running);
                below = *bound;
            }
        }
        let summed = self
            .counts
            .iter()
            .fold(0u64, |sum, count| sum.saturating_add(*count));
        if summed == 0 { self.count } else { summed }
    }

    /// The increase over `last`; `None` if there was a reset: a count fell, or the bounds differ. The smallest and
    /// largest value of an increase are unknown.
    pub fn since(&self, last: &Self) -> Option<Self> {
        if self.bounds != last.bounds || self.counts.len() != last.counts.len() {
            return None;
        }
        let counts = self.counts.iter().zip(&last.counts);
        let counts: Option<Vec<u64>> = counts.map(|(now, then)| now.checked_sub(*then)).collect();
        Some(Self {
            count: self.count.checked_sub(last.count)?,
            sum: pair(self.sum, last.sum, |now, then| now - then),
            min: None,
            max: None,
            bounds: self.bounds.clone(),
            counts: counts?,
        })
    }

    /// Smallest and largest value, as the histogram says. Otherwise the outer bounds of its filled buckets, widened to hold
    /// the mean: the lowest bucket begins at 0 if its bound is positive, and no more than its bound is known of a bucket
    /// without an end.
    pub fn range(&self) -> (Option<f64>, Option<f64>) {
        let first = self.counts.iter().position(|count| *count > 0);
        let last = self.counts.iter().rposition(|count| *count > 0);
        let bound = |at: usize| self.bounds.get(at).copied().filter(|bound| bound.is_finite());
        let lower = first.and_then(|bucket| match bucket.checked_sub(1) {
            Some(before) => bound(before),
            None => bound(bucket).map(|upper| upper.min(0.0)),
        });
        let upper = last.and_then(|bucket| bound(bucket).or_else(|| bound(bucket.checked_sub(1)?)));
        let mean = self
            .sum
            .map(|sum| sum / self.count as f64)
            .filter(|mean| !mean.is_nan());
        let lower = lower.map(|lower| mean.map_or(lower, |mean| mean.min(lower)));
        let upper = upper.map(|upper| mean.map_or(upper, |mean| mean.max(upper)));
        (self.min.or(lower), self.max.or(upper))
    }
}

pub(crate) fn pair(a: Option<f64>, b: Option<f64>, join: impl Fn(f64, f64) -> f64) -> Option<f64> {
    Some(join(a?, b?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(bounds: &[f64], values: &[f64]) -> Histogram {
        let mut histogram = Histogram::empty(bounds.into());
        for value in values {
            histogram.observe(*value, 1);
        }
        histogram
    }

    #[test]
    fn a_coarser_histogram_has_the_same_running_totals_at_its_bounds() {
        for buckets in 1..40usize {
            let bounds: Vec<f64> = (1..buckets).map(|bound| bound as f64).collect();
            let mut fine = Histogram::empty(bounds.into());
            (0..buckets).for_each(|at| fine.observe(at as f64 + 0.5, at as u64 + 1));
            for max in 1..45 {
                let mut coarse = fine.clone();
                assert_eq!(coarse.coarsen(max), buckets > max);
                assert!(coarse.is_sound() && coarse.counts.len() == buckets.min(max));
                let total = |histogram: &Histogram, bound: f64| -> u64 {
                    let upto = histogram.bounds.partition_point(|other| *other <= bound);
                    histogram.counts[..upto].iter().sum()
                };
                for bound in coarse.bounds.iter() {
                    assert_eq!(total(&coarse, *bound), total(&fine, *bound), "{buckets} to {max}");
                }
            }
        }
    }

    #[test]
    fn bounds_are_inclusive_upper_bounds() {
        assert_eq!(of(&[1.0, 2.0], &[1.0, 1.5, 2.0, 2.5]).counts, [1, 2, 1]);
    }

    #[test]
    fn a_histogram_without_buckets_counts_as_beyond_every_bound() {
        let mut all = of(&[1.0], &[0.5]);
        all.merge(&Histogram {
            count: 3,
            sum: Some(1.5),
            ..Histogram::default()
        });
        assert_eq!((all.counts, all.count, all.sum), (vec![1, 3], 4, Some(2.0)));
    }

    #[test]
    fn falling_counts_and_other_bounds_are_resets() {
        let (less, more) = (of(&[1.0], &[0.5]), of(&[1.0], &[0.5, 2.0]));
        assert_eq!(more.since(&less).map(|h| h.counts), Some(vec![0, 1]));
        assert_eq!(less.since(&more), None);
        assert_eq!(of(&[2.0], &[0.5, 2.0]).since(&less), None);
    }

    #[test]
    fn unsound_histograms_are_recognised() {
        let sound = of(&[1.0, 2.0], &[1.0]);
        assert!(
            sound.is_sound()
                && Histogram {
                    count: 9,
                    ..Histogram::default()
                }
                .is_sound()
        );
        assert!(
            !Histogram {
                count: 2,
                ..sound.clone()
            }
            .is_sound()
        );
        assert!(
            !Histogram {
                bounds: [2.0, 1.0].into(),
                ..sound.clone()
            }
            .is_sound()
        );
        assert!(
            !Histogram {
                counts: vec![u64::MAX, 1, 1],
                ..sound
            }
            .is_sound()
        );
    }

    proptest! {
        #[test]
        fn other_bounds_never_overstate_a_running_total(
            values in prop::collection::vec(0.0..100.0f64, 0..50),
            ours in prop::collection::btree_set(0u8..100, 0..8),
            theirs in prop::collection::btree_set(0u8..100, 0..8),
        ) {
            let bounds = |set: &std::collections::BTreeSet<u8>| set.iter().map(|b| f64::from(*b)).collect::<Vec<_>>();
            let (ours, theirs) = (bounds(&ours), bounds(&theirs));
            let mut merged = Histogram::empty(ours.as_slice().into());
            merged.merge(&of(&theirs, &values));
            prop_assert!(merged.is_sound());
            let mut total = 0;
            for (bound, count) in ours.iter().zip(&merged.counts) {
                total += *count;
                let truth = values.iter().filter(|value| *value <= bound).count() as u64;
                prop_assert!(total <= truth);
                prop_assert!(total == truth || !theirs.contains(bound));
            }
        }
    }
}
