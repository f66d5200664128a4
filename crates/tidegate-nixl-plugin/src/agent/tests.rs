// SPDX-License-Identifier: Apache-2.0

use tidegate_cells::{Options, Store, Value};

use super::*;

fn lost(store: &Store) -> Vec<u64> {
    let read = store.read();
    let series = &read.family("tidegate_nixl_plugin_lost_events").unwrap().series;
    let count = |value: &Value| match value {
        Value::Counter(count) => *count,
        other => panic!("{other:?}"),
    };
    series.iter().map(|series| count(&series.value)).collect()
}

#[test]
fn what_is_no_amount_and_what_panicked_is_counted() {
    let store = Store::in_memory(Options::default());
    let agent = Agent::without_cells("a");
    assert!(agent.cells.set(Cells::of(&store, "a").unwrap()).is_ok());
    // The difference of two clocks that went backwards.
    agent.export(6, 5_u64.wrapping_sub(7));
    agent.export(6, INVALID - 1);
    agent.end(3);
    assert_eq!(lost(&store), [0, 1, 3]);
    let read = store.read();
    let Value::Histogram { buckets, .. } = &read.family("agent_xfer_time_us").unwrap().series[0].value else {
        panic!();
    };
    assert_eq!(buckets.iter().sum::<u64>(), 1);
}

#[test]
fn without_cells_an_event_is_counted_and_does_not_wait() {
    let agent = Agent::without_cells("a");
    agent.retry_ms.store(u64::MAX, Relaxed);
    (0..1000).for_each(|value| agent.export(0, value));
    assert_eq!(agent.lost.load(Relaxed), 1000);
}
