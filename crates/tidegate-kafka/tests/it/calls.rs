// SPDX-License-Identifier: Apache-2.0

//! The five calls.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tidegate_cluster::{
    ClusterEngine, ProducerName, ReadScope, StoreCall, StoreError, StoreMessage, StoreReply, Subject,
};

use crate::broker::Broker;
use crate::machine::{Machine, engine, lease, message, page, run};

fn retained(cluster: &str, body: &'static [u8]) -> StoreMessage {
    let subject = Subject::Retained {
        partition: 0,
        producer: ProducerName::new("node.1").unwrap(),
    };
    message(cluster, &subject, body)
}

/// The sequence of the current record, and its body.
fn conflict(result: Result<StoreReply, StoreError>) -> (u64, Vec<u8>) {
    match result {
        Err(StoreError::Conflict(Some(current))) => (current.sequence, current.message.body.to_vec()),
        result => panic!("{result:?}"),
    }
}

/// Milliseconds since the epoch.
fn now_millis() -> u128 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_reader_gets_the_pages_that_were_published() {
    let engine = engine(&Broker::shared().address(), "pages");
    let mut writer = Machine::new(&engine);
    let first = writer
        .stored(StoreCall::Publish(page("pages", 1, 1, b"one")))
        .await;
    let before = now_millis();
    let second = writer
        .stored(StoreCall::Publish(page("pages", 1, 1, b"two")))
        .await;
    let after = now_millis();
    assert!(first < second);
    let mut reader = Machine::new(&engine);
    let all = reader.everything().await;
    let message = page("pages", 1, 1, b"two");
    let stored = &all[&message.subject];
    assert_eq!((&stored.message, stored.sequence), (&message, second));
    // The earlier page is still in the log.
    assert_eq!(reader.reads.len(), 1);
    // The broker has the clock of this machine.
    let stored_at = u128::from(stored.time / 1_000_000);
    assert!(
        (before..=after).contains(&stored_at),
        "{stored_at} ms is not between {before} ms and {after} ms"
    );
    // A read goes on.
    let third = writer
        .stored(StoreCall::Publish(page("pages", 1, 2, b"three")))
        .await;
    let is_third = |reader: &Machine| reader.reads.iter().any(|(_, stored)| stored.sequence == third);
    reader.until("it reads later messages", is_third).await;
    assert!(engine.status().is_connected);
    assert!(engine.status().sent_bytes >= 11);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_read_that_has_caught_up_gives_each_message_of_a_subject() {
    let engine = engine(&Broker::shared().address(), "each");
    let (mut reader, mut writer) = (Machine::new(&engine), Machine::new(&engine));
    reader.everything().await;
    let mut all = Vec::new();
    for _ in 0..20 {
        let publish = StoreCall::Publish(page("each", 1, 1, b"page"));
        all.push(writer.stored(publish).await);
    }
    let last = all[19];
    reader
        .until("it has read the last message", |reader| {
            reader.reads.iter().any(|(_, stored)| stored.sequence == last)
        })
        .await;
    let read: Vec<u64> = reader.reads.iter().map(|(_, stored)| stored.sequence).collect();
    let has_all = all.iter().all(|sequence| read.contains(sequence));
    assert!(has_all, "{read:?} of {all:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_is_answered_after_all_messages_of_then() {
    let engine = engine(&Broker::shared().address(), "questions");
    let (mut reader, mut writer) = (Machine::new(&engine), Machine::new(&engine));
    reader.everything().await;
    let questions = engine.questions().expect("one store has all messages");
    for round in 0..20 {
        let stored = writer
            .stored(StoreCall::Publish(page("questions", 1, 1, b"page")))
            .await;
        let number = questions.ask();
        reader
            .until("the question is answered", |reader| reader.confirmed >= number)
            .await;
        let has_it = reader.reads.iter().any(|(_, read)| read.sequence == stored);
        assert!(has_it, "round {round}: {stored} is missing");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_two_writers_one_conflicts_and_learns_the_record() {
    let address = Broker::shared().address();
    let engines = [engine(&address, "records"), engine(&address, "records")];
    let mut machines = engines.each_ref().map(Machine::new);
    let big: &'static [u8] = vec![b'x'; 10_000].leak();
    let calls = [&b"small"[..], big];
    let set = |body, expected| StoreCall::CompareAndSet(retained("records", body), expected);
    let mut last = 0;
    for body in calls {
        let [one, two] = &mut machines;
        let stored = one.stored(set(body, last)).await;
        assert!(stored > last);
        assert_eq!(
            conflict(two.insist(set(b"late", last)).await),
            (stored, body.to_vec())
        );
        assert_eq!(
            conflict(two.insist(set(b"late", 7)).await),
            (stored, body.to_vec())
        );
        last = stored;
    }
    let [one, two] = &mut machines;
    let (first, second) = (one.start(set(b"a", last)), two.start(set(b"b", last)));
    one.until("its call ends", |one| one.done.contains_key(&first))
        .await;
    two.until("its call ends", |two| two.done.contains_key(&second))
        .await;
    let wins = [&one.done[&first], &two.done[&second]].map(Result::is_ok);
    assert!(wins != [true, true], "one of them lost");
    // Only the last record of the subject is what there is.
    let id = one.start(StoreCall::ReadAll(ReadScope::Retained));
    one.until("the read ends", |one| one.done.contains_key(&id)).await;
    assert_eq!(one.done[&id], Ok(StoreReply::ReadEnd));
    let reads = one.reads.iter().filter(|(of, _)| *of == id);
    assert_eq!(reads.count(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_one_holders_until_its_term_is_over() {
    let address = Broker::shared().address();
    let engines = [engine(&address, "leases"), engine(&address, "leases")];
    let [mut one, mut two] = engines.each_ref().map(Machine::new);
    let long = Duration::from_mins(10);
    let first = one.stored(lease("leases", "one", 0, long)).await;
    assert_eq!(
        conflict(two.insist(lease("leases", "two", 0, long)).await),
        (first, b"one".to_vec())
    );
    let short = Duration::from_millis(300);
    let second = one.stored(lease("leases", "one", first, short)).await;
    let taken = loop {
        match two.insist(lease("leases", "two", 0, long)).await {
            Ok(StoreReply::Stored(sequence)) => break sequence,
            result => assert_eq!(conflict(result), (second, b"one".to_vec())),
        }
    };
    assert_eq!(
        conflict(one.insist(lease("leases", "one", second, long)).await),
        (taken, b"two".to_vec())
    );
    assert_eq!(
        conflict(one.insist(lease("leases", "one", 0, long)).await),
        (taken, b"two".to_vec())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_purge_removes_the_pages_up_to_a_sequence() {
    let engine = engine(&Broker::shared().address(), "purges");
    let mut machine = Machine::new(&engine);
    let publish = |epoch, number| StoreCall::Publish(page("purges", epoch, number, b"page"));
    machine.stored(publish(1, 0)).await;
    let through = machine.stored(publish(1, 1)).await;
    machine.stored(publish(1, 2)).await;
    machine.stored(publish(2, 1)).await;
    assert_eq!(machine.everything().await.len(), 4);
    assert_eq!(
        machine.call(StoreCall::Purge(run(1), 0)).await,
        Ok(StoreReply::Purged)
    );
    assert_eq!(Machine::new(&engine).everything().await.len(), 4);
    assert_eq!(
        machine.call(StoreCall::Purge(run(1), through)).await,
        Ok(StoreReply::Purged)
    );
    let later = page("purges", 1, 2, b"page").subject;
    let other = page("purges", 2, 1, b"page").subject;
    // The log still has the removed pages, with a mark behind them. A purge finds them gone.
    assert_eq!(
        machine.call(StoreCall::Purge(run(1), through)).await,
        Ok(StoreReply::Purged)
    );
    let mut late = Machine::new(&engine);
    let all = late.everything().await;
    assert!(all.contains_key(&later) && all.contains_key(&other));
    // A reader gets the removed pages too: it may not know yet of the totals that have replaced them.
    assert_eq!(all.len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_the_broker_refuses_is_too_large() {
    let engine = engine(&Broker::shared().address(), "sizes");
    let mut machine = Machine::new(&engine);
    // Bytes that do not compress.
    let mut state = 1_u64;
    let noise: Vec<u8> = std::iter::repeat_with(|| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 56) as u8
    })
    .take(2 << 20)
    .collect();
    let noise = &*noise.leak();
    let publish = StoreCall::Publish(page("sizes", 1, 1, noise));
    assert_eq!(machine.insist(publish).await, Err(StoreError::TooLarge));
    // The broker would take it, and no reader would.
    let zeros = &*vec![0; 8 << 20].leak();
    let publish = StoreCall::Publish(page("sizes", 1, 1, zeros));
    assert_eq!(machine.insist(publish).await, Err(StoreError::TooLarge));
    let set = StoreCall::CompareAndSet(retained("sizes", noise), 0);
    assert_eq!(machine.insist(set).await, Err(StoreError::TooLarge));
    machine
        .stored(StoreCall::CompareAndSet(retained("sizes", b"small"), 0))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_record_that_is_too_large_after_decompression_stops_no_reader() {
    let engine = engine(&Broker::shared().address(), "bombs");
    let mut machine = Machine::new(&engine);
    machine
        .stored(StoreCall::Publish(page("bombs", 1, 1, b"before")))
        .await;
    // An engine writes no such record.
    let kafka = krafka::Kafka::builder(Broker::shared().address())
        .connect()
        .await
        .unwrap();
    let other = kafka
        .producer()
        .compression(krafka::Compression::Zstd)
        .max_request_size(32 << 20)
        .build()
        .await
        .unwrap();
    let bomb = krafka::Record::new("tidegate.bombs", vec![0; 8 << 20])
        .key(page("bombs", 1, 2, b"").subject)
        .partition(0);
    let _ = other.send(bomb).await.unwrap();
    machine
        .stored(StoreCall::Publish(page("bombs", 1, 3, b"after")))
        .await;
    let all = machine.everything().await;
    let numbers = [1, 2, 3].map(|number| all.contains_key(&page("bombs", 1, number, b"").subject));
    assert_eq!(numbers, [true, false, true]);
}
