// SPDX-License-Identifier: Apache-2.0

//! Feeds: series of this process, which report their own increases.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use super::member::MemberId;
use super::plan::Plan;
use super::source::Liveness;
use super::window::Moments;
use super::{Composite, SharedGroup};
use crate::chunks::lock;
use crate::{Attributes, ExponentialHistogram, Histogram, Lease, Metric, Resource, Series, UnixNanos};

/// The lease of a feed if none is declared (5 s): an untouched feed counts as alive for this long.
const FEED_LEASE: Duration = Duration::from_secs(5);

/// A series that reports its increases to a composite, which need not derive them from totals. A drop removes its
/// source from the group.
#[derive(Debug)]
pub struct Feed {
    group: SharedGroup,
    lease: Arc<Lease>,
    member: Option<MemberId>,
    kind: FeedKind,
}

/// The meaning of a feed's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedKind {
    /// Observations, or increases.
    Observations,
    /// A level, such as a gauge.
    Level,
}

/// The new data of a series.
#[derive(Clone, Copy, Debug)]
pub struct Added<'a> {
    /// The number of values; 0: only the extremes are new.
    pub count: f64,
    /// Their sum.
    pub sum: f64,
    /// The smallest.
    pub min: f64,
    /// The largest.
    pub max: f64,
    /// The newest.
    pub last: f64,
    /// The distribution of the values.
    pub distribution: Distribution<'a>,
}

/// The distribution of values.
#[derive(Clone, Copy, Debug)]
pub enum Distribution<'a> {
    /// All are the newest.
    Last,
    /// By fixed buckets.
    Explicit(&'a Histogram),
    /// By exponential buckets.
    Exponential(&'a ExponentialHistogram),
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.lease.end();
    }
}

impl Composite {
    /// A series with these attributes as a source of its own, alive as long as it is touched within the declared lease.
    /// The declared metric and filter are not looked at: the caller has chosen.
    /// `name` is that of the metric, for messages.
    pub fn feed(&self, name: &str, attributes: &Attributes, kind: FeedKind, now: UnixNanos) -> Feed {
        let lease = Arc::new(Lease::new(self.declaration.lease.unwrap_or(FEED_LEASE), now));
        let plan = match (kind, self.declaration.is_by_series()) {
            (FeedKind::Observations, false) => None,
            (FeedKind::Observations, true) => Some(Plan::Own { is_steady: false }),
            (FeedKind::Level, true) => Some(Plan::Level(None)),
            (FeedKind::Level, false) => Some(Plan::Level(Some(self.named(name, attributes)))),
        };
        let attributes = self.group_attributes(&Arc::<Resource>::default(), attributes);
        let liveness = Liveness::Feed(lease.clone());
        let (group, member) = self.within(&attributes, |group| match &plan {
            Some(plan) => Some(group.enter(&liveness, self.kind(plan, true))),
            None => {
                group.join(&liveness);
                None
            }
        });
        Feed {
            group,
            lease,
            member,
            kind,
        }
    }

    /// A series of this name, for messages.
    fn named(&self, name: &str, attributes: &Attributes) -> Arc<Series> {
        Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: name.into(),
                ..Metric::clone(&self.metric)
            }),
            attributes: attributes.clone(),
        })
    }

    /// Adds the new data at `now`.
    pub fn add(&self, feed: &Feed, now: UnixNanos, added: &Added<'_>) {
        feed.lease.touch(now);
        let moments = Moments {
            count: added.count,
            sum: added.sum,
            min: added.min,
            max: added.max,
            last: added.last,
        };
        let sketch = |sketch: &mut super::sketch::Sketch| match added.distribution {
            Distribution::Last => sketch.add(added.last, added.count),
            Distribution::Explicit(histogram) => sketch.add_explicit(histogram),
            Distribution::Exponential(histogram) => sketch.add_exponential(histogram),
        };
        let is_sketched = self.declaration.is_sketched();
        let mut group = lock(&feed.group);
        match feed.member {
            Some(member) if feed.kind == FeedKind::Level => {
                group.level(member, now, &moments);
                group.sketch_of(Some(member), now, sketch);
            }
            Some(member) => group.observe(member, now, &moments, sketch, is_sketched),
            None => {
                group.add(now, &moments, is_sketched);
                group.sketch(now, sketch);
            }
        }
        drop(group);
        self.version.fetch_add(1, Relaxed);
    }
}

impl Feed {
    /// Keeps the series alive without new data.
    pub fn touch(&self, now: UnixNanos) {
        self.lease.touch(now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Declaration, Function};
    use super::*;
    use crate::{AttributeFilter, Freshness, Grouping, OnStale, Pattern};

    const START: UnixNanos = 1_700_000_000_000_000_000;

    #[test]
    fn feeds_fill_the_groups_of_their_attributes_and_end_with_their_series() {
        let composite = Composite::new(Declaration {
            name: "c".into(),
            description: "".into(),
            metric: Pattern::parse("x").unwrap(),
            attributes: AttributeFilter::default(),
            expression: None,
            function: Function::Max,
            across: None,
            window: Duration::from_secs(1),
            quantiles: [0.5].into(),
            on_stale: OnStale::Error,
            grouping: Grouping::by(["model"]),
            max_groups: 10,
            lease: Some(Duration::from_secs(5)),
        });
        let attributes = |pod: &str| [("model", "m"), ("pod", pod)].into_iter().collect::<Attributes>();
        let feeds =
            ["a", "b"].map(|pod| composite.feed("x", &attributes(pod), FeedKind::Observations, START));
        let value = |value: f64| Added {
            count: 1.0,
            sum: value,
            min: value,
            max: value,
            last: value,
            distribution: Distribution::Last,
        };
        composite.add(&feeds[0], START, &value(2.0));
        composite.add(&feeds[1], START + 1, &value(4.0));
        // Extremes that came in late, of a value that is counted already.
        composite.add(
            &feeds[1],
            START + 2,
            &Added {
                count: 0.0,
                sum: 0.0,
                max: 5.0,
                ..value(4.0)
            },
        );
        let read = |now| composite.read(now).remove(0);
        let answer = read(START + 3);
        assert_eq!(
            (answer.value, answer.count, answer.avg),
            (Some(5.0), 2.0, Some(3.0))
        );
        assert_eq!(
            (answer.state, answer.sources_expected, answer.last),
            (Freshness::Fresh, 2, Some(4.0))
        );
        assert!((answer.quantiles[0].value - 2.0).abs() < 0.03);
        let [first, second] = feeds;
        drop(first);
        second.touch(START + 4_000_000_000);
        assert_eq!(read(START + 4_000_000_000).state, Freshness::Idle);
        drop(second);
        assert_eq!(read(START + 4_000_000_001).state, Freshness::Absent);
    }
}
