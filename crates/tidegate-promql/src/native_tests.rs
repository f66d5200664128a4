// SPDX-License-Identifier: Apache-2.0

//! Native histograms: results of the rules of Prometheus 3, computed by hand, and properties that hold for all of them.

use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::{Buckets, ExponentialHistogram};

use super::tests::{ask, labels};
use super::*;

/// Buckets of one side from Prometheus's index `first` on.
fn side(first: i32, counts: &[u64]) -> Buckets {
    Buckets {
        offset: first - 1,
        counts: counts.to_vec(),
    }
}

fn histogram(scale: i32, sum: f64, zero: u64, positive: Buckets, negative: Buckets) -> ExponentialHistogram {
    let counts = positive.counts.iter().chain(&negative.counts);
    ExponentialHistogram {
        count: zero + counts.sum::<u64>(),
        sum: Some(sum),
        scale,
        zero_count: zero,
        zero_threshold: 0.001,
        positive,
        negative,
        ..ExponentialHistogram::default()
    }
}

/// One sample each at 100 s.
fn store(series: &[(&str, ExponentialHistogram)]) -> Vec<QuerySeries> {
    let series = series.iter().map(|(name, value)| QuerySeries {
        labels: labels(name),
        samples: Vec::new(),
        histograms: vec![HistogramSample {
            time: 100_000,
            value: Arc::new(FloatHistogram::from(value)),
        }],
    });
    series.collect()
}

pub(super) fn recorded() -> Vec<QuerySeries> {
    let none = Buckets::default();
    let mut all = store(&[
        // (0.5, 1], (1, 2], (2, 4].
        ("one", histogram(0, 5.0, 0, side(0, &[1, 2, 1]), none.clone())),
        ("below", histogram(0, -5.0, 0, none.clone(), side(0, &[1, 2, 1]))),
        ("both", histogram(0, 0.5, 2, side(1, &[4]), side(1, &[2]))),
        (
            "wide job=a",
            histogram(1, 7.0, 1, side(1, &[1, 2, 3, 4]), none.clone()),
        ),
        ("wide job=b", histogram(0, 3.0, 1, side(1, &[2, 1]), none.clone())),
        ("empty", histogram(0, 0.0, 0, none.clone(), none.clone())),
        // Bounds too fine for Prometheus: 1/16 of the doubling is the finest that it knows at 8.
        ("fine", histogram(10, 2.0, 0, side(1, &[1, 1, 1, 1, 1]), none)),
    ]);
    all.push(QuerySeries::of_floats(
        labels("one_bucket le=+Inf"),
        vec![Sample {
            time: 100_000,
            value: 3.0,
        }],
    ));
    all
}

#[test]
fn queries_over_native_histograms_have_their_values() {
    let table = [
        ("one", "__name__=one 4 sum 5 0.5..1:1 1..2:2 2..4:1"),
        ("histogram_avg(one)", " 1.25"),
        ("histogram_quantile(0.5, one)", " 1.414213562"),
        ("histogram_quantile(0.25, one)", " 1"),
        ("histogram_quantile(0.125, one)", " 0.707106781"),
        ("histogram_quantile(0, one)", " 0.5"),
        ("histogram_quantile(1, one)", " 4"),
        ("histogram_quantile(0.875, one)", " 2.828427125"),
        ("histogram_quantile(0.5, below)", " -1.414213562"),
        ("histogram_quantile(0.125, below)", " -2.828427125"),
        ("histogram_fraction(1, 2, one)", " 0.5"),
        ("histogram_fraction(1, 1.414213562373095, one)", " 0.25"),
        ("histogram_fraction(-1.414213562373095, -1, below)", " 0.25"),
        ("histogram_stddev(one)", " 0.84262943"),
        ("histogram_stdvar(one)", " 0.710024356"),
        // In the zero bucket evenly; it reaches to both sides where both have observations.
        ("histogram_quantile(0.375, both)", " 0"),
        ("histogram_fraction(-Inf, 0, both)", " 0.375"),
        ("histogram_quantile(0.05, wide{job=\"a\"})", "job=a 0.00055"),
        // The resolution of a sum is the lower one.
        ("sum(wide)", " 15 sum 10 0..0.001:2 1..2:5 2..4:8"),
        ("avg(wide)", " 7.5 sum 5 0..0.001:1 1..2:2.5 2..4:4"),
        (
            "wide{job=\"b\"} * 2",
            "job=b 8 sum 6 -0.001..0.001:2 1..2:4 2..4:2",
        ),
        (
            "wide{job=\"b\"} / 2",
            "job=b 2 sum 1.5 -0.001..0.001:0.5 1..2:1 2..4:0.5",
        ),
        ("one / 0", " +Inf sum +Inf"),
        ("-one", " -4 sum -5 0.5..1:-1 1..2:-2 2..4:-1"),
        ("one - one", " 0 sum 0"),
        ("histogram_quantile(0.5, empty)", " NaN"),
        ("histogram_fraction(0, 1, empty)", " NaN"),
        (
            "fine",
            "__name__=fine 5 sum 2 1..1.002711275:4 1.002711275..1.005429901:1",
        ),
        // Both kinds under the same labels: there is no telling which is meant.
        ("histogram_quantile(0.5, {__name__=~\"one.*\"})", ""),
        ("one > 1", ""),
        ("one > bool 1", ""),
        ("one == one", "__name__=one 4 sum 5 0.5..1:1 1..2:2 2..4:1"),
        ("one != one", ""),
        ("one != bool one", " 0"),
        ("one > bool one", ""),
        ("sum({__name__=~\"one.*\"})", ""),
        ("count({__name__=~\"one.*\"})", " 2"),
        ("max({__name__=~\"one.*\"})", " 3"),
        ("scalar({__name__=~\"one.*\"})", "3"),
        (
            "count_values(\"v\", one)",
            "v={count:4, sum:5, (0.5,1]:1, (1,2]:2, (2,4]:1} 1",
        ),
        ("sort({__name__=~\"one.*\"})", "__name__=one_bucket,le=+Inf 3"),
        ("abs(one)", ""),
        ("histogram_count(one_bucket)", ""),
        ("max_over_time(one[1m])", ""),
        (
            "last_over_time(one[1m])",
            "__name__=one 4 sum 5 0.5..1:1 1..2:2 2..4:1",
        ),
        ("count_over_time(one[1m])", " 1"),
        ("rate(one[1m])", ""),
    ];
    let store = recorded();
    for (query, expected) in table {
        // Zero buckets are shown as they are, whatever quantiles make of them.
        let expected = expected.replace(" 0..0.001", " -0.001..0.001");
        let answer = ask(&store, query);
        assert_eq!(answer, expected, "{query}");
    }
}

/// Histograms of one bucket, with these sums, ten seconds apart.
fn with_sums(name: &str, sums: &[f64]) -> Vec<QuerySeries> {
    let histogram = |sum: f64| FloatHistogram {
        count: sum.abs().min(1e300),
        sum,
        positive: vec![(1, sum)],
        ..FloatHistogram::default()
    };
    let series = |(n, sum): (usize, &f64)| QuerySeries {
        labels: labels(&format!("{name} n={n}")),
        samples: Vec::new(),
        histograms: vec![HistogramSample {
            time: 100_000,
            value: Arc::new(histogram(*sum)),
        }],
    };
    let in_time = |(n, sum): (usize, &f64)| HistogramSample {
        time: 10_000 * (n as i64 + 1),
        value: Arc::new(histogram(*sum)),
    };
    let mut all: Vec<QuerySeries> = sums.iter().enumerate().map(series).collect();
    all.push(QuerySeries {
        labels: labels(&format!("{name}_in_time")),
        samples: Vec::new(),
        histograms: sums.iter().enumerate().map(in_time).collect(),
    });
    all
}

#[test]
fn sums_of_histograms_lose_no_small_addends_and_means_do_not_overflow() {
    let mut store = with_sums("cancelling", &[1.0, 1e100, 3.4, -1e100]);
    store.extend(with_sums("huge", &[1.5e308, 1.5e308, -1e308, 1e308]));
    for (query, expected) in [
        ("histogram_sum(sum(cancelling))", " 4.4"),
        ("histogram_sum(sum_over_time(cancelling_in_time[2m]))", " 4.4"),
        ("histogram_sum(avg(cancelling))", " 1.1"),
        ("histogram_sum(avg_over_time(cancelling_in_time[2m]))", " 1.1"),
        ("histogram_sum(avg(huge)) / 1e307", " 7.5"),
        ("histogram_sum(avg_over_time(huge_in_time[2m])) / 1e307", " 7.5"),
    ] {
        assert_eq!(ask(&store, query), expected, "{query}");
    }
    assert!(
        ask(&store, "sum(cancelling)").ends_with(" 1..2:4.4"),
        "{}",
        ask(&store, "sum(cancelling)")
    );
}

#[test]
fn observations_of_nan_lie_between_no_values() {
    let mut store = with_sums("some", &[f64::NAN]);
    store[0].histograms[0].value = Arc::new(FloatHistogram {
        count: 10.0,
        sum: f64::NAN,
        positive: vec![(1, 8.0)],
        ..FloatHistogram::default()
    });
    assert_eq!(ask(&store, "histogram_fraction(-Inf, +Inf, some)"), "n=0 0.8");
    assert_eq!(ask(&store, "histogram_fraction(0, 2, some)"), "n=0 0.8");
    assert_eq!(ask(&store, "histogram_fraction(3, 4, some)"), "n=0 0");
}

#[test]
fn a_histogram_counts_by_its_buckets() {
    let mut store = recorded();
    store[0].histograms = (0..50_000)
        .map(|n| HistogramSample {
            time: n,
            value: store[0].histograms[0].value.clone(),
        })
        .collect();
    // As numbers 50000 samples would be few enough.
    let answer = ask(&store, "count_over_time(one[2h])");
    assert!(answer.contains("reads more than"), "{answer}");
}

fn any_histogram() -> impl Strategy<Value = FloatHistogram> {
    let side = || (-30i32..30, prop::collection::vec(0u64..9, 0..20));
    (
        -2i32..9,
        0u64..5,
        prop_oneof![Just(0.0), 0.001f64..40.0],
        side(),
        side(),
    )
        .prop_map(
            |(scale, zero, threshold, (first, positive), (second, negative))| {
                let mut made = histogram(
                    scale,
                    1.5,
                    zero,
                    self::side(first, &positive),
                    self::side(second, &negative),
                );
                made.zero_threshold = threshold;
                FloatHistogram::from(&made)
            },
        )
}

fn in_buckets(histogram: &FloatHistogram) -> f64 {
    histogram.buckets().iter().map(|bucket| bucket.count).sum()
}

proptest! {
    #[test]
    fn sums_keep_every_observation_and_know_no_order(a in any_histogram(), b in any_histogram()) {
        let sum = |a: &FloatHistogram, b: &FloatHistogram| {
            let mut sum = a.clone();
            sum.add(b);
            sum
        };
        let both = sum(&a, &b);
        prop_assert_eq!(&both, &sum(&b, &a));
        prop_assert_eq!(both.count, a.count + b.count);
        // Buckets that straddled the end of a wider zero bucket may be in both; nothing else may change.
        prop_assert_eq!(in_buckets(&both), both.count);
        prop_assert!(!both.is_reset(&a) && !both.is_reset(&b));
        prop_assert!(a.count == 0.0 || a.schema > both.schema || a.is_reset(&both) || b.count == 0.0);
    }

    #[test]
    fn quantiles_rise_and_fractions_are_their_inverse(a in any_histogram(), q in 0.0f64..1.0, r in 0.0f64..1.0) {
        prop_assume!(a.count > 0.0);
        // Buckets do not overlap in real histograms.
        let a = FloatHistogram { zero_threshold: 0.0, ..a };
        let (low, high) = (native::quantile(q.min(r), &a), native::quantile(q.max(r), &a));
        prop_assert!(low <= high, "{low} {high}");
        let below = native::fraction(f64::NEG_INFINITY, high, &a);
        prop_assert!(below >= q.max(r) - 1e-6 || high == 0.0, "{below}");
    }

    #[test]
    fn no_histogram_is_too_strange(
        scale in any::<i32>(), zero_threshold in any::<f64>(), count in any::<u64>(), sum in any::<f64>(),
        offsets in any::<(i32, i32)>(), counts in prop::collection::vec(any::<u64>(), 0..5), other in any_histogram(),
    ) {
        let strange = FloatHistogram::from(&ExponentialHistogram {
            count,
            sum: Some(sum),
            scale,
            zero_count: 1,
            zero_threshold,
            positive: Buckets { offset: offsets.0, counts: counts.clone() },
            negative: Buckets { offset: offsets.1, counts },
            ..ExponentialHistogram::default()
        });
        let mut both = strange.clone();
        both.add(&other);
        both.subtract(&strange);
        let _ = (both.is_reset(&strange), strange.is_reset(&other), native::quantile(0.3, &strange), both.buckets());
    }
}
