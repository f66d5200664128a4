// SPDX-License-Identifier: Apache-2.0

//! The calls of sessions.

use tidegate_cluster::{
    CallId, ClusterEngine, LeaseRequest, ReadScope, RefusedMessages, StoreCall, StoreError, StoreEvent,
    StoreMessage, StoreReply, StoreSession, StoredMessage,
};

use super::kit::{address, config, serving, start, until};
use crate::{DirectClientTls, DirectConfig, DirectEngine, DirectServerTls, ReplicaAddresses};

pub(super) fn page(number: u32, sequence: u64, body: Vec<u8>) -> StoreMessage {
    StoreMessage {
        subject: format!("tg.c.p.00.p.1.{number}"),
        headers: vec![("tg-seq".to_owned(), sequence.to_string())],
        body: body.into(),
    }
}

fn record(body: &'static str) -> StoreMessage {
    StoreMessage {
        subject: "tg.c.k.producers.p".to_owned(),
        headers: Vec::new(),
        body: body.into(),
    }
}

pub(super) async fn call(session: &mut StoreSession, call: StoreCall) -> Result<StoreReply, StoreError> {
    session.store.start(CallId(1), call);
    loop {
        if let StoreEvent::Done(_, result) = session.events.recv().await.unwrap() {
            return result;
        }
    }
}

/// All messages of a replica, after it has caught up.
pub(super) async fn read(engine: &DirectEngine) -> Vec<StoredMessage> {
    let mut session = engine.open();
    let everything = StoreCall::ReadAll(ReadScope::Everything);
    session.store.start(CallId(1), everything);
    let mut messages = Vec::new();
    loop {
        match session.events.recv().await.unwrap() {
            StoreEvent::Read(_, stored) => messages.push(stored),
            StoreEvent::Current(..) => return messages,
            _ => {}
        }
    }
}

async fn pair(change: impl Fn(&mut DirectConfig)) -> (DirectEngine, DirectEngine, DirectEngine) {
    let addresses = [address(), address()];
    let mut configs = [
        serving("a", addresses[0], &addresses),
        serving("b", addresses[1], &addresses),
        config(&addresses),
    ];
    configs.iter_mut().for_each(change);
    let [a, b, producer] = configs;
    let engines = (start(a).await, start(b).await, start(producer).await);
    until("the replicas are synced", || {
        engines.0.is_synced() && engines.1.is_synced()
    })
    .await;
    engines
}

#[tokio::test]
async fn a_page_reaches_both_replicas_as_it_was() {
    let (a, b, producer) = pair(|_| ()).await;
    let mut session = producer.open();
    let message = page(1, 7, vec![3; 10_000]);
    let published = call(&mut session, StoreCall::Publish(message.clone())).await;
    assert_eq!(published, Ok(StoreReply::Stored(7)));
    for engine in [&a, &b] {
        let mut found = Vec::new();
        while found.is_empty() {
            found = read(engine).await;
        }
        assert_eq!(found[0].message, message);
    }
    assert!(producer.status().sent_bytes < 1_000);
    let read = call(&mut session, StoreCall::ReadAll(ReadScope::Everything)).await;
    assert!(matches!(read, Err(StoreError::Unavailable(_))));
}

#[tokio::test]
async fn a_producer_finds_a_replica_by_its_dns_name() {
    let at = address();
    let replica = start(serving("a", at, &[at])).await;
    let producer = start(DirectConfig {
        replicas: ReplicaAddresses::dns(&format!("localhost:{}", at.port())),
        ..config(&[])
    })
    .await;
    let mut session = producer.open();
    let published = call(&mut session, StoreCall::Publish(page(1, 7, Vec::new()))).await;
    assert_eq!(published, Ok(StoreReply::Stored(7)));
    assert_eq!(read(&replica).await.len(), 1);
}

#[tokio::test]
async fn one_of_two_writers_of_a_record_gets_a_conflict() {
    let (a, b, producer) = pair(|_| ()).await;
    let mut sessions = [a.open(), b.open(), producer.open()];
    let mut conflicts = Vec::new();
    for session in &mut sessions {
        let result = call(session, StoreCall::CompareAndSet(record("x"), 0)).await;
        match result {
            Ok(_) => assert!(conflicts.is_empty()),
            Err(StoreError::Conflict(Some(current))) => conflicts.push(*current),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(conflicts.len(), 2);
    for (session, current) in sessions[1..].iter_mut().zip(conflicts) {
        assert_eq!(current.message.body, "x");
        let update = StoreCall::CompareAndSet(record("x"), current.sequence);
        match call(session, update).await {
            Ok(StoreReply::Stored(sequence)) => assert!(sequence > current.sequence),
            // The replica before has changed it.
            Err(StoreError::Conflict(Some(newer))) => assert!(newer.sequence > current.sequence),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_lease_has_one_holder_until_it_ends() {
    let (a, b, _producer) = pair(|_| ()).await;
    let request = |holder: &'static str, expected| {
        StoreCall::Lease(LeaseRequest {
            message: StoreMessage {
                subject: "tg.c.k.leader".to_owned(),
                headers: Vec::new(),
                body: holder.into(),
            },
            expected,
            term: std::time::Duration::from_millis(1_500),
        })
    };
    let (mut a, mut b) = (a.open(), b.open());
    let Ok(StoreReply::Stored(sequence)) = call(&mut b, request("b", 0)).await else {
        panic!("the lease is free");
    };
    let refused = call(&mut a, request("a", 0)).await;
    assert!(matches!(refused, Err(StoreError::Conflict(Some(current))) if current.message.body == "b"));
    let extended = call(&mut b, request("b", sequence)).await;
    assert!(matches!(extended, Ok(StoreReply::Stored(_))), "{extended:?}");
    while call(&mut a, request("a", 0)).await.is_err() {
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn a_full_store_refuses_and_says_which_limit_to_raise() {
    let limit = |config: &mut DirectConfig| {
        if let Some(serve) = &mut config.serve {
            serve.max_bytes = 3_000;
        }
    };
    let (_a, _b, producer) = pair(limit).await;
    let mut session = producer.open();
    let mut results = Vec::new();
    for number in 0..6 {
        results.push(call(&mut session, StoreCall::Publish(page(number, 1, Vec::new()))).await);
    }
    assert!(results[0].is_ok());
    let last = results.pop();
    assert!(
        matches!(&last, Some(Err(StoreError::Unavailable(text))) if text.contains("max_bytes")),
        "{last:?}"
    );
    let large = page(9, 1, vec![0; 2 << 20]);
    assert_eq!(
        call(&mut session, StoreCall::Publish(large)).await,
        Err(StoreError::TooLarge)
    );
}

#[tokio::test]
async fn a_page_of_a_peer_that_a_full_store_refuses_is_counted() {
    let addresses = [address(), address()];
    let peer = start(serving("a", addresses[0], &addresses)).await;
    let mut session = peer.open();
    for number in 0..6 {
        let published = call(&mut session, StoreCall::Publish(page(number, 1, Vec::new()))).await;
        assert!(published.is_ok(), "{published:?}");
    }
    // Five pages fit.
    let mut small = serving("b", addresses[1], &addresses);
    small.serve.as_mut().unwrap().max_bytes = 3_000;
    let small = start(small).await;
    until("a page is refused", || small.status().refused.full > 0).await;
    until("the replica is synced", || small.is_synced()).await;
    assert_eq!(read(&small).await.len(), 5);
    let refused = RefusedMessages {
        full: 1,
        ..RefusedMessages::default()
    };
    assert_eq!(small.status().refused, refused);
    assert_eq!(peer.status().refused, RefusedMessages::default());
}

#[tokio::test]
async fn replicas_and_producers_check_certificates() {
    let directory = tempfile::tempdir().unwrap();
    let signed = rcgen::generate_simple_self_signed(vec!["replica.example".to_owned()]).unwrap();
    let (cert_file, key_file) = (
        directory.path().join("cert.pem"),
        directory.path().join("key.pem"),
    );
    std::fs::write(&cert_file, signed.cert.pem()).unwrap();
    std::fs::write(&key_file, signed.signing_key.serialize_pem()).unwrap();
    let secure = |config: &mut DirectConfig| {
        config.tls = Some(DirectClientTls {
            ca_file: Some(cert_file.clone()),
            server_name_override: Some("replica.example".to_owned()),
            ..DirectClientTls::default()
        });
        if let Some(serve) = &mut config.serve {
            serve.tls = Some(DirectServerTls {
                cert_file: cert_file.clone(),
                key_file: key_file.clone(),
                client_ca_file: None,
            });
        }
    };
    let (_a, _b, producer) = pair(secure).await;
    let mut session = producer.open();
    let published = call(&mut session, StoreCall::Publish(page(1, 7, Vec::new()))).await;
    assert_eq!(published, Ok(StoreReply::Stored(7)));
}
