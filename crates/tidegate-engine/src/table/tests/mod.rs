// SPDX-License-Identifier: Apache-2.0

//! Single rules of resets, leases, caps and groupings; `model` compares tables with a slow, simple model.

mod events;
mod fairness;
mod frozen;
mod model;
mod saved;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use super::{Limits, Outcome, Table};
use crate::*;

const SECOND: u64 = 1_000_000_000;
const NOW: u64 = 1_700_000_000 * SECOND;
const COUNTER: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Cumulative,
};
const DELTA: Data = Data::Sum {
    monotonic: true,
    temporality: Temporality::Delta,
};
const UP_DOWN: Data = Data::Sum {
    monotonic: false,
    temporality: Temporality::Cumulative,
};

fn attributes(pairs: &[(&str, &str)]) -> Attributes {
    pairs.iter().copied().collect()
}

fn series(name: &str, data: Data, resource: &[(&str, &str)], point: &[(&str, &str)]) -> Arc<Series> {
    Arc::new(Series {
        resource: Arc::new(Resource {
            attributes: attributes(resource),
            schema_url: "".into(),
        }),
        scope: Arc::default(),
        metric: Arc::new(Metric {
            name: name.into(),
            description: "".into(),
            unit: "".into(),
            data,
            metadata: Attributes::default(),
        }),
        attributes: attributes(point),
    })
}

fn point(series: &Arc<Series>, start: u64, time: u64, value: impl Into<Value>) -> Point {
    Point {
        series: series.clone(),
        start,
        time,
        value: value.into(),
        exemplars: Vec::new(),
    }
}

fn table(rules: Vec<Rule>) -> Table {
    Table::new("test", rules, Limits::default())
}

fn bounds(bytes: usize) -> Arc<Bounds> {
    let bounds = Arc::new(Bounds::default());
    bounds.set_bytes(bytes);
    bounds
}

fn by(name: &str, keys: &[&str]) -> Rule {
    Rule {
        grouping: Grouping::by(keys.iter().copied()),
        ..Rule::new(Pattern::parse(name).unwrap())
    }
}

/// Name and attributes as text -> value.
fn show(table: &Table) -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    table.read(NOW, &mut |reading| {
        let pairs = reading.series.attributes.iter();
        let labels: Vec<String> = pairs
            .map(|(key, value)| format!("{key}={}", text(value)))
            .collect();
        let name = format!("{}{{{}}}", reading.series.metric.name, labels.join(","));
        assert_eq!(all.insert(name, reading.value.clone()), None);
    });
    all
}

fn text(value: AttributeRef<'_>) -> String {
    value.as_str().map_or_else(|| format!("{value:?}"), str::to_owned)
}

fn int(table: &Table, name: &str) -> i64 {
    match show(table).get(name) {
        Some(Value::Int(number)) => *number,
        other => panic!("{name}: {other:?} in {:?}", show(table)),
    }
}

fn kind(name: &str, instrument: Instrument) -> Kind {
    Kind {
        name: name.into(),
        description: "".into(),
        unit: "".into(),
        instrument,
        attributes: Attributes::default(),
    }
}

fn source(pairs: &[(&str, &str)], term: Duration) -> Arc<Source> {
    Arc::new(Source {
        id: SourceId::next(),
        resource: Arc::default(),
        scope: Arc::default(),
        attributes: attributes(pairs),
        lease: Arc::new(Lease::new(term, NOW)),
    })
}

fn events(source: &Arc<Source>, schema: &Arc<Schema>, columns: &[(u16, u64)]) -> Events {
    Events {
        source: source.clone(),
        schema: schema.clone(),
        kinds: columns.iter().map(|(kind, _)| *kind).collect(),
        values: Values::U64(columns.iter().map(|(_, value)| *value).collect()),
        times: None,
        weights: None,
        observed: NOW,
    }
}

const HOUR: Duration = Duration::from_hours(1);

#[test]
fn a_counter_of_several_sources_is_the_sum_of_what_each_has_counted() {
    let table = table(vec![by("requests", &["code"])]);
    let pods = ["a", "b"].map(|pod| series("requests", COUNTER, &[("pod", pod)], &[("code", "200")]));
    for (pod, value) in [(0, 10), (1, 5), (0, 12)] {
        let time = NOW + value as u64;
        assert_eq!(
            table.observe(&point(&pods[pod], NOW, time, value), NOW),
            Outcome::Absorbed
        );
    }
    assert_eq!(int(&table, "requests{code=200}"), 17);
    // Pod a restarts.
    table.observe(&point(&pods[0], NOW + 50, NOW + 60, 3), NOW);
    assert_eq!(int(&table, "requests{code=200}"), 20);
}

#[test]
fn a_source_that_leaves_keeps_what_it_counted_and_takes_back_what_may_fall() {
    let table = table(vec![
        by("requests", &[]),
        by("open", &[]),
        Rule {
            gauge: GaugePolicy::Sum,
            ..by("depth", &[])
        },
    ]);
    let of = |name, data, pod| series(name, data, &[("pod", pod)], &[]);
    for pod in ["a", "b"] {
        table.observe(&point(&of("requests", COUNTER, pod), NOW, NOW, 10), NOW);
        table.observe(&point(&of("open", UP_DOWN, pod), NOW, NOW, 4), NOW);
        table.observe(&point(&of("depth", Data::Gauge, pod), 0, NOW, 7), NOW);
    }
    assert_eq!(
        (
            int(&table, "requests{}"),
            int(&table, "open{}"),
            int(&table, "depth{}")
        ),
        (20, 8, 14)
    );
    let later = NOW + 200 * SECOND;
    for (name, data, value) in [
        ("requests", COUNTER, 11),
        ("open", UP_DOWN, 5),
        ("depth", Data::Gauge, 8),
    ] {
        table.observe(&point(&of(name, data, "a"), NOW, later, value), later);
    }
    let end = NOW + 400 * SECOND;
    table.expire(end);
    assert_eq!(
        (
            int(&table, "requests{}"),
            int(&table, "open{}"),
            int(&table, "depth{}")
        ),
        (21, 5, 8)
    );
    // Pod b was only slow: what it had counted before is not counted again.
    table.observe(&point(&of("requests", COUNTER, "b"), NOW, end, 13), end);
    table.observe(&point(&of("open", UP_DOWN, "b"), NOW, end, 3), end);
    table.observe(&point(&of("depth", Data::Gauge, "b"), 0, end, 1), end);
    assert_eq!(
        (
            int(&table, "requests{}"),
            int(&table, "open{}"),
            int(&table, "depth{}")
        ),
        (24, 8, 9)
    );
}

#[test]
fn gauges_combine_by_policy() {
    let policies = [
        GaugePolicy::Last,
        GaugePolicy::Min,
        GaugePolicy::Max,
        GaugePolicy::Mean,
        GaugePolicy::Sum,
    ];
    let expected = [
        Value::Int(2),
        Value::Int(1),
        Value::Int(6),
        Value::Double(3.0),
        Value::Int(9),
    ];
    for (policy, expected) in policies.into_iter().zip(expected) {
        let table = table(vec![Rule {
            gauge: policy,
            ..by("depth", &[])
        }]);
        for (pod, time, value) in [("a", 1, 6), ("b", 2, 1), ("c", 3, 5), ("c", 9, 2), ("c", 4, 100)] {
            table.observe(
                &point(
                    &series("depth", Data::Gauge, &[("pod", pod)], &[]),
                    0,
                    NOW + time,
                    value,
                ),
                NOW,
            );
        }
        assert_eq!(show(&table)["depth{}"], expected, "{policy:?}");
    }
}

#[test]
fn points_that_no_rule_takes_are_told_so_every_time() {
    let table = table(vec![by("requests", &[])]);
    let other = series("other", Data::Gauge, &[], &[]);
    for time in 0..3 {
        assert_eq!(
            table.observe(&point(&other, 0, NOW + time, 1), NOW),
            Outcome::Unmatched
        );
    }
    assert!(table.is_empty());
}

#[test]
fn summaries_add_up_by_sum_and_count_and_their_quantiles_are_refused() {
    let table = table(vec![by("rtt", &[])]);
    let pods = ["a", "b"].map(|pod| series("rtt", Data::Summary, &[("pod", pod)], &[]));
    let say = |pod: usize, start, time, count, sum| {
        let quantiles = vec![Quantile {
            quantile: 0.5,
            value: 9.0,
        }];
        let value = Value::Summary(Box::new(Summary {
            count,
            sum,
            quantiles,
        }));
        table.observe(&point(&pods[pod], start, NOW + time, value), NOW)
    };
    for (pod, start, time, count, sum) in [
        (0, 1, 1, 4, 8.0),
        (1, 1, 1, 1, 2.0),
        (0, 1, 2, 6, 11.0),
        (0, 5, 6, 1, 1.0),
    ] {
        assert_eq!(say(pod, NOW + start, time, count, sum), Outcome::Absorbed);
    }
    assert_eq!(say(0, NOW + 5, 6, 1, 1.0), Outcome::Absorbed, "a duplicate");
    let expected = Value::Summary(Box::new(Summary {
        count: 8,
        sum: 14.0,
        quantiles: Vec::new(),
    }));
    assert_eq!(show(&table)["rtt{}"], expected);
    assert_eq!(table.stats().refused_quantiles, 5);
}

#[test]
fn histograms_of_unequal_bounds_stay_apart_where_that_is_asked_for() {
    let rule = Rule {
        apart: true,
        ..by("wait", &[])
    };
    let table = table(vec![rule]);
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let of = |bounds: &[f64], values: &[f64]| {
        let mut histogram = Histogram::empty(bounds.into());
        values.iter().for_each(|value| histogram.observe(*value, 1));
        Value::Histogram(Box::new(histogram))
    };
    let [a, b] = ["a", "b"].map(|pod| series("wait", data, &[("pod", pod)], &[]));
    table.observe(&point(&a, NOW, NOW + 1, of(&[1.0, 2.0], &[0.5])), NOW);
    table.observe(&point(&b, NOW, NOW + 1, of(&[1.0, 2.0], &[1.5])), NOW);
    // A new run of the same process with other bounds.
    table.observe(&point(&b, NOW + 2, NOW + 3, of(&[0.25], &[0.1, 7.0])), NOW);
    table.observe(&point(&b, NOW + 2, NOW + 4, of(&[0.25], &[0.1, 7.0, 8.0])), NOW);
    let all = show(&table);
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all["wait{tidegate.bounds=1,2}"], of(&[1.0, 2.0], &[0.5, 1.5]));
    let counts = match &all["wait{tidegate.bounds=0.25}"] {
        Value::Histogram(histogram) => histogram.counts.clone(),
        other => panic!("{other:?}"),
    };
    assert_eq!(counts, [1, 2]);
}

#[test]
fn a_cap_in_bytes_sends_new_series_to_overflow_and_room_comes_back() {
    let limits = Limits {
        bytes: 20_000,
        ..Limits::default()
    };
    let table = Table::new("test", vec![Rule::newest()], limits);
    let say = |pod: usize, now: u64| {
        let series = series("c", DELTA, &[], &[("pod", &format!("pod-{pod}"))]);
        table.observe(&point(&series, now, now + 1, 1), now);
    };
    (0..500).for_each(|pod| say(pod, NOW));
    let stats = table.stats();
    let overflowed = stats.overflowed_streams[Overflow::Bytes as usize];
    assert!(overflowed > 400 && overflowed < 500, "{stats:?}");
    let total: i64 = show(&table)
        .values()
        .map(|value| value.as_f64().unwrap() as i64)
        .sum();
    assert_eq!(total, 500, "nothing is lost");
    for second in (0..3000).step_by(100) {
        table.expire(NOW + second * SECOND);
    }
    assert_eq!((table.len(), table.stats().bytes), (0, 0));
    say(7, NOW + 3000 * SECOND);
    assert_eq!(
        table.stats().overflowed_streams[Overflow::Bytes as usize],
        overflowed
    );
}

#[test]
fn a_bound_that_changes_holds_where_no_cap_in_bytes_is_set() {
    let most = bounds(20_000);
    let table = |limits| Table::new("test", vec![Rule::newest()], limits).bounded_by(most.clone());
    let say = |table: &Table, pod: usize| {
        let series = series("c", DELTA, &[], &[("pod", &format!("pod-{pod}"))]);
        table.observe(&point(&series, NOW, NOW + 1, 1), NOW);
    };
    let overflowed = |table: &Table| table.stats().overflowed_streams[Overflow::Bytes as usize];
    let bounded = table(Limits::default());
    (0..500).for_each(|pod| say(&bounded, pod));
    let crowded = overflowed(&bounded);
    assert!(crowded > 400 && crowded < 500, "{crowded}");
    most.set_bytes(2_000_000);
    (500..600).for_each(|pod| say(&bounded, pod));
    assert_eq!(overflowed(&bounded), crowded);
    most.set_bytes(0);
    let configured = table(Limits {
        bytes: 2_000_000,
        ..Limits::default()
    });
    (0..500).for_each(|pod| say(&configured, pod));
    assert_eq!(overflowed(&configured), 0, "what is configured counts");
}

#[test]
fn a_tight_table_takes_points_of_known_series_only() {
    let bounds = bounds(2_000_000);
    let table = Table::new("test", vec![by("*", &["host"])], Limits::default()).bounded_by(bounds.clone());
    let mut times = NOW..;
    let mut observe = |host: &str, pod: &str, value: i64| {
        let series = series("c", DELTA, &[], &[("host", host), ("pod", pod)]);
        let (start, time) = (times.next().unwrap(), times.start);
        table.observe(&point(&series, start, time, value), NOW)
    };
    assert_eq!(observe("a", "1", 1), Outcome::Absorbed);
    bounds.set_tight(true);
    let limited = Outcome::Rejected(Rejection::Limit);
    assert_eq!(observe("a", "1", 2), Outcome::Absorbed);
    assert_eq!(observe("a", "2", 10), limited, "a new stream of a known series");
    assert_eq!(observe("b", "1", 10), limited, "a new series");
    let schema = Arc::new(Schema {
        kinds: vec![kind("c", Instrument::Counter), kind("new", Instrument::Counter)],
    });
    let known = source(&[("host", "a")], HOUR);
    assert_eq!(
        table.absorb(&events(&known, &schema, &[(0, 4), (1, 5)])).absorbed,
        2
    );
    assert_eq!(int(&table, "c{host=a}"), 7);
    assert_eq!(
        int(&table, "new{otel.metric.overflow=Bool(true)}"),
        5,
        "new series of events overflow"
    );
    assert_eq!(table.stats().series, 2);
    bounds.set_tight(false);
    assert_eq!(observe("b", "1", 10), Outcome::Absorbed);
    assert_eq!(int(&table, "c{host=b}"), 10);
}

#[test]
fn sources_with_more_kinds_than_there_is_room_for_wait_until_others_have_left() {
    let most = bounds(100_000);
    let rules = vec![by("*", &[])];
    let table = Table::new("test", rules, Limits::default()).bounded_by(most);
    let kinds = (0..100).map(|number| kind(&format!("k{number}"), Instrument::Counter));
    let schema = Arc::new(Schema {
        kinds: kinds.collect(),
    });
    let absorbed = |source: &Arc<Source>| table.absorb(&events(source, &schema, &[(0, 1)])).absorbed;
    let sources: Vec<_> = (0..10).map(|_| source(&[], HOUR)).collect();
    let taken: Vec<_> = sources.iter().filter(|source| absorbed(source) == 1).collect();
    assert_eq!(taken.len(), 2, "50 kB are 166 kinds");
    assert_eq!(absorbed(taken[0]), 1, "one that is known goes on");
    assert_eq!(int(&table, "k0{}"), 3);
    taken.iter().for_each(|source| table.let_go(source.id));
    assert_eq!(absorbed(&sources[9]), 1);
    assert_eq!(int(&table, "k0{}"), 4);
}

#[test]
fn long_names_and_labels_weigh_what_is_kept_of_them_everywhere_and_overflow_has_an_end() {
    const BOUND: usize = 4 << 20;
    let bounded = || Table::new("test", vec![Rule::newest()], Limits::default()).bounded_by(bounds(BOUND));
    let long = |number: usize| format!("{number}{}", "x".repeat(64 << 10));
    let (labels, names) = (bounded(), bounded());
    for number in 0..500 {
        let labelled = series("c", DELTA, &[], &[("pod", &long(number))]);
        labels.observe(&point(&labelled, NOW, NOW + 1, 1), NOW);
        let named = series(&long(number), DELTA, &[], &[]);
        names.observe(&point(&named, NOW, NOW + 1, 1), NOW);
    }
    // About 200 KiB each: 22, and a few that overflow.
    assert!((10..40).contains(&labels.len()), "{}", labels.len());
    assert!((10..40).contains(&names.len()), "{}", names.len());
}

#[test]
fn a_table_of_newest_states_shows_points_as_they_came_and_adds_deltas_up() {
    let table = table(vec![Rule::newest()]);
    let counter = series("c", COUNTER, &[("pod", "a")], &[]);
    let delta = series("d", DELTA, &[], &[]);
    let summary = series("s", Data::Summary, &[], &[]);
    table.observe(&point(&counter, NOW, NOW + 1, 10), NOW);
    table.observe(&point(&counter, NOW + 5, NOW + 6, 2), NOW);
    for at in 0..3 {
        table.observe(&point(&delta, NOW + at, NOW + at + 1, 4), NOW);
    }
    let quantiles = Value::Summary(Box::new(Summary {
        count: 3,
        ..Summary::default()
    }));
    table.observe(&point(&summary, 0, NOW, quantiles.clone()), NOW);
    let all = show(&table);
    assert_eq!(
        (&all["c{}"], &all["d{}"], &all["s{}"]),
        (&Value::Int(2), &Value::Int(12), &quantiles)
    );
    table.read(NOW, &mut |reading| {
        if &*reading.series.metric.name == "d" {
            assert_eq!(reading.series.metric.data, COUNTER);
        }
    });
    // A point without a recorded value ends its series, and the next one begins it again.
    table.observe(&point(&counter, NOW + 5, NOW + 7, Value::NoRecordedValue), NOW);
    assert!(!show(&table).contains_key("c{}"));
    table.observe(&point(&counter, NOW + 5, NOW + 8, 3), NOW);
    assert_eq!(int(&table, "c{}"), 3);
}

#[test]
fn a_counter_that_left_is_remembered_for_a_day_and_where_room_is_scarce_counts_from_its_return() {
    let counter = |pod: usize| series("requests", COUNTER, &[("pod", &pod.to_string())], &[]);
    for (streams, expected) in [(1_000_000, 11), (64, 10)] {
        let limits = Limits {
            streams,
            ..Limits::default()
        };
        let table = Table::new("test", vec![by("requests", &[])], limits);
        for pod in 0..8 {
            table.observe(&point(&counter(pod), NOW, NOW + 1, 0), NOW);
        }
        table.observe(&point(&counter(0), NOW, NOW + 2, 10), NOW);
        for minute in 0..60 {
            let now = NOW + minute * 60 * SECOND;
            table.observe(&point(&counter(1), NOW, now, 0), now);
            table.expire(now);
        }
        let later = NOW + 3600 * SECOND;
        table.observe(&point(&counter(0), NOW, later, 11), later);
        assert_eq!(int(&table, "requests{}"), expected);
    }
}

#[test]
fn processes_that_are_shown_as_one_series_add_up_and_do_so_again_after_they_were_gone() {
    let table = table(vec![Rule::newest()]);
    let requests = series("requests", COUNTER, &[], &[]);
    let shown_after = |words: &[(u64, i64)], from: u64| -> Vec<i64> {
        let words = words.iter().enumerate();
        let levels = words.map(|(at, (start, value))| {
            let now = from + at as u64 * SECOND;
            table.observe(&point(&requests, NOW - start, now, *value), now);
            match show(&table).into_values().next() {
                Some(Value::Int(shown)) => shown,
                other => panic!("{other:?}"),
            }
        });
        levels.collect()
    };
    let words = [(200, 10), (100, 3), (200, 11), (100, 4)];
    assert_eq!(shown_after(&words, NOW), [10, 3, 14, 15]);
    assert_eq!(table.stats().colliding_streams, [1, 0, 0]);
    let later = NOW + 3600 * SECOND;
    table.expire(later);
    assert!(show(&table).is_empty());
    let words = [(200, 12), (100, 5), (200, 13), (100, 6)];
    assert_eq!(shown_after(&words, later), [12, 5, 18, 19]);
}

#[test]
fn deltas_that_may_fall_are_added_up_only_where_a_rule_says_so() {
    let falling = Data::Sum {
        monotonic: false,
        temporality: Temporality::Delta,
    };
    let falling = series("falling", falling, &[], &[]);
    let words = [(1, 5), (2, -2)];
    let points = words.map(|(second, value)| point(&falling, NOW, NOW + second * SECOND, value));
    let newest = table(vec![Rule::newest()]);
    for point in &points {
        assert_eq!(newest.observe(point, NOW), Outcome::Unmatched);
    }
    assert!(show(&newest).is_empty());
    let asked = table(vec![Rule::new(Pattern::Glob("*".into()))]);
    for point in &points {
        assert_eq!(asked.observe(point, NOW), Outcome::Absorbed);
    }
    assert_eq!(int(&asked, "falling{}"), 3);
}

#[test]
fn processes_of_one_start_time_are_noticed_where_points_are_shown_and_restarts_are_none() {
    for start in [0, NOW - SECOND] {
        let table = table(vec![Rule::newest()]);
        let requests = series("requests", COUNTER, &[], &[]);
        let mut now = NOW;
        let mut say = |value: i64| {
            now += SECOND;
            table.observe(&point(&requests, start, now, value), now);
            assert_eq!(int(&table, "requests{}"), value);
            table.stats().colliding_streams
        };
        for _ in 0..5 {
            let said = (1..30).map(&mut say);
            assert_eq!(said.last(), Some([0; 3]), "a process that restarts");
        }
        for turn in 0..10 {
            say(100 + turn);
            say(200 + turn);
        }
        assert_eq!(say(300), [0, 1, 0]);
    }
}

#[test]
fn series_without_a_sign_of_life_go_whether_or_not_anyone_reads() {
    let table = table(vec![Rule::newest()]);
    let (a, b) = (
        series("a", Data::Gauge, &[], &[]),
        series("b", Data::Gauge, &[], &[]),
    );
    table.observe(&point(&a, 0, NOW, 1), NOW);
    table.observe(&point(&b, 0, NOW, 1), NOW);
    table.observe(&point(&b, 0, NOW + 1, 2), NOW + 290 * SECOND);
    let version = table.version();
    table.expire(NOW + 310 * SECOND);
    assert_eq!(show(&table).keys().collect::<Vec<_>>(), ["b{}"]);
    assert!(table.version() > version);
    table.expire(NOW + 3000 * SECOND);
    assert_eq!(
        (table.len(), table.stats().streams, table.stats().expired_series),
        (0, 0, 2)
    );
}

#[test]
fn caps_send_what_is_beyond_them_to_an_overflow_series_and_lose_nothing() {
    let limits = Limits {
        series: 3,
        ..Limits::default()
    };
    let table = Table::new("test", vec![by("requests", &["user"])], limits);
    for user in 0..10 {
        let user = user.to_string();
        let counter = series("requests", COUNTER, &[], &[("user", &user)]);
        assert_eq!(
            table.observe(&point(&counter, NOW, NOW, 1), NOW),
            Outcome::Absorbed
        );
        table.observe(&point(&counter, NOW, NOW + 1, 3), NOW);
    }
    let all = show(&table);
    assert_eq!(all.len(), 4);
    assert_eq!(all["requests{otel.metric.overflow=Bool(true)}"], Value::Int(21));
    assert_eq!(table.stats().overflowed_streams, [7, 0, 0, 0]);
}

#[test]
fn one_crowded_source_or_metric_leaves_the_others_their_room() {
    let limits = Limits {
        streams_per_source: 2,
        ..Limits::default()
    };
    let table = Table::new("test", vec![Rule::newest()], limits);
    for user in ["a", "b", "c", "d"] {
        table.observe(
            &point(
                &series("m", COUNTER, &[("pod", "loud")], &[("user", user)]),
                NOW,
                NOW,
                2,
            ),
            NOW,
        );
    }
    table.observe(
        &point(
            &series("m", COUNTER, &[("pod", "quiet")], &[("user", "e")]),
            NOW,
            NOW,
            1,
        ),
        NOW,
    );
    let all = show(&table);
    assert_eq!(
        (all.len(), &all["m{otel.metric.overflow=Bool(true)}"]),
        (4, &Value::Int(4))
    );
    assert_eq!(all["m{user=e}"], Value::Int(1));

    let limits = Limits {
        series_per_metric: 1,
        ..Limits::default()
    };
    let table = Table::new("test", vec![Rule::newest()], limits);
    for (name, user) in [("m", "a"), ("m", "b"), ("n", "a")] {
        table.observe(
            &point(&series(name, COUNTER, &[], &[("user", user)]), NOW, NOW, 1),
            NOW,
        );
    }
    assert_eq!(show(&table).len(), 3);
}

#[test]
fn two_spellings_of_one_series_are_one() {
    let table = table(vec![by("requests", &[])]);
    let counter = series("requests", COUNTER, &[], &[("a", "1"), ("b", "2")]);
    for (spelling, value) in [(1u8, 5), (2, 9), (1, 9), (3, 12)] {
        let value = Value::Int(value);
        let sample = PointSample {
            start: NOW,
            time: NOW + u64::from(spelling),
            value: &value,
            exemplars: &[],
        };
        table
            .session(NOW)
            .observe_as(Key::of_value(&spelling), sample, &mut || Some(counter.clone()));
    }
    assert_eq!((int(&table, "requests{}"), table.stats().streams), (12, 1));
}

#[test]
fn events_become_counters_gauges_and_histograms_at_once() {
    let name = || Pattern::parse("xfer_time").unwrap();
    let made = |output: &str, instrument| Rule {
        output: Some(output.into()),
        instrument: Some(instrument),
        grouping: Grouping::by(["agent"]),
        bounds: Some(Arc::from([10.0, 100.0])),
        zero: true,
        ..Rule::new(name())
    };
    let table = table(vec![
        made("total", Instrument::Counter),
        made("last", Instrument::Gauge),
        made("spread", Instrument::Histogram),
        Rule {
            grouping: Grouping::by(["node"]),
            ..made("node_total", Instrument::Counter)
        },
    ]);
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("xfer_time", Instrument::Histogram),
            kind("other", Instrument::Counter),
        ],
    });
    let (a, b) = (
        source(&[("agent", "a"), ("node", "n")], HOUR),
        source(&[("agent", "b"), ("node", "n")], HOUR),
    );
    table.absorb(&events(&b, &schema, &[]));
    assert_eq!(int(&table, "total{agent=b}"), 0);
    let absorbed = table.absorb(&events(
        &a,
        &schema,
        &[(0, 10), (1, 7), (0, 11), (0, 1000), (0, u64::MAX)],
    ));
    assert_eq!((absorbed.absorbed, absorbed.invalid, absorbed.limited), (3, 1, 0));
    assert_eq!(
        absorbed.unmatched.map(|rest| (rest.kinds, rest.values)),
        Some((vec![1], Values::U64(vec![7])))
    );
    table.absorb(&events(&b, &schema, &[(0, 5)]));
    assert_eq!(
        (int(&table, "total{agent=a}"), int(&table, "last{agent=a}")),
        (1021, 1000)
    );
    assert_eq!(int(&table, "node_total{node=n}"), 1026);
    let Value::Histogram(spread) = show(&table)["spread{agent=a}"].clone() else {
        panic!("not a histogram");
    };
    assert_eq!(
        (spread.counts.clone(), spread.count, spread.sum),
        (vec![1, 1, 1], 3, Some(1021.0))
    );
    assert_eq!((spread.min, spread.max), (Some(10.0), Some(1000.0)));
}

#[test]
fn a_restarted_source_of_events_goes_on_where_the_old_one_ended() {
    let table = table(vec![by("*", &["agent"])]);
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("bytes", Instrument::Counter),
            kind("open", Instrument::UpDownCounter),
        ],
    });
    let first = source(&[("agent", "a")], HOUR);
    table.absorb(&events(&first, &schema, &[(0, 100), (1, 3)]));
    first.lease.end();
    table.expire(NOW + SECOND);
    assert_eq!(
        (int(&table, "bytes{agent=a}"), int(&table, "open{agent=a}")),
        (100, 0)
    );
    let second = source(&[("agent", "a")], HOUR);
    table.absorb(&events(&second, &schema, &[(0, 5), (1, 1)]));
    assert_eq!(
        (int(&table, "bytes{agent=a}"), int(&table, "open{agent=a}")),
        (105, 1)
    );
    assert_eq!(table.stats().sources, 1);
}

#[test]
fn an_idle_but_live_source_keeps_its_series_and_a_dead_one_does_not() {
    let table = table(vec![by("*", &["agent"])]);
    let schema = Arc::new(Schema {
        kinds: vec![kind("bytes", Instrument::Counter)],
    });
    let (live, dead) = (
        source(&[("agent", "live")], HOUR),
        source(&[("agent", "dead")], Duration::from_secs(1)),
    );
    for source in [&live, &dead] {
        table.absorb(&events(source, &schema, &[(0, 1)]));
    }
    for second in 1..1800 {
        let now = NOW + second * SECOND;
        live.lease.touch(now);
        table.expire(now);
    }
    assert_eq!(show(&table).keys().collect::<Vec<_>>(), ["bytes{agent=live}"]);
}

#[test]
fn weighted_and_fractional_events_count_for_what_they_stand() {
    let table = table(vec![by("*", &[])]);
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("hits", Instrument::Counter),
            kind("ms", Instrument::Histogram),
        ],
    });
    let batch = Events {
        kinds: vec![0, 0, 1, 0],
        values: Values::F64(vec![1.0, 2.0, 7.5, -1.0]),
        weights: Some(vec![10.0, 1.0, 4.0, 1.0]),
        ..events(&source(&[], HOUR), &schema, &[])
    };
    assert_eq!(table.absorb(&batch).invalid, 1);
    let all = show(&table);
    assert_eq!(all["hits{}"], Value::Double(12.0));
    let Value::Histogram(ms) = &all["ms{}"] else {
        panic!("not a histogram")
    };
    assert_eq!((ms.count, ms.sum), (4, Some(30.0)));
}

#[test]
fn histograms_of_unequal_bounds_are_brought_to_the_declared_ones() {
    let data = Data::Histogram {
        temporality: Temporality::Cumulative,
    };
    let table = table(vec![Rule {
        bounds: Some(Arc::from([1.0, 10.0])),
        ..by("h", &[])
    }]);
    for (pod, bounds) in [("a", vec![1.0, 10.0]), ("b", vec![5.0, 10.0, 20.0])] {
        let mut histogram = Histogram::empty(bounds.into());
        for value in [0.5, 4.0, 15.0] {
            histogram.observe(value, 1);
        }
        let series = series("h", data, &[("pod", pod)], &[]);
        table.observe(
            &point(&series, NOW, NOW, Value::Histogram(Box::new(histogram))),
            NOW,
        );
    }
    let Value::Histogram(all) = &show(&table)["h{}"] else {
        panic!("not a histogram")
    };
    assert_eq!((all.counts.clone(), all.sum), (vec![1, 3, 2], Some(39.0)));
}

#[test]
fn readers_and_writers_share_a_table() {
    let table = Arc::new(Table::new("test", vec![by("*", &["agent"])], Limits::default()));
    let schema = Arc::new(Schema {
        kinds: vec![kind("bytes", Instrument::Counter)],
    });
    let writers: Vec<_> = (0..4)
        .map(|writer| {
            let (table, schema) = (table.clone(), schema.clone());
            std::thread::spawn(move || {
                let agent = writer.to_string();
                let counter = series("points", COUNTER, &[("pod", &agent)], &[("agent", "shared")]);
                let source = source(&[("agent", &agent)], HOUR);
                for round in 0..500u64 {
                    table.absorb(&events(&source, &schema, &[(0, 1), (0, 2)]));
                    table.observe(&point(&counter, NOW, NOW + round + 1, round as i64 + 1), NOW);
                    table.expire(NOW + round * SECOND / 100);
                }
            })
        })
        .collect();
    let mut last: HashMap<String, i64> = HashMap::new();
    while writers.iter().any(|writer| !writer.is_finished()) {
        for (name, value) in show(&table) {
            let Value::Int(value) = value else {
                panic!("{value:?}")
            };
            let before = last.insert(name, value).unwrap_or(0);
            assert!(value >= before);
        }
    }
    for writer in writers {
        writer.join().unwrap();
    }
    assert_eq!(int(&table, "points{agent=shared}"), 2000);
    assert_eq!(int(&table, "bytes{agent=3}"), 1500);
}

/// Sessions take locks in the order of what they are given: in any order, beside each other, beside sweeps, ends of
/// series, readers and one that asks, none waits for another forever and nothing is lost.
#[test]
fn sessions_in_any_order_share_a_table() {
    const STREAMS: u64 = 300;
    const ROUNDS: u64 = 60;
    let rules = vec![
        by("*", &["pod"]),
        Rule {
            output: Some("all".into()),
            ..by("*", &["zone"])
        },
    ];
    let table = Arc::new(Table::new("test", rules, Limits::default()));
    let series_of = |writer: u64, stream: u64| {
        let (pod, zone) = (format!("{writer}-{stream}"), (stream % 3).to_string());
        series("points", COUNTER, &[("pod", &pod)], &[("zone", &zone)])
    };
    let writers: Vec<_> = (0..3)
        .map(|writer| {
            let table = table.clone();
            std::thread::spawn(move || {
                let all: Vec<_> = (0..STREAMS).map(|stream| series_of(writer, stream)).collect();
                for round in 1..=ROUNDS {
                    let mut session = table.session(NOW + round);
                    // Each round has an order of its own; 7 and 300 have no common divisor, nor have 1 and 11.
                    let step = [1, 7, 11][(round % 3) as usize];
                    for at in 0..STREAMS {
                        let series = &all[(at * step % STREAMS) as usize];
                        let outcome = session.observe(&point(series, NOW, NOW + round, round as i64));
                        assert_eq!(outcome, Outcome::Absorbed);
                    }
                    drop(session);
                    let ended = Point {
                        value: Value::NoRecordedValue,
                        ..point(&series_of(writer, STREAMS + round), NOW, NOW + round, 0)
                    };
                    table.observe(&ended, NOW + round);
                    table.expire(NOW + round);
                }
            })
        })
        .collect();
    while writers.iter().any(|writer| !writer.is_finished()) {
        show(&table);
        table.explain(&series_of(0, 0), NOW, 3);
        table.save();
    }
    for writer in writers {
        writer.join().unwrap();
    }
    for zone in 0..3 {
        assert_eq!(
            int(&table, &format!("all{{zone={zone}}}")),
            (3 * ROUNDS * STREAMS / 3) as i64
        );
    }
    assert_eq!(int(&table, "points{pod=2-299}"), ROUNDS as i64);
}

#[test]
fn a_series_says_who_feeds_it_since_when_and_how_far_it_can_be_trusted() {
    let table = table(vec![by("requests", &["zone"])]);
    let pod = |pod: &str| {
        series(
            "requests",
            COUNTER,
            &[("pod", pod)],
            &[("zone", "x"), ("pod", pod)],
        )
    };
    table.observe(&point(&pod("a"), NOW, NOW + 1, 5), NOW);
    table.observe(&point(&pod("b"), NOW + 3, NOW + 4, 7), NOW + 60 * SECOND);
    let mut shown = None;
    table.read(NOW, &mut |reading| shown = Some(reading.series.clone()));
    let shown = shown.unwrap();
    let explain = |after: u64| table.explain(&shown, NOW + after * SECOND, 10).unwrap();
    let both = explain(61);
    assert_eq!(
        (both.state, both.expected, both.reporting),
        (Freshness::Fresh, 2, 2)
    );
    assert_eq!(
        (both.value, both.rule, &*both.owner),
        (Value::Int(12), Some(0), "test")
    );
    let one = explain(100);
    assert_eq!(
        (one.state, one.expected, one.reporting),
        (Freshness::Partial, 2, 1)
    );
    let overdue = &one.sources[0];
    assert_eq!(overdue.attributes, attributes(&[("pod", "a")]));
    assert_eq!(
        (overdue.status, overdue.start, overdue.last_value),
        (SourceStatus::Overdue, NOW, Some(5.0))
    );
    assert_eq!(explain(200).state, Freshness::Stale);
    let other = series("requests", COUNTER, &[], &[("zone", "y")]);
    assert_eq!(table.explain(&other, NOW, 10), None);
}

#[test]
fn a_source_of_an_aggregated_series_lives_by_its_own_cadence() {
    let table = table(vec![by("requests", &["zone"])]);
    let say = |pod: &str, name: &str, second: u64| {
        let series = series(name, COUNTER, &[("pod", pod)], &[("zone", "x"), ("pod", pod)]);
        let now = NOW + second * SECOND;
        table.observe(&point(&series, NOW, now, second as i64), now);
    };
    for second in (0..=240).filter(|second| second % 2 == 0) {
        say("quick", "requests", second);
        if second % 120 == 0 {
            say("slow", "requests", second);
        }
    }
    let mut shown = None;
    table.read(NOW, &mut |reading| shown = Some(reading.series.clone()));
    let shown = shown.unwrap();
    let lives = |silent: u64| {
        let it = table.explain(&shown, NOW + (240 + silent) * SECOND, 10).unwrap();
        let alive = it
            .sources
            .iter()
            .filter(|source| source.status == SourceStatus::Alive);
        let alive: Vec<Attributes> = alive.map(|source| source.attributes.clone()).collect();
        (it.state, alive)
    };
    let [quick, slow] = ["quick", "slow"].map(|pod| attributes(&[("pod", pod)]));
    assert_eq!(lives(5).1.len(), 2);
    assert_eq!(lives(6), (Freshness::Partial, vec![slow.clone()]));
    assert_eq!(lives(300), (Freshness::Partial, vec![slow]));
    assert_eq!(lives(301), (Freshness::Stale, vec![]));
    // A point that no rule takes does not show that its source is alive.
    say("quick", "other", 244);
    assert_eq!(lives(6).1.len(), 1);
    say("quick", "requests", 246);
    assert!(lives(6).1.contains(&quick));
}

#[test]
fn holdings_name_the_largest_sources() {
    let table = Arc::new(table(vec![Rule::newest()]));
    for pod in 0..20 {
        for code in 0..=pod % 3 {
            let (pod, code) = (pod.to_string(), code.to_string());
            let series = series(
                "requests",
                COUNTER,
                &[("job", "api")],
                &[("pod", &pod), ("code", &code)],
            );
            table.observe(&point(&series, NOW, NOW + 1, 1), NOW);
        }
    }
    table.observe(
        &point(&series("up", Data::Gauge, &[("job", "b")], &[]), 0, NOW, 1),
        NOW,
    );
    let all = holdings(std::slice::from_ref(&table), 2);
    let named = all.sources.iter().map(|count| (&*count.name, count.count));
    assert_eq!(named.collect::<Vec<_>>(), [("job=api", 39), ("job=b", 1)]);
    assert_eq!(all.bytes, table.bytes());
    assert_eq!(holdings(std::slice::from_ref(&table), 1).sources.len(), 1);
    // A table in front of it that takes nothing of this feeds nothing.
    let before = Arc::new(self::table(vec![by("other", &["pod"])]));
    let passed = series(
        "requests",
        COUNTER,
        &[("job", "api")],
        &[("pod", "0"), ("code", "0")],
    );
    assert_eq!(
        before.observe(&point(&passed, NOW, NOW + 1, 1), NOW),
        Outcome::Unmatched
    );
    assert_eq!(holdings(&[before, table], 2).sources, all.sources);
}
