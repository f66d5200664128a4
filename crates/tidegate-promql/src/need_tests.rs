// SPDX-License-Identifier: Apache-2.0

//! A selector answers the same from the samples that its steps see as from all samples.

use std::sync::Arc;

use proptest::prelude::*;

use super::tests::labels;
use super::*;

/// Gives every sample, whatever is needed.
struct Everything<'a>(&'a Vec<QuerySeries>);

impl Samples for Everything<'_> {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        self.0.select(&Selection {
            need: Need::All,
            ..selection.clone()
        })
    }
}

/// Floats, stale markers and native histograms, mixed.
fn series(name: &'static str) -> impl Strategy<Value = QuerySeries> {
    let one = (1..200_000i64, 0..5u8, 0..9u8);
    prop::collection::vec(one, 0..60).prop_map(move |all| {
        let mut series = QuerySeries::of_floats(labels(name), Vec::new());
        let mut time = 0;
        for (after, kind, value) in all {
            time += after / if value < 7 { 40 } else { 1 };
            series.push(
                time,
                match kind {
                    0 => SampleValue::Float(f64::from_bits(Sample::STALE)),
                    1 => SampleValue::Histogram(Arc::default()),
                    _ => SampleValue::Float(value.into()),
                },
            );
        }
        series
    })
}

const QUERIES: [&str; 14] = [
    "m",
    "timestamp(m)",
    "m offset 90s",
    "m offset -1m",
    "m @ 300",
    "m @ start()",
    "m @ end()",
    "count(m > 3) or absent(m)",
    "sum(m) + n",
    "max_over_time(m[3m:20s])",
    "sum_over_time(m[3m:20s] offset 1m)",
    "count_over_time(sum(m)[2m:7s] @ end())",
    "last_over_time(max_over_time(m[1m:3s])[5m:1m])",
    "rate(m[2m])",
];

proptest! {
    #[test]
    fn what_steps_see_is_enough(
        store in (series("m job=a"), series("m job=b"), series("n")),
        (start, step, steps) in (-100_000..600_000i64, 1..400_000i64, 0..30i64),
        rest in 0..1000i64,
    ) {
        let store = vec![store.0, store.1, store.2];
        let end = start + step * steps + rest % step;
        for text in QUERIES {
            let query = Query::parse(text).unwrap();
            let thin = query.range(&store, start, end, step);
            let full = query.range(&Everything(&store), start, end, step);
            // As texts: NaN is not equal to itself.
            prop_assert_eq!(format!("{thin:?}"), format!("{full:?}"), "{}", text);
            let (thin, full) = (query.instant(&store, start), query.instant(&Everything(&store), start));
            prop_assert_eq!(format!("{thin:?}"), format!("{full:?}"), "{}", text);
        }
    }
}

/// 50 series with a sample every `every` milliseconds for an hour.
fn past(every: Millis) -> Vec<QuerySeries> {
    let series = |n: usize| {
        let times = (0..3_600_000 / every).map(|at| at * every);
        let samples = times.map(|time| Sample { time, value: 1.0 });
        QuerySeries::of_floats(labels(&format!("m n={n}")), samples.collect())
    };
    (0..50).map(series).collect()
}

#[test]
fn what_a_query_is_charged_does_not_grow_with_the_density_of_the_past() {
    let counted = |every: Millis, text: &str| {
        let query = Query::parse(text).unwrap();
        let times = (3_000_000, 3_585_000, 15_000);
        let answer = query.range_with(&past(every), times, &Options::default());
        let instant = query.instant_with(&past(every), 3_000_000, &Options::default());
        let works = (answer.unwrap().1.work, instant.unwrap().1.work);
        (works.0.counted, works.1.counted)
    };
    for text in [
        "m",
        "count(m > 100)",
        "m offset 1m",
        "m @ 3000",
        "max_over_time(m[5m:1m])",
    ] {
        assert_eq!(counted(15_000, text), counted(500, text), "{text}");
    }
    // 40 steps: once as samples, once as the value of the expression.
    assert_eq!(counted(500, "m").0, 50 * 40 + 1 + 50 * 41);
}
