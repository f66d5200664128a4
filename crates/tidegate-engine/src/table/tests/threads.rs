// SPDX-License-Identifier: Apache-2.0

//! Tables that several threads write and read.

use std::collections::HashMap;

use super::*;

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
