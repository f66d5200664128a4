// SPDX-License-Identifier: Apache-2.0

//! A broker that is absent, and one that is killed.

use std::time::{Duration, Instant};

use tidegate_cluster::{ClusterEngine, ReadScope, StoreCall, StoreError};

use crate::broker::Broker;
use crate::machine::{Machine, PATIENCE, engine, lease, page};

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
    let term = Duration::from_mins(10);
    let held = machine.stored(lease("outages", "me", 0, term)).await;
    let mut reader = Machine::new(&engine);
    assert_eq!(reader.everything().await.len(), 2);
    tokio::task::block_in_place(|| broker.kill());
    let (begin, mut failed) = (Instant::now(), 0);
    while engine.status().is_connected {
        assert!(begin.elapsed() < PATIENCE, "the loss is not known");
        let result = machine.call(StoreCall::ReadAll(ReadScope::Everything)).await;
        assert!(matches!(result, Err(StoreError::Unavailable(_))), "{result:?}");
        failed += 1;
    }
    // A machine reads again at once, so a failed read ends after a pause. The last one ends with the connection.
    let most = begin.elapsed().as_millis() / 200 + 1;
    assert!(failed <= most, "{failed} reads failed, and at most {most} should");
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
