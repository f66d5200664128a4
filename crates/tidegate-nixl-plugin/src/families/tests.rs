// SPDX-License-Identifier: Apache-2.0

use tidegate_cells::{Options, Value};
use tidegate_ring::kind::FIRST_OWN;

use super::*;

fn labels<'a>(category: &'a str, status: Option<&'a str>) -> Vec<(&'a str, String)> {
    let hostname = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let mut labels = vec![
        ("agent_name", "a".to_owned()),
        ("hostname", hostname),
        ("category", category.to_owned()),
    ];
    labels.extend(status.map(|status| ("status", status.to_owned())));
    labels
}

fn value(store: &Store, family: &str, labels: &[(&str, String)]) -> Value {
    let labels: Vec<_> = labels
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    let read = store.read();
    read.value(family, &labels)
        .unwrap_or_else(|| panic!("{family} {labels:?}"))
        .clone()
}

#[test]
fn every_kind_feeds_the_metrics_of_its_row() {
    let store = Store::in_memory(Options::default());
    let cells = Cells::of(&store, "a").unwrap();
    for kind in &KINDS[..=usize::from(UNKNOWN)] {
        let amount = 100 + u64::from(kind.id);
        cells.record(kind.id, amount);
        cells.record(kind.id, 1);
        let labels = labels(kind.category.name(), kind.status);
        assert_eq!(
            value(&store, kind.total.name, &labels),
            Value::Counter(amount + 1),
            "{}",
            kind.name
        );
        if let Some(name) = kind.unambiguous_last() {
            let Value::Gauge { value, .. } = value(&store, &name, &labels) else {
                panic!("{name}");
            };
            assert_eq!(value, 1.0, "{name}");
        }
        if let Some(metric) = kind.histogram {
            let Value::Histogram { buckets, sum } = value(&store, metric.name, &labels) else {
                panic!("{}", metric.name);
            };
            assert_eq!((buckets[0], buckets[4], buckets.iter().sum::<u64>()), (1, 1, 2));
            assert_eq!(sum, amount as f64 + 1.0);
        }
    }
    // 11 counters (all errors are one), 6 gauges, 2 histograms, and what is lost.
    assert_eq!(store.read().families.len(), 20);
}

#[test]
fn kinds_beyond_the_table_are_unknown() {
    let store = Store::in_memory(Options::default());
    let cells = Cells::of(&store, "a").unwrap();
    cells.record(FIRST_OWN, 3);
    cells.record(u16::MAX, 4);
    assert_eq!(
        value(&store, "unknown_event", &labels("CUSTOM", None)),
        Value::Counter(7)
    );
}

#[test]
fn agents_of_the_same_name_share_their_series_and_others_do_not() {
    let store = Store::in_memory(Options::default());
    for (agent, amount) in [("a", 1), ("a", 2), ("b", 4)] {
        Cells::of(&store, agent).unwrap().record(0, amount);
    }
    assert_eq!(
        value(&store, "agent_tx_bytes", &labels("TRANSFER", None)),
        Value::Counter(3)
    );
    assert_eq!(store.read().family("agent_tx_bytes").unwrap().series.len(), 2);
}

#[test]
fn agents_beyond_the_limit_share_a_series_and_lose_nothing() {
    let store = Store::in_memory(Options {
        max_series: 30,
        ..Options::default()
    });
    for agent in 0..100 {
        Cells::of(&store, &agent.to_string()).unwrap().record(0, 1);
    }
    let read = store.read();
    let series = &read.family("agent_tx_bytes").unwrap().series;
    let values: Vec<_> = series.iter().map(|series| series.value.clone()).collect();
    assert_eq!(values.len(), 31);
    assert_eq!(values[30], Value::Counter(70));
    assert!(store.refused().series > 0, "and it can be seen");
}

#[test]
fn bounds_are_nixls_or_what_it_would_take() {
    assert_eq!(parse("1, 2.5,1e3").as_deref(), Some(&[1.0, 2.5, 1000.0][..]));
    for wrong in ["", "1,,2", "2,1", "1,1", "0,1", "-1,1", "1,inf", "1,NaN", "a"] {
        assert_eq!(parse(wrong), None, "{wrong:?}");
    }
    let many: Vec<String> = (1..=257).map(|bound| bound.to_string()).collect();
    assert_eq!(parse(&many.join(",")), None);
}
