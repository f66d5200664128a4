// SPDX-License-Identifier: Apache-2.0

//! A broker that is absent, and one that is killed.

use tidegate_cluster::{ClusterEngine, StoreCall, StoreError};

use crate::broker::Broker;
use crate::machine::{Machine, engine, lease, page};

#[tokio::test(flavor = "multi_thread")]
async fn an_engine_outlives_an_absent_and_a_killed_broker() {
    let mut broker = Broker::new();
    let engine = engine(&broker.address(), "outages");
    let mut machine = Machine::new(&engine);
    let result = machine
        .call(StoreCall::Publish(page("outages", 1, 1, b"too early")))
        .await;
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
    assert!(!engine.status().is_connected);
    tokio::task::block_in_place(|| broker.start());
    machine
        .until("it is connected", |machine| machine.connections >= 1)
        .await;
    machine
        .stored(StoreCall::Publish(page("outages", 1, 1, b"one")))
        .await;
    let term = std::time::Duration::from_mins(10);
    let held = machine.stored(lease("outages", "me", 0, term)).await;
    let mut reader = Machine::new(&engine);
    assert_eq!(reader.everything().await.len(), 2);
    tokio::task::block_in_place(|| broker.kill());
    machine
        .until("the loss is known", |_| !engine.status().is_connected)
        .await;
    let result = machine.call(lease("outages", "me", held, term)).await;
    assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
    tokio::task::block_in_place(|| broker.start());
    machine
        .until("it is connected again", |machine| machine.connections >= 2)
        .await;
    machine.stored(lease("outages", "me", held, term)).await;
    machine
        .stored(StoreCall::Publish(page("outages", 1, 2, b"two")))
        .await;
    // The read has ended with the connection. The next one gives everything.
    reader
        .until("the read has ended", |reader| reader.done.len() == 1)
        .await;
    assert_eq!(reader.everything().await.len(), 3);
    assert!(engine.status().connections >= 2);
}
