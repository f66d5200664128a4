// SPDX-License-Identifier: Apache-2.0

//! Exponential histograms in classic form: explicit bounds, for formats that have no other.

use crate::{Buckets, ExponentialHistogram, Histogram};

/// The most bounds of an exponential histogram in classic form.
pub const MAX_BOUNDS: u64 = 40;

/// The finest scale of the classic form: four buckets per power of two.
///
/// A histogram with few observations has a much finer scale, which falls with each new range of values. Readers need
/// bounds that stay: rates are differences of equal bounds.
pub const FINEST_SCALE: i32 = 2;

/// More merges leave two buckets per side: indexes have 33 bits.
const MAX_SHIFT: u32 = 40;

impl ExponentialHistogram {
    /// The classic form: all buckets from the first populated one to the last, as fine as [`MAX_BOUNDS`] permits.
    ///
    /// The scale is the histogram's own or [`FINEST_SCALE`], lowered one by one until the buckets of both sides and the
    /// zero bucket fit. So filling a bucket of a side changes no bound. The first observation of the zero bucket adds one
    /// bound. If the buckets no longer fit, bounds are removed, and none is added between the others.
    #[must_use]
    pub fn classic(&self) -> Histogram {
        let ranges = [populated(&self.negative), populated(&self.positive)];
        let zero = u64::from(self.zero_count > 0);
        let shift = fitting_shift(self.scale, &ranges, zero);
        // The product with a power of two is exact, so a bound is the same number at every resolution.
        let step = (f64::from(shift) - f64::from(self.scale)).exp2();
        let bound = |index: i64| (index as f64 * step.min(f64::MAX)).exp2();
        let [below, above] = &ranges;
        let negative = coarse(&self.negative, below.as_ref(), shift).into_iter().rev();
        let positive = coarse(&self.positive, above.as_ref(), shift).into_iter();
        let mut buckets: Vec<(f64, u64)> = negative.map(|(at, count)| (-bound(at), count)).collect();
        if zero > 0 {
            buckets.push((self.zero_threshold, self.zero_count));
        }
        buckets.extend(positive.map(|(at, count)| (bound(at + 1), count)));
        join_equal(&mut buckets);
        // The last bucket of a histogram has no bound.
        let beyond = buckets.pop_if(|(bound, _)| *bound == f64::INFINITY);
        let beyond = beyond.map_or(0, |(_, count)| count);
        Histogram {
            count: self.count,
            sum: self.sum,
            min: self.min,
            max: self.max,
            bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
            counts: buckets.iter().map(|(_, count)| *count).chain([beyond]).collect(),
        }
    }
}

/// The first and the last populated bucket of a side.
struct Range {
    first: i64,
    last: i64,
}

impl Range {
    /// The number of buckets after merging 2^`shift` into one.
    fn width(&self, shift: u32) -> u64 {
        ((self.last >> shift) - (self.first >> shift)).unsigned_abs() + 1
    }
}

fn populated(side: &Buckets) -> Option<Range> {
    let mut populated = side.filled().map(|(index, _)| index);
    let first = populated.next()?;
    let last = populated.last().unwrap_or(first);
    Some(Range { first, last })
}

/// How many times the scale falls until it is coarse enough and all buckets fit.
fn fitting_shift(scale: i32, ranges: &[Option<Range>; 2], zero: u64) -> u32 {
    let width = |shift: u32| {
        let widths = ranges.iter().flatten().map(|range| range.width(shift));
        widths.sum::<u64>()
    };
    let finest = scale
        .saturating_sub(FINEST_SCALE)
        .clamp(0, MAX_SHIFT.cast_signed());
    let shift = (finest.cast_unsigned()..MAX_SHIFT).find(|shift| width(*shift) + zero <= MAX_BOUNDS);
    shift.unwrap_or(MAX_SHIFT)
}

/// The index and count of every bucket of a range, after merging 2^`shift` into one.
fn coarse(side: &Buckets, range: Option<&Range>, shift: u32) -> Vec<(i64, u64)> {
    let Some(Range { first, last }) = range else {
        return Vec::new();
    };
    let all = *first >> shift..=*last >> shift;
    let mut all: Vec<(i64, u64)> = all.map(|index| (index, 0)).collect();
    for (index, count) in side.filled() {
        let at = usize::try_from((index >> shift) - (first >> shift)).ok();
        if let Some((_, sum)) = at.and_then(|at| all.get_mut(at)) {
            *sum = sum.saturating_add(count);
        }
    }
    all
}

/// Bounds of extreme scales can meet (overflow to infinity, underflow to zero): a bound must not come twice.
fn join_equal(buckets: &mut Vec<(f64, u64)>) {
    buckets.dedup_by(|next, kept| {
        let same = next.0 <= kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn exponential(scale: i32, offset: i32, counts: Vec<u64>) -> ExponentialHistogram {
        ExponentialHistogram {
            sum: Some(1.0),
            scale,
            positive: Buckets { offset, counts },
            ..ExponentialHistogram::default()
        }
    }

    fn any_exponential() -> impl Strategy<Value = ExponentialHistogram> {
        let counts = || prop::collection::vec(prop_oneof![2 => Just(0u64), 1 => 1u64..1000], 0..100);
        let side = move || (-1000i32..1000, counts()).prop_map(|(offset, counts)| Buckets { offset, counts });
        (-10i32..=20, 0u64..3, side(), side()).prop_map(|(scale, zero_count, negative, positive)| {
            let mut histogram = ExponentialHistogram {
                scale,
                zero_count,
                positive,
                negative,
                ..ExponentialHistogram::default()
            };
            let counts = histogram.negative.counts.iter().chain(&histogram.positive.counts);
            histogram.count = zero_count + counts.sum::<u64>();
            histogram
        })
    }

    #[test]
    fn a_bucket_that_fills_up_moves_no_bound() {
        let sparse = exponential(2, 3, vec![1, 0, 0, 0, 0, 0, 0, 9]).classic();
        let full = exponential(2, 3, vec![1, 0, 5, 0, 1, 1, 0, 9]).classic();
        assert_eq!((sparse.bounds.len(), &sparse.bounds), (8, &full.bounds));
        // A wider range: every second bound, as they were.
        let wide = exponential(2, 3, [vec![1; 8], vec![0; 50], vec![1]].concat()).classic();
        assert!(wide.bounds.len() <= 40, "{wide:?}");
        let kept: Vec<f64> = wide
            .bounds
            .iter()
            .copied()
            .filter(|bound| *bound <= 6.8)
            .collect();
        assert_eq!(kept, [2.0, 2f64.powf(1.5), 4.0, 2f64.powf(2.5)]);
    }

    #[test]
    fn the_first_observation_of_the_zero_bucket_adds_one_bound() {
        let without = exponential(2, 3, vec![1, 2]);
        let with = ExponentialHistogram {
            zero_count: 1,
            ..without.clone()
        };
        let (without, with) = (without.classic(), with.classic());
        assert_eq!(with.bounds.first(), Some(&0.0));
        assert_eq!(with.bounds[1..], without.bounds[..]);
    }

    #[test]
    fn bounds_of_fine_scales_are_those_of_the_finest_scale() {
        // One observation of 1000 at scale 20, and 32 observations between 512 and 1024 at scale 5.
        let index = (1000f64.log2() * 2f64.powi(20)).floor() as i32;
        assert_eq!(*exponential(20, index, vec![1]).classic().bounds, [1024.0]);
        let wider = exponential(5, 9 * 32, vec![1; 32]).classic();
        assert_eq!(wider.bounds.len(), 4, "{wider:?}");
        assert_eq!(wider.bounds.last(), Some(&1024.0));
    }

    proptest! {
        /// Few buckets, and those say what the fine ones say.
        #[test]
        fn a_classic_histogram_counts_what_is_below_its_bounds(histogram in any_exponential()) {
            let classic = histogram.classic();
            prop_assert!(classic.bounds.len() <= 40);
            prop_assert!(classic.is_sound(), "{classic:?}");
            prop_assert_eq!(classic.counts.iter().sum::<u64>(), histogram.count);
            // The bounds stay, whatever bucket within the range is populated.
            let mut fuller = histogram.clone();
            for side in [&mut fuller.negative, &mut fuller.positive] {
                if let Some(Range { first, last }) = populated(side) {
                    for (index, count) in (i64::from(side.offset)..).zip(&mut side.counts) {
                        *count += u64::from(first <= index && index <= last);
                    }
                }
            }
            prop_assert_eq!(&fuller.classic().bounds, &classic.bounds);
            let step = (-f64::from(histogram.scale)).exp2();
            let side = |side: &Buckets| -> Vec<(f64, u64)> {
                let buckets = (i64::from(side.offset)..).zip(side.counts.clone());
                buckets.map(|(index, count)| (index as f64 * step, count)).collect()
            };
            let below = |bound: f64| -> u64 {
                let negative = side(&histogram.negative).into_iter().filter(|(at, _)| -at.exp2() <= bound);
                let positive = side(&histogram.positive).into_iter().filter(|(at, _)| (at + step).exp2() <= bound);
                let zero = if bound >= 0.0 { histogram.zero_count } else { 0 };
                zero + negative.chain(positive).map(|(_, count)| count).sum::<u64>()
            };
            let mut wrong = Vec::new();
            classic.running(|_, bound, count| {
                // With underflow, a bound is not a power.
                if bound.abs() > f64::MIN_POSITIVE && count != below(bound) {
                    wrong.push((bound, count, below(bound)));
                }
            });
            prop_assert!(wrong.is_empty(), "{wrong:?}");
        }
    }
}
