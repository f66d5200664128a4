// SPDX-License-Identifier: Apache-2.0

//! Single rules of resets, leases and groupings; `model` compares tables with a slow, simple model.

mod events;
mod explain;
mod fairness;
mod frozen;
mod limits;
mod model;
mod newest;
mod saved;
mod succession;
mod surplus;
mod threads;

use std::collections::BTreeMap;
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

fn kind(name: &str, instrument: Instrument) -> EventKind {
    EventKind {
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
fn counts_of_a_source_that_leaves_stay_and_its_levels_are_subtracted() {
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
    // Pod b was only slow: its earlier counts are not counted again.
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
fn a_table_remembers_an_expired_counter_unless_streams_are_scarce() {
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
