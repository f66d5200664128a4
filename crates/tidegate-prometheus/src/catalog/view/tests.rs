// SPDX-License-Identifier: Apache-2.0

//! The answers to queries about tables whose series come and go.

mod borrowed;
mod exporters;
mod indexed;
mod needs;
mod ownership;
mod slices;
mod steps;

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::{
    Attributes, Buckets, Data, ExponentialHistogram, Lease, Limits, Rule, Table, Temporality, UnixNanos,
    Value,
};
use tidegate_promql::{HistoryLimits, Instant, Millis, Query, SampleValue, Selection};

use super::{KeptPast, QueryWarnings, SLICE, View, millis};
use crate::catalog::testing::point;
use tidegate_pipeline::component::testing::context;
use tidegate_pipeline::component::{Evaluate, Shared, unix_now};

pub(super) const SECOND: u64 = 1_000_000_000;
pub(super) const START: UnixNanos = 1_700_000_000 * SECOND;

pub(super) fn view() -> (Arc<View>, Arc<Shared>) {
    view_with(1000)
}

/// A view that keeps a sample of each interval for 60 of them.
fn view_with(interval_ms: Millis) -> (Arc<View>, Arc<Shared>) {
    let shared = context("extensions", "admin").shared;
    let limits = HistoryLimits {
        interval_ms,
        span_ms: 60 * interval_ms,
        max_bytes: 256 << 20,
    };
    let view = View::of(&shared);
    view.keep_past(KeptPast::fixed(limits));
    (view, shared)
}

fn record(view: &View, now: UnixNanos) {
    view.record(now, Duration::ZERO, &mut |_| true);
}

/// A table that no list has.
fn unlisted(owner: &str) -> Arc<Table> {
    Arc::new(Table::new(owner, vec![Rule::newest()], Limits::default()))
}

pub(super) fn table(shared: &Shared) -> Arc<Table> {
    let table = unlisted("test");
    shared.tables.add(table.clone());
    table
}

fn put(table: &Table, name: &str, data: Data, value: Value, now: UnixNanos) {
    let of = (Attributes::default(), [("pod", "p1")].into_iter().collect());
    let point = point(name, data, of, (START - 1, now), value);
    table.observe(&point, now);
}

fn gauge(table: &Table, name: &str, value: i64, now: UnixNanos) {
    put(table, name, Data::Gauge, Value::Int(value), now);
}

fn histogram(table: &Table, value: u64, now: UnixNanos) {
    let data = Data::ExponentialHistogram {
        temporality: Temporality::Cumulative,
    };
    let histogram = ExponentialHistogram {
        count: 2 * value + 1,
        sum: Some(3.0 * value as f64),
        scale: 0,
        zero_count: 1,
        zero_threshold: 0.5,
        positive: Buckets {
            offset: 0,
            counts: vec![value, 0, value],
        },
        ..ExponentialHistogram::default()
    };
    put(
        table,
        "wait",
        data,
        Value::ExponentialHistogram(Box::new(histogram)),
        now,
    );
}

/// The one number that a query comes to.
fn ask(view: &View, query: &str, now: UnixNanos) -> Option<f64> {
    ask_with_notes(view, query, now).0
}

fn ask_with_notes(view: &View, query: &str, now: UnixNanos) -> (Option<f64>, QueryWarnings) {
    let query = Query::parse(query).unwrap();
    let asked = view.ask(now, &query.selections());
    let value = query.instant(&asked, millis(now)).unwrap();
    (one(value), asked.query_warnings())
}

fn one(value: Instant) -> Option<f64> {
    match value {
        Instant::Vector(vector) => {
            assert!(vector.len() < 2, "{vector:?}");
            let (_, value) = vector.into_iter().next()?;
            SampleValue::float(&value)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn series_that_come_are_seen_at_once_and_places_are_given_to_others() {
    let (view, shared) = view();
    let table = table(&shared);
    for n in 0..100 {
        let now = START + n as u64 * SECOND;
        let name = format!("level_{n}");
        gauge(&table, &name, n, now);
        assert_eq!(ask(&view, &name, now), Some(n as f64));
        if n % 3 == 0 {
            put(&table, &name, Data::Gauge, Value::NoRecordedValue, now + 1);
            assert_eq!(ask(&view, &name, now + 1), None);
        }
        if n % 10 == 0 {
            record(&view, now + 2);
        }
    }
    let now = START + 100 * SECOND;
    assert_eq!(ask(&view, "count({__name__=~\"level.*\"})", now), Some(66.0));
    assert_eq!(ask(&view, "max({__name__=~\"level_(1|97)\"})", now), Some(97.0));
    assert_eq!(view.series_count(), 66);
}

#[test]
fn a_pass_over_many_series_is_spread_and_can_be_broken_off() {
    let (view, shared) = view();
    let table = table(&shared);
    let slices = 5;
    for n in 0..slices * SLICE {
        gauge(&table, &format!("level_{n}"), 1, START);
    }
    let (spread, mut pauses) = (Duration::from_secs(5), Vec::new());
    view.record(START, spread, &mut |time| {
        pauses.push(time);
        true
    });
    // Reading takes a part of a slice's time; there is no pause after the last slice.
    assert_eq!(pauses.len(), slices, "the targets come last");
    assert!(pauses.iter().all(|pause| *pause <= spread / slices as u32));
    assert!(pauses.iter().sum::<Duration>() > spread / 2, "{pauses:?}");
    let kept = |at| ask(&view, "count(last_over_time({__name__=~\"level.*\"}[10s]))", at);
    assert_eq!(kept(START), Some((slices * SLICE) as f64));

    let mut asked = 0;
    view.record(START + SECOND, spread, &mut |_| {
        asked += 1;
        asked < 2
    });
    let later = "count(last_over_time({__name__=~\"level.*\"}[500ms] offset 500ms))";
    assert_eq!(
        ask(&view, later, START + SECOND * 3 / 2),
        Some(2.0 * SLICE as f64)
    );
}

#[test]
fn a_pass_over_many_small_tables_is_no_longer_than_one_over_a_large_one() {
    let (view, shared) = view();
    let (spread, tables) = (Duration::from_secs(5), 40);
    for n in 0..tables {
        gauge(&table(&shared), &format!("small_{n}"), 1, START);
    }
    let large = table(&shared);
    let pauses_of = || {
        let mut pauses = Vec::new();
        view.record(START, spread, &mut |time| {
            pauses.push(time);
            true
        });
        pauses
    };
    assert_eq!(pauses_of(), [], "all of them are a part of a slice");
    for n in 0..2 * SLICE {
        gauge(&large, &format!("level_{n}"), 1, START);
    }
    let pauses = pauses_of();
    assert!((1..=3).contains(&pauses.len()), "{pauses:?}");
    assert!(pauses.iter().sum::<Duration>() <= spread, "{pauses:?}");
}

#[test]
fn an_exponential_histogram_is_native_and_classic_now_and_in_the_past() {
    let (view, shared) = view();
    let table = table(&shared);
    for n in 0..30 {
        let now = START + n * SECOND;
        histogram(&table, 5 + n, now);
        record(&view, now);
    }
    let now = START + 29 * SECOND + 1;
    for (query, expected) in [
        ("histogram_count(wait)", 69.0),
        ("wait_count", 69.0),
        ("wait_bucket{le=\"2\"}", 35.0),
        // A bucket is there while it is empty too.
        ("wait_bucket{le=\"4\"}", 35.0),
        ("count({__name__=~\"wait.*\"})", 8.0),
        ("histogram_quantile(1, wait)", 8.0),
        ("histogram_avg(wait) - on () wait_sum / wait_count", 0.0),
        ("count_over_time(wait[10s])", 10.0),
        (
            "histogram_count(delta(wait[10s])) - on () delta(wait_count[10s])",
            0.0,
        ),
        ("histogram_sum(rate(wait[10s]))", 3.0),
        ("histogram_count(wait offset 10s)", 49.0),
        ("histogram_count(last_over_time(sum(wait)[10s:1s]))", 69.0),
    ] {
        let answer = ask(&view, query, now);
        assert!(
            answer.is_some_and(|answer| (answer - expected).abs() < 1e-9),
            "{query}: {answer:?}"
        );
    }
    // A series that has gone keeps its past as long as a living series.
    shared.tables.remove(&table);
    assert_eq!(ask(&view, "histogram_count(wait)", now), None);
    assert_eq!(ask(&view, "count_over_time(wait[20s])", now), Some(20.0));
    record(&view, now + 61 * SECOND);
    assert_eq!(ask(&view, "count_over_time(wait[2m])", now + 61 * SECOND), None);
}

#[test]
fn a_name_with_a_suffix_is_found_as_a_metric_and_as_a_part_of_one() {
    let (view, shared) = view();
    let table = table(&shared);
    histogram(&table, 5, START);
    gauge(&table, "other_count", 7, START);
    gauge(&table, "wait_counter", 8, START);
    assert_eq!(ask(&view, "other_count", START), Some(7.0));
    assert_eq!(ask(&view, "wait_count", START), Some(11.0));
    // The same name and labels from elsewhere.
    gauge(&table, "wait_count", 9, START);
    assert_eq!(ask(&view, "wait_count", START), Some(11.0));
    assert_eq!(ask(&view, "absent(wait_bucket_count)", START), Some(1.0));
}

/// A point of a resource.
pub(super) fn send(
    table: &Table,
    resource: &[(&str, &str)],
    name: &str,
    times: (UnixNanos, UnixNanos),
    value: i64,
) {
    send_leased(table, resource, None, name, times, value);
}

/// A point of a resource whose receiver keeps a lease.
pub(super) fn send_leased(
    table: &Table,
    resource: &[(&str, &str)],
    lease: Option<&Arc<Lease>>,
    name: &str,
    (start, time): (UnixNanos, UnixNanos),
    value: i64,
) {
    let temporality = Temporality::Cumulative;
    let data = match start {
        0 => Data::Gauge,
        _ => Data::Sum {
            monotonic: true,
            temporality,
        },
    };
    let of = (resource.iter().copied().collect(), Attributes::default());
    let point = point(name, data, of, (start, time), Value::Int(value));
    table.session(time).of_leased(lease.cloned()).observe(&point);
}

#[test]
fn an_unknown_metric_is_named_with_the_one_that_was_meant() {
    let (view, shared) = view();
    let table = table(&shared);
    gauge(&table, "queue_depth", 1, START);
    let notes = ask_with_notes(&view, "queue_dept", START).1;
    let expected = "metric \"queue_dept\" is not known: no present or recent series has this name; did you mean \"queue_depth\"?";
    assert_eq!(notes.warnings(), [expected]);
    assert_eq!(
        ask_with_notes(&view, "queue_depth{pod=\"other\"}", START).1,
        QueryWarnings::default()
    );
    record(&view, START);
    put(
        &table,
        "queue_depth",
        Data::Gauge,
        Value::NoRecordedValue,
        START + 1,
    );
    assert_eq!(
        ask_with_notes(&view, "queue_depth", START + 1).1,
        QueryWarnings::default(),
        "it was there"
    );
}

#[test]
fn a_gateway_that_keeps_no_series_says_what_queries_need() {
    let (view, shared) = view();
    let warnings = || ask_with_notes(&view, "queue_depth", START).1.warnings();
    let unknown = "metric \"queue_depth\" is not known: no present or recent series has this name";
    let expected = format!(
        "{unknown}; queries see no data that exporters only send on: add a `prometheus` exporter to the pipeline"
    );
    assert_eq!(warnings(), [expected]);
    // A table without series may get them.
    let _table = table(&shared);
    assert_eq!(warnings(), [unknown]);
}

#[test]
fn what_resources_say_is_target_info_and_has_a_past() {
    let (view, shared) = view();
    let table = table(&shared);
    let pod = |pod: &'static str| [("service.name", "shop"), ("k8s.pod.name", pod)];
    for second in 0..3 {
        let now = START + second * SECOND;
        send(&table, &pod("p1"), "req", (START - 1, now), 5);
        record(&view, now);
    }
    let now = START + 2 * SECOND;
    let joined = "req_total * on (job) group_left (k8s_pod_name) target_info";
    assert_eq!(
        ask(&view, &format!("sum by (k8s_pod_name) ({joined})"), now),
        Some(5.0)
    );
    assert_eq!(
        ask(
            &view,
            "count_over_time(target_info{k8s_pod_name=\"p1\"}[10s])",
            now
        ),
        Some(3.0)
    );
    // Another pod takes over: it is the one that is described, at once.
    let now = START + 4 * SECOND;
    send(&table, &pod("p2"), "req", (START + 3 * SECOND, now), 6);
    assert_eq!(ask(&view, "target_info{k8s_pod_name=\"p2\"}", now), Some(1.0));
    assert_eq!(ask(&view, "count(target_info)", now), Some(1.0));
    assert_eq!(
        ask(&view, &format!("sum by (k8s_pod_name) ({joined})"), now),
        Some(6.0)
    );
    table.expire(now + 3600 * SECOND);
    record(&view, now + 3600 * SECOND);
    assert_eq!(ask(&view, "target_info", now + 3600 * SECOND), None);
}

/// The query of a composite is one like others.
#[test]
fn the_query_of_a_composite_looks_at_no_more_than_the_memory_limit_allows() {
    let (view, shared) = view();
    let table = table(&shared);
    let now = unix_now();
    for pod in 0..100 {
        let of = (
            Attributes::default(),
            [("pod", &*pod.to_string())].into_iter().collect(),
        );
        let point = point("depth", Data::Gauge, of, (now - 1, now), Value::Int(1));
        table.observe(&point, now);
    }
    let query = Query::parse("sum(depth)").unwrap();
    let evaluated = view.evaluate(&query, now).unwrap();
    assert_eq!(evaluated.values.len(), 1);
    assert_eq!(evaluated.values[0].1, 100.0);
    shared
        .memory
        .add_limit(tidegate_pipeline::component::Limit::of(128 * 50));
    let refused = view.evaluate(&query, now).unwrap_err();
    assert!(refused.contains("more samples than the limit"), "{refused}");
}
