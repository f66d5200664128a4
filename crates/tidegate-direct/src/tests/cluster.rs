// SPDX-License-Identifier: Apache-2.0

//! Whole clusters: producers, readers and leaders.

use super::kit::{Node, Producer, Proxy, World, address, serving};

/// Replicas at these addresses, and two producers that have counted something.
async fn world(addresses: &[std::net::SocketAddr]) -> World {
    let mut world = World::default();
    for (at, address) in addresses.iter().enumerate() {
        let config = serving(&format!("r-{at}"), *address, addresses);
        world.nodes.push(Node::start(config).await);
    }
    for name in ["one", "two"] {
        world.producers.push(Producer::start(name, addresses).await);
    }
    for (producer, series, amount) in [(0, 0, 5), (0, 1, 3), (1, 0, 11), (1, 1, 6)] {
        world.count(producer, series, amount);
    }
    world.until_equal().await;
    world
}

/// Waits until the runs of ended producers are folded and their pages are gone in all stores.
async fn until_folded(world: &mut World, purged: u64) {
    world
        .until("the run is folded", |world| {
            let leaders = world.nodes.iter();
            leaders.map(|node| node.leader.stats().purged).sum::<u64>() >= purged
        })
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_replica_that_is_replaced_gets_everything_from_its_peer() {
    let addresses = [address(), address()];
    let mut world = world(&addresses).await;
    // Only the record of the ended producer has its totals.
    world.end_producer(1).await;
    until_folded(&mut world, 1).await;
    for at in [1, 0] {
        drop(world.nodes.remove(at));
        world.count(0, 0, 2);
        world.until_equal().await;
        let config = serving(&format!("r-{at}"), addresses[at], &addresses);
        world.nodes.insert(at, Node::start(config).await);
        world.until_equal().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_producer_that_restarts_counts_on_in_a_new_run() {
    let addresses = [address(), address()];
    let mut world = world(&addresses).await;
    let before = world.producers[0].sender.run().unwrap();
    drop(world.producers.remove(0));
    world
        .producers
        .insert(0, Producer::start("one", &addresses).await);
    world.count(0, 0, 7);
    world.until_equal().await;
    let after = world.producers[0].sender.run().unwrap();
    assert!(after.epoch > before.epoch, "{after:?}, then {before:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_replicas_leads_and_another_one_follows_it() {
    let addresses = [address(), address(), address()];
    let mut world = world(&addresses).await;
    let leaders = |world: &World| {
        let now = tidegate_engine::clock::now();
        let nodes = world.nodes.iter();
        nodes.filter(|node| node.leader.is_leading(now)).count()
    };
    world.until("one leads", |world| leaders(world) == 1).await;
    let now = tidegate_engine::clock::now();
    let leading = world.nodes.iter().position(|node| node.leader.is_leading(now));
    drop(world.nodes.remove(leading.unwrap()));
    world
        .until("another one leads", |world| leaders(world) == 1)
        .await;
    world.count(1, 1, 9);
    world.until_equal().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replicas_are_equal_again_after_a_partition() {
    let addresses = [address(), address()];
    let proxies = [Proxy::start(addresses[0]).await, Proxy::start(addresses[1]).await];
    let mut world = World::default();
    for (at, own) in addresses.iter().enumerate() {
        let peers = [*own, proxies[1 - at].address];
        let config = serving(&format!("r-{at}"), *own, &peers);
        world.nodes.push(Node::start(config).await);
    }
    // Each replica has a producer that sees only it, and there is one that sees both.
    for (name, seen) in [
        ("left", &addresses[..1]),
        ("right", &addresses[1..]),
        ("both", &addresses[..]),
    ] {
        world.producers.push(Producer::start(name, seen).await);
    }
    (0..3).for_each(|producer| world.count(producer, 0, 5));
    world.until_equal().await;

    proxies.iter().for_each(|proxy| proxy.set_open(false));
    (0..3).for_each(|producer| world.count(producer, 1, 3));
    world
        .until("both lead", |world| {
            let now = tidegate_engine::clock::now();
            world.nodes.iter().all(|node| node.leader.is_leading(now))
        })
        .await;
    // Each side folds a run that the other one does not know to be over, or folds it too.
    world.end_producer(2).await;
    world.end_producer(0).await;
    until_folded(&mut world, 2).await;

    proxies.iter().for_each(|proxy| proxy.set_open(true));
    world.count(0, 0, 4);
    world.until_equal().await;
}
