// SPDX-License-Identifier: Apache-2.0

//! The sources that a group expects and that do not report, for explanations.

use std::collections::{HashMap, HashSet};

use super::Composite;
use super::source::Liveness;
use crate::chunks::lock;
use crate::{Attributes, UnixNanos};

/// The reason why a source does not report, in the order of an explanation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum SilenceReason {
    /// Its last scrape failed.
    Down,
    /// Its lease is overdue.
    Overdue,
    /// It is alive, but its series of the group are not.
    WithoutSeries,
}

impl SilenceReason {
    /// The name in answers.
    pub fn name(self) -> &'static str {
        match self {
            Self::Down => "down",
            Self::Overdue => "overdue",
            Self::WithoutSeries => "without series",
        }
    }
}

/// A source that a group expects and that does not report.
#[derive(Clone, Debug, PartialEq)]
pub struct SilentSource {
    /// The attributes of the source; empty if they are not known.
    pub attributes: Attributes,
    /// The reason.
    pub reason: SilenceReason,
    /// The time of its last report; of a target that is down, that of its first failed scrape. 0: never.
    pub since: UnixNanos,
}

/// The sources that a group expects and that do not report.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SilentSources {
    /// The first ones, by reason and then by time.
    pub sources: Vec<SilentSource>,
    /// The number of all of them.
    pub total: usize,
}

impl Composite {
    /// The sources that the group of these attributes expects and that do not report, `most` at most. Those of an
    /// expression are the same for all its groups. A composite of published answers has none.
    pub fn silent_sources(&self, attributes: &Attributes, now: UnixNanos, most: usize) -> SilentSources {
        if self.published.get().is_some() {
            return SilentSources::default();
        }
        let group = if self.declaration.expression.is_some() {
            self.groups().first().cloned()
        } else {
            self.known_group(attributes)
        };
        let Some(group) = group else {
            return SilentSources::default();
        };
        let mut silent = lock(&group).silent(now);
        silent.sort_by_cached_key(|(reason, liveness)| (*reason, liveness.silent_since()));
        let total = silent.len();
        silent.truncate(most);
        let of_events = self.names_of_events(&silent);
        let sources = silent.iter().map(|(reason, liveness)| SilentSource {
            attributes: match liveness {
                Liveness::Points(source) => source.attributes().cloned().unwrap_or_default(),
                Liveness::Events(_) | Liveness::Feed(_) => {
                    of_events.get(&liveness.address()).cloned().unwrap_or_default()
                }
            },
            reason: *reason,
            since: liveness.silent_since(),
        });
        SilentSources {
            sources: sources.collect(),
            total,
        }
    }

    /// The attributes of those that are sources of events, by the address of their liveness.
    fn names_of_events(&self, silent: &[(SilenceReason, Liveness)]) -> HashMap<usize, Attributes> {
        let of_events = silent
            .iter()
            .filter(|(_, liveness)| matches!(liveness, Liveness::Events(_)));
        let wanted: HashSet<usize> = of_events.map(|(_, liveness)| liveness.address()).collect();
        if wanted.is_empty() {
            return HashMap::new();
        }
        let known = lock(&self.inputs.sources);
        let found = known.values().filter(|kinds| wanted.contains(&kinds.address()));
        found.map(|kinds| (kinds.address(), kinds.attributes())).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use super::super::{Across, CompositeSet, Declaration, Function, OnStale};
    use super::*;
    use crate::{
        AttributeFilter, Data, EventKind, Events, Grouping, Instrument, Lease, Metric, Pattern, Point,
        Resource, Schema, Series, Source, SourceId, Value, Values,
    };

    const SECOND: u64 = 1_000_000_000;
    const NOW: UnixNanos = 1_700_000_000 * SECOND;

    fn set() -> (CompositeSet, Arc<Composite>) {
        let composite = Arc::new(Composite::new(Declaration {
            name: "waiting".into(),
            description: "".into(),
            metric: Pattern::Exact("queue".into()),
            attributes: AttributeFilter::default(),
            expression: None,
            function: Function::Last,
            across: Some(Across::Sum),
            window: Duration::from_secs(10),
            quantiles: [].into(),
            on_stale: OnStale::Error,
            grouping: Grouping::by(["model"]),
            max_groups: 10,
            lease: Some(Duration::from_secs(5)),
        }));
        (CompositeSet::new(vec![composite.clone()]), composite)
    }

    fn group(model: &str) -> Attributes {
        [("model", model)].into_iter().collect()
    }

    fn named(instance: &str) -> Attributes {
        [("instance", instance)].into_iter().collect()
    }

    fn point(metric: &str, instance: &str, time: UnixNanos, value: Value) -> Point {
        let series = Series {
            resource: Arc::new(Resource {
                attributes: named(instance),
                schema_url: "".into(),
            }),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: metric.into(),
                description: "".into(),
                unit: "".into(),
                data: Data::Gauge,
                metadata: Attributes::default(),
            }),
            attributes: group("m"),
        };
        Point {
            series: Arc::new(series),
            start: 0,
            time,
            value,
            exemplars: Vec::new(),
        }
    }

    /// The reasons and names, and the total.
    fn silent(
        composite: &Composite,
        now: UnixNanos,
        most: usize,
    ) -> (Vec<(SilenceReason, Attributes)>, usize) {
        let all = composite.silent_sources(&group("m"), now, most);
        let sources = all.sources.into_iter();
        (
            sources.map(|one| (one.reason, one.attributes)).collect(),
            all.total,
        )
    }

    #[test]
    fn targets_that_are_down_come_before_sources_that_are_overdue() {
        let (set, composite) = set();
        for instance in ["a", "b", "c", "d"] {
            set.observe_all(&[point("queue", instance, NOW, Value::Int(1))], NOW);
        }
        assert_eq!(silent(&composite, NOW, 10), (Vec::new(), 0));
        // `b` ends with a failed scrape.
        let failed = NOW + SECOND;
        set.observe_all(
            &[
                point("queue", "b", failed, Value::NoRecordedValue),
                point("up", "b", failed, Value::Int(0)),
            ],
            failed,
        );
        let now = NOW + 8 * SECOND;
        set.observe_all(&[point("queue", "a", now, Value::Int(1))], now);
        set.observe_all(&[point("up", "b", now, Value::Int(0))], now);
        let answer = composite.read(now).remove(0);
        assert_eq!((answer.sources_reporting, answer.sources_expected), (1, 4));
        let (sources, total) = silent(&composite, now, 10);
        assert_eq!((&sources[0], total), (&(SilenceReason::Down, named("b")), 3));
        let mut overdue: Vec<_> = sources.iter().skip(1).map(|(_, name)| name.to_string()).collect();
        overdue.sort();
        assert_eq!(overdue, [named("c").to_string(), named("d").to_string()]);
        let first = composite.silent_sources(&group("m"), now, 1);
        assert_eq!((first.sources.len(), first.total), (1, 3));
        assert_eq!(first.sources[0].since, failed, "the first failed scrape");
        let other = composite.silent_sources(&group("other"), now, 10);
        assert_eq!(other, SilentSources::default());
    }

    #[test]
    fn overdue_sources_of_events_have_their_attributes() {
        let (set, composite) = set();
        let source = Arc::new(Source {
            id: SourceId::next(),
            resource: Arc::default(),
            scope: Arc::default(),
            attributes: [("agent", "a"), ("model", "m")].into_iter().collect(),
            lease: Arc::new(Lease::new(Duration::from_secs(5), NOW)),
        });
        let kind = EventKind {
            name: "queue".into(),
            description: "".into(),
            unit: "".into(),
            instrument: Instrument::Gauge,
            attributes: Attributes::default(),
        };
        set.observe_events(&Events {
            source: source.clone(),
            schema: Arc::new(Schema { kinds: vec![kind] }),
            kinds: vec![0],
            values: Values::U64(vec![4]),
            times: None,
            weights: None,
            observed: NOW,
        });
        assert_eq!(silent(&composite, NOW + SECOND, 10).1, 0);
        let overdue = (SilenceReason::Overdue, source.attributes.clone());
        assert_eq!(silent(&composite, NOW + 6 * SECOND, 10), (vec![overdue], 1));
        source.lease.end();
        assert_eq!(silent(&composite, NOW + 6 * SECOND, 10).1, 0);
    }

    #[test]
    fn a_living_source_can_be_without_series() {
        let (set, composite) = set();
        set.observe_all(&[point("queue", "a", NOW, Value::Int(1))], NOW);
        for second in 1..20 {
            let now = NOW + second * SECOND;
            set.observe_all(&[point("other", "a", now, Value::Int(1))], now);
        }
        let (sources, _) = silent(&composite, NOW + 19 * SECOND, 10);
        assert_eq!(sources, [(SilenceReason::WithoutSeries, named("a"))]);
    }
}
