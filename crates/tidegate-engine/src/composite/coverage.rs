// SPDX-License-Identifier: Apache-2.0

//! The answer of a group whose window is not covered yet: a `rate` divides by its whole window, also by the time before the
//! composite was there. So it is partial until the window begins later. Other functions are of the values that came.

use std::sync::atomic::Ordering::Relaxed;

use super::{Answer, Composite, Function, SharedGroup};
use crate::UnixNanos;
use crate::chunks::lock;
use crate::freshness::Freshness;

impl Composite {
    /// States that the composite observes its input from `now` on. Until its window begins later, a `rate` is partial. Without
    /// this call, the window counts as covered. Call it at the first data, not at the start. Only the first call has an effect.
    pub fn observes_from(&self, now: UnixNanos) {
        // An error means that it observes its input already.
        let _ = self.observed_since.compare_exchange(0, now, Relaxed, Relaxed);
    }

    pub(super) fn answer(&self, group: &SharedGroup, now: UnixNanos) -> Answer {
        let mut group = lock(group);
        let mut answer = group.answer(&self.declaration, now);
        let since = self.observed_since.load(Relaxed).max(group.observed_since);
        let is_covered = self.declaration.function != Function::Rate || since <= self.cut.begin(now);
        if !is_covered && !answer.state.is_unusable() {
            answer.state = Freshness::Partial;
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{Added, Declaration, Distribution, FeedKind, OnStale};
    use super::*;
    use crate::{AttributeFilter, Attributes, Grouping, Pattern};

    const SECOND: u64 = 1_000_000_000;
    const NOW: UnixNanos = 1_700_000_000 * SECOND;

    fn composite(function: Function) -> Composite {
        Composite::new(Declaration {
            name: "recent".into(),
            description: "".into(),
            metric: Pattern::Exact("hits".into()),
            attributes: AttributeFilter::default(),
            expression: None,
            function,
            across: None,
            window: Duration::from_secs(10),
            quantiles: [].into(),
            on_stale: OnStale::Error,
            grouping: Grouping::by::<&str>([]),
            max_groups: 10,
            lease: Some(Duration::from_mins(10)),
        })
    }

    fn state(composite: &Composite, now: UnixNanos) -> (Freshness, Option<f64>) {
        let answer = composite.read(now).remove(0);
        (answer.state, answer.value)
    }

    #[test]
    fn a_new_rate_is_partial_until_its_window_is_covered() {
        let added = Added {
            count: 1.0,
            sum: 50.0,
            min: 50.0,
            max: 50.0,
            last: 50.0,
            distribution: Distribution::Last,
        };
        let rate = composite(Function::Rate);
        rate.observes_from(NOW);
        assert_eq!(state(&rate, NOW).0, Freshness::Absent);
        let feed = rate.feed("hits", &Attributes::default(), FeedKind::Observations, NOW);
        assert_eq!(state(&rate, NOW), (Freshness::Partial, Some(0.0)));
        rate.add(&feed, NOW + SECOND, &added);
        assert_eq!(state(&rate, NOW + 9 * SECOND).0, Freshness::Partial);
        assert_eq!(state(&rate, NOW + 10 * SECOND).0, Freshness::Fresh);
        assert_eq!(state(&rate, NOW + 60 * SECOND), (Freshness::Idle, Some(0.0)));
        // The others are of the values that came.
        for function in [
            Function::Min,
            Function::Avg,
            Function::Max,
            Function::Sum,
            Function::Count,
            Function::Last,
            Function::Quantile(0.5),
        ] {
            let other = composite(function);
            other.observes_from(NOW);
            let feed = other.feed("hits", &Attributes::default(), FeedKind::Observations, NOW);
            other.add(&feed, NOW + SECOND, &added);
            assert_eq!(state(&other, NOW + SECOND).0, Freshness::Fresh, "{function:?}");
        }
    }

    #[cfg(feature = "tables")]
    #[test]
    fn a_group_whose_empty_window_gets_an_old_total_is_partial_for_a_window() {
        use std::sync::Arc;

        use super::super::CompositeSet;
        use crate::{Data, Metric, Point, Series, Temporality, Value};

        let rate = Arc::new(composite(Function::Rate));
        let set = CompositeSet::new(vec![rate.clone()]);
        let metric = Arc::new(Metric {
            name: "hits".into(),
            description: "".into(),
            unit: "".into(),
            data: Data::Sum {
                monotonic: true,
                temporality: Temporality::Cumulative,
            },
            metadata: Attributes::default(),
        });
        let report = |pod: &str, time: UnixNanos, total: i64| {
            let series = Series {
                resource: Arc::default(),
                scope: Arc::default(),
                metric: metric.clone(),
                attributes: [("pod", pod)].into_iter().collect(),
            };
            let point = Point {
                series: Arc::new(series),
                start: 0,
                time,
                value: Value::Int(total),
                exemplars: Vec::new(),
            };
            set.observe(&point, time);
        };
        report("a", NOW, 1000);
        assert_eq!(state(&rate, NOW), (Freshness::Partial, Some(0.0)));
        report("a", NOW + 5 * SECOND, 1050);
        assert_eq!(state(&rate, NOW + 5 * SECOND).0, Freshness::Partial);
        report("a", NOW + 10 * SECOND, 1100);
        assert_eq!(state(&rate, NOW + 10 * SECOND).0, Freshness::Fresh);
        report("b", NOW + 10 * SECOND, 1000);
        assert_eq!(
            state(&rate, NOW + 10 * SECOND).0,
            Freshness::Fresh,
            "its window has data"
        );
        let silent = NOW + 60 * SECOND;
        assert_eq!(state(&rate, silent), (Freshness::Fresh, Some(0.0)));
        report("c", silent, 1000);
        assert_eq!(state(&rate, silent), (Freshness::Partial, Some(0.0)));
        report("c", silent + 5 * SECOND, 1050);
        assert_eq!(state(&rate, silent + 9 * SECOND).0, Freshness::Partial);
        assert_eq!(state(&rate, silent + 10 * SECOND).0, Freshness::Fresh);
    }
}
