// SPDX-License-Identifier: Apache-2.0

//! Properties of any sequence of points.

use proptest::prelude::*;

use super::*;
use crate::{ExponentialHistogram, Histogram, Summary};

const HISTOGRAM: Data = Data::Histogram {
    temporality: Temporality::Cumulative,
};
const EXPONENTIAL: Data = Data::ExponentialHistogram {
    temporality: Temporality::Cumulative,
};

/// A running total of `n` observations.
fn total(data: Data, n: u64) -> Value {
    match data {
        Data::Histogram { .. } => Value::Histogram(Box::new(Histogram {
            count: n,
            sum: Some(n as f64),
            min: None,
            max: None,
            bounds: [1.0].into(),
            counts: vec![n / 2, n - n / 2],
        })),
        Data::ExponentialHistogram { .. } => Value::ExponentialHistogram(Box::new(ExponentialHistogram {
            count: n,
            sum: Some(n as f64),
            positive: crate::Buckets {
                offset: 0,
                counts: vec![n],
            },
            ..ExponentialHistogram::default()
        })),
        Data::Summary => Value::Summary(Box::new(Summary {
            count: n,
            sum: n as f64,
            quantiles: Vec::new(),
        })),
        _ => Value::Double(n as f64),
    }
}

/// The amount that a change adds.
fn gained(change: &Change<'_>) -> u64 {
    match change {
        Change::Number(number) => number.as_f64() as u64,
        Change::Histogram(increase) => increase.counts.iter().sum(),
        Change::Exponential(increase) => increase.positive.counts.iter().sum(),
        Change::Summary(moments) => moments.count,
        Change::End => 0,
    }
}

proptest! {
    /// Processes that report as one series, in any order, with repetitions and samples that come late,
    /// across saved state: the total is the sum of what each said last.
    #[test]
    fn epochs_that_interleave_in_any_order_add_up(
        data in prop::sample::select(vec![COUNTER, HISTOGRAM, EXPONENTIAL, Data::Summary]),
        samples in prop::collection::vec((1u64..9, 1u64..200), 1..120),
        saved_at in 0usize..120,
    ) {
        let mut tracker = StreamTracker::default();
        let (mut sum, mut model) = (0, std::collections::HashMap::new());
        for (at, (start, time)) in samples.into_iter().enumerate() {
            // The count of an epoch grows with time, each at a pace of its own.
            let n = time * start;
            let value = total(data, n);
            let sample = PointSample { start, time: TEN_MINUTES + time, value: &value, exemplars: &[] };
            if at == saved_at {
                let mut bytes = Vec::new();
                tracker.save(&mut bytes);
                let mut from = &bytes[..];
                tracker = StreamTracker::load(tracker.start, tracker.time, &mut from).expect("it is ours");
                prop_assert!(from.is_empty());
            }
            match tracker.advance(data, &sample, LATENESS) {
                Ok(change) => sum += gained(&change),
                Err(rejection) => prop_assert_eq!(rejection, Duplicate),
            }
            let known = model.entry(start).or_insert(0);
            *known = n.max(*known);
            prop_assert_eq!(sum, model.values().sum::<u64>());
        }
    }

    /// If the short way gives a result, it gives that of the long way, and leaves the same state. It does so after any
    /// earlier points.
    #[test]
    fn the_short_way_of_a_running_total_is_the_long_one(
        data in prop::sample::select(vec![COUNTER, UP_DOWN, DELTA, Data::Gauge]),
        points in prop::collection::vec((0u64..4, 0u64..30, -3i64..30), 1..40),
    ) {
        let mut tracker = StreamTracker::default();
        for (start, time, value) in points {
            let value = if value == 7 { Value::Double(7.5) } else { Value::Int(value) };
            let sample = PointSample { start, time: 1 + time, value: &value, exemplars: &[] };
            let mut short = tracker.clone();
            let by_short = short.next_total(data, &sample);
            let by_long = tracker.advance(data, &sample, LATENESS);
            if let Some(increase) = by_short {
                prop_assert!(matches!(by_long, Ok(Change::Number(number)) if number.same(increase)), "{by_long:?}");
                prop_assert_eq!(format!("{short:?}"), format!("{tracker:?}"));
            }
        }
    }
}
