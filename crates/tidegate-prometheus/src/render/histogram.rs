// SPDX-License-Identifier: Apache-2.0

//! Histograms and summaries in Prometheus's form: running buckets, ordered quantiles. Exponential histograms
//! become native ones, or classic ones if a format has no native form.

use tidegate_engine::{Buckets, ExponentialHistogram, Histogram, Summary};
use tidegate_exposition::{BucketSpan, NativeHistogram, Side};

/// The most buckets of an exponential histogram in classic form.
const MAX_BUCKETS: u64 = 40;

/// Resolutions that native histograms can have.
const SCALES: std::ops::RangeInclusive<i32> = -4..=8;

/// The default width of the zero bucket (specification, "Exponential Histograms").
const ZERO_THRESHOLD: f64 = 1e-128;

/// Empty buckets between two populated ones that are written out instead of beginning another span.
const GAP: i64 = 2;

/// The buckets determine the total: `+Inf`, `_count` and the running totals must agree.
fn total<'a>(count: u64, buckets: impl Iterator<Item = &'a u64>) -> u64 {
    let summed = buckets.fold(0u64, |sum, count| sum.saturating_add(*count));
    if summed == 0 { count } else { summed }
}

/// Shows (bound, observations up to it) of every bucket but the last one, bounds rising. Gives the number of all
/// observations.
pub(crate) fn running(histogram: &Histogram, mut each: impl FnMut(usize, f64, u64)) -> u64 {
    let (mut running, mut below) = (0u64, f64::NEG_INFINITY);
    for (at, (bound, count)) in histogram.bounds.iter().zip(&histogram.counts).enumerate() {
        running = running.saturating_add(*count);
        // Bounds must rise, and `+Inf` is implied. Invalid entries merge into the next bucket.
        if *bound > below && *bound < f64::INFINITY {
            each(at, *bound, running);
            below = *bound;
        }
    }
    total(histogram.count, histogram.counts.iter())
}

/// The classic form with at most [`MAX_BUCKETS`] buckets, from the first populated one to the last, as fine as
/// possible. Filling one of them changes no bound. If they no longer fit, bounds are removed, and none is added
/// between the others.
pub(crate) fn classic(histogram: &ExponentialHistogram) -> Histogram {
    let (negative, positive) = (&histogram.negative, &histogram.positive);
    let ranges = [populated(negative), populated(positive)];
    let zero = u64::from(histogram.zero_count > 0);
    let width = |shift: u32| {
        ranges
            .iter()
            .flatten()
            .map(|range| range.width(shift))
            .sum::<u64>()
    };
    // At the last one a side has two buckets at most.
    let shift = (0..32).find(|shift| width(*shift) + zero <= MAX_BUCKETS);
    let shift = shift.unwrap_or(32);
    // The product with a power of two is exact, so a bound is the same number at every resolution.
    let step = (f64::from(shift) - f64::from(histogram.scale)).exp2();
    let bound = |index: i64| (index as f64 * step.min(f64::MAX)).exp2();
    let [below, above] = &ranges;
    let negative = coarse(negative, below.as_ref(), shift).into_iter().rev();
    let positive = coarse(positive, above.as_ref(), shift).into_iter();
    let mut buckets: Vec<(f64, u64)> = negative.map(|(at, count)| (-bound(at), count)).collect();
    if zero > 0 {
        buckets.push((histogram.zero_threshold, histogram.zero_count));
    }
    buckets.extend(positive.map(|(at, count)| (bound(at + 1), count)));
    // Bounds of extreme scales can meet (overflow to infinity, underflow to zero): an `le` must not come twice.
    buckets.dedup_by(|next, kept| {
        let same = next.0 <= kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    Histogram {
        count: histogram.count,
        sum: histogram.sum,
        min: histogram.min,
        max: histogram.max,
        bounds: buckets.iter().map(|(bound, _)| *bound).collect(),
        counts: buckets.iter().map(|(_, count)| *count).collect(),
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
    let mut populated = (i64::from(side.offset)..)
        .zip(&side.counts)
        .filter(|(_, count)| **count > 0);
    let (first, _) = populated.next()?;
    let last = populated.last().map_or(first, |(last, _)| last);
    Some(Range { first, last })
}

/// The index and count of every bucket of a range, after merging 2^`shift` into one.
fn coarse(side: &Buckets, range: Option<&Range>, shift: u32) -> Vec<(i64, u64)> {
    let Some(Range { first, last }) = range else {
        return Vec::new();
    };
    let all = *first >> shift..=*last >> shift;
    let mut all: Vec<(i64, u64)> = all.map(|index| (index, 0)).collect();
    for (index, count) in (i64::from(side.offset)..).zip(&side.counts) {
        let at = usize::try_from((index >> shift) - (first >> shift)).ok();
        if let Some((_, sum)) = at.and_then(|at| all.get_mut(at)) {
            *sum = sum.saturating_add(*count);
        }
    }
    all
}

/// Quantiles that are some, ascending, none twice.
pub(crate) fn quantiles(summary: &Summary) -> impl Iterator<Item = (f64, f64)> {
    let all = summary
        .quantiles
        .iter()
        .map(|quantile| (quantile.quantile, quantile.value));
    let mut all: Vec<_> = all
        .filter(|(quantile, _)| (0.0..=1.0).contains(quantile))
        .collect();
    all.sort_by(|a, b| a.0.total_cmp(&b.0));
    all.dedup_by(|a, b| a.0 == b.0);
    all.into_iter()
}

/// The native form; `None`: it has none (resolution too low, no sum, numbers too large).
pub(crate) fn native(histogram: &ExponentialHistogram) -> Option<NativeHistogram> {
    let (lowest, highest) = (*SCALES.start(), *SCALES.end());
    if histogram.scale < lowest {
        return None;
    }
    let shift = u32::try_from(histogram.scale.saturating_sub(highest).max(0)).ok()?;
    let sides = [&histogram.negative, &histogram.positive];
    let counts = sides.into_iter().flat_map(|side| &side.counts);
    let count = counts.copied().try_fold(histogram.zero_count, u64::checked_add)?;
    let threshold = histogram.zero_threshold;
    let is_width = threshold > 0.0 && threshold.is_finite();
    Some(NativeHistogram {
        schema: histogram.scale.min(highest),
        count,
        sum: histogram.sum?,
        zero_threshold: if is_width { threshold } else { ZERO_THRESHOLD },
        zero_count: histogram.zero_count,
        negative: side(&histogram.negative, shift)?,
        positive: side(&histogram.positive, shift)?,
        ..NativeHistogram::default()
    })
}

/// The populated buckets of a side whose resolution is lowered `shift` times.
pub(crate) fn side(buckets: &Buckets, shift: u32) -> Option<Side> {
    let mut side = Side::default();
    let (mut end, mut last) = (0i64, 0i64);
    let mut populated = buckets.counts.iter().zip(i64::from(buckets.offset)..).peekable();
    while let Some((count, index)) = populated.next() {
        // Lowering the resolution once merges buckets 2n and 2n + 1.
        let lowered = |index: i64| index >> shift.min(63);
        let mut count = *count;
        while let Some((more, _)) = populated.next_if(|(_, next)| lowered(*next) == lowered(index)) {
            count = count.checked_add(*more)?;
        }
        if count == 0 {
            continue;
        }
        // Theirs are numbered by the upper bound, ours by the lower one.
        let index = lowered(index) + 1;
        let count = i64::try_from(count).ok()?;
        let gap = index - end;
        match side.spans.last_mut() {
            Some(span) if gap <= GAP => {
                for _ in 0..gap {
                    side.deltas.push(-last);
                    last = 0;
                }
                span.length += u32::try_from(gap + 1).ok()?;
            }
            _ => side.spans.push(BucketSpan {
                offset: i32::try_from(gap).ok()?,
                length: 1,
            }),
        }
        side.deltas.push(count - last);
        (end, last) = (index + 1, count);
    }
    Some(side)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

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

    #[test]
    fn indexes_move_by_one_and_counts_become_differences() {
        let native = native(&exponential(3, -2, vec![1, 4, 0, 2, 0, 0, 0, 7])).unwrap();
        // Buckets -1, 0, (1 empty), 2, and 6, three empty ones further.
        let spans = [(-1, 4), (3, 1)].map(|(offset, length)| BucketSpan { offset, length });
        assert_eq!(native.positive.spans, spans);
        assert_eq!(native.positive.deltas, [1, 3, -4, 2, 5]);
        assert_eq!(
            (native.schema, native.count, native.zero_threshold),
            (3, 14, 1e-128)
        );
    }

    #[test]
    fn a_histogram_without_a_native_form_has_none() {
        assert_eq!(native(&exponential(-5, 0, vec![1])), None);
        let without_sum = ExponentialHistogram {
            sum: None,
            ..exponential(0, 0, vec![1])
        };
        assert_eq!(native(&without_sum), None);
        assert_eq!(native(&exponential(0, 0, vec![u64::MAX])), None);
        assert_eq!(native(&exponential(0, 0, vec![u64::MAX, 1])), None);
        assert_eq!(native(&exponential(0, i32::MAX, vec![1])), None);
    }

    fn any_exponential() -> impl Strategy<Value = ExponentialHistogram> {
        let counts = || prop::collection::vec(prop_oneof![2 => Just(0u64), 1 => 1u64..1000], 0..100);
        let side = move || (-1000i32..1000, counts()).prop_map(|(offset, counts)| Buckets { offset, counts });
        (-10i32..=20, 0u64..3, side(), side()).prop_map(|(scale, zero_count, negative, positive)| {
            let mut histogram = ExponentialHistogram {
                scale,
                zero_count,
                negative,
                positive,
                ..ExponentialHistogram::default()
            };
            let counts = histogram.negative.counts.iter().chain(&histogram.positive.counts);
            histogram.count = zero_count + counts.sum::<u64>();
            histogram
        })
    }

    #[test]
    fn a_bucket_that_fills_up_moves_no_bound() {
        let sparse = classic(&exponential(2, 3, vec![1, 0, 0, 0, 0, 0, 0, 9]));
        let full = classic(&exponential(2, 3, vec![1, 0, 5, 0, 1, 1, 0, 9]));
        assert_eq!((sparse.bounds.len(), &sparse.bounds), (8, &full.bounds));
        // A wider range: every second bound, as they were.
        let wide = classic(&exponential(2, 3, [vec![1; 8], vec![0; 50], vec![1]].concat()));
        assert!(wide.bounds.len() <= 40, "{wide:?}");
        let kept: Vec<f64> = wide
            .bounds
            .iter()
            .copied()
            .filter(|bound| *bound <= 6.8)
            .collect();
        assert_eq!(kept, [2.0, 2f64.powf(1.5), 4.0, 2f64.powf(2.5)]);
    }

    proptest! {
        /// Few buckets, and those say what the fine ones say.
        #[test]
        fn a_classic_histogram_counts_what_is_below_its_bounds(histogram in any_exponential()) {
            let classic = classic(&histogram);
            prop_assert!(classic.bounds.len() <= 40);
            prop_assert!(classic.bounds.windows(2).all(|two| two[0] < two[1]), "{classic:?}");
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
            prop_assert_eq!(&super::classic(&fuller).bounds, &classic.bounds);
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
            running(&classic, |_, bound, count| {
                // With underflow, a bound is no power any more.
                if bound.abs() > f64::MIN_POSITIVE && count != below(bound) {
                    wrong.push((bound, count, below(bound)));
                }
            });
            prop_assert!(wrong.is_empty(), "{wrong:?}");
        }

        /// The bucket of every observation is the one that the lower resolution puts it in.
        #[test]
        fn a_resolution_that_is_too_high_is_lowered(
            scale in 0i32..30,
            offset in -3000i32..3000,
            counts in prop::collection::vec(prop_oneof![3 => Just(0u64), 1 => 1u64..1000], 0..80),
        ) {
            let native = native(&exponential(scale, offset, counts.clone())).unwrap();
            let mut expected: BTreeMap<i64, i64> = BTreeMap::new();
            for (count, at) in counts.iter().zip(i64::from(offset)..).filter(|(count, _)| **count > 0) {
                let lowered = at.div_euclid(1i64 << (scale - 8).max(0)) + 1;
                *expected.entry(lowered).or_default() += *count as i64;
            }
            let mut actual = BTreeMap::new();
            let (mut index, mut count) = (0i64, 0i64);
            let mut deltas = native.positive.deltas.iter();
            for span in &native.positive.spans {
                index += i64::from(span.offset);
                for _ in 0..span.length {
                    count += deltas.next().expect("a difference for each bucket");
                    if count > 0 {
                        actual.insert(index, count);
                    }
                    index += 1;
                }
            }
            prop_assert!(deltas.next().is_none());
            prop_assert_eq!(actual, expected);
            prop_assert_eq!(native.count, counts.iter().sum::<u64>());
            prop_assert_eq!(native.schema, scale.min(8));
        }
    }
}
