// SPDX-License-Identifier: Apache-2.0

//! Exponential histograms: lower resolution, adding, differences, explicit bounds.
//!
//! Bucket `i` holds (base^i, base^(i+1)] with base = 2^(2^-scale) (OpenTelemetry metrics data model).

use std::borrow::Cow;

use crate::histogram::pair;
use crate::{Buckets, ExponentialHistogram, Histogram};

/// Buckets a side beyond which a merge lowers the resolution: twice the SDKs' default of 160.
pub const MAX_BUCKETS: usize = 320;

/// Scales that OTLP data can sensibly have: at -10 one bucket spans the doubles, at 20 a bucket is 7e-7 wide.
const SCALES: std::ops::RangeInclusive<i32> = -10..=20;

impl Buckets {
    /// Without zeros at the ends.
    pub fn trimmed(offset: i32, mut counts: Vec<u64>) -> Self {
        let is_filled = |count: &u64| *count != 0;
        let end = counts.iter().rposition(is_filled).map_or(0, |last| last + 1);
        counts.truncate(end);
        let start = counts.iter().position(is_filled).unwrap_or(0);
        counts.drain(..start);
        let offset = if counts.is_empty() {
            0
        } else {
            offset.saturating_add(start as i32)
        };
        Self { offset, counts }
    }

    /// Number of observations. A sum that does not fit is the largest number, as in merges.
    pub fn count(&self) -> u64 {
        self.counts
            .iter()
            .fold(0, |sum, count| sum.saturating_add(*count))
    }

    fn first(&self) -> i64 {
        i64::from(self.offset)
    }

    fn end(&self) -> i64 {
        self.first() + self.counts.len() as i64
    }

    /// Index and count of every filled bucket.
    pub fn filled(&self) -> impl Iterator<Item = (i64, u64)> + '_ {
        let counts = self.counts.iter().enumerate();
        counts
            .filter(|(_, count)| **count > 0)
            .map(|(at, count)| (self.first() + at as i64, *count))
    }

    /// The same observations in buckets 2^`shift` times as wide (in the exponent).
    fn coarser(&self, shift: u32) -> Self {
        if shift == 0 || self.counts.is_empty() {
            return self.clone();
        }
        let first = self.first() >> shift;
        let mut counts = vec![0u64; usize::try_from(((self.end() - 1) >> shift) - first + 1).unwrap_or(0)];
        for (index, count) in self.filled() {
            let at = usize::try_from((index >> shift) - first).ok();
            if let Some(mine) = at.and_then(|at| counts.get_mut(at)) {
                *mine = mine.saturating_add(count);
            }
        }
        Self {
            offset: i32::try_from(first).unwrap_or(self.offset),
            counts,
        }
    }

    /// From the first to the end of both, in buckets as they are.
    fn span(&self, other: &Self) -> Option<(i64, i64)> {
        match (self.counts.is_empty(), other.counts.is_empty()) {
            (true, true) => None,
            (true, false) => Some((other.first(), other.end())),
            (false, true) => Some((self.first(), self.end())),
            (false, false) => Some((self.first().min(other.first()), self.end().max(other.end()))),
        }
    }

    /// By how much both must be coarsened so that their union fits.
    fn needed_shift(&self, other: &Self, max: usize) -> u32 {
        let Some((first, end)) = self.span(other) else {
            return 0;
        };
        let fits = |shift: &u32| ((end - 1) >> shift) - (first >> shift) < max as i64;
        (0..=63).find(fits).unwrap_or(63)
    }

    /// Adds the other counts. Observations beyond `max` buckets go to the last one.
    fn add(&mut self, other: &Self, max: usize) {
        let Some((first, end)) = self.span(other) else {
            return;
        };
        let mut counts = vec![0u64; usize::try_from(end - first).unwrap_or(0).min(max)];
        let last = counts.len().saturating_sub(1) as i64;
        for (index, count) in self.filled().chain(other.filled()) {
            let at = usize::try_from((index - first).min(last)).ok();
            if let Some(mine) = at.and_then(|at| counts.get_mut(at)) {
                *mine = mine.saturating_add(count);
            }
        }
        *self = Self {
            offset: i32::try_from(first).unwrap_or(self.offset),
            counts,
        };
    }

    fn get(&self, index: i64) -> u64 {
        let at = usize::try_from(index - self.first()).ok();
        at.and_then(|at| self.counts.get(at)).copied().unwrap_or(0)
    }

    /// Bucket by bucket; `None` where one fell.
    fn since(&self, last: &Self) -> Option<Self> {
        let fell = last.filled().any(|(index, count)| self.get(index) < count);
        let counts = (self.first()..self.end()).map(|index| self.get(index).saturating_sub(last.get(index)));
        (!fell).then(|| Self {
            offset: self.offset,
            counts: counts.collect(),
        })
    }
}

impl ExponentialHistogram {
    /// A histogram without observations.
    pub fn empty() -> Self {
        Self {
            sum: Some(0.0),
            ..Self::default()
        }
    }

    /// Whether the scale is supported, the buckets are within range and their counts add up.
    pub fn is_sound(&self) -> bool {
        /// Indices beyond this are past the doubles at every scale that is allowed.
        const REACH: i64 = 1 << 31;
        let within = |side: &Buckets| side.first() >= -REACH && side.end() <= REACH;
        let counts = self.positive.counts.iter().chain(&self.negative.counts);
        let total = counts
            .chain([&self.zero_count])
            .try_fold(0u64, |sum, count| sum.checked_add(*count));
        SCALES.contains(&self.scale)
            && within(&self.positive)
            && within(&self.negative)
            && self.zero_threshold >= 0.0
            && total == Some(self.count)
    }

    /// Widens the buckets until the scale is `scale`.
    pub fn downscale(&mut self, scale: i32) {
        let shift = u32::try_from(self.scale.saturating_sub(scale))
            .unwrap_or(0)
            .min(63);
        if shift > 0 {
            self.positive = self.positive.coarser(shift);
            self.negative = self.negative.coarser(shift);
            self.scale = scale;
        }
    }

    /// Adds the observations of another histogram, at the finer resolution that both allow and `MAX_BUCKETS` permits.
    pub fn merge(&mut self, other: &Self) {
        self.merge_within(other, MAX_BUCKETS, i32::MIN);
    }

    /// The same with another number of buckets a side. The scale falls to `min_scale` at most: observations that have no
    /// bucket there go to the last one.
    pub fn merge_within(&mut self, other: &Self, max_buckets: usize, min_scale: i32) {
        let mut other = Cow::Borrowed(other);
        let scale = self.scale.min(other.scale);
        self.downscale(scale);
        downscaled(&mut other, scale);
        let positive = self.positive.needed_shift(&other.positive, max_buckets);
        let shift = positive.max(self.negative.needed_shift(&other.negative, max_buckets));
        let fitting = scale.saturating_sub(i32::try_from(shift).unwrap_or(0));
        let scale = fitting.max(min_scale).min(scale);
        self.downscale(scale);
        downscaled(&mut other, scale);
        self.raise_threshold(other.zero_threshold);
        if other.zero_threshold < self.zero_threshold {
            other.to_mut().raise_threshold(self.zero_threshold);
        }
        self.positive.add(&other.positive, max_buckets);
        self.negative.add(&other.negative, max_buckets);
        self.zero_count = self.zero_count.saturating_add(other.zero_count);
        self.add_moments(&other);
    }

    fn add_moments(&mut self, other: &Self) {
        if other.count == 0 {
            return;
        }
        let first = self.count == 0;
        self.count = self.count.saturating_add(other.count);
        self.sum = if first {
            other.sum
        } else {
            pair(self.sum, other.sum, |a, b| a + b)
        };
        self.min = if first {
            other.min
        } else {
            pair(self.min, other.min, f64::min)
        };
        self.max = if first {
            other.max
        } else {
            pair(self.max, other.max, f64::max)
        };
    }

    /// Moves the buckets that are wholly within a wider zero bucket into it.
    fn raise_threshold(&mut self, threshold: f64) {
        if threshold <= self.zero_threshold {
            return;
        }
        self.zero_threshold = threshold;
        let scale = self.scale;
        for side in [&mut self.positive, &mut self.negative] {
            let first = side.first();
            for (at, count) in side.counts.iter_mut().enumerate() {
                if edge(scale, first + at as i64 + 1) <= threshold {
                    self.zero_count = self.zero_count.saturating_add(std::mem::take(count));
                }
            }
        }
    }

    /// The increase over `last`; `None` if there was a reset. (The scale of one stream only ever falls.)
    pub fn since(&self, last: &Self) -> Option<Self> {
        if self.scale > last.scale || self.zero_threshold < last.zero_threshold {
            return None;
        }
        let mut then = last.clone();
        then.downscale(self.scale);
        then.raise_threshold(self.zero_threshold);
        Some(Self {
            count: self.count.checked_sub(then.count)?,
            sum: pair(self.sum, then.sum, |now, then| now - then),
            min: None,
            max: None,
            scale: self.scale,
            zero_count: self.zero_count.checked_sub(then.zero_count)?,
            zero_threshold: self.zero_threshold,
            positive: self.positive.since(&then.positive)?,
            negative: self.negative.since(&then.negative)?,
        })
    }

    /// Adds these observations to a histogram with explicit bounds; the rule for unequal bounds is `Histogram::merge`'s.
    pub fn merge_into(&self, explicit: &mut Histogram) {
        for (index, count) in self.negative.filled() {
            explicit.add_at(-edge(self.scale, index), count);
        }
        explicit.add_at(self.zero_threshold, self.zero_count);
        for (index, count) in self.positive.filled() {
            explicit.add_at(edge(self.scale, index + 1), count);
        }
        explicit.add_moments(self.count, self.sum, self.min, self.max);
    }

    /// Smallest and largest value as far as is known.
    pub fn range(&self) -> (Option<f64>, Option<f64>) {
        let mut explicit = Vec::new();
        explicit.extend(
            self.negative
                .filled()
                .map(|(at, _)| (-edge(self.scale, at + 1), -edge(self.scale, at))),
        );
        explicit.extend((self.zero_count > 0).then_some((-self.zero_threshold, self.zero_threshold)));
        explicit.extend(
            self.positive
                .filled()
                .map(|(at, _)| (edge(self.scale, at), edge(self.scale, at + 1))),
        );
        let min = explicit.iter().map(|(low, _)| *low).reduce(f64::min);
        let max = explicit.iter().map(|(_, high)| *high).reduce(f64::max);
        (self.min.or(min), self.max.or(max))
    }
}

/// Widens the buckets until the scale is `scale`. It copies them only if it must.
fn downscaled(histogram: &mut Cow<'_, ExponentialHistogram>, scale: i32) {
    if histogram.scale > scale {
        histogram.to_mut().downscale(scale);
    }
}

/// base^`index`.
fn edge(scale: i32, index: i64) -> f64 {
    (index as f64 * (-f64::from(scale)).exp2()).exp2()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(scale: i32, values: &[f64]) -> ExponentialHistogram {
        let index = |value: f64| ((value.log2() * f64::from(scale).exp2()).ceil() as i64 - 1) as i32;
        let first = values.iter().map(|value| index(*value)).min().unwrap_or(0);
        let end = values.iter().map(|value| index(*value) + 1).max().unwrap_or(0);
        let mut counts = vec![0; (end - first) as usize];
        for value in values {
            counts[(index(*value) - first) as usize] += 1;
        }
        ExponentialHistogram {
            count: values.len() as u64,
            sum: Some(values.iter().sum()),
            scale,
            positive: Buckets {
                offset: first,
                counts,
            },
            ..ExponentialHistogram::default()
        }
    }

    #[test]
    fn histograms_of_unequal_scales_add_up_at_the_lower_one() {
        let mut all = of(3, &[1.5, 3.0, 100.0]);
        all.merge(&of(1, &[2.5, 70.0]));
        let expected = of(1, &[1.5, 3.0, 100.0, 2.5, 70.0]);
        assert_eq!((all.scale, all.positive.clone()), (1, expected.positive));
        assert!(all.is_sound());
    }

    #[test]
    fn a_union_too_wide_for_its_buckets_lowers_the_scale() {
        let mut all = of(20, &[1e-9]);
        all.merge(&of(20, &[1e9]));
        assert!(all.positive.counts.len() <= MAX_BUCKETS && all.count == 2 && all.is_sound());
        let filled: Vec<_> = all.positive.filled().collect();
        assert!(edge(all.scale, filled[1].0) < 1e9 && 1e9 <= edge(all.scale, filled[1].0 + 1));
    }

    #[test]
    fn a_union_too_wide_for_the_lowest_scale_ends_in_the_last_bucket() {
        let mut all = of(0, &[1e-300]);
        all.merge_within(&of(0, &[1e300]), 4, -3);
        assert_eq!((all.scale, all.positive.counts), (-3, vec![1, 0, 0, 1]));
    }

    #[test]
    fn buckets_are_trimmed_to_the_filled_ones() {
        let trimmed = Buckets::trimmed(-2, vec![0, 0, 3, 0, 1, 0]);
        assert_eq!(
            (trimmed.offset, trimmed.count(), &*trimmed.counts),
            (0, 4, &[3, 0, 1][..])
        );
        assert_eq!(Buckets::trimmed(7, vec![0, 0]), Buckets::default());
    }

    #[test]
    fn an_increase_is_found_across_a_change_of_scale() {
        let (then, now) = (of(4, &[1.5, 9.0]), of(2, &[1.5, 9.0, 20.0]));
        let increase = now.since(&then).unwrap();
        assert_eq!((increase.count, increase.positive.filled().count()), (1, 1));
        assert_eq!(then.since(&now), None);
    }

    #[test]
    fn explicit_bounds_take_every_observation_at_its_upper_edge() {
        let mut explicit = Histogram::empty([1.0, 4.0, 64.0].into());
        of(0, &[3.0, 50.0, 60.0, 1000.0]).merge_into(&mut explicit);
        assert_eq!((explicit.counts, explicit.count), (vec![0, 1, 2, 1], 4));
    }
}
