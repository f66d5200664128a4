// SPDX-License-Identifier: Apache-2.0

use std::time::Instant;

use tidegate_promql::QueryError;
use tokio::time::timeout;

use super::*;
use crate::component::Limit;
use crate::component::testing::is_pending;

const SOON: Duration = Duration::from_secs(30);

fn queues() -> QueryQueues {
    QueryQueues::of(&"admin".into(), SOON)
}

#[tokio::test]
async fn abandoned_work_ends_and_keeps_its_place_until_then() {
    let queues = queues();
    let (ended, mut ends) = tokio::sync::mpsc::channel(HEAVY);
    let (release, released) = std::sync::mpsc::sync_channel::<()>(1);
    let released = Arc::new(Mutex::new(released));
    for _ in 0..HEAVY {
        let patience = Patience::default();
        let (watched, ended, released) = (patience.clone(), ended.clone(), released.clone());
        let work = move || {
            let begun = Instant::now();
            while watched.check().is_ok() && begun.elapsed() < SOON {
                std::thread::sleep(Duration::from_millis(1));
            }
            // The next query must wait for this. It fails when the sender is dropped.
            let _ = released.lock().recv();
            ended.try_send(watched.check().unwrap_err()).unwrap();
        };
        let computed = queues.compute(QueryKind::Heavy, None, patience, work);
        assert!(timeout(Duration::from_millis(20), computed).await.is_err());
    }
    assert!(ends.try_recv().is_err(), "it still works");
    let mut next = Box::pin(queues.compute(QueryKind::Heavy, None, Patience::default(), || ()));
    assert!(is_pending(&mut next).await, "no place is free");
    drop(release);
    timeout(SOON, next).await.expect("a place").unwrap();
    assert_eq!(ends.recv().await, Some(QueryError::Canceled));
}

/// Asks for 7 in a queue.
fn ask(
    queues: &Arc<QueryQueues>,
    kind: QueryKind,
    client: ClientKey,
) -> tokio::task::JoinHandle<Result<i32, NotComputed>> {
    let queues = queues.clone();
    tokio::spawn(async move { queues.compute(kind, client, Patience::default(), || 7).await })
}

async fn until_there_wait(queues: &QueryQueues, waiting: usize) {
    while queues.heavy.waiting.taken() < waiting {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn so_many_wait_and_no_more() {
    let queues = Arc::new(queues());
    let heavy = queues.occupy(QueryKind::Heavy).await;
    let waiting: Vec<_> = (0..WAITING.of_all)
        .map(|_| ask(&queues, QueryKind::Heavy, None))
        .collect();
    until_there_wait(&queues, WAITING.of_all).await;
    let refused = ask(&queues, QueryKind::Heavy, None).await.unwrap();
    assert_eq!(refused, Err(NotComputed::Crowded(WAITING.of_all)));
    for kind in [QueryKind::Light, QueryKind::Scaler] {
        assert_eq!(ask(&queues, kind, None).await.unwrap(), Ok(7), "{kind:?}");
    }
    drop(heavy);
    for waiting in waiting {
        assert_eq!(waiting.await.unwrap(), Ok(7));
    }
    assert_eq!(queues.heavy.waiting.taken(), 0);
}

#[tokio::test]
async fn a_client_that_asks_much_waits_behind_itself() {
    let queues = Arc::new(queues());
    let [greedy, other] = ["greedy", "other"].map(|name| Some(SenderKey::of(name)));
    let heavy = queues.occupy(QueryKind::Heavy).await;
    let crowd: Vec<_> = (0..WAITING.of_one)
        .map(|_| ask(&queues, QueryKind::Heavy, greedy))
        .collect();
    until_there_wait(&queues, WAITING.of_one).await;
    let refused = ask(&queues, QueryKind::Heavy, greedy).await.unwrap();
    assert_eq!(refused, Err(NotComputed::CrowdedByClient(WAITING.of_one)));
    // Clients without a key count as one more client.
    let unknown = WAITING.of_all - WAITING.of_one - 1;
    let unknown: Vec<_> = (0..unknown)
        .map(|_| ask(&queues, QueryKind::Heavy, None))
        .collect();
    until_there_wait(&queues, WAITING.of_all - 1).await;
    let next = ask(&queues, QueryKind::Heavy, other);
    until_there_wait(&queues, WAITING.of_all).await;
    drop(heavy);
    assert_eq!(timeout(SOON, next).await.expect("a turn").unwrap(), Ok(7));
    // The runtime has one thread, so this is checked before the crowd continues.
    for crowd in [&crowd, &unknown] {
        let left = crowd.iter().filter(|one| !one.is_finished()).count();
        assert!(left > crowd.len() / 2, "only {left} of {} wait", crowd.len());
    }
    for one in crowd.into_iter().chain(unknown) {
        assert_eq!(one.await.unwrap(), Ok(7));
    }
    assert_eq!(queues.heavy.waiting.taken(), 0);
    assert!(queues.heavy.turns.lock().is_empty(), "clients are forgotten");
}

#[tokio::test]
async fn a_client_that_stops_waiting_is_forgotten() {
    let queues = Arc::new(queues());
    let _heavy = queues.occupy(QueryKind::Heavy).await;
    let client = Some(SenderKey::of("client"));
    let waiting = [(); 3].map(|()| ask(&queues, QueryKind::Heavy, client));
    until_there_wait(&queues, 3).await;
    for waiting in waiting {
        waiting.abort();
        assert!(waiting.await.is_err());
    }
    assert_eq!(queues.heavy.waiting.taken(), 0);
    assert!(queues.heavy.turns.lock().is_empty());
}

#[test]
fn streams_have_places_of_their_own() {
    let queues = queues();
    let _all: Vec<_> = std::iter::from_fn(|| queues.watch(None).ok()).collect();
    let client = Some(SenderKey::of("client"));
    let of_one: Vec<_> = std::iter::from_fn(|| queues.follow(client).ok()).collect();
    assert_eq!(of_one.len(), FOLLOWING.of_one);
    let refused = queues.follow(client).unwrap_err();
    assert_eq!(refused, NotComputed::WatchedByClient(FOLLOWING.of_one));
    assert!(queues.follow(None).is_ok());
    drop(of_one);
    assert!(queues.follow(client).is_ok());
}

#[test]
fn what_streams_keep_of_their_requests_is_bounded_and_on_the_account() {
    const MIB: usize = 1 << 20;
    let (queues, memory) = (queues(), Arc::<Account>::default());
    memory.add_limit(Limit::of(64 * MIB));
    let [greedy, other] = ["greedy", "other"].map(|name| Some(SenderKey::of(name)));
    let keep = |client, bytes| queues.keep(client, bytes, &memory);
    assert!(keep(greedy, LEAST_FREE_BYTES).unwrap().is_none());
    let first = keep(greedy, MIB).unwrap();
    assert_eq!(memory.reserved_bytes(), MIB);
    let second = keep(greedy, MIB).unwrap();
    // A sixteenth of the memory, half of it for one client.
    assert_eq!(
        keep(greedy, LEAST_FREE_BYTES + 1).unwrap_err(),
        NotComputed::WatchMemory
    );
    assert!(keep(greedy, LEAST_FREE_BYTES).unwrap().is_none());
    let third = keep(other, 2 * MIB).unwrap();
    assert_eq!(
        keep(None, LEAST_FREE_BYTES + 1).unwrap_err(),
        NotComputed::WatchMemory
    );
    drop((first, second, third));
    assert_eq!(memory.reserved_bytes(), 0);
    let mut body = Held::new(memory.clone());
    body.promise(64 * MIB);
    assert_eq!(
        keep(None, MIB).unwrap_err(),
        NotComputed::WatchMemory,
        "senders come first"
    );
    drop(body);
    assert!(keep(None, MIB).unwrap().is_some());
}

#[test]
fn a_small_memory_limit_lowers_what_streams_keep_without_a_reservation() {
    const MIB: usize = 1 << 20;
    for (limit, free) in [
        (1024 * MIB, FREE_BYTES),
        (512 * MIB, FREE_BYTES / 2),
        (64 * MIB, LEAST_FREE_BYTES),
    ] {
        let (queues, memory) = (queues(), Arc::<Account>::default());
        memory.add_limit(Limit::of(limit));
        assert!(queues.keep(None, free, &memory).unwrap().is_none(), "{limit}");
        assert!(queues.keep(None, free + 1, &memory).unwrap().is_some(), "{limit}");
    }
}

#[test]
fn half_of_the_connections_are_for_readers_that_wait_for_changes() {
    let queues = queues();
    let watch_all = |client| -> Vec<_> { std::iter::from_fn(|| queues.watch(client).ok()).collect() };
    let of_one = watch_all(Some(SenderKey::of("client")));
    assert_eq!(of_one.len(), WATCHING.of_one);
    let others = watch_all(None);
    assert_eq!(of_one.len() + others.len(), WATCHING.of_all);
    assert_eq!(
        queues.watch(None).unwrap_err(),
        NotComputed::Watched(WATCHING.of_all)
    );
    drop(others);
    assert!(queues.watch(None).is_ok());
}
