// SPDX-License-Identifier: Apache-2.0

//! Exports of the replica that leads. Both destinations are compared with the counters of both replicas.

use super::{Producer, Replica, TOTAL, replicas};
use crate::kit::points::Point;
use crate::kit::{Gateway, SOON, wait_for, wait_until};

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
    wait_for(SOON, "one replica leads", || {
        match gateways.each_ref().map(leads) {
            [true, false] => Some(0),
            [false, true] => Some(1),
            _ => None,
        }
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

#[test]
fn deltas_of_two_leaders_add_up_to_the_total() {
    // On a busy machine, the lead may move before the kill. That may lose an interval, and it is counted.
    let exact = (0..5).any(|_| deltas_add_up_over_a_kill("temporality: delta"));
    assert!(exact, "the lead moves in each attempt");
}

#[test]
fn deltas_of_the_preset_of_a_vendor_add_up_to_the_total() {
    let exact = (0..5).any(|_| deltas_add_up_over_a_kill("vendor: dynatrace, api_key: key"));
    assert!(exact, "the lead moves in each attempt");
}

/// `false`: the lead has moved before the kill.
fn deltas_add_up_over_a_kill(options: &str) -> bool {
    let replicas = replicas();
    let peers = replicas[0].peers;
    let gateways = [0, 1].map(|index| replicas[index].start_with(peers[index], options));
    // The first leader does not export what a series has counted before.
    let leader = leader_of(&gateways);
    let other = 1 - leader;
    let producer = Producer::start(peers);
    producer.send_total();
    let sum = |replica: &Replica| -> f64 {
        let points = replica.sink.points_of("hits");
        points.iter().map(Point::number).sum()
    };
    let handovers = |gateway: &Gateway| gateway.own_metric("tidegate_cluster_delta_handovers_total", &[]);
    // A replica that leads drops nothing.
    let has_moved = || {
        let has_taken_over = gateways.iter().any(|gateway| handovers(gateway) > 0.0);
        has_taken_over || exported(&gateways[leader])[2] > 0.0
    };
    wait_until(SOON, "the leader delivers the total", || {
        sum(&replicas[leader]) == TOTAL || has_moved()
    });
    // The other replica follows a later claim, so it has let go of the same total.
    let followed = |gateway: &Gateway| {
        gateway.own_metric("tidegate_cluster_delta_claims_total", &["result=\"followed\""])
    };
    let before = followed(&gateways[other]);
    wait_until(SOON, "the other replica follows", || {
        followed(&gateways[other]) > before + 1.0 || has_moved()
    });
    if has_moved() {
        return false;
    }
    let follower = kill_leader(gateways, leader);
    // Nobody leads now. The increase waits for the next leader.
    producer.send_total();
    wait_until(SOON, "the other replica delivers the increase", || {
        sum(&replicas[other]) == TOTAL
    });
    producer.send_total();
    wait_until(SOON, "both destinations have all increases", || {
        sum(&replicas[0]) + sum(&replicas[1]) == 3.0 * TOTAL
    });
    wait_until(SOON, "the handover is counted", || handovers(&follower) == 1.0);
    wait_until(SOON, "the new leader counts its items", || {
        let [entered, delivered, dropped] = exported(&follower);
        delivered == replicas[other].sink.points().len() as f64 && entered >= delivered + dropped
    });
    producer.gateway.stop();
    follower.stop();
    true
}
