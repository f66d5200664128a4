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

/// Whatever else is merged, exact ranks end at the end of their bucket, and nothing is lost.
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
