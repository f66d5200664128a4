// SPDX-License-Identifier: Apache-2.0

//! Callers that may not call, or that send what no caller should.

use std::net::SocketAddr;
use std::time::Duration;

use http::uri::PathAndQuery;
use tidegate_cluster::{ClusterEngine, StoreCall, StoreError};
use tidegate_config::Secret;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_stream::StreamExt as _;
use tonic::client::Grpc;
use tonic::transport::Endpoint;
use tonic::{Code, Status};
use tonic_prost::ProstCodec;

use super::kit::{CLUSTER, address, config, serving, start, until};
use super::store::{call, page, read};
use crate::client::PeerClient;
use crate::wire::{MessageCopy, MessageHead, PublishCode, PublishOutcome};
use crate::{DirectConfig, DirectEngine};

fn client(at: SocketAddr, config: &DirectConfig) -> PeerClient {
    PeerClient::new(&at.to_string(), "", config, CLUSTER).unwrap()
}

async fn replica(at: SocketAddr, token: Option<&str>) -> DirectEngine {
    let mut config = serving("a", at, &[at]);
    config.token = token.map(Secret::new);
    let engine = start(config).await;
    until("the replica is synced", || engine.is_synced()).await;
    engine
}

fn copy(subject: &str, headers: &str, bytes: usize) -> MessageCopy {
    MessageCopy {
        subject: subject.to_owned(),
        headers: headers.to_owned(),
        body: vec![7; bytes].into(),
        ..MessageCopy::default()
    }
}

#[tokio::test]
async fn callers_without_the_token_are_refused() {
    let at = address();
    let _engine = replica(at, Some("right")).await;
    for token in [None, Some("wrong"), Some("secre")] {
        let mut config = config(&[at]);
        config.token = token.map(Secret::new);
        let status = client(at, &config).status().await.unwrap_err();
        assert_eq!(status.code(), Code::Unauthenticated, "{token:?}");
    }
    let mut config = config(&[at]);
    let producer = start(config.clone()).await;
    let published = call(&mut producer.open(), StoreCall::Publish(page(1, 1, Vec::new()))).await;
    assert!(
        matches!(published, Err(StoreError::Unavailable(_))),
        "{published:?}"
    );
    config.token = Some(Secret::new("right"));
    assert!(client(at, &config).status().await.is_ok());
}

#[tokio::test]
async fn a_process_of_another_cluster_is_refused() {
    let at = address();
    let _engine = replica(at, None).await;
    let config = config(&[at]);
    let client = PeerClient::new(&at.to_string(), "", &config, "another").unwrap();
    assert_eq!(
        client.status().await.unwrap_err().code(),
        Code::FailedPrecondition
    );
}

#[tokio::test]
async fn messages_that_are_too_large_or_foreign_are_refused() {
    let at = address();
    let engine = replica(at, None).await;
    let mut config = config(&[at]);
    config.max_body_bytes = 8 << 20;
    let client = client(at, &config);
    let page = "tg.c.p.00.p.1.1";
    let sent = [
        copy(page, "tg-seq:1\n", (1 << 20) + 1),
        copy(page, "tg-seq:none\n", 1),
        copy(page, "", 1),
        copy("tg.another.p.00.p.1.1", "tg-seq:1\n", 1),
        copy("\0", "tg-seq:1\n", 1),
        copy(page, "tg-seq:18446744073709551615\n", 1),
    ];
    let outcomes = client.publish(sent.into()).await.unwrap();
    let codes: Vec<_> = outcomes.iter().map(PublishOutcome::code).collect();
    let invalid = PublishCode::Invalid;
    let expected = [
        PublishCode::TooLarge,
        invalid,
        invalid,
        invalid,
        invalid,
        PublishCode::Stored,
    ];
    assert_eq!(codes, expected);
    // One message is larger than any page can be.
    let status = client
        .publish(vec![copy(page, "tg-seq:2\n", 2 << 20)])
        .await
        .unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    // One call has too many messages.
    let heads = vec![MessageHead::default(); 10_000];
    assert!(client.remove(heads).await.is_err());
    assert_eq!(read(&engine).await.len(), 1);
}

#[tokio::test]
async fn connections_above_the_limit_are_closed_until_one_ends() {
    let at = address();
    // Its peer does not run, so the replica has no connection to itself.
    let mut limited = serving("a", at, &[address()]);
    limited.serve.as_mut().unwrap().max_connections = 1;
    let _engine = start(limited).await;
    let config = config(&[at]);
    let first = client(at, &config);
    first.status().await.unwrap();
    let mut refused = TcpStream::connect(at).await.unwrap();
    let mut answer = Vec::new();
    let closed = timeout(Duration::from_secs(60), refused.read_to_end(&mut answer)).await;
    assert!(closed.is_ok() && answer.is_empty(), "{closed:?}: {answer:?}");
    drop(first);
    // The server learns a moment later that the first connection has ended.
    let connects = async {
        while client(at, &config).status().await.is_err() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(Duration::from_secs(60), connects).await.unwrap();
}

/// Begins as many calls as a connection may have, whose bodies never end.
async fn begin_slow_calls(at: SocketAddr, calls: &mut JoinSet<Result<(), Status>>) {
    let endpoint = Endpoint::from_shared(format!("http://{at}")).unwrap();
    let channel = endpoint.connect().await.unwrap();
    for _ in 0..32 {
        let mut grpc = Grpc::new(channel.clone());
        calls.spawn(async move {
            grpc.ready().await.unwrap();
            let first = copy("tg.c.p.00.p.1.1", "tg-seq:1\n", 1);
            let messages = tokio_stream::once(first).chain(tokio_stream::pending());
            let path = PathAndQuery::from_static("/tidegate.v1.Replica/Publish");
            let codec = ProstCodec::<MessageCopy, PublishOutcome>::default();
            let answers = grpc.streaming(tonic::Request::new(messages), path, codec).await;
            answers.map(drop)
        });
    }
}

#[tokio::test]
async fn slow_bodies_do_not_delay_a_good_peer_and_end() {
    let at = address();
    let _engine = replica(at, None).await;
    let good = client(at, &config(&[at]));
    let mut slow = JoinSet::new();
    // Twice as many as the calls that the replica carries out at a time.
    for _ in 0..4 {
        begin_slow_calls(at, &mut slow).await;
    }
    let mut sequence = 0;
    while !slow.is_empty() {
        sequence += 1;
        let page = copy("tg.c.p.00.p.1.1", &format!("tg-seq:{sequence}\n"), 1);
        let outcomes = good.publish(vec![page]).await.unwrap();
        assert_eq!(outcomes[0].code(), PublishCode::Stored);
        while let Some(ended) = slow.try_join_next() {
            assert_eq!(ended.unwrap().unwrap_err().code(), Code::DeadlineExceeded);
        }
    }
}

#[tokio::test]
async fn garbage_closes_its_connection_and_nothing_else() {
    let at = address();
    let engine = replica(at, None).await;
    let config = config(&[at]);
    for seed in 0..8_u8 {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let garbage: Vec<u8> = (0..4_000_u32)
            .map(|at| (at as u8).wrapping_mul(seed) ^ seed)
            .collect();
        // The server may close before it has read all.
        let _ = stream.write_all(&garbage).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
    }
    // Bytes of another message where a page should be.
    let outcomes = client(at, &config)
        .publish(vec![MessageCopy {
            body: "garbage".into(),
            ..copy("tg.c.p.00.p.1.1", "tg-seq:1\ntg-coding:zstd\n", 0)
        }])
        .await
        .unwrap();
    assert_eq!(outcomes[0].code(), PublishCode::Stored);
    // Its reader gets it as it is, and counts it.
    let messages = read(&engine).await;
    assert_eq!(messages[0].message.body, "garbage");
}
