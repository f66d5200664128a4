// SPDX-License-Identifier: Apache-2.0

use super::*;

#[test]
fn a_listener_has_connections_for_the_memory_that_there_is() {
    let within = |limits: ConnectionLimits, memory| {
        let limits = limits.within(memory);
        (limits.max_connections, limits.max_per_peer.connections)
    };
    let usual = ConnectionLimits::plain(8192);
    assert_eq!(within(usual.clone(), usize::MAX), (8192, 2048));
    assert_eq!(within(usual.clone(), 256 << 20), (1024, 256));
    assert_eq!(within(usual, 1 << 20), (64, 16));
    let few = ConnectionLimits::new(8192, NonZeroUsize::new(10));
    assert_eq!(within(few, 256 << 20), (1024, 10));
    let proxied = ConnectionLimits::new(8192, NonZeroUsize::new(8192));
    assert_eq!(within(proxied, 256 << 20), (1024, 1024));
}

#[tokio::test(start_paused = true)]
async fn a_silent_handshake_makes_room_after_2_s_where_others_wait() {
    let slots = Slots::new(1);
    let taken = slots.take().await.unwrap();
    let began = tokio::time::Instant::now();
    let crowd = slots.crowd.clone();
    let handshake = async move {
        let done = in_time(std::future::pending::<()>(), &crowd).await;
        drop(taken);
        done
    };
    let (done, place) = tokio::join!(handshake, slots.take());
    assert!(done.is_none() && place.is_some());
    let took = began.elapsed();
    assert!(
        took >= CROWDED_HANDSHAKE && took < 2 * CROWDED_HANDSHAKE,
        "{took:?}"
    );
    let alone = Notify::new();
    let began = tokio::time::Instant::now();
    assert!(in_time(std::future::pending::<()>(), &alone).await.is_none());
    assert!(began.elapsed() >= HANDSHAKE_TIMEOUT);
}

#[tokio::test]
async fn a_listener_has_descriptors_when_others_took_all() {
    let slots = Slots {
        shared: Arc::new(Semaphore::new(0)),
        ..Slots::new(100)
    };
    let mut own = Vec::new();
    for _ in 0..descriptors::OWN {
        own.push(slots.take().await.unwrap());
    }
    let next = tokio::time::timeout(Duration::from_millis(20), slots.take()).await;
    assert!(next.is_err(), "there is none left");
    own.pop();
    assert!(slots.take().await.is_some());
    slots.shared.add_permits(1);
    own.push(slots.take().await.unwrap());
}
