// SPDX-License-Identifier: Apache-2.0

//! The stream of a cluster.

use async_nats::jetstream::stream::{Config, DiscardPolicy};
use tidegate_cluster::StoreError;
use tidegate_cluster::testing::SeededRandom;
use tidegate_cluster::{StoreCall, StoreReply};
use tidegate_config::ByteSize;
use tidegate_nats::{NatsConfig, NatsEngine};

use crate::kit::{CLUSTER, Server, Session, message, status_when};

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_with_another_setting_is_refused_until_it_changes() {
    let server = Server::running("");
    let client = server.client().await;
    let mut found = Config {
        name: "tidegate_test".to_owned(),
        subjects: vec!["tg.test.>".to_owned()],
        max_messages_per_subject: 1,
        discard: DiscardPolicy::Old,
        num_replicas: 1,
        ..Config::default()
    };
    client.create_stream(&found).await.unwrap();
    let engine = server.engine();
    let status = status_when(&engine, "refused", |status| status.last_error.is_some()).await;
    assert!(!status.is_connected);
    let error = status.last_error.unwrap();
    assert!(
        error.contains("`discard` of the stream `tidegate_test`"),
        "{error}"
    );
    found.discard = DiscardPolicy::New;
    client.update_stream(&found).await.unwrap();
    status_when(&engine, "connected", |status| status.is_connected).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_share_a_stream_that_does_not_exist() {
    let server = Server::running("");
    let engines = [server.engine(), server.engine()];
    for engine in &engines {
        let mut session = Session::open(engine);
        session.publish(&message("p.00.n.1.1", "x")).await;
    }
    let info = server
        .client()
        .await
        .get_stream("tidegate_test")
        .await
        .unwrap()
        .cached_info()
        .clone();
    assert_eq!(info.state.messages, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_full_stream_replaces_pages_and_refuses_new_ones() {
    let server = Server::running("");
    let config = NatsConfig {
        max_bytes: Some(ByteSize(100_000)),
        ..server.config()
    };
    let engine = NatsEngine::start(config, CLUSTER).unwrap();
    let mut session = Session::open(&engine);
    let mut random = SeededRandom::new(1);
    let body: Vec<u8> = (0..30_000).map(|_| random.number() as u8).collect();
    for page in 1..=3 {
        session
            .publish(&message(&format!("p.00.n.1.{page}"), body.clone()))
            .await;
    }
    let new = StoreCall::Publish(message("p.00.n.1.4", body.clone()));
    let refused = session.call(new).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    let same = StoreCall::Publish(message("p.00.n.1.3", body));
    let replaced = session.call(same).await;
    assert!(matches!(replaced, Ok(StoreReply::Stored(_))), "{replaced:?}");
    assert_eq!(session.everything().await.len(), 3);
}
