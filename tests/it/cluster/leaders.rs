// SPDX-License-Identifier: Apache-2.0

//! Exports of the replica that leads. Both destinations are compared with the counters of both replicas.

use super::{Producer, TOTAL, replicas};
use crate::kit::{Gateway, SOON, wait_until};

/// The items that entered the `otlphttp` exporter, that it delivered, and that it dropped because another replica leads.
fn exported(replica: &Gateway) -> [f64; 3] {
    let component = "component=\"exporters::otlphttp\"";
    let items = |flow| replica.own_metric("tidegate_component_items_total", &[component, flow]);
    let dropped = ["reason=\"not_leader\"", component];
    [
        items("flow=\"in\""),
        items("flow=\"out\""),
        replica.own_metric("tidegate_dropped_items_total", &dropped),
    ]
}

/// The place of the replica that leads, after one does.
fn leader_of(gateways: &[Gateway; 2]) -> usize {
    let leads = |gateway: &Gateway| gateway.own_metric("tidegate_cluster_leader", &[]) == 1.0;
    wait_until(SOON, "one replica leads", || {
        gateways.iter().filter(|gateway| leads(gateway)).count() == 1
    });
    usize::from(leads(&gateways[1]))
}

/// Kills the leader, and gives the other replica.
fn kill_leader(gateways: [Gateway; 2], leader: usize) -> Gateway {
    let [first, second] = gateways;
    let (led, follower) = if leader == 0 {
        (first, second)
    } else {
        (second, first)
    };
    led.kill();
    follower
}

#[test]
fn only_the_leader_delivers_and_the_other_counts_what_it_drops() {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let gateways = [0, 1].map(|index| replicas[index].start(peers[index]));
    let producer = Producer::start(peers);
    producer.send_total();
    let leader = leader_of(&gateways);
    let sink = &replicas[leader].sink;
    sink.wait_until("the leader delivers", |sink| sink.points_of("hits").len() > 1);
    assert!(sink.points().iter().all(|point| point.number() == TOTAL));
    // On a busy machine, the other one may lead for a time.
    for (replica, gateway) in replicas.iter().zip(&gateways) {
        wait_until(SOON, "a replica counts what its destination received", || {
            let [entered, delivered, dropped] = exported(gateway);
            let received = replica.sink.points().len() as f64;
            let is_exact = delivered == received && entered == delivered + dropped;
            entered > 1.0 && is_exact && (replica.sink.attempts() > 0) == (delivered > 0.0)
        });
    }
    wait_until(SOON, "one of them drops items", || {
        gateways.iter().any(|gateway| exported(gateway)[2] > 1.0)
    });
    let leader = leader_of(&gateways);
    let other = 1 - leader;
    let follower = kill_leader(gateways, leader);
    producer.send_total();
    let sink = &replicas[other].sink;
    sink.wait_until("the other replica delivers the new total", |sink| {
        let points = sink.points_of("hits");
        points.last().is_some_and(|point| point.number() == 2.0 * TOTAL)
    });
    wait_until(
        SOON,
        "the new leader counts what its destination received",
        || {
            let [entered, delivered, dropped] = exported(&follower);
            delivered == sink.points().len() as f64 && entered == delivered + dropped
        },
    );
    producer.gateway.stop();
    follower.stop();
}

#[test]
fn deltas_of_two_leaders_add_up_to_the_total() {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let gateways = [0, 1].map(|index| replicas[index].start_with(peers[index], "delta"));
    let producer = Producer::start(peers);
    producer.send_total();
    let sum = || -> f64 {
        let points = replicas.iter().flat_map(|replica| replica.sink.points_of("hits"));
        points.map(|point| point.number()).sum()
    };
    wait_until(SOON, "a leader delivers the total", || sum() == TOTAL);
    // The other replica follows a later claim, so it has let go of the same total.
    let followed = |gateway: &Gateway| {
        gateway.own_metric("tidegate_cluster_delta_claims_total", &["result=\"followed\""])
    };
    let before = gateways.each_ref().map(followed);
    let mut leader = leader_of(&gateways);
    wait_until(SOON, "the other replica follows", || {
        // On a busy machine, the other one may lead for a time.
        leader = leader_of(&gateways);
        followed(&gateways[1 - leader]) > before[1 - leader] + 1.0
    });
    let other = 1 - leader;
    let follower = kill_leader(gateways, leader);
    // Nobody leads now. The increase waits for the next leader.
    producer.send_total();
    wait_until(SOON, "the other replica delivers the increase", || {
        sum() == 2.0 * TOTAL
    });
    producer.send_total();
    wait_until(SOON, "the destinations have all increases", || {
        sum() == 3.0 * TOTAL
    });
    let handovers = follower.own_metric("tidegate_cluster_delta_handovers_total", &[]);
    assert!(handovers >= 1.0, "{handovers}");
    wait_until(SOON, "the new leader counts its items", || {
        let [entered, delivered, dropped] = exported(&follower);
        delivered == replicas[other].sink.points().len() as f64 && entered >= delivered + dropped
    });
    producer.gateway.stop();
    follower.stop();
}
