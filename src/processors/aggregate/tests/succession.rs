// SPDX-License-Identifier: Apache-2.0

//! Instances that follow each other in a reload.

use super::*;

const HITS: &str = "{match: {name: hits}, instrument: counter, by: []}";

fn successor(old: &Rig, yaml: &str) -> Rig {
    successor_of_all(&[old], yaml)
}

/// A rig that replaces others, of which the first is the newest.
fn successor_of_all(replaced: &[&Rig], yaml: &str) -> Rig {
    let old = replaced[0];
    let tables = replaced.iter().filter_map(|old| old.aggregate.table().cloned());
    let (cx, base, _) = processor_context("aggregate", &old.sink);
    let cx = ProcessorContext {
        replaced: tables.collect(),
        ledger: old.ledger.clone(),
        ..cx
    };
    let config = settings::<AggregateConfig>(yaml).get();
    Rig {
        aggregate: Aggregate::new(config, cx).unwrap(),
        sink: old.sink.clone(),
        ledger: old.ledger.clone(),
        base,
    }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

#[tokio::test]
async fn totals_of_unchanged_rules_go_on_and_late_input_joins_them() {
    let of = |value| events("a", vec![kind("hits", Instrument::Counter, &[])], &[(0, value)]);
    let old = rig(&format!("{{rules: [{HITS}]}}"));
    old.aggregate.start().await.unwrap();
    old.push(of(5));
    let new = successor(&old, &format!("{{rules: [{HITS}, {{match: {{name: other}}}}]}}"));
    assert!(new.aggregate.takes_over());
    old.aggregate.stop(soon()).await;
    new.aggregate.start().await.unwrap();
    assert!(!new.aggregate.takes_over());
    new.push(of(2));
    // A component that ends later still has a batch for the old instance.
    old.push(of(1));
    let shown = show(&new.aggregate.absorber.table);
    assert_eq!(shown["hits_total{}"].number().unwrap().as_f64(), 8.0);
    assert_eq!(old.ledger.balance().absorbed, 3);
    new.aggregate.stop(soon()).await;
}

#[tokio::test]
async fn the_return_to_earlier_rules_finds_their_totals() {
    let of = |values: &[(u16, u64)]| {
        let kinds = ["hits", "calls"].map(|name| kind(name, Instrument::Counter, &[]));
        events("a", kinds.into(), values)
    };
    let rules =
        |by| format!("{{rules: [{HITS}, {{match: {{name: calls}}, instrument: counter, by: [{by}]}}]}}");
    let first = rig(&rules(""));
    first.aggregate.start().await.unwrap();
    first.push(of(&[(0, 5), (1, 2)]));
    let second = successor(&first, &rules("zone"));
    first.aggregate.stop(soon()).await;
    second.aggregate.start().await.unwrap();
    second.push(of(&[(0, 1)]));
    let third = successor_of_all(&[&second, &first], &rules(""));
    assert!(third.aggregate.takes_over());
    second.aggregate.stop(soon()).await;
    third.aggregate.start().await.unwrap();
    // A component that ends later still has a batch for the first instance.
    first.push(of(&[(1, 4)]));
    let shown = show(&third.aggregate.absorber.table);
    let total = |name| shown[name].number().unwrap().as_f64();
    assert_eq!((total("hits_total{}"), total("calls_total{}")), (6.0, 6.0));
    third.aggregate.stop(soon()).await;
}

#[test]
fn an_instance_with_equal_rules_shares_the_table() {
    let old = rig(&format!("{{rules: [{HITS}]}}"));
    let new = successor(&old, &format!("{{rules: [{HITS}], interval: 7s}}"));
    assert!(!new.aggregate.takes_over());
    assert!(Arc::ptr_eq(
        &old.aggregate.absorber.table,
        &new.aggregate.absorber.table
    ));
}
