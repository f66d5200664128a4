// SPDX-License-Identifier: Apache-2.0

use tokio_stream::StreamExt;

use super::*;
use crate::component::Ceiling;

const KIB: usize = 1 << 10;

fn shared(limit: usize) -> Arc<Shared> {
    let shared = Arc::new(Shared::default());
    shared.memory.add_limit(crate::component::Limit::of(limit));
    shared
}

/// The last word.
fn last_message(why: Ended) -> Option<usize> {
    matches!(why, Ended::Slow | Ended::Stopping | Ended::Replaced).then_some(9)
}

async fn send(to: &Backlog<usize>, message: usize, bytes: usize) -> Result<(), Ended> {
    to.ready().await?;
    to.send(to.reserve(bytes).await?, message, bytes);
    Ok(())
}

/// The number of messages to a reader that reads nothing until it has to wait.
async fn fill(to: &Backlog<usize>, bytes: usize) -> usize {
    let mut told = 0;
    while tokio::time::timeout(Duration::from_millis(10), send(to, told, bytes))
        .await
        .is_ok_and(|told| told.is_ok())
    {
        told += 1;
    }
    told
}

#[tokio::test(start_paused = true)]
async fn a_slow_reader_is_behind_by_few_messages_and_few_bytes() {
    let shared = shared(1 << 30);
    let (to, mut unread) = backlog(&shared, last_message);
    assert_eq!(fill(&to, 10).await, MESSAGES);
    assert_eq!(shared.memory.reserved_bytes(), 10 * MESSAGES);
    for message in 0..MESSAGES {
        assert_eq!(unread.next().await, Some(message));
        assert_eq!(shared.memory.reserved_bytes(), 10 * (MESSAGES - message));
    }
    // That the last one has been written is known when the next one is asked for.
    assert_eq!(fill(&to, 100 * KIB).await, 2);
    assert_eq!(unread.next().await, Some(0));
    assert_eq!(shared.memory.reserved_bytes(), 200 * KIB);
    drop((to, unread));
    assert_eq!(shared.memory.reserved_bytes(), 0);
}

#[test]
fn a_message_to_a_reader_that_keeps_up_takes_no_timer() {
    // A timer panics in this runtime.
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let shared = shared(1 << 30);
        let (to, mut unread) = backlog(&shared, last_message);
        for message in 0..2 * MESSAGES {
            send(&to, message, 100 * KIB).await.unwrap();
            assert_eq!(unread.next().await, Some(message));
        }
    });
}

#[tokio::test(start_paused = true)]
async fn a_large_message_waits_until_nothing_else_does() {
    let shared = shared(1 << 30);
    let (to, mut unread) = backlog(&shared, last_message);
    send(&to, 1, 10).await.unwrap();
    let large = tokio::spawn({
        let to = to.clone();
        async move { send(&to, 2, 1 << 20).await }
    });
    assert_eq!(unread.next().await, Some(1));
    assert_eq!(unread.next().await, Some(2));
    large.await.unwrap().unwrap();
    assert_eq!(shared.memory.reserved_bytes(), 1 << 20);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_loses_its_stream_and_an_idle_one_does_not() {
    let shared = shared(1 << 30);
    let (slow, mut of_slow) = backlog(&shared, last_message);
    let (idle, mut of_idle) = backlog(&shared, last_message);
    send(&slow, 1, 10).await.unwrap();
    send(&slow, 2, 10).await.unwrap();
    send(&idle, 1, 10).await.unwrap();
    assert_eq!(of_idle.next().await, Some(1));
    let waits = tokio::spawn(async move { (of_idle.next().await, of_idle) });
    let began = Instant::now();
    assert_eq!(slow.ended().await, Ended::Slow);
    assert!(began.elapsed() >= PATIENCE && began.elapsed() < 2 * PATIENCE);
    assert_eq!(shared.memory.reserved_bytes(), 0, "what waited is dropped");
    assert_eq!(of_slow.next().await, Some(9), "and the reader gets the end");
    assert_eq!(of_slow.next().await, None);
    assert_eq!(slow.reserve(1).await.err(), Some(Ended::Slow));
    tokio::time::sleep(10 * PATIENCE).await;
    send(&idle, 2, 10).await.unwrap();
    let (message, of_idle) = waits.await.unwrap();
    assert_eq!(message, Some(2));
    drop(of_idle);
    assert_eq!(idle.ended().await, Ended::Gone);
}

#[tokio::test(start_paused = true)]
async fn slow_readers_make_room_for_fast_ones() {
    // A sixteenth of it for watchers: four times what one of them may have.
    let shared = shared(16 << 20);
    let slow: Vec<_> = (0..4).map(|_| backlog(&shared, last_message)).collect();
    let ends: Vec<_> = slow
        .iter()
        .map(|(to, _)| {
            let to = to.clone();
            tokio::spawn(async move { to.ended().await })
        })
        .collect();
    for (to, _) in &slow {
        send(to, 1, 250 * KIB).await.unwrap();
    }
    tokio::time::sleep(SHORT_PATIENCE).await;
    let (to, mut unread) = backlog(&shared, last_message);
    send(&to, 7, 200 * KIB).await.unwrap();
    assert_eq!(unread.next().await, Some(7));
    for end in ends {
        assert_eq!(end.await.unwrap(), Ended::Memory);
    }
    assert_eq!(shared.memory.reserved_bytes(), 200 * KIB);
}

#[tokio::test(start_paused = true)]
async fn a_stream_ends_where_the_gateway_has_no_memory() {
    let shared = shared(16 << 20);
    shared.memory.note(16 << 20);
    let (to, mut unread) = backlog(&shared, last_message);
    send(&to, 1, KIB).await.expect("short news");
    assert_eq!(unread.next().await, Some(1));
    assert_eq!(send(&to, 2, 100 * KIB).await, Err(Ended::Memory));
    assert!(
        !shared.memory.is_short(Ceiling::Soft),
        "no body loses its room for it"
    );
    assert_eq!(unread.next().await, None);
    assert_eq!(shared.memory.reserved_bytes(), 0);
}

#[tokio::test(start_paused = true)]
async fn an_end_without_fault_of_the_reader_keeps_its_messages() {
    for (why, told) in [
        (Ended::Stopping, &[1, 2, 9][..]),
        (Ended::Replaced, &[1, 2, 9][..]),
        (Ended::Slow, &[9][..]),
    ] {
        let shared = shared(1 << 30);
        let (to, unread) = backlog(&shared, last_message);
        let other = to.clone();
        let waiting = tokio::spawn(async move { other.ended().await });
        send(&to, 1, 10).await.unwrap();
        send(&to, 2, 10).await.unwrap();
        to.end(why);
        assert_eq!(waiting.await.unwrap(), why, "other publishers end too");
        assert_eq!(send(&to, 3, 10).await, Err(why));
        assert_eq!(unread.collect::<Vec<_>>().await, told, "{why:?}");
        assert_eq!(shared.memory.reserved_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_nothing_after_the_end_loses_its_messages() {
    let shared = shared(1 << 30);
    let (to, mut unread) = backlog(&shared, last_message);
    send(&to, 1, 10).await.unwrap();
    send(&to, 2, 10).await.unwrap();
    let other = to.clone();
    let finishing = tokio::spawn(async move { other.finish(Ended::Replaced).await });
    let began = Instant::now();
    to.finish(Ended::Replaced).await;
    finishing.await.unwrap();
    assert!(began.elapsed() >= PATIENCE && began.elapsed() < 2 * PATIENCE);
    assert_eq!(shared.memory.reserved_bytes(), 0);
    assert_eq!(to.ended().await, Ended::Slow);
    assert_eq!(unread.next().await, Some(9));
    assert_eq!(unread.next().await, None);
}

#[tokio::test(start_paused = true)]
async fn a_stream_is_finished_when_its_reader_has_taken_all_or_is_gone() {
    for is_gone in [false, true] {
        let shared = shared(1 << 30);
        let (to, unread) = backlog(&shared, last_message);
        send(&to, 1, 10).await.unwrap();
        let began = Instant::now();
        let reading = async {
            // After the end.
            assert_eq!(to.ended().await, Ended::Replaced);
            if is_gone {
                drop(unread);
            } else {
                assert_eq!(unread.collect::<Vec<_>>().await, [1, 9]);
            }
        };
        tokio::join!(to.finish(Ended::Replaced), reading);
        assert!(began.elapsed() < SHORT_PATIENCE, "gone: {is_gone}");
        assert_eq!(shared.memory.reserved_bytes(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn readers_of_ended_streams_make_room_for_others() {
    // As above: a sixteenth of it for watchers.
    let shared = shared(16 << 20);
    let ended: Vec<_> = (0..4).map(|_| backlog(&shared, last_message)).collect();
    let mut finishing = Vec::new();
    for (to, _) in &ended {
        send(to, 1, 250 * KIB).await.unwrap();
        let to = to.clone();
        finishing.push(tokio::spawn(async move { to.finish(Ended::Replaced).await }));
    }
    tokio::time::sleep(SHORT_PATIENCE).await;
    let (to, mut unread) = backlog(&shared, last_message);
    send(&to, 7, 200 * KIB).await.unwrap();
    assert_eq!(unread.next().await, Some(7));
    for task in finishing {
        task.await.unwrap();
    }
    assert_eq!(shared.memory.reserved_bytes(), 200 * KIB);
}
