// SPDX-License-Identifier: Apache-2.0

//! A whole cluster: senders, readers and leaders of several processes.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cluster::testing::{COUNTER, sender_config, series};
use tidegate_cluster::{
    ClusterEngine, ClusterLeader, LeaderConfig, PageReader, PageSender, ProducerName, ReaderConfig,
    SenderConfig, SentItem, StoreEvent, StoreSession,
};
use tidegate_engine::{MergeMode, Point, Series, Value, clock};
use tidegate_nats::NatsEngine;

use crate::kit::CLUSTER;

/// The total is reached within this time, or never.
const DEADLINE: Duration = Duration::from_secs(120);

const STEP: Duration = Duration::from_millis(20);

/// One life of a producer. It counts in one series.
pub(crate) struct Producer {
    // It connects as a process of its own.
    _engine: NatsEngine,
    session: StoreSession,
    pub(crate) sender: PageSender,
    series: Arc<Series>,
    start: u64,
    pub(crate) count: i64,
}

impl Producer {
    pub(crate) fn new(engine: NatsEngine, number: u32, nonce: u32) -> Self {
        let name = ProducerName::new(&format!("node {number}")).unwrap();
        let sender = SenderConfig {
            interval: Duration::from_millis(200),
            nonce,
            ..sender_config(CLUSTER, name)
        };
        Self {
            session: engine.open(),
            _engine: engine,
            sender: PageSender::new(sender),
            series: Arc::new(series("requests", COUNTER)),
            start: clock::wall(clock::now()),
            count: 0,
        }
    }

    fn step(&mut self) {
        let now = clock::now();
        while let Ok(event) = self.session.events.try_recv() {
            match event {
                StoreEvent::Done(id, result) => self.sender.answer(id, result, now),
                StoreEvent::Connected => self.sender.reconnected(now),
                event => panic!("{event:?}"),
            }
        }
        let point = Point {
            series: self.series.clone(),
            start: self.start,
            time: clock::wall(now),
            value: Value::Int(self.count),
            exemplars: Vec::new(),
        };
        self.sender.update([SentItem::Value(MergeMode::Add, point)], now);
        while let Some((id, call)) = self.sender.poll(now) {
            self.session.store.start(id, call);
        }
    }
}

pub(crate) struct Replica {
    pub(crate) engine: NatsEngine,
    reader: PageReader,
    pub(crate) leader: ClusterLeader,
    sessions: [StoreSession; 2],
    pub(crate) shown: i64,
}

impl Replica {
    pub(crate) fn new(engine: NatsEngine, name: &str) -> Self {
        let leader = LeaderConfig {
            term: Duration::from_secs(2),
            grace: Duration::from_secs(2),
            audit_interval: Duration::from_secs(2),
            retry: Duration::from_millis(500),
            ..LeaderConfig::new(CLUSTER, name)
        };
        Self {
            sessions: [engine.open(), engine.open()],
            engine,
            reader: PageReader::new(ReaderConfig::new(CLUSTER), Vec::new(), &Arc::default()).unwrap(),
            leader: ClusterLeader::new(leader),
            shown: 0,
        }
    }

    /// The total does not fall.
    fn step(&mut self) {
        let now = clock::now();
        let [for_reader, for_leader] = &mut self.sessions;
        while let Ok(event) = for_reader.events.try_recv() {
            self.reader.event(event, now);
        }
        while let Ok(event) = for_leader.events.try_recv() {
            self.leader.event(event, &mut self.reader, now);
        }
        self.reader.tick(now);
        while let Some((id, call)) = self.reader.poll() {
            for_reader.store.start(id, call);
        }
        while let Some((id, call)) = self.leader.poll(&mut self.reader, now) {
            for_leader.store.start(id, call);
        }
        if self.reader.is_ready(now) {
            let mut total = 0;
            self.reader.merged().read(&mut |reading| {
                if let Value::Int(value) = reading.value {
                    total += value;
                }
            });
            assert!(total >= self.shown, "{total} after {}", self.shown);
            self.shown = total;
        }
    }
}

pub(crate) struct World {
    pub(crate) producers: Vec<Producer>,
    pub(crate) replicas: Vec<Replica>,
}

impl World {
    /// Runs all machines until the condition holds. Producers count.
    pub(crate) async fn run_until(&mut self, what: &str, counts: bool, is_over: impl Fn(&Self) -> bool) {
        let begin = Instant::now();
        while !is_over(self) {
            let shown: Vec<_> = self.replicas.iter().map(|replica| replica.shown).collect();
            let is_late = begin.elapsed() > DEADLINE;
            assert!(!is_late, "not in time: {what}; the replicas show {shown:?}");
            for producer in &mut self.producers {
                producer.count += i64::from(counts);
                producer.step();
            }
            self.replicas.iter_mut().for_each(Replica::step);
            tokio::time::sleep(STEP).await;
        }
    }

    pub(crate) fn total(&self) -> i64 {
        self.producers.iter().map(|producer| producer.count).sum()
    }

    /// Producers count until each replica shows more.
    pub(crate) async fn grow(&mut self) {
        let goal = self.replicas[0].shown + 10;
        let has_grown = |world: &Self| world.replicas.iter().all(|replica| replica.shown >= goal);
        self.run_until("totals grow", true, has_grown).await;
    }

    pub(crate) fn show(&self, total: i64) -> bool {
        self.replicas.iter().all(|replica| replica.shown == total)
    }
}
