//! A sketch of a distribution: counts by powers of a base, from which any quantile can be told within a known error.
//!
//! It is an exponential histogram without room for what is not there: base 2^(1/32), so that a quantile is at most
//! 1.1 % off the value that has this rank; of values spread so widely that more than [`MAX_ENTRIES`] buckets are
//! filled, twice that for each time that the base is squared.

use crate::{ExponentialHistogram, Histogram};

const SCALE: i32 = 5;

/// Filled buckets of one sign.
const MAX_ENTRIES: usize = 1024;

/// Counts of positive or negative values: bucket and count, by bucket.
type Entries = Vec<(i32, f64)>;

/// See the module.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sketch {
    scale: i32,
    zero: f64,
    positive: Entries,
    negative: Entries,
}

impl Default for Sketch {
    fn default() -> Self {
        Self {
            scale: SCALE,
            zero: 0.0,
            positive: Entries::new(),
            negative: Entries::new(),
        }
    }
}

/// The bucket (base^index, base^(index+1)] of a positive number.
fn bucket(scale: i32, value: f64) -> i32 {
    (value.log2() * f64::from(scale).exp2()).ceil() as i32 - 1
}

/// The middle of a bucket, as far from its lower edge as from its upper in proportion.
fn middle(scale: i32, bucket: i32) -> f64 {
    ((f64::from(bucket) + 0.5) * (-f64::from(scale)).exp2()).exp2()
}

impl Sketch {
    pub(super) fn clear(&mut self) {
        self.scale = SCALE;
        self.zero = 0.0;
        self.positive.clear();
        self.negative.clear();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.zero == 0.0 && self.positive.is_empty() && self.negative.is_empty()
    }

    /// Adds a value that counts `weight` times. What is no number is left out.
    pub(super) fn add(&mut self, value: f64, weight: f64) {
        if value.is_nan() || weight <= 0.0 || weight.is_nan() {
            return;
        }
        let size = value.abs().min(f64::MAX);
        if size < f64::MIN_POSITIVE {
            self.zero += weight;
            return;
        }
        let at = bucket(self.scale, size);
        let entries = if value > 0.0 {
            &mut self.positive
        } else {
            &mut self.negative
        };
        put(entries, at, weight);
        self.shrink();
    }

    /// Adds what a histogram has counted: each bucket at its middle.
    pub(super) fn add_explicit(&mut self, increase: &Histogram) {
        for (at, count) in increase
            .counts
            .iter()
            .enumerate()
            .filter(|(_, count)| **count > 0)
        {
            let bound = |at: Option<usize>| at.and_then(|at| increase.bounds.get(at)).copied();
            let (lower, upper) = (bound(at.checked_sub(1)), bound(Some(at)));
            let value = match (lower, upper) {
                (Some(lower), Some(upper)) => (lower + upper) / 2.0,
                (None, Some(upper)) if upper > 0.0 => upper / 2.0,
                (Some(bound), None) | (None, Some(bound)) => bound,
                (None, None) => increase.sum.unwrap_or(f64::NAN) / increase.count as f64,
            };
            self.add(value, *count as f64);
        }
    }

    /// Adds what an exponential histogram has counted.
    pub(super) fn add_exponential(&mut self, increase: &ExponentialHistogram) {
        self.zero += increase.zero_count as f64;
        for (side, sign) in [(&increase.positive, 1.0), (&increase.negative, -1.0)] {
            for (at, count) in side.filled() {
                let at = i32::try_from(at).unwrap_or(if at > 0 { i32::MAX } else { i32::MIN });
                self.add(sign * middle(increase.scale, at), count as f64);
            }
        }
    }

    pub(super) fn merge(&mut self, other: &Self) {
        self.zero += other.zero;
        let scale = self.scale.min(other.scale);
        let halvings = |scale_of: i32| (scale_of - scale) as u32;
        coarsen(&mut self.positive, halvings(self.scale));
        coarsen(&mut self.negative, halvings(self.scale));
        self.scale = scale;
        let shift = halvings(other.scale);
        for (mine, theirs) in [
            (&mut self.positive, &other.positive),
            (&mut self.negative, &other.negative),
        ] {
            theirs
                .iter()
                .for_each(|(at, count)| put(mine, at >> shift, *count));
        }
        self.shrink();
    }

    fn shrink(&mut self) {
        while self.positive.len().max(self.negative.len()) > MAX_ENTRIES {
            coarsen(&mut self.positive, 1);
            coarsen(&mut self.negative, 1);
            self.scale -= 1;
        }
    }

    /// The value of rank `quantile` (0 to 1); `None`: there are no values.
    pub(super) fn quantile(&self, quantile: f64) -> Option<f64> {
        let sum = |entries: &Entries| entries.iter().map(|(_, count)| count).sum::<f64>();
        let total = self.zero + sum(&self.positive) + sum(&self.negative);
        if total <= 0.0 {
            return None;
        }
        let below = self
            .negative
            .iter()
            .rev()
            .map(|(at, n)| (-middle(self.scale, *at), *n));
        let zero = (self.zero > 0.0).then_some((0.0, self.zero));
        let above = self.positive.iter().map(|(at, n)| (middle(self.scale, *at), *n));
        let mut left = quantile.clamp(0.0, 1.0) * total;
        let mut last = None;
        for (value, count) in below.chain(zero).chain(above) {
            last = Some(value);
            left -= count;
            if left <= 0.0 {
                break;
            }
        }
        last
    }
}

fn put(entries: &mut Entries, at: i32, count: f64) {
    match entries.binary_search_by_key(&at, |(bucket, _)| *bucket) {
        Ok(found) => entries[found].1 += count,
        Err(place) => entries.insert(place, (at, count)),
    }
}

/// Squares the base so many times.
fn coarsen(entries: &mut Entries, times: u32) {
    if times > 0 {
        entries.iter_mut().for_each(|(at, _)| *at >>= times.min(31));
        entries.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 += next.1;
            }
            same
        });
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[f64]) -> Sketch {
        let mut sketch = Sketch::default();
        values.iter().for_each(|value| sketch.add(*value, 1.0));
        sketch
    }

    proptest! {
        #[test]
        fn a_quantile_is_near_the_value_of_its_rank_however_the_values_were_put_together(
            mut values in prop::collection::vec(prop_oneof![-1e6..1e6f64, 0.001..10.0f64, Just(0.0)], 1..300),
            cut in any::<prop::sample::Index>(),
            quantile in 0.0..=1.0f64,
        ) {
            let cut = cut.index(values.len());
            let mut sketch = of(&values[..cut]);
            sketch.merge(&of(&values[cut..]));
            values.sort_by(f64::total_cmp);
            let rank = ((quantile * values.len() as f64).ceil() as usize).clamp(1, values.len());
            let truth = values[rank - 1];
            let told = sketch.quantile(quantile).unwrap();
            prop_assert!((told - truth).abs() <= truth.abs() * 0.0111 + 1e-12, "{told} for {truth}");
        }
    }

    #[test]
    fn values_of_all_sizes_fit_and_what_is_no_number_is_left_out() {
        let mut sketch = Sketch::default();
        for exponent in -300..300 {
            for part in 0..40 {
                sketch.add(10f64.powi(exponent) * (1.0 + f64::from(part) / 10.0), 1.0);
            }
        }
        sketch.add(f64::NAN, 1.0);
        assert!(sketch.positive.len() <= MAX_ENTRIES && sketch.scale < SCALE);
        let median = sketch.quantile(0.5).unwrap();
        assert!((0.01..100.0).contains(&median), "{median}");
        sketch.add(f64::INFINITY, 1e9);
        assert!(sketch.quantile(0.9).unwrap() > 1e290);
        assert_eq!(Sketch::default().quantile(0.5), None);
    }

    #[test]
    fn histograms_are_told_within_their_buckets() {
        let mut explicit = Histogram::empty([1.0, 2.0, 4.0].into());
        [0.5, 1.5, 3.0, 3.0, 9.0]
            .iter()
            .for_each(|value| explicit.observe(*value, 1));
        let mut sketch = Sketch::default();
        sketch.add_explicit(&explicit);
        let near =
            |quantile: f64, value: f64| (sketch.quantile(quantile).unwrap() / value - 1.0).abs() < 0.012;
        assert!(near(0.1, 0.5) && near(0.4, 1.5) && near(0.7, 3.0) && near(1.0, 4.0));
    }
}
