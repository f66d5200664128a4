// SPDX-License-Identifier: Apache-2.0

//! Events: the state of their kinds between two reads, their sources and their weights.

use super::*;

#[test]
fn of_each_kind_is_kept_what_the_series_that_it_ends_in_need() {
    let both = |output: &str, instrument| Rule {
        output: Some(output.into()),
        instrument: Some(instrument),
        ..by("mixed", &["agent"])
    };
    let table = table(vec![
        by("depth", &["agent"]),
        Rule {
            gauge: GaugePolicy::Sum,
            ..by("load", &["node"])
        },
        both("total", Instrument::Counter),
        both("newest", Instrument::Gauge),
    ]);
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("depth", Instrument::Gauge),
            kind("load", Instrument::Gauge),
            kind("mixed", Instrument::Counter),
        ],
    });
    let [a, b] = ["a", "b"].map(|agent| source(&[("agent", agent), ("node", "n")], HOUR));
    table.absorb(&events(
        &a,
        &schema,
        &[(0, 9), (1, 100), (2, 5), (0, 4), (1, 30), (2, 3)],
    ));
    table.absorb(&events(&b, &schema, &[(0, 2), (1, 7)]));
    let shown = || {
        let names = [
            "depth{agent=a}",
            "depth{agent=b}",
            "load{node=n}",
            "total{agent=a}",
            "newest{agent=a}",
        ];
        names.map(|name| int(&table, name))
    };
    assert_eq!(shown(), [4, 2, 37, 8, 3]);
    table.absorb(&events(&a, &schema, &[(0, 1), (1, 0), (2, 2)]));
    assert_eq!(shown(), [1, 2, 7, 10, 2]);
}

#[test]
fn of_several_sums_that_may_fall_each_takes_back_its_own() {
    let table = table(vec![by("*", &["node"])]);
    let kinds = ["open", "held", "sent"].map(|name| kind(name, Instrument::UpDownCounter));
    let schema = Arc::new(Schema { kinds: kinds.into() });
    let [a, b] = ["a", "b"].map(|agent| source(&[("agent", agent), ("node", "n")], HOUR));
    table.absorb(&events(&a, &schema, &[(0, 1), (1, 20), (2, 300)]));
    table.absorb(&events(&b, &schema, &[(0, 4), (1, 50), (2, 600)]));
    let shown = || ["open", "held", "sent"].map(|name| int(&table, &format!("{name}{{node=n}}")));
    assert_eq!(shown(), [5, 70, 900]);
    table.let_go(a.id);
    assert_eq!(shown(), [4, 50, 600]);
    table.let_go(b.id);
    assert_eq!(shown(), [0, 0, 0]);
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
