// SPDX-License-Identifier: Apache-2.0

//! Quantiles and extremes of scraped histograms.

use super::*;

#[test]
fn a_p99_over_scraped_histograms_is_that_of_the_fleet() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let scene = Scene::of(Function::Quantile(0.99), None);
    let mut slow = Histogram::empty([0.1, 1.0, 10.0].into());
    let mut fast = slow.clone();
    for second in 0..3u64 {
        let now = NOW + second * SECOND;
        for (pod, histogram) in [("slow", &slow), ("fast", &fast)] {
            let value = Value::Histogram(Box::new(histogram.clone()));
            scene.report(pod, "depth", data, now, value);
        }
        (0..5).for_each(|_| slow.observe(5.0, 1));
        (0..95).for_each(|_| fast.observe(0.05, 1));
    }
    let value = scene.read(NOW + 2 * SECOND).value.unwrap();
    assert!(value > 4.0, "1 of 20 is slow: {value}");
}

/// A value beyond the outermost bounds is known only up to those bounds.
#[test]
fn quantiles_and_extremes_of_scraped_histograms_lie_in_their_buckets() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let told = |function: Function, counts: [u64; 4], sum: f64| {
        let scene = Scene::of(function, None);
        for second in 0..3u64 {
            let mut histogram = Histogram::empty([0.1, 0.5, 1.0].into());
            histogram.counts = counts.map(|count| second * count).into();
            histogram.count = histogram.counts.iter().sum();
            histogram.sum = Some(second as f64 * sum);
            let value = Value::Histogram(Box::new(histogram));
            scene.report("a", "depth", data, NOW + second * SECOND, value);
        }
        scene.read(NOW + 2 * SECOND).value.unwrap()
    };
    let check = |counts: [u64; 4], sum: f64, expected: [(Function, f64); 4]| {
        for (function, value) in expected {
            let told = told(function, counts, sum);
            assert!((told - value).abs() < 0.01, "{counts:?} {function:?}: {told}");
        }
    };
    let quantile = Function::Quantile;
    check(
        [0, 90, 9, 1],
        40.0,
        [
            (quantile(0.95), 0.5 + 0.5 * 5.0 / 9.0),
            (quantile(1.0), 1.0),
            (Function::Min, 0.1),
            (Function::Max, 1.0),
        ],
    );
    check(
        [10, 20, 5, 5],
        13.0,
        [
            (quantile(0.05), 0.02),
            (quantile(0.5), 0.3),
            (quantile(0.95), 1.0),
            (Function::Min, 0.0),
        ],
    );
    // The mean is beyond the highest bound, and so is the largest.
    check(
        [0, 0, 0, 10],
        30.0,
        [
            (quantile(0.5), 1.0),
            (Function::Max, 3.0),
            (Function::Min, 1.0),
            (Function::Avg, 3.0),
        ],
    );
}

#[test]
fn a_histogram_that_contradicts_itself_is_no_reason_to_panic() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    for across in [None, Some(Across::Max)] {
        let scene = Scene::of(Function::Quantile(0.99), across);
        let mut histogram = Histogram::empty([0.1, 1.0].into());
        for second in 0..3u64 {
            // All observations are at most 0.1, and their mean is 1.
            histogram.sum = Some(second as f64);
            (histogram.count, histogram.counts) = (second, vec![second, 0, 0]);
            let value = Value::Histogram(Box::new(histogram.clone()));
            scene.report("a", "depth", data, NOW + second * SECOND, value);
        }
        assert!(scene.read(NOW + 2 * SECOND).value.is_some());
    }
}
