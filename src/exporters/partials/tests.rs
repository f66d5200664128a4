// SPDX-License-Identifier: Apache-2.0

//! What the exporter says of its tables, and that it says goodbye.

use std::time::Duration;

use tidegate_cluster::local::LocalEngine;
use tidegate_cluster::{
    CallId, ClusterEngine as _, PageHeaders, PageKind, ReadScope, SentItem, StoreCall, StoreEvent,
};
use tidegate_engine::{
    Attributes, Bounds, Composite, Data, Declaration, EventKind, Events, Function, GaugePolicy, Grouping,
    Histogram, Instrument, Key, Lease, Limits, MergeMode, Metric, Outcome, Pattern, Point, PointSample,
    Rejection, Rule, Schema, Series, Source, SourceId, Table, Temporality, Value, Values,
};

use super::items::Statement;
use super::*;
use crate::batch::Points;
use crate::component::testing::{add_cluster, context, options, settings};
use crate::component::{Reason, unix_now};

fn point(name: &str, data: Data, value: i64) -> Point {
    Point {
        series: Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: name.into(),
                description: "".into(),
                unit: "".into(),
                data,
                metadata: Attributes::default(),
            }),
            attributes: Attributes::default(),
        }),
        start: 1,
        time: unix_now(),
        value: Value::Int(value),
        exemplars: Vec::new(),
    }
}

fn sum(monotonic: bool) -> Data {
    Data::Sum {
        monotonic,
        temporality: Temporality::Cumulative,
    }
}

fn table(rules: Vec<Rule>, points: &[Point]) -> Arc<Table> {
    let table = Table::new("test", rules, Limits::default());
    points.iter().for_each(|point| {
        table.observe(point, unix_now());
    });
    Arc::new(table)
}

/// Names, modes and values.
fn values(statement: &Statement) -> Vec<(String, MergeMode, Value)> {
    let values = statement.items.iter().filter_map(|item| match item {
        SentItem::Value(mode, point) => {
            Some((point.series.metric.name.to_string(), *mode, point.value.clone()))
        }
        SentItem::Stream(_) | SentItem::Window { .. } => None,
    });
    let mut values: Vec<_> = values.collect();
    values.sort_by(|one, other| one.0.cmp(&other.0));
    values
}

#[test]
fn each_series_merges_by_its_kind_and_by_the_gauge_policy_of_its_rule() {
    let rule = |name: &str, gauge| Rule {
        gauge,
        ..Rule::new(Pattern::Exact(name.into()))
    };
    let rules = vec![
        rule("hits", GaugePolicy::Last),
        rule("open", GaugePolicy::Last),
        rule("depth", GaugePolicy::Sum),
        rule("heat", GaugePolicy::Max),
        rule("version", GaugePolicy::Last),
    ];
    let points = [
        point("hits", sum(true), 1),
        point("open", sum(false), 2),
        point("depth", Data::Gauge, 3),
        point("heat", Data::Gauge, 4),
        point("version", Data::Gauge, 5),
    ];
    let statement = Statement::of(&[table(rules, &points)], unix_now());
    let expected = [
        ("depth", MergeMode::Level, 3),
        ("heat", MergeMode::Max, 4),
        ("hits", MergeMode::Add, 1),
        ("open", MergeMode::Level, 2),
        ("version", MergeMode::Last, 5),
    ];
    let expected = expected.map(|(name, mode, value)| (name.to_owned(), mode, Value::Int(value)));
    assert_eq!(values(&statement), expected);
}

#[test]
fn of_two_tables_with_one_series_the_first_counts() {
    let tables = [1, 2].map(|value| table(vec![Rule::newest()], &[point("hits", sum(true), value)]));
    let statement = Statement::of(&tables, unix_now());
    assert_eq!(
        values(&statement),
        [("hits".to_owned(), MergeMode::Add, Value::Int(1))]
    );
    assert_eq!(statement.duplicates, 1);
}

fn declaration(function: Function) -> Declaration {
    Declaration {
        name: "recent".into(),
        description: "".into(),
        metric: Pattern::Exact("hits".into()),
        attributes: Default::default(),
        expression: None,
        function,
        across: None,
        window: Duration::from_secs(10),
        quantiles: Arc::from([]),
        on_stale: Default::default(),
        grouping: Grouping::by::<&str>([]),
        max_groups: 10,
        lease: None,
    }
}

fn events(values: &[u64]) -> Events {
    let now = unix_now();
    let source = Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: Attributes::default(),
        lease: Arc::new(Lease::new(Duration::from_secs(60), now)),
    };
    let kind = EventKind {
        name: "hits".into(),
        description: "".into(),
        unit: "".into(),
        instrument: Instrument::Counter,
        attributes: Attributes::default(),
    };
    Events {
        source: Arc::new(source),
        schema: Arc::new(Schema { kinds: vec![kind] }),
        kinds: std::iter::repeat_n(0, values.len()).collect(),
        values: Values::U64(values.into()),
        times: None,
        weights: None,
        observed: now,
    }
}

#[test]
fn a_composite_travels_as_windows_and_never_as_a_gauge() {
    for (function, windows) in [(Function::Sum, 1), (Function::Last, 0)] {
        let composite = Arc::new(Composite::new(declaration(function)));
        tidegate_engine::CompositeSet::new(vec![composite.clone()]).observe_events(&events(&[3, 4]));
        let table = table(Vec::new(), &[]);
        table.attach(composite);
        let statement = Statement::of(&[table], unix_now());
        assert!(values(&statement).is_empty());
        assert_eq!(statement.items.len(), windows, "{function:?}");
        assert_eq!(statement.notices.len(), 1 - windows, "{function:?}");
        for item in &statement.items {
            let SentItem::Window { window, .. } = item else {
                panic!("{item:?}")
            };
            assert_eq!(window.iter().map(|one| one.sum).sum::<f64>(), 7.0);
        }
    }
}

/// An exporter and its ledger.
fn exporter() -> (Partials, Arc<Ledger>) {
    let base = context("exporters", "partials");
    add_cluster(&base.shared);
    let ledger = Arc::new(Ledger::default());
    let settings = settings::<PartialsExporterConfig>("{cluster: cluster, producer: a}");
    let exporter = Partials::new(settings.get(), base, ledger.clone()).unwrap();
    (exporter, ledger)
}

#[test]
fn deltas_that_may_fall_are_dropped_and_rejected_to_the_sender() {
    let (exporter, ledger) = exporter();
    let falling = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    let points = Points {
        points: Arc::from([point("in_flight", falling, -2), point("hits", sum(true), 7)]),
    };
    ledger.enter(2);
    let outcome = exporter.push(Batch::new(points)).unwrap();
    assert_eq!(outcome.rejected_items, 1);
    let why = &outcome.message;
    assert!(
        why.starts_with("`in_flight`: a sum of deltas that may fall"),
        "{why}"
    );
    let balance = ledger.balance();
    let dropped = balance.dropped[Reason::Unsupported as usize];
    assert_eq!((balance.absorbed, dropped), (1, 1));
}

#[tokio::test]
async fn points_from_no_table_are_sent_and_a_stop_says_goodbye() {
    let engine = Arc::new(LocalEngine::new());
    let (exporter, ledger) = exporter();
    let cluster = exporter.cluster.clone();
    cluster.set_engine(Some(engine.clone()));
    exporter.start().await.unwrap();
    let points = Points {
        points: Arc::from([point("hits", sum(true), 7)]),
    };
    ledger.enter(1);
    exporter.push(Batch::new(points)).unwrap();
    exporter.stop(Instant::now() + Duration::from_secs(10)).await;
    assert_eq!(ledger.balance().absorbed, 1);
    assert_eq!(cluster.status()["components"], serde_json::json!({}));

    let mut session = engine.open();
    session
        .store
        .start(CallId(1), StoreCall::ReadAll(ReadScope::Everything));
    let (mut pages, mut byes) = (0, 0);
    loop {
        match session.events.recv().await.unwrap() {
            StoreEvent::Read(_, stored) if stored.message.subject.contains(".p.") => {
                let headers = PageHeaders::parse(&stored.message.headers).unwrap();
                pages += usize::from(headers.kind == PageKind::Page);
                byes += usize::from(headers.kind == PageKind::Bye);
            }
            StoreEvent::Current(..) => break,
            _ => {}
        }
    }
    // The goodbye has the place of the heartbeat.
    assert_eq!((pages, byes), (1, 1));
}

fn buffer(max_series: usize) -> StreamBuffer {
    StreamBuffer::new(max_series, 1000, Arc::default())
}

/// What a buffer does with a point: `None` leaves it to the table.
fn offer(buffer: &StreamBuffer, point: &Point) -> Option<Outcome> {
    let sample = PointSample {
        start: point.start,
        time: point.time,
        value: &point.value,
        exemplars: &[],
    };
    let (data, key) = (point.series.metric.data, Key::of(&point.series));
    buffer.take(data, key, sample, &mut || Some(point.series.clone()))
}

#[test]
fn totals_with_a_start_are_streams_and_all_else_is_for_the_table() {
    let buffer = buffer(10);
    let at = |start, point: Point| Point { start, ..point };
    for (point, is_stream) in [
        (point("hits", sum(true), 7), true),
        (at(0, point("hits", sum(true), 7)), false),
        (point("open", sum(false), 7), false),
        (point("depth", Data::Gauge, 7), false),
    ] {
        let taken = offer(&buffer, &point);
        assert_eq!(taken, is_stream.then_some(Outcome::Absorbed), "{point:?}");
    }
    let (items, fallen) = buffer.take_all();
    let SentItem::Stream(sent) = &items[0] else {
        panic!("{items:?}")
    };
    assert_eq!(
        (items.len(), fallen, sent.start, &sent.value),
        (1, 0, 1, &Value::Int(7))
    );
    assert!(buffer.take_all().0.is_empty());
}

#[test]
fn a_buffer_keeps_the_largest_total_and_counts_one_that_fell() {
    let buffer = buffer(10);
    for (value, time) in [(7, 10), (5, 9), (6, 11)] {
        let point = Point {
            time,
            ..point("hits", sum(true), value)
        };
        assert_eq!(offer(&buffer, &point), Some(Outcome::Absorbed));
    }
    let (items, fallen) = buffer.take_all();
    let SentItem::Stream(sent) = &items[0] else {
        panic!("{items:?}")
    };
    assert_eq!(
        (fallen, &sent.value),
        (1, &Value::Int(7)),
        "only the later one fell"
    );
}

#[test]
fn a_buffer_refuses_wrong_large_and_too_many_totals() {
    let buffer = buffer(1);
    let refused = |rejection| Some(Outcome::Rejected(rejection));
    let large = Value::Histogram(Box::new(Histogram::empty(vec![1.0; 1000].into())));
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let large = Point {
        value: large,
        ..point("large", data, 0)
    };
    assert_eq!(offer(&buffer, &large), refused(Rejection::Limit));
    assert_eq!(
        offer(&buffer, &point("hits", sum(true), -1)),
        refused(Rejection::Invalid)
    );
    assert_eq!(offer(&buffer, &point("a", sum(true), 1)), Some(Outcome::Absorbed));
    assert_eq!(
        offer(&buffer, &point("b", sum(true), 1)),
        refused(Rejection::Limit)
    );
    assert_eq!(offer(&buffer, &point("a", sum(true), 2)), Some(Outcome::Absorbed));
    let memory = Arc::new(Bounds::default());
    let tight = StreamBuffer::new(10, 1000, memory.clone());
    assert_eq!(offer(&tight, &point("a", sum(true), 1)), Some(Outcome::Absorbed));
    memory.set_tight(true);
    assert_eq!(
        offer(&tight, &point("b", sum(true), 1)),
        refused(Rejection::Limit)
    );
    assert_eq!(offer(&tight, &point("a", sum(true), 2)), Some(Outcome::Absorbed));
}

#[test]
fn a_table_that_adds_up_streams_is_named() {
    let aggregated = |point| table(vec![Rule::new(Pattern::Exact("hits".into()))], &[point]);
    for (table, is_named) in [
        (aggregated(point("hits", sum(true), 7)), true),
        (aggregated(point("hits", Data::Gauge, 7)), false),
        (table(vec![Rule::newest()], &[point("hits", sum(true), 7)]), false),
    ] {
        let mut statement = Statement::default();
        statement.note_added_streams(&[table]);
        assert_eq!(statement.notices.len(), usize::from(is_named));
    }
}

#[test]
fn options_that_can_not_work_are_refused_with_the_reason() {
    for (yaml, expected) in [
        ("{}", "cluster"),
        ("{cluster: a, interval: 5s}", "silent for 3s"),
        ("{cluster: a, refresh: 100ms}", "must not be less than `interval`"),
        ("{cluster: a, producer: ''}", "the name is empty"),
        ("{cluster: a, producer: tidegate.streams.00}", "stand for streams"),
        ("{cluster: a, max_series: 0}", "greater than 0"),
    ] {
        let error = options::<PartialsExporterConfig>(yaml).unwrap_err();
        assert!(error.contains(expected), "{yaml}: {error}");
    }
}
