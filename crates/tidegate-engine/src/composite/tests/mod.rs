// SPDX-License-Identifier: Apache-2.0

//! Composites: windows compared with lists, groups, states.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod memory;

use std::sync::Arc;
use std::time::Duration;

use proptest::prelude::*;

use super::{Composite, CompositeSet, Declaration, Function};
use crate::*;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;
const WINDOW: Duration = Duration::from_secs(10);

fn declare(function: Function, by: &[&str]) -> Declaration {
    Declaration {
        name: "derived".into(),
        description: "".into(),
        metric: Pattern::parse("xfer_*").unwrap(),
        attributes: AttributeFilter::default(),
        expression: None,
        function,
        quantiles: Arc::default(),
        on_stale: OnStale::Error,
        window: WINDOW,
        grouping: Grouping::by(by.iter().copied()),
        max_groups: 3,
        across: None,
        lease: Some(Duration::from_secs(90)),
    }
}

fn set(declaration: Declaration) -> (CompositeSet, Arc<Composite>) {
    let composite = Arc::new(Composite::new(declaration));
    (CompositeSet::new(vec![composite.clone()]), composite)
}

fn source(agent: &str) -> Arc<Source> {
    Arc::new(Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: [("agent", agent)].into_iter().collect(),
        lease: Arc::new(Lease::new(Duration::from_secs(5), NOW)),
    })
}

fn events(source: &Arc<Source>, observed: u64, values: &[u64]) -> Events {
    let kind = |name: &str| EventKind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: Attributes::default(),
    };
    Events {
        source: source.clone(),
        schema: Arc::new(Schema {
            kinds: vec![kind("other"), kind("xfer_time")],
        }),
        kinds: vec![1; values.len()],
        values: Values::U64(values.to_vec()),
        times: None,
        weights: None,
        observed,
    }
}

fn point(name: &str, data: Data, start: u64, time: u64, value: Value) -> Point {
    let metric = Metric {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        data,
        metadata: Attributes::default(),
    };
    let series = Series {
        resource: Arc::default(),
        scope: Arc::default(),
        metric: Arc::new(metric),
        attributes: Attributes::default(),
    };
    Point {
        series: Arc::new(series),
        start,
        time,
        value,
        exemplars: Vec::new(),
    }
}

#[test]
fn every_function_says_what_its_name_does() {
    let expected = [
        (Function::Min, 10.0),
        (Function::Avg, 20.0),
        (Function::Max, 30.0),
        (Function::Sum, 60.0),
        (Function::Count, 3.0),
        (Function::Last, 20.0),
        (Function::Rate, 6.0),
    ];
    for (function, expected) in expected {
        let (set, composite) = set(declare(function, &["agent"]));
        let agent = source("a");
        set.observe_events(&events(&agent, NOW, &[10, 30]));
        set.observe_events(&events(&agent, NOW + SECOND, &[20]));
        // At the end of a sub-window the window covers exactly its ten seconds.
        let now = NOW + 10 * SECOND - 100_000_000 + 99_999_999;
        agent.lease.touch(now);
        let answers = composite.read(now);
        let value = answers[0].value.unwrap();
        assert!((value - expected).abs() < 1e-6, "{function:?}: {value}");
        assert_eq!(
            (answers.len(), answers[0].state, answers[0].count),
            (1, Freshness::Fresh, 3.0)
        );
        assert_eq!(answers[0].attributes, [("agent", "a")].into_iter().collect());
    }
}

#[test]
fn a_value_says_how_far_it_can_be_trusted() {
    let (set, composite) = set(declare(Function::Sum, &[]));
    let one = |now| composite.read(now).remove(0);
    assert_eq!(
        (one(NOW).state, one(NOW).value, one(NOW).age),
        (Freshness::Absent, None, None)
    );
    let (a, b) = (source("a"), source("b"));
    set.observe_events(&events(&a, NOW, &[]));
    assert_eq!((one(NOW).state, one(NOW).value), (Freshness::Idle, Some(0.0)));
    set.observe_events(&events(&a, NOW, &[1]));
    set.observe_events(&events(&b, NOW, &[2]));
    assert_eq!((one(NOW).state, one(NOW).value), (Freshness::Fresh, Some(3.0)));
    let later = NOW + 6 * SECOND;
    a.lease.touch(later);
    let partial = one(later);
    assert_eq!(
        (partial.state, partial.sources_expected, partial.sources_reporting),
        (Freshness::Partial, 2, 1)
    );
    assert_eq!(partial.age, Some(Duration::from_secs(6)));
    b.lease.end();
    assert_eq!(one(later).state, Freshness::Fresh);
    a.lease.lost(later);
    assert_eq!(one(later).state, Freshness::Partial);
    let overdue = NOW + 30 * SECOND;
    assert_eq!((one(overdue).state, one(overdue).value), (Freshness::Stale, None));
    a.lease.end();
    composite.expire(overdue);
    assert_eq!((one(overdue).state, one(overdue).age), (Freshness::Absent, None));
}

#[test]
fn groups_beyond_the_cap_share_one_that_says_so() {
    let (set, composite) = set(declare(Function::Count, &["agent"]));
    for agent in ["a", "b", "c", "d", "e"] {
        set.observe_events(&events(&source(agent), NOW, &[1]));
    }
    let answers = composite.read(NOW);
    assert_eq!(answers.len(), 4);
    assert_eq!((answers[3].value, composite.overflowed_groups()), (Some(2.0), 2));
    assert_eq!(
        answers[3].attributes.get("otel.metric.overflow"),
        Some(AttributeRef::Bool(true))
    );
}

#[test]
fn points_count_by_their_increases_and_totals_from_before_do_not() {
    let (set, composite) = set(declare(Function::Sum, &[]));
    let counter = Data::Sum {
        monotonic: true,
        temporality: Temporality::Cumulative,
    };
    for (start, time, value) in [(5, 0, 1_000), (5, 1, 1_004), (5, 1, 1_004), (NOW + 2, 3, 3)] {
        set.observe(
            &point("xfer_bytes", counter, start, NOW + time, Value::Int(value)),
            NOW,
        );
    }
    assert_eq!(composite.read(NOW)[0].value, Some(7.0));
    // A stream that began within the window has no history.
    set.observe(&point("xfer_new", counter, NOW - SECOND, NOW, Value::Int(5)), NOW);
    assert_eq!(composite.read(NOW)[0].value, Some(12.0));
    let mut histogram = Histogram::empty([1.0, 10.0].into());
    histogram.observe(4.0, 2);
    let delta = Data::Histogram {
        temporality: Temporality::Delta,
    };
    set.observe(
        &point(
            "xfer_spread",
            delta,
            NOW,
            NOW + 1,
            Value::Histogram(Box::new(histogram)),
        ),
        NOW,
    );
    let answer = &composite.read(NOW)[0];
    assert_eq!((answer.value, answer.count), (Some(20.0), 5.0));
    set.observe(&point("unrelated", Data::Gauge, 0, NOW, Value::Int(5)), NOW);
    assert_eq!(composite.read(NOW)[0].count, 5.0);
}

#[test]
fn points_with_other_attributes_are_omitted() {
    let filter = AttributeFilter(vec![("zone".into(), Pattern::parse("x").unwrap())]);
    let (set, composite) = set(Declaration {
        attributes: filter,
        ..declare(Function::Count, &[])
    });
    for (zone, time) in [("x", 1), ("y", 1), ("y", 2), ("x", 2)] {
        let delta = Data::Sum {
            monotonic: true,
            temporality: Temporality::Delta,
        };
        let mut point = point("xfer_depth", delta, NOW + time - 1, NOW + time, Value::Int(1));
        let series = Series {
            attributes: [("zone", zone)].into_iter().collect(),
            ..(*point.series).clone()
        };
        point.series = Arc::new(series);
        set.observe(&point, NOW);
    }
    assert_eq!(composite.read(NOW)[0].value, Some(2.0));
}

#[test]
fn a_table_shows_the_composites_attached_to_it() {
    let (set, composite) = set(declare(Function::Max, &["agent"]));
    let table = Table::new("test", Vec::new(), Limits::default());
    table.attach(composite);
    set.observe_events(&events(&source("a"), NOW, &[3, 9]));
    set.observe_events(&events(&source("idle"), NOW, &[]));
    let mut shown = Vec::new();
    table.read(NOW + SECOND, &mut |reading| {
        shown.push((
            reading.series.metric.name.clone(),
            reading.series.attributes.clone(),
            reading.value.clone(),
        ));
    });
    assert_eq!(
        shown,
        [(
            "derived".into(),
            [("agent", "a")].into_iter().collect(),
            Value::Double(9.0)
        )]
    );
}

#[test]
fn groups_whose_sources_ended_are_removed() {
    let (set, composite) = set(declare(Function::Max, &["agent"]));
    for round in 0..10u64 {
        let agent = source("a");
        set.observe_events(&events(&agent, NOW + round * 20 * SECOND, &[round]));
        agent.lease.end();
        composite.expire(NOW + round * 20 * SECOND + 19 * SECOND);
        assert_eq!(
            composite.read(NOW + round * 20 * SECOND + 19 * SECOND)[0].state,
            Freshness::Absent
        );
    }
    set.observe(&point("xfer_x", Data::Gauge, 0, NOW, Value::Int(5)), NOW);
    composite.expire(NOW + 2000 * SECOND);
    assert_eq!(composite.read(NOW + 2000 * SECOND)[0].age, None);
}

proptest! {
    #[test]
    fn groups_equal_brute_force(
        steps in prop::collection::vec((0usize..3, 0u64..2_000_000_000, prop::collection::vec(0u64..1000, 0..5)), 1..60),
    ) {
        let (set, composite) = set(declare(Function::Avg, &["agent"]));
        let sources: Vec<_> = ["a", "b", "c"].map(source).into();
        let mut all: Vec<(usize, u64, u64)> = Vec::new();
        let mut now = NOW;
        for (agent, step, values) in steps {
            now += step;
            set.observe_events(&events(&sources[agent], now, &values));
            sources.iter().for_each(|source| source.lease.touch(now));
            all.extend(values.iter().map(|value| (agent, now, *value)));
            let begin = (now / 100_000_000 - 99) * 100_000_000;
            for answer in composite.read(now) {
                let of = |index: usize| answer.attributes.get("agent") == sources[index].attributes.get("agent");
                let inside: Vec<f64> = all
                    .iter()
                    .filter(|(index, at, _)| of(*index) && *at >= begin)
                    .map(|(.., value)| *value as f64)
                    .collect();
                let mean = (!inside.is_empty()).then(|| inside.iter().sum::<f64>() / inside.len() as f64);
                prop_assert_eq!(answer.value, mean);
                prop_assert_eq!(answer.max, inside.iter().copied().reduce(f64::max));
            }
        }
    }
}

#[test]
fn quantiles_are_those_of_single_events_within_the_window() {
    let declaration = Declaration {
        quantiles: [0.5, 0.99].into(),
        ..declare(Function::Quantile(0.9), &[])
    };
    let (set, composite) = set(declaration);
    let agent = source("a");
    set.observe_events(&events(&agent, NOW - 11 * SECOND, &[1_000_000; 50]));
    for batch in 0..10u64 {
        let values: Vec<u64> = (1..=100).map(|value| 10 * batch + value).collect();
        set.observe_events(&events(&agent, NOW + batch * 100_000_000, &values));
    }
    agent.lease.touch(NOW + SECOND);
    let answer = composite.read(NOW + SECOND).remove(0);
    // 1000 values: 1..=100, 11..=110, ..., 91..=190.
    let near = |told: f64, truth: f64| assert!((told / truth - 1.0).abs() < 0.0112, "{told} for {truth}");
    near(answer.value.unwrap(), 152.0);
    near(answer.quantiles[0].value, 96.0);
    near(answer.quantiles[1].value, 180.0);
    assert_eq!((answer.quantiles[1].quantile, answer.count), (0.99, 1000.0));
    assert_eq!(
        (answer.min, answer.avg, answer.max),
        (Some(1.0), Some(95.5), Some(190.0))
    );
}

#[test]
fn histograms_give_quantiles_too() {
    let data = Data::Histogram {
        temporality: Temporality::Delta,
    };
    let (set, composite) = set(declare(Function::Quantile(0.5), &[]));
    let mut histogram = Histogram::empty([1.0, 2.0, 4.0].into());
    [0.5, 1.5, 1.6, 1.7, 9.0]
        .iter()
        .for_each(|value| histogram.observe(*value, 1));
    let value = Value::Histogram(Box::new(histogram));
    set.observe(&point("xfer_time", data, NOW - SECOND, NOW, value), NOW);
    let told = composite.read(NOW)[0].value.unwrap();
    assert!((told / 1.5 - 1.0).abs() < 0.0112, "{told}");
}

#[test]
fn a_stale_value_is_nothing_or_the_last_one_as_declared() {
    for (on_stale, expected) in [
        (OnStale::Error, None),
        (OnStale::Empty, None),
        (OnStale::Last, Some(20.0)),
    ] {
        let declaration = Declaration {
            on_stale,
            ..declare(Function::Avg, &[])
        };
        let (set, composite) = set(declaration);
        let agent = source("a");
        set.observe_events(&events(&agent, NOW, &[10, 30]));
        assert_eq!(composite.read(NOW)[0].value, Some(20.0));
        let later = composite.read(NOW + 60 * SECOND).remove(0);
        assert_eq!(
            (later.state, later.value, later.count),
            (Freshness::Stale, expected, 0.0)
        );
        // Idle is not stale: nothing happened, and that is known.
        agent.lease.touch(NOW + 60 * SECOND);
        let idle = composite.read(NOW + 60 * SECOND).remove(0);
        assert_eq!((idle.state, idle.value), (Freshness::Idle, None));
    }
}

/// No time that an event says can hold a window up: events count when they come.
#[test]
fn events_of_any_time_count_when_they_come() {
    let (set, composite) = set(declare(Function::Sum, &[]));
    let source = source("a");
    for (step, time) in [u64::MAX, 1, NOW + 86_400 * SECOND, NOW].into_iter().enumerate() {
        let now = NOW + step as u64 * SECOND / 10;
        source.lease.touch(now);
        let mut batch = events(&source, now, &[2]);
        batch.times = Some(vec![time]);
        set.observe_events(&batch);
        let answer = composite.read(now).remove(0);
        let sum = 2.0 * (step + 1) as f64;
        assert_eq!(
            (answer.value, answer.state),
            (Some(sum), Freshness::Fresh),
            "{time}"
        );
    }
}
