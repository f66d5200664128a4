//! Exponential histograms as Prometheus has them: native ones, and classic ones where a format has no native form.

use tidegate_engine::{Buckets, ExponentialHistogram, Histogram};

/// Most buckets that an exponential histogram becomes as a classic one.
const MAX_BUCKETS: usize = 40;

/// Resolutions that native histograms can have.
const SCALES: std::ops::RangeInclusive<i32> = -4..=8;

/// The width of the zero bucket where nothing is said (specification, "Exponential Histograms").
const ZERO_THRESHOLD: f64 = 1e-128;

/// Empty buckets between two populated ones that are written out instead of beginning another span.
const GAP: i64 = 2;

/// The buckets decide where they say otherwise: `+Inf`, `_count` and the running totals must agree.
pub(in crate::prom) fn total<'a>(count: u64, buckets: impl Iterator<Item = &'a u64>) -> u64 {
    let summed = buckets.fold(0u64, |sum, count| sum.saturating_add(*count));
    if summed == 0 { count } else { summed }
}

/// Shows (bound, observations up to it) of every bucket but the last one, bounds rising. Gives the number of all
/// observations.
pub(super) fn running(histogram: &Histogram, mut each: impl FnMut(usize, f64, u64)) -> u64 {
    let (mut running, mut below) = (0u64, f64::NEG_INFINITY);
    for (at, (bound, count)) in histogram.bounds.iter().zip(&histogram.counts).enumerate() {
        running = running.saturating_add(*count);
        // Bounds must rise and +Inf comes by itself; what is else in a hostile list merges into the next bucket.
        if *bound > below && *bound < f64::INFINITY {
            each(at, *bound, running);
            below = *bound;
        }
    }
    total(histogram.count, histogram.counts.iter())
}

/// As a classic histogram of few buckets: the populated ones, merged in runs where there are too many.
pub(super) fn fixed(histogram: &ExponentialHistogram) -> Histogram {
    let buckets = classic(histogram);
    let run = buckets.len().div_ceil(MAX_BUCKETS).max(1);
    let merged: Vec<(f64, u64)> = buckets
        .chunks(run)
        .filter_map(|run| {
            let count = run
                .iter()
                .fold(0u64, |sum, (_, count)| sum.saturating_add(*count));
            run.last().map(|(bound, _)| (*bound, count))
        })
        .collect();
    Histogram {
        count: histogram.count,
        sum: histogram.sum,
        min: histogram.min,
        max: histogram.max,
        bounds: merged.iter().map(|(bound, _)| *bound).collect(),
        counts: merged.iter().map(|(_, count)| *count).collect(),
    }
}

/// (upper bound, observations) of every populated bucket, bounds rising: negative ones, zero, positive ones.
pub(in crate::prom) fn classic(histogram: &ExponentialHistogram) -> Vec<(f64, u64)> {
    let base = 2f64.powf(2f64.powi(-histogram.scale));
    let power = |offset: i32, at: usize| base.powf(f64::from(offset) + at as f64);
    let populated = |counts: &[u64]| -> Vec<(usize, u64)> {
        counts
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, count)| *count > 0)
            .collect()
    };
    let (negative, positive) = (&histogram.negative, &histogram.positive);
    let mut buckets: Vec<(f64, u64)> = populated(&negative.counts)
        .into_iter()
        .rev()
        .map(|(at, count)| (-power(negative.offset, at), count))
        .collect();
    if histogram.zero_count > 0 {
        buckets.push((histogram.zero_threshold, histogram.zero_count));
    }
    buckets.extend(
        populated(&positive.counts)
            .into_iter()
            .map(|(at, count)| (power(positive.offset, at + 1), count)),
    );
    // Bounds of extreme scales can meet (overflow to infinity, underflow to zero): an `le` must not come twice.
    buckets.dedup_by(|next, kept| {
        let same = next.0 <= kept.0;
        if same {
            kept.1 = kept.1.saturating_add(next.1);
        }
        same
    });
    buckets
}

/// A native histogram of whole numbers.
#[derive(Debug, PartialEq)]
pub(in crate::prom) struct Native {
    pub(in crate::prom) schema: i32,
    pub(in crate::prom) count: u64,
    pub(in crate::prom) sum: f64,
    pub(in crate::prom) zero_threshold: f64,
    pub(in crate::prom) zero_count: u64,
    pub(in crate::prom) negative: Side,
    pub(in crate::prom) positive: Side,
}

/// Buckets of one side.
#[derive(Debug, Default, PartialEq)]
pub(in crate::prom) struct Side {
    /// (buckets since the end of the last span, buckets of this one).
    pub(in crate::prom) spans: Vec<(i32, u32)>,
    /// Observations of each bucket against the bucket before.
    pub(in crate::prom) deltas: Vec<i64>,
}

/// The native form; `None`: it has none (resolution too low, no sum, numbers too large).
pub(in crate::prom) fn native(histogram: &ExponentialHistogram) -> Option<Native> {
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
    Some(Native {
        schema: histogram.scale.min(highest),
        count,
        sum: histogram.sum?,
        zero_threshold: if is_width { threshold } else { ZERO_THRESHOLD },
        zero_count: histogram.zero_count,
        negative: side(&histogram.negative, shift)?,
        positive: side(&histogram.positive, shift)?,
    })
}

/// The populated buckets of a side whose resolution is lowered `shift` times.
pub(in crate::prom) fn side(buckets: &Buckets, shift: u32) -> Option<Side> {
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
            Some((_, length)) if gap <= GAP => {
                for _ in 0..gap {
                    side.deltas.push(-last);
                    last = 0;
                }
                *length += u32::try_from(gap + 1).ok()?;
            }
            _ => side.spans.push((i32::try_from(gap).ok()?, 1)),
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
    fn p7_indexes_move_by_one_and_counts_become_differences() {
        let native = native(&exponential(3, -2, vec![1, 4, 0, 2, 0, 0, 0, 7])).unwrap();
        // Buckets -1, 0, (1 empty), 2, and 6, three empty ones further.
        assert_eq!(native.positive.spans, [(-1, 4), (3, 1)]);
        assert_eq!(native.positive.deltas, [1, 3, -4, 2, 5]);
        assert_eq!(
            (native.schema, native.count, native.zero_threshold),
            (3, 14, 1e-128)
        );
    }

    #[test]
    fn p7_what_has_no_native_form_has_none() {
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

    proptest! {
        /// The bucket of every observation is the one that the lower resolution puts it in.
        #[test]
        fn p7_a_resolution_that_is_too_high_is_lowered(
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
            for (gap, length) in &native.positive.spans {
                index += i64::from(*gap);
                for _ in 0..*length {
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
