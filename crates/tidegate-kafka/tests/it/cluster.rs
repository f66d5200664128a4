// SPDX-License-Identifier: Apache-2.0

//! A small cluster: producers with several runs, and replicas of which each may lead.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cluster::testing::{COUNTER, sender_config, series};
use tidegate_cluster::{
    ClusterEngine, ClusterLeader, LeaderConfig, PageReader, PageSender, ProducerName, ReaderConfig,
    ReplicaState, SenderConfig, SentItem, StoreEvent, StoreSession,
};
use tidegate_engine::{MergeMode, MergedLimits, Point, UnixNanos, Value, clock};
use tidegate_kafka::KafkaEngine;

use crate::broker::Broker;
use crate::machine::{PATIENCE, engine};

const CLUSTER: &str = "whole";
const PRODUCERS: usize = 3;
const COUNTERS: [&str; 2] = ["requests", "tokens"];

/// One run of a producer.
struct Producer {
    sender: PageSender,
    session: StoreSession,
    start: UnixNanos,
    totals: BTreeMap<&'static str, i64>,
    _engine: KafkaEngine,
}

impl Producer {
    fn new(number: usize, address: &str) -> Self {
        let engine = engine(address, CLUSTER);
        let name = ProducerName::new(&format!("node {number}")).unwrap();
        Self {
            sender: PageSender::new(SenderConfig {
                interval: Duration::from_millis(200),
                nonce: std::process::id(),
                ..sender_config(CLUSTER, name)
            }),
            session: engine.open(),
            start: clock::wall(clock::now()),
            totals: BTreeMap::new(),
            _engine: engine,
        }
    }

    /// Counts, and gives the totals to the sender.
    fn count(&mut self, amount: i64, model: &mut BTreeMap<&'static str, i64>) {
        for name in COUNTERS {
            *self.totals.entry(name).or_default() += amount;
            *model.entry(name).or_default() += amount;
        }
        self.pass_on();
    }

    fn pass_on(&mut self) {
        let now = clock::now();
        let items = self.totals.iter().map(|(name, total)| {
            let point = Point {
                series: Arc::new(series(name, COUNTER)),
                start: self.start,
                time: clock::wall(now),
                value: Value::Int(*total),
                exemplars: Vec::new(),
            };
            SentItem::Value(MergeMode::Add, point)
        });
        self.sender.update(items.collect::<Vec<_>>(), now);
    }

    fn turn(&mut self) {
        while let Ok(event) = self.session.events.try_recv() {
            match event {
                StoreEvent::Done(id, result) => self.sender.answer(id, result, clock::now()),
                StoreEvent::Connected => self.sender.reconnected(clock::now()),
                StoreEvent::Read(..) | StoreEvent::Current(..) | StoreEvent::Confirmed(..) => {}
            }
        }
        while let Some((id, call)) = self.sender.poll(clock::now()) {
            self.session.store.start(id, call);
        }
    }
}

/// A replica, with one session for its reader and one for its leader.
struct Replica {
    reader: PageReader,
    leader: ClusterLeader,
    reading: StoreSession,
    leading: StoreSession,
    _engine: KafkaEngine,
}

impl Replica {
    fn new(name: &str, address: &str) -> Self {
        let engine = engine(address, CLUSTER);
        let reader = ReaderConfig {
            merged: MergedLimits {
                lease_ns: 1_000_000_000,
                ..MergedLimits::default()
            },
            ..ReaderConfig::new(CLUSTER)
        };
        let leader = LeaderConfig {
            term: Duration::from_secs(3),
            grace: Duration::from_secs(1),
            audit_interval: Duration::from_secs(2),
            retry: Duration::from_millis(300),
            ..LeaderConfig::new(CLUSTER, name)
        };
        Self {
            reader: PageReader::new(reader, Vec::new(), &Arc::default()).unwrap(),
            leader: ClusterLeader::new(leader),
            reading: engine.open(),
            leading: engine.open(),
            _engine: engine,
        }
    }

    fn turn(&mut self) {
        let now = clock::now();
        while let Ok(event) = self.reading.events.try_recv() {
            self.reader.event(event, now);
        }
        while let Ok(event) = self.leading.events.try_recv() {
            self.leader.event(event, &mut self.reader, now);
        }
        self.reader.tick(now);
        while let Some((id, call)) = self.reader.poll() {
            self.reading.store.start(id, call);
        }
        while let Some((id, call)) = self.leader.poll(&mut self.reader, now) {
            self.leading.store.start(id, call);
        }
    }

    fn totals(&mut self) -> BTreeMap<String, Value> {
        let mut totals = BTreeMap::new();
        self.reader.merged().read(&mut |reading| {
            let name = reading.series.metric.name.to_string();
            totals.insert(name, reading.value.clone());
        });
        totals
    }
}

struct World {
    producers: Vec<Producer>,
    replicas: Vec<Replica>,
    model: BTreeMap<&'static str, i64>,
}

impl World {
    async fn until(&mut self, what: &str, mut holds: impl FnMut(&mut Self) -> bool) {
        let start = Instant::now();
        while !holds(self) {
            self.producers.iter_mut().for_each(Producer::turn);
            self.replicas.iter_mut().for_each(Replica::turn);
            if start.elapsed() >= PATIENCE {
                let shown: Vec<_> = self.replicas.iter_mut().map(Replica::totals).collect();
                panic!(
                    "not within {PATIENCE:?}: {what}; {shown:?}, model {:?}",
                    self.model
                );
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Whether all replicas show the model.
    fn is_equal(&mut self) -> bool {
        let model = self.model.iter();
        let model: BTreeMap<_, _> = model
            .map(|(name, total)| ((*name).to_owned(), Value::Int(*total)))
            .collect();
        self.replicas.iter_mut().all(|replica| replica.totals() == model)
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_small_cluster_reaches_the_totals_of_its_model() {
    let address = Broker::shared().address();
    let mut world = World {
        producers: (0..PRODUCERS)
            .map(|number| Producer::new(number, &address))
            .collect(),
        replicas: ["a", "b"].map(|name| Replica::new(name, &address)).into(),
        model: BTreeMap::new(),
    };
    for round in 1..=5 {
        let World { producers, model, .. } = &mut world;
        producers
            .iter_mut()
            .for_each(|producer| producer.count(round, model));
        world.until("the totals of a round", World::is_equal).await;
    }
    let lead = |world: &mut World| {
        let leads = world
            .replicas
            .iter()
            .filter(|replica| replica.leader.is_leading(clock::now()));
        leads.count() == 1
    };
    world.until("one replica leads", lead).await;
    // The first producer says goodbye and starts again. Its first run is folded.
    world.producers[0].sender.stop();
    world
        .until("the goodbye is stored", |world| {
            world.producers[0].sender.is_finished()
        })
        .await;
    world.producers[0] = Producer::new(0, &address);
    let World { producers, model, .. } = &mut world;
    producers[0].count(100, model);
    let folded = |world: &mut World| {
        let replicas = world.replicas.iter();
        replicas.map(|replica| replica.leader.stats().purged).sum::<u64>() > 0
    };
    world.until("the first run is folded", folded).await;
    world.until("the totals after the fold", World::is_equal).await;
    // A replica that comes now knows the first run from its record only.
    world.replicas.push(Replica::new("late", &address));
    world.until("the totals of all replicas", World::is_equal).await;
    let fresh = |world: &mut World| {
        world.producers.iter_mut().for_each(Producer::pass_on);
        let mut replicas = world.replicas.iter();
        replicas.all(|replica| replica.reader.status(clock::now()).state == ReplicaState::Fresh)
    };
    world.until("all replicas are fresh", fresh).await;
}
