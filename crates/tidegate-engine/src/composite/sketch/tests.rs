// SPDX-License-Identifier: Apache-2.0

//! Sketches compared with sorted values.

use proptest::prelude::*;

use super::*;

fn of(values: &[f64]) -> Sketch {
    let mut sketch = Sketch::default();
    values.iter().for_each(|value| sketch.add(*value, 1.0));
    sketch
}

proptest! {
    #[test]
    fn a_quantile_of_merged_sketches_is_near_the_value_of_its_rank(
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
fn values_of_all_sizes_fit_and_what_is_no_number_is_omitted() {
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
    (explicit.min, explicit.max) = (None, None);
    let mut sketch = Sketch::default();
    sketch.add_explicit(&explicit);
    let near = |quantile: f64, value: f64| (sketch.quantile(quantile).unwrap() / value - 1.0).abs() < 0.012;
    // Half of the first fifth; between 1 and 2; half of the range 2 to 4; at the bound above which there are more.
    assert!(near(0.1, 0.5) && near(0.3, 1.5) && near(0.6, 3.0) && near(0.9, 4.0) && near(1.0, 4.0));
    explicit.max = Some(9.0);
    let mut sketch = Sketch::default();
    sketch.add_explicit(&explicit);
    assert!((sketch.quantile(0.9).unwrap() - 6.5).abs() < 1e-9);
}

proptest! {
    /// Interpolates like PromQL's `histogram_quantile`, also after a merge: half of the weight of two equal
    /// histograms.
    #[test]
    fn buckets_are_spread_evenly(
        counts in prop::collection::vec(0..100u64, 5),
        quantile in 0.0..=1.0f64,
    ) {
        let bounds = [0.1, 0.5, 1.0, 10.0];
        let mut histogram = Histogram::empty(bounds.into());
        histogram.count = counts.iter().sum();
        histogram.counts.clone_from(&counts);
        let mut sketch = Sketch::default();
        sketch.add_explicit(&histogram);
        let mut twice = sketch.clone();
        twice.merge(&sketch);
        prop_assert_eq!(sketch.quantile(quantile).is_none(), histogram.count == 0);
        prop_assume!(histogram.count > 0);
        let (mut left, mut truth) = (quantile * histogram.count as f64, 10.0);
        for (bound, count) in bounds.iter().zip(&counts).filter(|(_, count)| **count > 0) {
            if left <= *count as f64 {
                let before = bounds.iter().rev().find(|other| *other < bound);
                let lower = before.copied().unwrap_or(0.0);
                truth = lower + (bound - lower) * (left / *count as f64);
                break;
            }
            left -= *count as f64;
        }
        for told in [sketch.quantile(quantile).unwrap(), twice.quantile(quantile).unwrap()] {
            prop_assert!((told - truth).abs() < 1e-6, "{told} for {truth}");
        }
    }
}

/// Exact ranks end at the end of their bucket after any merge, and nothing is lost.
#[test]
fn a_quantile_at_the_end_of_a_bucket_is_its_bound() {
    for count in 1..200_u64 {
        for (bounds, shares) in [
            ([0.075, 0.1, 7.5, 10.0], [9, 1]),
            ([0.075, 0.1, 5.0, 7.5], [7, 7]),
        ] {
            let mut histogram = Histogram::empty(bounds.into());
            histogram.counts[1] = shares[0] * count;
            histogram.counts[3] = shares[1] * count;
            histogram.count = histogram.counts.iter().sum();
            let mut sketch = Sketch::default();
            sketch.add_explicit(&histogram);
            let rank = (shares[0] * count) as f64 / histogram.count as f64;
            let exact = rank * histogram.count as f64 == (shares[0] * count) as f64;
            let told = sketch.quantile(rank).unwrap();
            assert!(!exact || told == 0.1, "{count}: {told}");
            assert!(sketch.quantile(rank * 0.999).unwrap() <= 0.1);
        }
    }
}

#[test]
fn narrow_buckets_do_not_outweigh_others() {
    let mut sketch = Sketch::default();
    let mut honest = Histogram::empty([0.1, 0.5, 1.0].into());
    (honest.counts, honest.count) = (vec![90, 9, 1, 0], 100);
    sketch.add_explicit(&honest);
    for bound in [1e-300, f64::MIN_POSITIVE, 1e-12] {
        let mut narrow = Histogram::empty([bound].into());
        (narrow.counts, narrow.count) = (vec![1, 0], 1);
        sketch.add_explicit(&narrow);
    }
    let median = sketch.quantile(0.5).unwrap();
    assert!((median - 0.1 * 48.5 / 90.0).abs() < 1e-6, "{median}");
    let ranks = (0..=100).map(|rank| sketch.quantile(f64::from(rank) / 100.0).unwrap());
    assert!(ranks.collect::<Vec<_>>().is_sorted());
    let mut below = Histogram::empty([0.1].into());
    (below.counts, below.count, below.min) = (vec![90, 0], 90, Some(f64::NEG_INFINITY));
    let mut sketch = Sketch::default();
    sketch.add_explicit(&below);
    assert!((sketch.quantile(0.5).unwrap() - 0.05).abs() < 1e-9);
}

#[test]
fn buckets_without_end_take_no_more_room() {
    let mut sketch = Sketch::default();
    for bound in 0..3000 {
        let mut histogram = Histogram::empty([1.0, 2.0 + f64::from(bound)].into());
        histogram.observe(1.5, 1);
        sketch.add_explicit(&histogram);
    }
    assert_eq!(sketch.spans.len(), MAX_SPANS);
    assert!(sketch.quantile(1.0).unwrap() > 100.0);
}

#[cfg(feature = "tables")]
mod shared {
    use super::*;

    fn shared(sketch: &Sketch) -> Sketch {
        let histogram = sketch.to_histogram();
        assert!(histogram.is_sound(), "{histogram:?}");
        Sketch::of_histogram(&histogram)
    }

    proptest! {
        #[test]
        fn single_values_are_the_same_as_an_exponential_histogram(
            values in prop::collection::vec(prop_oneof![-1e6..-1e-2f64, 1e-2..1e6f64, Just(0.0)], 0..300),
        ) {
            let sketch = of(&values);
            let restored = shared(&sketch);
            prop_assert!(restored.bits().eq(sketch.bits()));
            prop_assert_eq!(restored, sketch);
        }

        #[test]
        fn values_of_any_size_fit_into_the_buckets_of_a_histogram(
            values in prop::collection::vec(any::<f64>(), 1..100),
            weight in 0.01..5.0f64,
            quantile in 0.0..=1.0f64,
        ) {
            let mut sketch = Sketch::default();
            values.iter().for_each(|value| sketch.add(*value, weight));
            let histogram = sketch.to_histogram();
            prop_assert!(histogram.is_sound());
            let total = values.iter().filter(|value| !value.is_nan()).count() as f64 * weight;
            prop_assert!((histogram.count as f64 - total).abs() <= 0.5 + 1e-6);
            for side in [&histogram.positive, &histogram.negative] {
                prop_assert!(side.counts.len() <= MAX_ENTRIES);
            }
            let restored = Sketch::of_histogram(&histogram);
            let all = [restored.quantile(0.0), restored.quantile(quantile), restored.quantile(1.0)];
            prop_assert!(all.iter().flatten().all(|value| value.is_finite()));
            prop_assert!(all.is_sorted());
        }

        #[test]
        fn any_sound_histogram_makes_a_sketch_within_the_limits(
            scale in -10..=20i32,
            offset in any::<i32>(),
            counts in prop::collection::vec(0..1000u64, 0..2000),
        ) {
            let histogram = ExponentialHistogram {
                count: counts.iter().sum(),
                scale,
                positive: crate::Buckets { offset, counts },
                ..ExponentialHistogram::default()
            };
            prop_assume!(histogram.is_sound());
            let sketch = Sketch::of_histogram(&histogram);
            prop_assert!(sketch.positive.len() <= MAX_ENTRIES);
            prop_assert!(sketch.positive.iter().map(|(_, count)| *count).sum::<f64>() == histogram.count as f64);
            prop_assert!(sketch.positive.is_sorted_by(|one, next| one.0 < next.0));
            prop_assert!(sketch.quantile(0.5).is_none_or(f64::is_finite));
        }

        /// Values of a bucket stay evenly spread over it, up to the width of an exponential bucket and one observation.
        #[test]
        fn buckets_stay_spread_as_an_exponential_histogram(
            counts in prop::collection::vec(0..1000u64, 6),
            quantile in 0.0..=1.0f64,
        ) {
            let mut histogram = Histogram::empty([-2.0, -0.5, 0.1, 0.5, 10.0].into());
            histogram.count = counts.iter().sum();
            histogram.counts.clone_from(&counts);
            (histogram.min, histogram.max) = (Some(-4.0), Some(20.0));
            let mut sketch = Sketch::default();
            sketch.add_explicit(&histogram);
            let restored = shared(&sketch);
            prop_assert_eq!(restored.spread().up_to(f64::MAX, true), histogram.count as f64);
            prop_assume!(histogram.count > 0);
            let around = 2.0 / histogram.count as f64;
            let [low, high] = [quantile - around, quantile + around].map(|rank| sketch.quantile(rank).unwrap());
            let value = restored.quantile(quantile).unwrap();
            let error = value.abs() * 0.023 + 0.011;
            prop_assert!(value >= low - error && value <= high + error, "{value} beside {low} to {high}");
        }
    }
}
