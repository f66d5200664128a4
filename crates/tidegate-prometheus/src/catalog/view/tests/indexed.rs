// SPDX-License-Identifier: Apache-2.0

//! Selecting by labels: with indexes it gives what a scan gives, and looks at few series.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use proptest::prelude::*;
use tidegate_engine::{Attributes, Data, Histogram, Table, Temporality, UnixNanos, Value};
use tidegate_promql::{Instant, Labels, NAME, Query, Samples};

use super::super::{KeptPast, View, millis};
use super::{SECOND, START, record, table};
use crate::catalog::testing::point;

const VALUES: [&str; 5] = ["", "x", "y", "xy", "a.b"];

/// Matchers, and which of the values they accept.
const MATCHERS: [(&str, [bool; 5]); 14] = [
    ("=\"\"", [true, false, false, false, false]),
    ("=\"x\"", [false, true, false, false, false]),
    ("=\"xy\"", [false, false, false, true, false]),
    ("=\"other\"", [false; 5]),
    ("!=\"\"", [false, true, true, true, true]),
    ("!=\"x\"", [true, false, true, true, true]),
    ("=~\"x\"", [false, true, false, false, false]),
    ("=~\"x|y\"", [false, true, true, false, false]),
    ("=~\"x|\"", [true, true, false, false, false]),
    ("=~\"a\\\\.b|y\"", [false, false, true, false, true]),
    ("=~\"x.*\"", [false, true, false, true, false]),
    ("=~\".+\"", [false, true, true, true, true]),
    ("!~\"x|y\"", [true, false, false, true, true]),
    ("!~\"x.*\"", [true, false, true, false, true]),
];

#[derive(Clone, Debug)]
enum Step {
    /// A gauge (or a histogram) of one of two tables has a value, or ends.
    Put {
        table: usize,
        is_histogram: bool,
        labels: [usize; 2],
        is_there: bool,
    },
    /// All series go.
    Expire,
    Sample,
    /// The name, the matchers of two labels, and whether one bucket is wanted.
    Ask {
        name: &'static str,
        matchers: [Option<usize>; 2],
        has_bound: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let put = (0..2usize, any::<bool>(), [0..VALUES.len(), 0..VALUES.len()], 0..5);
    let put = put.prop_map(|(table, is_histogram, labels, there)| Step::Put {
        table,
        is_histogram,
        labels,
        is_there: there > 0,
    });
    let name = prop::sample::select(vec!["level_count", "level_bucket", "level_sum"]);
    let matcher = || prop::option::of(0..MATCHERS.len());
    let ask = (name, [matcher(), matcher()], any::<bool>());
    let ask = ask.prop_map(|(name, matchers, has_bound)| Step::Ask {
        name,
        matchers,
        has_bound,
    });
    prop_oneof![20 => put, 1 => Just(Step::Expire), 2 => Just(Step::Sample), 10 => ask]
}

fn put(table: &Table, is_histogram: bool, labels: [usize; 2], value: Option<u64>, now: UnixNanos) {
    let temporality = Temporality::Cumulative;
    let (name, data) = if is_histogram {
        ("level", Data::Histogram { temporality })
    } else {
        ("level_count", Data::Gauge)
    };
    let value = match (value, is_histogram) {
        (None, _) => Value::NoRecordedValue,
        (Some(value), false) => Value::Int(value as i64),
        (Some(value), true) => Value::Histogram(Box::new(Histogram {
            count: value,
            sum: Some(value as f64),
            bounds: vec![1.0].into(),
            counts: vec![value, 0],
            ..Histogram::default()
        })),
    };
    let pairs = ["a", "b"].into_iter().zip(labels.map(|at| VALUES[at]));
    let attributes = pairs.filter(|(_, value)| !value.is_empty()).collect();
    let of = (Attributes::default(), attributes);
    let point = point(name, data, of, (START - 1, now), value);
    table.observe(&point, now);
}

/// Which labels a query finds.
fn found(view: &View, query: &str, now: UnixNanos) -> BTreeSet<String> {
    let query = Query::parse(query).unwrap();
    let asked = view.ask(now, &query.selections());
    let Instant::Vector(series) = query.instant(&asked, millis(now)).unwrap() else {
        panic!("{query} is a selector");
    };
    let all: Vec<String> = series.iter().map(|(labels, _)| labels.to_string()).collect();
    let distinct: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(all.len(), distinct.len(), "no label set twice");
    distinct
}

proptest! {
    #[test]
    fn an_indexed_selection_gives_what_a_scan_gives(
        steps in prop::collection::vec(step(), 1..120),
        keeps_past in any::<bool>(),
    ) {
        let shared = tidegate_pipeline::component::testing::context("extensions", "admin").shared;
        let view = if keeps_past {
            view_of(&shared)
        } else {
            View::of(&shared)
        };
        let tables = [table(&shared), table(&shared)];
        let mut model: BTreeMap<(usize, bool, [usize; 2]), bool> = BTreeMap::new();
        let mut now = START;
        for step in steps {
            now += 1_000_000;
            match step {
                Step::Put { table, is_histogram, labels, is_there } => {
                    // Of a gauge and a histogram that share a name and labels only the first is seen.
                    let mut clashing = model.keys().filter(|(_, other, at)| *other != is_histogram && *at == labels);
                    if clashing.next().is_some() {
                        continue;
                    }
                    let series = (table, is_histogram, labels);
                    if is_there || model.contains_key(&series) {
                        put(&tables[table], is_histogram, labels, is_there.then_some(3), now);
                        model.insert(series, is_there);
                    }
                }
                Step::Expire => {
                    now += 3600 * SECOND;
                    tables.iter().for_each(|table| table.expire(now));
                    model.clear();
                    record(&view, now);
                    now += 3600 * SECOND;
                }
                Step::Sample => record(&view, now),
                Step::Ask { name, matchers, has_bound } => {
                    let of_labels = matchers.iter().zip(["a", "b"]);
                    let asked = of_labels.filter_map(|(matcher, label)| {
                        matcher.map(|matcher| format!("{label}{}", MATCHERS[matcher].0))
                    });
                    let bound = has_bound.then(|| "le=\"1\"".to_owned());
                    let asked: Vec<String> = asked.chain(bound).collect();
                    let query = format!("{name}{{{}}}", asked.join(","));
                    let mut expected = BTreeSet::new();
                    for ((_, is_histogram, labels), _) in model.iter().filter(|(_, is_there)| **is_there) {
                        let accepts = labels.iter().zip(matchers).all(|(value, matcher)| {
                            matcher.is_none_or(|matcher| MATCHERS[matcher].1[*value])
                        });
                        let bounds: &[&str] = match (is_histogram, name) {
                            (true, "level_bucket") => &["1", "+Inf"],
                            (true, _) | (false, "level_count") => &[""],
                            (false, _) => &[],
                        };
                        let bounds = bounds.iter().filter(|bound| accepts && (!has_bound || **bound == "1"));
                        for bound in bounds {
                            let pairs = [(NAME, name), ("a", VALUES[labels[0]]), ("b", VALUES[labels[1]]), ("le", bound)];
                            expected.insert(pairs.into_iter().collect::<Labels>().to_string());
                        }
                    }
                    prop_assert_eq!(found(&view, &query, now), expected, "{}", query);
                }
            }
        }
    }
}

fn view_of(shared: &Arc<tidegate_pipeline::component::Shared>) -> Arc<View> {
    let view = View::of(shared);
    let limits = tidegate_promql::HistoryLimits {
        interval_ms: 1000,
        span_ms: 1000,
        max_bytes: 256 << 20,
    };
    view.keep_past(KeptPast::fixed(limits));
    view
}

#[test]
fn a_query_for_one_of_many_looks_at_that_one() {
    let shared = tidegate_pipeline::component::testing::context("extensions", "admin").shared;
    let (view, table) = (View::of(&shared), table(&shared));
    for number in 0..1000 {
        send(&table, number);
    }
    let read = || {
        view.state()
            .entries()
            .filter(|entry| !entry.numbers.is_empty())
            .count()
    };
    assert_eq!(found(&view, "level{pod=\"p77\"}", START).len(), 1);
    assert_eq!((read(), view.state().names.indexes()), (1, 1));
    assert_eq!(found(&view, "level{pod=~\"p1|p2\", zone=\"z1\"}", START).len(), 1);
    assert_eq!((read(), view.state().names.indexes()), (3, 2));
    // Both find series that come later.
    send(&table, 1001);
    assert_eq!(found(&view, "level{pod=\"p1001\", zone=\"z1\"}", START).len(), 1);
    assert_eq!(read(), 4);
    // It is known, though nothing has read it.
    let query = Query::parse("level{pod=\"other\"}").unwrap();
    let asked = view.ask(START, &query.selections());
    assert!(asked.select(&query.selections()[0]).unwrap().is_empty());
    assert_eq!(asked.query_warnings(), super::QueryWarnings::default());
    // No query has come for ten minutes.
    view.refresh(START + 601 * SECOND, &[]);
    assert_eq!(view.state().names.indexes(), 0);
}

fn send(table: &Table, number: u32) {
    let (pod, zone) = (format!("p{number}"), format!("z{}", number % 10));
    let attributes = [("pod", pod), ("zone", zone)].into_iter().collect();
    let of = (Attributes::default(), attributes);
    let point = point("level", Data::Gauge, of, (0, START), Value::Int(1));
    table.observe(&point, START);
}
