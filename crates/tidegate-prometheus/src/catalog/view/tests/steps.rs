// SPDX-License-Identifier: Apache-2.0

//! A range query reads of the past what its steps see.

use tidegate_promql::{Millis, Need, Query, QueryError, QuerySeries, Samples, Selection, Steps};

use super::super::{View, millis};
use super::*;

/// A view that gives every sample of the past, whatever is needed.
struct Everything<'a>(&'a View);

impl Samples for Everything<'_> {
    fn select(&self, selection: &Selection) -> Result<Vec<QuerySeries>, QueryError> {
        self.0.select(&Selection {
            need: Need::All,
            ..selection.clone()
        })
    }
}

/// How many samples a plain selector gets.
fn weight(samples: &dyn Samples, name: &str, steps: Steps) -> usize {
    let named = Query::parse(name).unwrap().selection().unwrap();
    let all = samples.select(&Selection {
        from: steps.start - 300_000,
        to: steps.last(),
        need: Need::Steps(steps),
        ..named
    });
    all.unwrap().iter().map(QuerySeries::weight).sum()
}

#[test]
fn forty_steps_over_a_long_and_dense_past_take_forty_samples_a_series() {
    const PAST: u64 = 900;
    let (shared, limits) = (
        context("extensions", "admin").shared,
        HistoryLimits {
            interval_ms: 1000,
            span_ms: 3_600_000,
            max_bytes: 256 << 20,
        },
    );
    let view = View::of(&shared);
    view.keep_past(KeptPast::fixed(limits));
    let (mut one, two) = (table(&shared), table(&shared));
    for n in 0..PAST {
        let now = START + n * SECOND;
        if n % 250 == 249 {
            // The series `flaps` ends, and begins again in another table.
            shared.tables.remove(&one);
            one = table(&shared);
        } else {
            gauge(&one, "flaps", n as i64, now);
        }
        gauge(&two, "level", n as i64, now);
        histogram(&two, n, now);
        record(&view, now);
    }
    let now = START + PAST * SECOND - SECOND / 2;
    gauge(&two, "level", -1, now);
    view.refresh(now, &[Selection::everything()]);
    let start = millis(START) + 600_000;
    let (step, count) = (7_300, 40);
    let steps = Steps { start, step, count };
    let is_few = |name: &str, most: usize| {
        let (few, all) = (
            weight(&*view, name, steps),
            weight(&Everything(&view), name, steps),
        );
        assert!(few <= most, "{name}: {few} of {all}");
        assert!(all > 2 * most, "{name}: {all}");
    };
    is_few("level", count + 1);
    // With a stale marker for each end.
    is_few("flaps", count + 1 + 3);
    let native = weight(&*view, "wait", Steps { count: 1, ..steps });
    is_few("wait", (count + 1) * native);
    let end = steps.last();
    for text in [
        "level",
        "flaps",
        "wait",
        "wait_count",
        "timestamp(level)",
        "level offset 2m",
        "flaps @ end()",
    ] {
        let query = Query::parse(text).unwrap();
        let range = |samples: &dyn Samples, start: Millis| query.range(samples, start, end, step).unwrap();
        for start in [start, millis(START) - 10_000] {
            let full = range(&Everything(&view), start);
            assert!(!full.is_empty(), "{text}");
            assert_eq!(range(&*view, start), full, "{text}");
        }
    }
}
