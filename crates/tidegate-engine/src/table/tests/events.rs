// SPDX-License-Identifier: Apache-2.0

//! The state of event kinds between two reads.

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
