// SPDX-License-Identifier: Apache-2.0

//! Whether a read is current.

use super::*;

/// A page of a producer with this interval in milliseconds.
fn page_at_interval(sequence: u64, millis: u32) -> StoredMessage {
    let mut page = page(1, sequence, 1);
    let interval = ("tg-interval".to_owned(), millis.to_string());
    page.message.headers.push(interval);
    page
}

#[test]
fn messages_of_one_part_of_the_store_do_not_keep_a_replica_ready() {
    let mut reader = caught_up([page(1, 1, 1)]);
    let id = reader.read.unwrap();
    for second in 1..=9 {
        let now = NOW + second * SECOND;
        let mut stored = page(1, 1 + second, 1);
        stored.time = now;
        reader.event(StoreEvent::Read(id, stored), now);
        // The last message that counts is that of the third second.
        assert_eq!(reader.is_ready(now), second < 3 + 5, "{second}");
    }
    reader.event(
        StoreEvent::Current(id, Duration::ZERO, Instant::now()),
        NOW + 10 * SECOND,
    );
    assert!(reader.is_ready(NOW + 10 * SECOND));
}

#[test]
fn old_messages_do_not_keep_a_replica_ready() {
    let mut reader = caught_up([page(1, 1, 1)]);
    let id = reader.read.unwrap();
    let mut take = |sequence, arrives: u64, age: u64| {
        let now = NOW + arrives;
        let mut stored = page(1, sequence, 1);
        stored.time = now - age;
        reader.event(StoreEvent::Read(id, stored), now);
        reader.status(now).lag_ns
    };
    // The first message arrives at once, so the clocks are equal.
    assert_eq!(take(2, 0, 0), Some(0));
    let lag = take(3, 2 * SECOND, 3 * SECOND / 2);
    assert_eq!(lag, Some(2 * SECOND), "the store may have replaced others");
    assert_eq!(take(4, 3 * SECOND, SECOND), Some(SECOND));
}

#[test]
fn a_read_that_may_miss_values_of_a_producer_is_not_current() {
    let mut reader = reader();
    let (id, _) = reader.poll().unwrap();
    let current = |millis| StoreEvent::Current(id, Duration::from_millis(millis), Instant::now());
    reader.event(StoreEvent::Read(id, page_at_interval(1, 200)), NOW);
    reader.event(current(201), NOW);
    assert_eq!(reader.status(NOW).state, ReplicaState::CatchingUp);
    reader.event(current(200), NOW);
    assert_eq!(reader.status(NOW).state, ReplicaState::Fresh);
    // A silent producer replaces nothing.
    let later = NOW + 10 * SECOND;
    assert!(!reader.is_ready(later));
    reader.event(current(900), later);
    assert!(reader.is_ready(later));
}

#[test]
fn slow_reads_of_seconds_do_not_make_a_replica_stale() {
    let mut reader = reader();
    let (id, _) = reader.poll().unwrap();
    let sent_at = |tenth: u64| {
        let mut page = page_at_interval(1 + tenth, 100);
        page.time = NOW + tenth * SECOND / 10;
        page
    };
    let current = |millis| StoreEvent::Current(id, Duration::from_millis(millis), Instant::now());
    reader.event(StoreEvent::Read(id, sent_at(0)), NOW);
    reader.event(current(2), NOW);
    // The machine pauses for 150 ms in each pair of goals. Messages count for 3 s, and `max_lag` is 5 s.
    for tenth in 1..=80 {
        let now = NOW + tenth * SECOND / 10;
        reader.event(StoreEvent::Read(id, sent_at(tenth)), now);
        if tenth % 10 == 0 {
            reader.event(current(150), now);
        }
        assert_eq!(reader.is_ready(now), tenth < 80, "{tenth}");
    }
    reader.event(current(100), NOW + 8 * SECOND);
    assert!(reader.is_ready(NOW + 8 * SECOND));
}

#[test]
fn a_question_is_confirmed_by_a_read_that_has_missed_nothing() {
    let mut reader = reader();
    let (id, _) = reader.poll().unwrap();
    let confirmed = |millis, question| StoreEvent::Confirmed(id, Duration::from_millis(millis), question);
    reader.event(StoreEvent::Read(id, page_at_interval(1, 200)), NOW);
    reader.event(confirmed(0, 1), NOW);
    assert_eq!(reader.confirmed(), 0, "it has not read everything");
    reader.event(StoreEvent::Current(id, Duration::ZERO, Instant::now()), NOW);
    reader.event(confirmed(201, 2), NOW);
    assert_eq!(reader.confirmed(), 0, "a value may have been replaced twice");
    reader.event(confirmed(200, 3), NOW);
    assert_eq!(reader.confirmed(), 3);
    reader.event(StoreEvent::Done(id, Ok(StoreReply::ReadEnd)), NOW);
    reader.event(confirmed(0, 4), NOW);
    assert_eq!(reader.confirmed(), 3, "that read has ended");
}
