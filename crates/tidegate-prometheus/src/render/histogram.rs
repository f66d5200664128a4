// SPDX-License-Identifier: Apache-2.0

//! Exponential histograms as native ones, and the ordered quantiles of summaries.

use tidegate_engine::{Buckets, ExponentialHistogram, Summary};
use tidegate_exposition::{BucketSpan, NativeHistogram, Side};

/// Resolutions that native histograms can have.
const SCALES: std::ops::RangeInclusive<i32> = -4..=8;

/// The default width of the zero bucket (specification, "Exponential Histograms").
const ZERO_THRESHOLD: f64 = 1e-128;

/// Empty buckets between two populated ones that are written out instead of beginning another span.
const GAP: i64 = 2;

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

    proptest! {
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
