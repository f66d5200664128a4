// SPDX-License-Identifier: Apache-2.0

//! Exports of the replica that leads. Both destinations are compared with the counters of both replicas.

use super::{Producer, TOTAL, replicas};
use crate::kit::{Gateway, SOON, wait_for, wait_until};

/// The items that entered the `otlphttp` exporter, that it delivered, and that it dropped because another replica leads.
pub(super) fn exported(replica: &Gateway) -> [f64; 3] {
    let component = "component=\"exporters::otlphttp\"";
    let items = |flow| replica.own_metric("tidegate_component_items_total", &[component, flow]);
    let dropped = ["reason=\"not_leader\"", component];
    [
        items("flow=\"in\""),
        items("flow=\"out\""),
        replica.own_metric("tidegate_dropped_items_total", &dropped),
    ]
}

/// Whether a replica says that it leads.
pub(super) fn leads(replica: &Gateway) -> bool {
    replica.own_metric("tidegate_cluster_leader", &[]) == 1.0
}

/// The index of the replica that leads, after one does.
pub(super) fn leader_of(replicas: &[Gateway]) -> usize {
    wait_for(SOON, "one replica leads", || {
        let mut leaders = (0..replicas.len()).filter(|index| leads(&replicas[*index]));
        let leader = leaders.next()?;
        leaders.next().is_none().then_some(leader)
    })
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
