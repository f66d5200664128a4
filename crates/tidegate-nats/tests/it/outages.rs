// SPDX-License-Identifier: Apache-2.0

//! Servers that are absent, killed or restarted.

use std::collections::BTreeSet;
use std::time::Duration;

use tidegate_cluster::{ClusterEngine, ReadScope, StoreCall, StoreError, StoreEvent, StoreReply};

use crate::kit::{Server, Session, message, status_when};

#[tokio::test(flavor = "multi_thread")]
async fn a_server_may_be_absent_at_first() {
    let mut server = Server::new("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    let early = session
        .call(StoreCall::Publish(message("p.00.n.1.1", "early")))
        .await;
    assert!(matches!(early, Err(StoreError::Unavailable(_))), "{early:?}");
    let status = engine.status();
    assert!(!status.is_connected && status.connections == 0);
    assert!(status.last_error.unwrap().contains("can't connect"));
    server.start();
    session.connected().await;
    session.publish(&message("p.00.n.1.1", "later")).await;
    let status = engine.status();
    assert!(status.is_connected && status.sent_bytes > 0);
    assert_eq!((status.connections, status.last_error), (1, None));
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_and_writers_go_on_after_a_kill() {
    let mut server = Server::running("");
    let engine = server.engine();
    let (mut writer, mut reader) = (Session::open(&engine), Session::open(&engine));
    writer.publish(&message("p.00.n.1.1", "before")).await;
    let id = reader.start(StoreCall::ReadAll(ReadScope::Everything));
    assert_eq!(reader.read(id).await.message.body, "before");
    reader.connected().await;
    server.kill();
    let broken = reader.done(id).await;
    assert!(matches!(broken, Err(StoreError::Unavailable(_))), "{broken:?}");
    status_when(&engine, "without a connection", |status| !status.is_connected).await;
    server.start();
    reader.connected().await;
    writer.publish(&message("p.00.n.1.2", "after")).await;
    let read = reader.everything().await;
    let bodies: Vec<_> = read.iter().map(|stored| &stored.message.body[..]).collect();
    assert_eq!(bodies, [&b"before"[..], b"after"]);
    assert_eq!(engine.status().connections, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_that_is_deleted_is_created_again() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    session.publish(&message("p.00.n.1.1", "x")).await;
    let client = server.client().await;
    client.delete_stream("tidegate_test").await.unwrap();
    session.publish(&message("p.00.n.1.2", "y")).await;
    let read = session.everything().await;
    assert_eq!(read.len(), 1);
    assert_eq!(engine.status().connections, 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_end_with_their_engine() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    session.connected().await;
    session.start(StoreCall::ReadAll(ReadScope::Everything));
    drop(engine);
    let end = async { while session.next().await.is_some() {} };
    tokio::time::timeout(Duration::from_secs(60), end).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_is_answered_once_also_above_the_limit_of_calls() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    session.connected().await;
    let mut waiting: BTreeSet<_> = (0..2000)
        .map(|_| session.start(StoreCall::Publish(message("p.00.n.1.1", "x"))))
        .collect();
    let mut stored = 0;
    while !waiting.is_empty() {
        match session.next().await.unwrap() {
            StoreEvent::Done(id, result) => {
                assert!(waiting.remove(&id), "{id:?} is answered again");
                stored += usize::from(matches!(result, Ok(StoreReply::Stored(_))));
            }
            // A busy server may lose the connection once.
            StoreEvent::Connected => {}
            event => panic!("{event:?}"),
        }
    }
    assert!(stored > 0);
}
