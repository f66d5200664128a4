// SPDX-License-Identifier: Apache-2.0

//! A whole cluster, while its server is killed.

use tidegate_engine::clock;

use crate::kit::{Server, status_when};
use crate::world::{Producer, Replica, World};

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster_reaches_the_totals_of_the_model_while_its_server_dies() {
    let mut server = Server::running("");
    let mut world = World {
        producers: (0..3)
            .map(|number| Producer::new(server.engine(), number, number))
            .collect(),
        replicas: vec![
            Replica::new(server.engine(), "a"),
            Replica::new(server.engine(), "b"),
        ],
    };
    for _ in 0..3 {
        world.grow().await;
        server.kill();
        let engine = &world.replicas[0].engine;
        status_when(engine, "without a connection", |status| !status.is_connected).await;
        world
            .producers
            .iter_mut()
            .for_each(|producer| producer.count += 100);
        server.start();
    }
    // Two producers end, and one of them begins again.
    let ended: i64 = world.producers[..2].iter().map(|producer| producer.count).sum();
    let finished = |world: &World| {
        let mut producers = world.producers[..2].iter();
        producers.all(|producer| producer.sender.is_finished())
    };
    world.producers[..2]
        .iter_mut()
        .for_each(|producer| producer.sender.stop());
    world.run_until("goodbyes", false, finished).await;
    world.producers.drain(..2);
    world.producers.push(Producer::new(server.engine(), 0, 7));
    let is_folded = |world: &World| {
        let purged = world.replicas.iter().map(|replica| replica.leader.stats().purged);
        purged.sum::<u64>() >= 2
    };
    world.run_until("folded runs", true, is_folded).await;
    let total = ended + world.total();
    world
        .run_until("equal totals", false, |world| world.show(total))
        .await;
    world.replicas.push(Replica::new(server.engine(), "c"));
    world
        .run_until("a late replica", false, |world| world.show(total))
        .await;
    let now = clock::now();
    let mut replicas = world.replicas.iter();
    assert!(replicas.any(|replica| replica.leader.is_leading(now)));
}
