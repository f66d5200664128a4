// SPDX-License-Identifier: Apache-2.0

//! Vendors that take deltas, over a kill of the leader. What the destinations of both replicas received is compared with what the
//! producer has counted.

use std::iter::repeat_n;

use super::leaders::{exported, leader_of, leads};
use super::{Producer, Replica, TOTAL, direct_engine, replicas};
use crate::kit::points::Value;
use crate::kit::{Broker, Gateway, SOON, Trouble, http, wait_until};

/// The options of a destination, and the header with its key.
struct Recipe {
    options: &'static str,
    key: (&'static str, &'static str),
}

const PLAIN: Recipe = Recipe {
    options: "temporality: delta, headers: {x-key: key}",
    key: ("x-key", "key"),
};

const DATADOG: Recipe = Recipe {
    options: "vendor: datadog, api_key: key",
    key: ("dd-api-key", "key"),
};

const DYNATRACE: Recipe = Recipe {
    options: "vendor: dynatrace, api_key: key",
    key: ("authorization", "Api-Token key"),
};

/// When the leader is killed.
#[derive(Clone, Copy, PartialEq)]
enum Kill {
    /// Its destination has all increases.
    AfterDelivery,
    /// It has claimed an increase, and its destination has refused it.
    BeforeDelivery,
}

#[test]
fn deltas_on_direct_add_up_over_a_kill_of_the_leader() {
    deltas_add_up_over_a_kill(None, &PLAIN, Kill::AfterDelivery);
}

#[test]
fn deltas_for_datadog_on_nats_add_up_over_a_kill_of_the_leader() {
    deltas_add_up_over_a_kill(Some(&Broker::nats()), &DATADOG, Kill::AfterDelivery);
}

#[test]
fn deltas_for_dynatrace_on_kafka_add_up_over_a_kill_of_the_leader() {
    deltas_add_up_over_a_kill(Some(&Broker::kafka()), &DYNATRACE, Kill::AfterDelivery);
}

#[test]
fn a_leader_killed_before_a_delivery_loses_one_interval_that_is_counted() {
    deltas_add_up_over_a_kill(Some(&Broker::nats()), &DYNATRACE, Kill::BeforeDelivery);
}

/// `None`: the cluster has no broker.
fn deltas_add_up_over_a_kill(broker: Option<&Broker>, recipe: &Recipe, kill: Kill) {
    let mut scene = Scene::start(broker, recipe.options);
    scene.count();
    scene.wait_for_delivery();
    scene.wait_for_claims();
    if kill == Kill::BeforeDelivery {
        scene.lose_an_interval();
    }
    scene.kill_leader();
    // Nobody leads when the first increase comes: it waits for the next leader.
    for _ in 0..2 {
        scene.count();
        scene.wait_for_delivery();
    }
    // A repeated increase would arrive with one of these.
    scene.wait_for_claims();
    scene.assert_is_right();
    scene.assert_recipe(recipe);
    scene.stop();
}

/// Two replicas with a destination each, and a producer.
struct Scene {
    /// The replicas that run, and their processes.
    replicas: Vec<Replica>,
    gateways: Vec<Gateway>,
    killed: Option<Replica>,
    /// The handovers that the killed replica has counted.
    earlier_handovers: f64,
    producer: Producer,
    counted: f64,
    /// What the leader claims and its destination never gets.
    lost: f64,
}

impl Scene {
    fn start(broker: Option<&Broker>, options: &str) -> Self {
        let replicas = replicas();
        let peers = replicas[0].peers;
        let gateways = [0, 1].map(|index| {
            let replica = &replicas[index];
            let engine = broker.map_or_else(|| replica.engine(peers[index]), Broker::engine);
            replica.start_with(&engine, options)
        });
        // The first leader does not export what a series has counted before.
        leader_of(&gateways);
        let engine = broker.map_or_else(|| direct_engine(peers, ""), Broker::engine);
        Self {
            replicas: replicas.into(),
            gateways: gateways.into(),
            killed: None,
            earlier_handovers: 0.0,
            producer: Producer::start_with(&engine),
            counted: 0.0,
            lost: 0.0,
        }
    }

    /// Counts an increase, and waits until all replicas that run show it.
    fn count(&mut self) {
        self.producer.send_total();
        self.counted += TOTAL;
        let line = format!("\nhits_total {}\n", self.counted);
        for replica in &self.replicas {
            wait_until(SOON, "a replica shows the increase", || {
                http::get(replica.page, "/metrics").is_ok_and(|page| page.text().contains(&line))
            });
        }
    }

    /// The sum of the deltas that arrived at the destinations of both replicas.
    fn received(&self) -> f64 {
        let replicas = self.replicas.iter().chain(&self.killed);
        let points = replicas.flat_map(|replica| replica.sink.points_of("hits"));
        points.map(|point| point.number()).sum()
    }

    /// The moves of the lead beside the kill. On a busy machine, a leader may lose its lease.
    fn other_moves(&self) -> f64 {
        let counted: f64 = self.gateways.iter().map(handovers).sum();
        let kills = f64::from(u8::from(self.killed.is_some()));
        (counted + self.earlier_handovers - kills).max(0.0)
    }

    /// Whether the deltas add up. Each other move of the lead may lose or repeat one interval, and one interval has at most one
    /// increase.
    fn is_right(&self) -> bool {
        let error = self.counted - self.received() - self.lost;
        error.abs() <= self.other_moves() * TOTAL
    }

    fn wait_for_delivery(&self) {
        wait_until(SOON, "the destinations have the increases", || self.is_right());
    }

    /// Waits until the exporter of the leader has taken the increases that the replicas show now.
    fn wait_for_claims(&self) {
        let won = |gateway: &Gateway| {
            gateway.own_metric("tidegate_cluster_delta_claims_total", &["result=\"won\""])
        };
        let all_won = || -> f64 { self.gateways.iter().map(won).sum() };
        // The first change may report claims before now. A second claim begins when the exporter has what the first one covers.
        for _ in 0..3 {
            let before = all_won();
            wait_until(SOON, "the leader claims deltas", || all_won() > before);
        }
    }

    /// Counts an increase that the leader claims and its destination refuses.
    fn lose_an_interval(&mut self) {
        let leader = leader_of(&self.gateways);
        self.replicas[leader]
            .sink
            .trouble(repeat_n(Trouble::UNAVAILABLE, 1000));
        self.count();
        self.wait_for_claims();
        let sink = &self.replicas[leader].sink;
        wait_until(SOON, "the destination refuses it", || {
            sink.attempts() > sink.metrics().len() || self.other_moves() > 0.0
        });
        self.lost = TOTAL;
    }

    /// Kills the leader, and waits until the other replica has let go of what the leader has claimed.
    fn kill_leader(&mut self) {
        let leader = leader_of(&self.gateways);
        let gateway = self.gateways.remove(leader);
        self.earlier_handovers = handovers(&gateway);
        gateway.kill();
        self.killed = Some(self.replicas.remove(leader));
        // On a busy machine, another replica than the one that refuses may have been killed.
        let replicas = self.replicas.iter().chain(&self.killed);
        replicas.for_each(|replica| replica.sink.end_troubles());
        let other = &self.gateways[0];
        let dropped = || exported(other)[2];
        // One drop may have begun before, and another one may come before that of a claim.
        let before = dropped();
        wait_until(SOON, "the other replica drops three intervals, or leads", || {
            dropped() >= before + 3.0 || leads(other)
        });
    }

    fn assert_is_right(&self) {
        let (replica, gateway) = (&self.replicas[0], &self.gateways[0]);
        wait_until(SOON, "the new leader counts the handover", || {
            handovers(gateway) >= 1.0
        });
        let (received, counted, moves) = (self.received(), self.counted, self.other_moves());
        assert!(
            self.is_right(),
            "{received} of {counted} arrived, and the lead has moved {moves} times beside the kill"
        );
        assert!(moves <= 2.0, "the lead has moved {moves} times beside the kill");
        wait_until(SOON, "the new leader counts its items", || {
            let [entered, delivered, dropped] = exported(gateway);
            delivered == replica.sink.points().len() as f64 && entered >= delivered + dropped
        });
    }

    /// Each request has the key, and each point is a delta.
    fn assert_recipe(&self, recipe: &Recipe) {
        let (name, key) = recipe.key;
        for replica in self.replicas.iter().chain(&self.killed) {
            for headers in replica.sink.headers() {
                assert!(headers.get(name).is_some_and(|value| value == key), "{headers:?}");
            }
            for point in replica.sink.points() {
                let is_delta = matches!(point.value, Value::Sum { temporality: 1, .. });
                assert!(is_delta, "{point:?}");
            }
        }
    }

    fn stop(self) {
        self.producer.gateway.stop();
        for gateway in self.gateways {
            gateway.stop();
        }
    }
}

/// The handovers that a replica has counted.
fn handovers(gateway: &Gateway) -> f64 {
    gateway.own_metric("tidegate_cluster_delta_handovers_total", &[])
}
