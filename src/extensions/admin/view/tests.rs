//! What queries see of tables whose series come, go and hide each other.

use std::sync::Arc;
use std::time::Duration;

use tidegate_engine::query::{Instant, Query, SampleValue};
use tidegate_engine::{
    Attributes, Buckets, Data, ExponentialHistogram, Limits, Metric, Point, Rule, Series, Table, Temporality,
    UnixNanos, Value,
};

use super::{SLICE, View, millis};
use crate::component::Shared;
use crate::component::testing::context;
use crate::extensions::admin::HistoryConfig;

const SECOND: u64 = 1_000_000_000;
const START: UnixNanos = 1_700_000_000 * SECOND;

fn view() -> (View, Arc<Shared>) {
    let shared = context("extensions", "admin").shared;
    let config = HistoryConfig {
        retention: Duration::from_secs(60),
        ..HistoryConfig::default()
    };
    (View::new(shared.clone(), &config, Vec::new()), shared)
}

fn record(view: &View, now: UnixNanos) {
    view.record(now, Duration::ZERO, &mut |_| true);
}

fn table(shared: &Shared) -> Arc<Table> {
    let table = Arc::new(Table::new("test", vec![Rule::newest()], Limits::default()));
    shared.tables.add(table.clone());
    table
}

fn put(table: &Table, name: &str, data: Data, value: Value, now: UnixNanos) {
    let metric = Metric {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        data,
        metadata: Attributes::default(),
    };
    let point = Point {
        series: Arc::new(Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(metric),
            attributes: [("pod", "p1")].into_iter().collect(),
        }),
        start: START - 1,
        time: now,
        value,
        exemplars: Vec::new(),
    };
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
    let query = Query::parse(query).unwrap();
    view.refresh(now, query.only_names().as_deref());
    match query.instant(view, millis(now)).unwrap() {
        Instant::Vector(vector) => {
            assert!(vector.len() < 2, "{vector:?}");
            let (_, value) = vector.into_iter().next()?;
            SampleValue::float(&value)
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn of_two_series_with_one_name_and_labels_the_first_counts_until_it_goes() {
    let (view, shared) = view();
    let (one, two) = (table(&shared), table(&shared));
    gauge(&one, "level", 1, START);
    assert_eq!(ask(&view, "level", START), Some(1.0));
    gauge(&two, "level", 2, START);
    assert_eq!(ask(&view, "sum(level)", START), Some(1.0));
    assert_eq!(ask(&view, "count({__name__=~\"level.*\"})", START), Some(1.0));
    put(&one, "level", Data::Gauge, Value::NoRecordedValue, START + 1);
    assert_eq!(ask(&view, "level", START + 1), Some(2.0));
    shared.tables.remove(&two);
    assert_eq!(ask(&view, "level", START + 2), None);
    assert_eq!(view.len(), 0);
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
    assert_eq!(view.len(), 66);
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
    // Reading takes a part of a slice's time; after the last one nobody waits.
    assert_eq!(pauses.len(), slices);
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
fn an_exponential_histogram_is_a_native_one_and_a_classic_one_now_and_in_the_past() {
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
    // What has gone has a past as long as it would have one.
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
