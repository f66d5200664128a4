// SPDX-License-Identifier: Apache-2.0

//! A table that takes over the state of another one shows what one table would.

use super::*;
use crate::table::Restored;

fn replaced(old: &Table, rules: Vec<Rule>) -> (Arc<Table>, Restored) {
    let new = Arc::new(table(rules));
    let restored = new.succeed(&[old]);
    (new, restored)
}

fn rules(of_x: &[&str]) -> Vec<Rule> {
    vec![
        by("c", &["zone"]),
        by("u", &[]),
        Rule {
            gauge: GaugePolicy::Sum,
            ..by("g", &[])
        },
        by("x", of_x),
    ]
}

fn report(table: &Table, pod: &str, time: u64, values: [i64; 4]) {
    let data = [("c", COUNTER), ("u", UP_DOWN), ("g", Data::Gauge), ("x", COUNTER)];
    for ((name, data), value) in data.into_iter().zip(values) {
        let start = if data == Data::Gauge { 0 } else { NOW };
        let series = series(name, data, &[("pod", pod)], &[("zone", "z")]);
        let outcome = table.observe(&point(&series, start, time, value), time);
        assert_eq!(outcome, Outcome::Absorbed, "{name}");
    }
}

#[test]
fn series_of_equal_rules_go_on_and_others_begin_at_0() {
    let old = table(rules(&["zone"]));
    report(&old, "a", NOW + 1, [10, 4, 7, 9]);
    report(&old, "b", NOW + 1, [5, 3, 2, 1]);
    let (new, restored) = replaced(&old, rules(&[]));
    assert_eq!((restored.series, restored.streams, restored.outdated), (3, 6, 1));
    let shown = || [int(&new, "c{zone=z}"), int(&new, "u{}"), int(&new, "g{}")];
    assert_eq!(shown(), [15, 7, 9]);
    assert_eq!(show(&new).len(), 3, "{:?}", show(&new));
    let later = NOW + 200 * SECOND;
    report(&new, "a", later, [12, 1, 1, 11]);
    assert_eq!(shown(), [17, 4, 3]);
    assert_eq!(int(&new, "x{}"), 11);
    // The other pod is silent: its levels go, its counts stay.
    new.expire(NOW + 400 * SECOND);
    assert_eq!(shown(), [17, 1, 1]);
    assert_eq!(int(&old, "c{zone=z}"), 15, "the old table is as it was");
}

pub(super) fn descriptions(table: &Table) -> Vec<String> {
    let mut all = Vec::new();
    table.read(NOW, &mut |reading| {
        all.push(reading.series.metric.description.to_string());
    });
    all
}

#[test]
fn series_of_a_rule_with_another_description_go_on_with_it() {
    let of = |description: Option<&str>, unit: &str| Rule {
        description: description.map(Into::into),
        unit: Some(unit.into()),
        ..by("c", &["zone"])
    };
    let pod = series("c", COUNTER, &[("pod", "a")], &[("zone", "z")]);
    let old = table(vec![of(None, "By")]);
    old.observe(&point(&pod, NOW, NOW + 1, 10), NOW + 1);
    let (second, restored) = replaced(&old, vec![of(Some("text"), "By")]);
    assert_eq!((restored.series, restored.streams, restored.outdated), (1, 1, 0));
    assert_eq!(descriptions(&second), ["text"]);
    let (third, _) = replaced(&second, vec![of(Some("other"), "By")]);
    third.observe(&point(&pod, NOW, NOW + 2, 13), NOW + 2);
    assert_eq!(
        (int(&third, "c{zone=z}"), descriptions(&third)),
        (13, vec!["other".to_owned()])
    );
    let (fourth, _) = replaced(&third, vec![of(None, "By")]);
    assert_eq!(
        (int(&fourth, "c{zone=z}"), descriptions(&fourth)),
        (13, vec!["other".to_owned()])
    );
    let (_, restored) = replaced(&fourth, vec![of(None, "s")]);
    assert_eq!(
        (restored.series, restored.outdated),
        (0, 1),
        "the unit is part of a series"
    );
}

#[test]
fn a_series_gets_the_new_description_of_the_rule_whose_text_it_has() {
    // Each of the rules could make the series.
    let of = |name: &str, description: Option<&str>| Rule {
        output: Some("total".into()),
        description: description.map(Into::into),
        ..by(name, &["zone"])
    };
    let pod = series("c", COUNTER, &[("pod", "a")], &[("zone", "z")]);
    let old = table(vec![of("other", None), of("c", Some("text"))]);
    old.observe(&point(&pod, NOW, NOW + 1, 10), NOW + 1);
    for text in ["text", "right"] {
        let (new, _) = replaced(&old, vec![of("other", Some("wrong")), of("c", Some(text))]);
        new.observe(&point(&pod, NOW, NOW + 2, 13), NOW + 2);
        assert_eq!(int(&new, "total{zone=z}"), 13);
        assert_eq!(descriptions(&new), [text]);
    }
}

#[test]
fn a_stream_of_a_changed_and_an_equal_rule_counts_once_in_each() {
    let of = |name: &str, keys: &[&str]| Rule {
        output: Some(name.into()),
        ..by("c", keys)
    };
    let pod = series("c", COUNTER, &[("pod", "a")], &[("zone", "z")]);
    let old = table(vec![of("all", &[]), of("some", &[])]);
    old.observe(&point(&pod, NOW, NOW + 1, 10), NOW + 1);
    let (new, _) = replaced(&old, vec![of("some", &["zone"]), of("all", &[])]);
    new.observe(&point(&pod, NOW, NOW + 2, 13), NOW + 2);
    assert_eq!((int(&new, "all{}"), int(&new, "some{zone=z}")), (13, 3));
}

#[test]
fn state_goes_through_several_successions_before_a_stream_reports() {
    let old = table(rules(&["zone"]));
    report(&old, "a", NOW + 1, [10, 4, 7, 9]);
    let (second, _) = replaced(&old, rules(&[]));
    let (third, restored) = replaced(&second, rules(&["zone"]));
    assert_eq!((restored.series, restored.streams), (3, 3));
    report(&third, "a", NOW + 2, [11, 5, 8, 10]);
    assert_eq!(
        [int(&third, "c{zone=z}"), int(&third, "u{}"), int(&third, "g{}")],
        [11, 5, 8]
    );
    let last = old.successor().expect("there are two");
    assert!(Arc::ptr_eq(&last, &third));
    old.resume();
    assert!(old.successor().is_none());
}

#[test]
fn a_table_of_newest_states_hands_on_states_and_totals_of_deltas() {
    let old = table(vec![Rule::newest()]);
    let counter = series("c", COUNTER, &[("pod", "a")], &[]);
    let delta = series("d", DELTA, &[], &[]);
    old.observe(&point(&counter, NOW, NOW + 1, 10), NOW);
    old.observe(&point(&delta, NOW, NOW + 1, 4), NOW);
    let (new, restored) = replaced(&old, vec![Rule::newest()]);
    assert_eq!((restored.series, restored.outdated), (2, 0));
    new.observe(&point(&counter, NOW, NOW + 2, 11), NOW);
    new.observe(&point(&delta, NOW + 1, NOW + 2, 3), NOW);
    assert_eq!((int(&new, "c{}"), int(&new, "d{}")), (11, 7));
    assert_eq!(new.stats().colliding_streams, [0; 3]);
}

/// The rules change and change back. Only the first table has the series of the first rules.
#[test]
fn a_return_takes_what_the_newest_table_lacks_from_the_one_before() {
    let old = table(rules(&["zone"]));
    report(&old, "a", NOW + 1, [10, 4, 7, 9]);
    report(&old, "b", NOW + 1, [5, 3, 2, 1]);
    let (second, _) = replaced(&old, rules(&[]));
    report(&second, "a", NOW + 2, [11, 5, 8, 12]);
    let third = Arc::new(table(rules(&["zone"])));
    let restored = third.succeed(&[&second, &old]);
    assert_eq!((restored.series, restored.streams, restored.outdated), (4, 8, 1));
    let names = ["c{zone=z}", "u{}", "g{}", "x{zone=z}"];
    let shown = || names.map(|name| int(&third, name));
    assert_eq!(shown(), [16, 8, 10, 10]);
    report(&third, "a", NOW + 3, [12, 6, 9, 13]);
    assert_eq!(shown(), [17, 9, 11, 14]);
    let last = old.successor().expect("the third");
    assert!(Arc::ptr_eq(&last, &third));
}

#[test]
fn a_level_that_changed_under_other_rules_is_right_after_the_return() {
    let of = |name: &str, keys: &[&str]| Rule {
        output: Some(name.into()),
        ..by("u", keys)
    };
    let rules = |of_some: &[&str]| vec![of("all", &[]), of("some", of_some)];
    let pod = series("u", UP_DOWN, &[("pod", "a")], &[("zone", "z")]);
    let old = table(rules(&["zone"]));
    old.observe(&point(&pod, NOW, NOW + 1, 10), NOW + 1);
    let (second, _) = replaced(&old, rules(&[]));
    second.observe(&point(&pod, NOW, NOW + 2, 13), NOW + 2);
    let third = Arc::new(table(rules(&["zone"])));
    third.succeed(&[&second, &old]);
    let shown = || [int(&third, "all{}"), int(&third, "some{zone=z}")];
    assert_eq!(shown(), [13, 13]);
    third.observe(&point(&pod, NOW, NOW + 3, 14), NOW + 3);
    assert_eq!(shown(), [14, 14]);
}

#[test]
fn sources_of_events_keep_their_amounts_over_a_return() {
    let rules = |of_open: &[&str]| vec![by("open", of_open), by("hits", &["node"])];
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("open", Instrument::UpDownCounter),
            kind("hits", Instrument::Counter),
        ],
    });
    let agent = source(&[("agent", "a"), ("node", "n")], HOUR);
    let old = table(rules(&["node"]));
    old.absorb(&events(&agent, &schema, &[(0, 5), (1, 30)]));
    let (second, _) = replaced(&old, rules(&[]));
    second.absorb(&events(&agent, &schema, &[(0, 2), (1, 1)]));
    let third = Arc::new(table(rules(&["node"])));
    third.succeed(&[&second, &old]);
    let shown = || [int(&third, "open{node=n}"), int(&third, "hits{node=n}")];
    assert_eq!(shown(), [5, 31]);
    third.absorb(&events(&agent, &schema, &[(0, 1), (1, 1)]));
    assert_eq!(shown(), [6, 32]);
    third.let_go(agent.id);
    assert_eq!(shown(), [0, 32]);
}

#[test]
fn sources_of_events_keep_what_they_have_added() {
    let load = Rule {
        gauge: GaugePolicy::Sum,
        ..by("load", &["node"])
    };
    let old = table(vec![by("open", &["node"]), load.clone()]);
    let schema = Arc::new(Schema {
        kinds: vec![
            kind("open", Instrument::UpDownCounter),
            kind("load", Instrument::Gauge),
        ],
    });
    let [a, b] = ["a", "b"].map(|agent| source(&[("agent", agent), ("node", "n")], HOUR));
    old.absorb(&events(&a, &schema, &[(0, 5), (1, 30)]));
    old.absorb(&events(&b, &schema, &[(0, 4), (1, 7)]));
    let (new, _) = replaced(&old, vec![by("other", &[]), load, by("open", &["node"])]);
    let shown = || [int(&new, "open{node=n}"), int(&new, "load{node=n}")];
    assert_eq!(shown(), [9, 37]);
    new.absorb(&events(&a, &schema, &[(0, 2), (1, 10)]));
    assert_eq!(shown(), [11, 17]);
    new.let_go(a.id);
    assert_eq!(shown(), [4, 7]);
}
