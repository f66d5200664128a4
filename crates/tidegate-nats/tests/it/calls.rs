// SPDX-License-Identifier: Apache-2.0

//! The five calls.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use async_nats::HeaderMap;
use bytes::Bytes;
use tidegate_cluster::testing::SeededRandom;
use tidegate_cluster::{
    ClusterEngine, LeaseRequest, ProducerName, ReadScope, RunName, StoreCall, StoreError, StoreEvent,
    StoreReply, Subject,
};

use crate::kit::{CLUSTER, Server, Session, message};

/// Bytes that do not shrink.
fn random_bytes(length: usize) -> Bytes {
    let mut random = SeededRandom::new(1);
    (0..length).map(|_| random.number() as u8).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_reader_gets_the_last_of_each_subject_and_then_new_ones() {
    let server = Server::running("");
    let engine = server.engine();
    let mut writer = Session::open(&engine);
    let large = vec![b'x'; 100_000];
    for number in 0..100 {
        for body in [&b"old"[..], &large] {
            writer
                .publish(&message(&format!("p.00.n.1.{number}"), body.to_vec()))
                .await;
        }
    }
    let mut reader = Session::open(&engine);
    reader.connected().await;
    let read = reader.everything().await;
    assert_eq!(read.len(), 100);
    for (number, stored) in read.iter().enumerate() {
        assert_eq!(
            stored.message,
            message(&format!("p.00.n.1.{number}"), large.clone())
        );
        assert!(stored.sequence > 0 && stored.time > 0);
    }
    let id = reader.start(StoreCall::ReadAll(ReadScope::Everything));
    reader.caught_up(id).await;
    let sequence = writer.publish(&message("p.00.n.1.100", "new")).await;
    loop {
        let stored = reader.read(id).await;
        if stored.sequence == sequence {
            assert_eq!(stored.message, message("p.00.n.1.100", "new"));
            break;
        }
    }
    // A live read says so about once a second.
    reader.caught_up(id).await;
    reader.caught_up(id).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_after_all_messages_of_then() {
    let server = Server::running("");
    let engine = server.engine();
    let (mut reader, mut writer, mut other) = (
        Session::open(&engine),
        Session::open(&engine),
        Session::open(&engine),
    );
    // Values of one subject replace each other all the time.
    let busy = tokio::spawn(async move {
        loop {
            other.publish(&message("p.00.other.1.0", "page")).await;
        }
    });
    let id = reader.start(StoreCall::ReadAll(ReadScope::Everything));
    reader.caught_up(id).await;
    let questions = engine.questions().expect("one store has all messages");
    for round in 0..60 {
        if round == 30 {
            busy.abort();
        }
        let sequence = writer.publish(&message("p.00.n.1.0", "page")).await;
        let number = questions.ask();
        let mut newest = 0;
        loop {
            match reader.next().await {
                Some(StoreEvent::Read(_, stored)) => newest = newest.max(stored.sequence),
                Some(StoreEvent::Confirmed(read, _, answered)) if read == id && answered >= number => break,
                Some(_) => {}
                None => panic!("the engine has stopped"),
            }
        }
        assert!(newest >= sequence, "round {round}: {newest} and not {sequence}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn questions_that_come_together_share_their_answers() {
    let server = Server::running("");
    let engine = server.engine();
    let (mut reader, mut writer) = (Session::open(&engine), Session::open(&engine));
    writer.publish(&message("p.00.n.1.0", "page")).await;
    let id = reader.start(StoreCall::ReadAll(ReadScope::Everything));
    reader.caught_up(id).await;
    let questions = engine.questions().expect("one store has all messages");
    let mut last = 0;
    for _ in 0..1_000 {
        last = questions.ask();
    }
    let mut answers = 0;
    loop {
        match reader.next().await {
            Some(StoreEvent::Confirmed(_, _, answered)) => {
                answers += 1;
                if answered == last {
                    break;
                }
            }
            Some(_) => {}
            None => panic!("the engine has stopped"),
        }
    }
    // The read may begin to ask before all questions are there.
    assert!(answers < 100, "{answers} answers to {last} questions");
}

/// A new message of a subject takes the place of the old one. A read that is on its way to the old one finds nothing there.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_is_current_only_when_it_has_given_all_subjects() {
    const SUBJECTS: usize = 2_000;
    const MOVED: usize = 200;
    let server = Server::running("");
    let engine = server.engine();
    let mut writer = Session::open(&engine);
    let page = |number: usize| message(&format!("p.00.n.1.{number}"), "page");
    for number in 0..SUBJECTS {
        writer.publish(&page(number)).await;
    }
    let mut reader = Session::open(&engine);
    let id = reader.start(StoreCall::ReadAll(ReadScope::Everything));
    let mut given = BTreeSet::new();
    while given.len() < MOVED {
        given.insert(reader.read(id).await.message.subject);
    }
    for number in (0..MOVED).chain(SUBJECTS - MOVED..SUBJECTS) {
        writer.publish(&page(number)).await;
    }
    loop {
        match reader.next().await {
            Some(StoreEvent::Read(_, stored)) => {
                given.insert(stored.message.subject);
            }
            Some(StoreEvent::Current(..)) => break,
            other => assert_eq!(other, Some(StoreEvent::Connected)),
        }
    }
    assert_eq!(given.len(), SUBJECTS);
}

#[tokio::test(flavor = "multi_thread")]
async fn compare_and_set_has_one_winner_and_the_loser_gets_the_record() {
    let server = Server::running("");
    let engine = server.engine();
    let (mut first, mut second) = (Session::open(&engine), Session::open(&engine));
    let set = |body: &'static str, expected| StoreCall::CompareAndSet(message("r.00.n", body), expected);
    assert_eq!(
        first.call(set("a", 9)).await,
        Err(StoreError::Conflict(None)),
        "there is no record"
    );
    let Ok(StoreReply::Stored(sequence)) = first.call(set("a", 0)).await else {
        panic!("the record is new");
    };
    let Err(StoreError::Conflict(Some(current))) = second.call(set("b", 0)).await else {
        panic!("there is a record");
    };
    assert_eq!(
        (current.sequence, current.message),
        (sequence, message("r.00.n", "a"))
    );
    let Ok(StoreReply::Stored(later)) = second.call(set("b", sequence)).await else {
        panic!("the sequence is right");
    };
    assert!(later > sequence);
    let records = first.retained().await;
    let bodies: Vec<_> = records.iter().map(|stored| stored.message.body.clone()).collect();
    assert_eq!(bodies, ["b"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_extended_by_its_holder_and_free_after_its_term() {
    let server = Server::running("");
    let engine = server.engine();
    let (mut first, mut second) = (Session::open(&engine), Session::open(&engine));
    let term = Duration::from_secs(2);
    let lease = |holder: &'static str, expected| {
        StoreCall::Lease(LeaseRequest {
            message: message("k.leader", holder),
            expected,
            term,
        })
    };
    let Ok(StoreReply::Stored(sequence)) = first.call(lease("a", 0)).await else {
        panic!("the lease is free");
    };
    let asked = Instant::now();
    let extended = first.call(lease("a", sequence)).await;
    assert!(matches!(extended, Ok(StoreReply::Stored(_))), "{extended:?}");
    loop {
        match second.call(lease("b", 0)).await {
            Err(StoreError::Conflict(Some(current))) => {
                assert_eq!(current.message.body, "a");
                assert!(asked.elapsed() < Duration::from_secs(30));
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
            Ok(StoreReply::Stored(_)) => break,
            result => panic!("{result:?}"),
        }
    }
    assert!(asked.elapsed() >= term, "after {:?}", asked.elapsed());
    let refused = first.call(lease("a", sequence)).await;
    assert!(
        matches!(refused, Err(StoreError::Conflict(Some(_)))),
        "{refused:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_removes_the_pages_of_a_run_up_to_a_sequence() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    let page = |epoch, page| {
        let producer = ProducerName::new("node 1").unwrap();
        let run = RunName { producer, epoch };
        let subject = Subject::Page {
            partition: 0,
            run: run.clone(),
            page,
        };
        let text = subject.text(CLUSTER);
        let subject = text.strip_prefix("tg.test.").unwrap().to_owned();
        (run, message(&subject, "x"))
    };
    session.publish(&page(7, 0).1).await;
    let through = session.publish(&page(7, 1).1).await;
    session.publish(&page(7, 2).1).await;
    session.publish(&page(77, 0).1).await;
    // A server takes the sequence 1 as no bound, so the engine does not ask it for this one.
    let nothing = StoreCall::Purge(page(7, 0).0, 0);
    assert_eq!(session.call(nothing).await, Ok(StoreReply::Purged));
    assert_eq!(Session::open(&engine).everything().await.len(), 4);
    let purge = StoreCall::Purge(page(7, 0).0, through);
    assert_eq!(session.call(purge).await, Ok(StoreReply::Purged));
    let read = session.everything().await;
    let left: Vec<_> = read.into_iter().map(|stored| stored.message).collect();
    assert_eq!(left, [page(7, 2).1, page(77, 0).1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_of_records_ends_also_if_there_are_none() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    assert!(session.retained().await.is_empty());
    session.publish(&message("p.00.n.1.1", "page")).await;
    for number in 0..300 {
        session
            .publish(&message(&format!("r.00.n{number}"), "record"))
            .await;
    }
    assert_eq!(session.retained().await.len(), 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_above_the_limit_of_the_server_is_too_large() {
    let server = Server::running("max_payload: 65536");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    session.connected().await;
    let large = StoreCall::Publish(message("p.00.n.1.1", random_bytes(100_000)));
    assert_eq!(session.call(large).await, Err(StoreError::TooLarge));
    let above_limits = StoreCall::Publish(message("p.00.n.1.1", vec![0; (1 << 20) + 1]));
    assert_eq!(session.call(above_limits).await, Err(StoreError::TooLarge));
    session.publish(&message("p.00.n.1.1", vec![0; 1 << 20])).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_are_not_readable_do_not_stop_a_reader() {
    let server = Server::running("");
    let engine = server.engine();
    let mut session = Session::open(&engine);
    session.publish(&message("p.00.n.1.1", "before")).await;
    let client = server.client().await;
    let bomb = zstd::bulk::compress(&vec![0; 64 << 20], 1).unwrap();
    for (number, body) in [b"no frame".to_vec(), bomb].into_iter().enumerate() {
        let mut headers = HeaderMap::new();
        headers.insert("Content-Encoding", "zstd");
        let subject = format!("tg.test.p.00.n.2.{number}");
        let ack = client
            .publish_with_headers(subject, headers, body.into())
            .await
            .unwrap();
        ack.await.unwrap();
    }
    // Others need not compress.
    let ack = client
        .publish("tg.test.p.00.n.3.1", "plain".into())
        .await
        .unwrap();
    ack.await.unwrap();
    let read = session.everything().await;
    let bodies: Vec<_> = read.iter().map(|stored| &stored.message.body[..]).collect();
    assert_eq!(bodies, [&b"before"[..], b"\0", b"\0", b"plain"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_slow_reader_does_not_hold_up_another_session() {
    let server = Server::running("");
    let engine = server.engine();
    let (mut slow, mut quick) = (Session::open(&engine), Session::open(&engine));
    for number in 0..500 {
        quick.publish(&message(&format!("p.00.n.1.{number}"), "x")).await;
    }
    let id = slow.start(StoreCall::ReadAll(ReadScope::Everything));
    for number in 500..600 {
        quick.publish(&message(&format!("p.00.n.1.{number}"), "x")).await;
    }
    assert_eq!(quick.everything().await.len(), 600);
    for number in 0..600 {
        let subject = format!("tg.test.p.00.n.1.{number}");
        assert_eq!(slow.read(id).await.message.subject, subject);
    }
}
