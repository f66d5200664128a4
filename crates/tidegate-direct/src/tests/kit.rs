// SPDX-License-Identifier: Apache-2.0

//! Ports, engines, a proxy that can be cut, and the machines of producers and replicas.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tidegate_cluster::testing::{COUNTER, sender_config, series};
use tidegate_cluster::{
    ClusterEngine, ClusterLeader, LeaderConfig, PageReader, PageSender, ProducerName, ReaderConfig,
    ReplicaState, SenderConfig, SentItem, StoreEvent, StoreSession,
};
use tidegate_engine::{MergeMode, MergedLimits, Point, UnixNanos, Value, clock};
use tidegate_runtime::testing::free_port;
use tokio::net::TcpStream;
use tokio::sync::watch;

use crate::{DirectConfig, DirectEngine, DirectError, ReplicaAddresses, ServeConfig};

pub(super) const CLUSTER: &str = "c";

/// A test that waits longer than this fails.
const LIMIT: Duration = Duration::from_secs(60);

/// A free address of this machine that no other call in this process gets.
pub(super) fn address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], free_port()))
}

pub(super) fn config(replicas: &[SocketAddr]) -> DirectConfig {
    let replicas = replicas.iter().map(ToString::to_string).collect();
    DirectConfig {
        timeout: Duration::from_secs(2),
        sync_interval: Duration::from_millis(50),
        ..DirectConfig::new(ReplicaAddresses::Endpoints(replicas))
    }
}

pub(super) fn serving(name: &str, listen: SocketAddr, replicas: &[SocketAddr]) -> DirectConfig {
    DirectConfig {
        serve: Some(ServeConfig {
            sync_timeout: Duration::from_secs(1),
            ..ServeConfig::new(name, listen)
        }),
        ..config(replicas)
    }
}

/// Starts an engine. The port of a replica that has just ended becomes free in a moment.
pub(super) async fn start(config: DirectConfig) -> DirectEngine {
    let begun = Instant::now();
    loop {
        match DirectEngine::start(config.clone(), CLUSTER) {
            Ok(engine) => return engine,
            Err(DirectError::Listen { .. }) if begun.elapsed() < LIMIT => {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
            Err(error) => panic!("{error}"),
        }
    }
}

/// Waits until a condition is true.
pub(super) async fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_true() {
        assert!(begun.elapsed() < LIMIT, "it does not happen: {what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Passes connections on to a replica, until it is cut.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    is_open: watch::Sender<bool>,
}

impl Proxy {
    pub(super) async fn start(to: SocketAddr) -> Self {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let is_open = watch::Sender::new(true);
        let state = is_open.subscribe();
        tokio::spawn(async move {
            while let Ok((mut from, _)) = listener.accept().await {
                let mut state = state.clone();
                if !*state.borrow() {
                    continue;
                }
                tokio::spawn(async move {
                    let Ok(mut to) = TcpStream::connect(to).await else {
                        return;
                    };
                    tokio::select! {
                        _ = tokio::io::copy_bidirectional(&mut from, &mut to) => {}
                        _ = state.wait_for(|is_open| !is_open) => {}
                    }
                });
            }
        });
        Self { address, is_open }
    }

    pub(super) fn set_open(&self, is_open: bool) {
        self.is_open.send_replace(is_open);
    }
}

/// The series of producers: whole numbers and quarters.
pub(super) const SERIES: [&str; 2] = ["whole", "quarters"];

/// The sums of all that producers have counted, in quarters.
pub(super) type Model = BTreeMap<usize, u64>;

fn value(series: usize, amount: u64) -> Value {
    match series {
        0 => Value::Int(amount as i64),
        _ => Value::Double(amount as f64 * 0.25),
    }
}

/// A process that counts.
pub(super) struct Producer {
    pub(super) sender: PageSender,
    session: StoreSession,
    _engine: DirectEngine,
    start: UnixNanos,
    counted: Model,
    next_update: UnixNanos,
}

impl Producer {
    pub(super) async fn start(name: &str, replicas: &[SocketAddr]) -> Self {
        let engine = start(config(replicas)).await;
        let sender = PageSender::new(SenderConfig {
            nonce: rand::random(),
            ..sender_config(CLUSTER, ProducerName::new(name).unwrap())
        });
        Self {
            sender,
            session: engine.open(),
            _engine: engine,
            start: clock::now(),
            counted: Model::new(),
            next_update: 0,
        }
    }

    pub(super) fn count(&mut self, series: usize, amount: u64, model: &mut Model) {
        *self.counted.entry(series).or_default() += amount;
        *model.entry(series).or_default() += amount;
    }

    fn step(&mut self) {
        let now = clock::now();
        while let Ok(event) = self.session.events.try_recv() {
            match event {
                StoreEvent::Done(id, result) => self.sender.answer(id, result, now),
                StoreEvent::Connected => self.sender.reconnected(now),
                StoreEvent::Read(..) | StoreEvent::Current(..) | StoreEvent::Confirmed(..) => {}
            }
        }
        if now >= self.next_update {
            self.next_update = now + 50_000_000;
            self.update(now);
        }
        while let Some((id, call)) = self.sender.poll(now) {
            self.session.store.start(id, call);
        }
    }

    fn stop(&mut self) {
        self.update(clock::now());
        self.sender.stop();
    }

    fn update(&mut self, now: UnixNanos) {
        let items = self.counted.iter().map(|(at, amount)| {
            let point = Point {
                series: Arc::new(series(SERIES[*at], COUNTER)),
                start: self.start,
                time: now,
                value: value(*at, *amount),
                exemplars: Vec::new(),
            };
            SentItem::Value(MergeMode::Add, point)
        });
        self.sender.update(items, now);
    }
}

/// A process that shows totals.
pub(super) struct Node {
    _engine: DirectEngine,
    pub(super) leader: ClusterLeader,
    pub(super) reader: PageReader,
    reader_session: StoreSession,
    leader_session: StoreSession,
}

impl Node {
    pub(super) async fn start(config: DirectConfig) -> Self {
        let name = config.serve.as_ref().map(|serve| serve.name.clone());
        let engine = start(config).await;
        let merged = MergedLimits {
            lease_ns: 2_000_000_000,
            ..MergedLimits::default()
        };
        let reader = ReaderConfig {
            merged,
            expected_for: Duration::from_secs(1),
            ..ReaderConfig::new(CLUSTER)
        };
        let leader = LeaderConfig {
            term: Duration::from_secs(2),
            grace: Duration::from_millis(500),
            fold_after: Duration::from_secs(4),
            audit_interval: Duration::from_secs(1),
            retry: Duration::from_millis(200),
            ..LeaderConfig::new(CLUSTER, &name.unwrap())
        };
        Self {
            leader: ClusterLeader::new(leader),
            reader: PageReader::new(reader, Vec::new(), &Arc::default()).unwrap(),
            reader_session: engine.open(),
            leader_session: engine.open(),
            _engine: engine,
        }
    }

    fn step(&mut self) {
        let now = clock::now();
        while let Ok(event) = self.reader_session.events.try_recv() {
            self.reader.event(event, now);
        }
        while let Ok(event) = self.leader_session.events.try_recv() {
            self.leader.event(event, &mut self.reader, now);
        }
        self.reader.tick(now);
        while let Some((id, call)) = self.reader.poll() {
            self.reader_session.store.start(id, call);
        }
        while let Some((id, call)) = self.leader.poll(&mut self.reader, now) {
            self.leader_session.store.start(id, call);
        }
    }

    fn shown(&mut self) -> BTreeMap<String, Value> {
        let mut shown = BTreeMap::new();
        self.reader.merged().read(&mut |reading| {
            shown.insert(reading.series.metric.name.to_string(), reading.value.clone());
        });
        shown
    }

    /// Whether it shows the model to the bit, and misses no producer.
    fn is_equal(&mut self, model: &Model) -> bool {
        let expected = model
            .iter()
            .map(|(at, amount)| (SERIES[*at].to_owned(), value(*at, *amount)));
        let state = self.reader.status(clock::now()).state;
        state == ReplicaState::Fresh && self.shown() == expected.collect::<BTreeMap<_, _>>()
    }
}

/// All machines of a test.
#[derive(Default)]
pub(super) struct World {
    pub(super) producers: Vec<Producer>,
    pub(super) nodes: Vec<Node>,
    pub(super) model: Model,
}

impl World {
    fn step(&mut self) {
        self.producers.iter_mut().for_each(Producer::step);
        self.nodes.iter_mut().for_each(Node::step);
    }

    /// Runs until a condition is true.
    pub(super) async fn until(&mut self, what: &str, mut is_true: impl FnMut(&mut Self) -> bool) {
        let begun = Instant::now();
        loop {
            self.step();
            if is_true(self) {
                return;
            }
            let late = begun.elapsed() > LIMIT;
            let shown: Vec<_> = if late {
                let nodes = self.nodes.iter_mut();
                nodes
                    .map(|node| (node.shown(), node.reader.status(clock::now())))
                    .collect()
            } else {
                Vec::new()
            };
            assert!(
                !late,
                "it does not happen: {what}; {:?}, shown: {shown:?}",
                self.model
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(super) async fn until_equal(&mut self) {
        self.until("equal totals", |world| {
            let model = &world.model;
            world.nodes.iter_mut().all(|node| node.is_equal(model))
        })
        .await;
    }

    pub(super) fn count(&mut self, producer: usize, series: usize, amount: u64) {
        self.producers[producer].count(series, amount, &mut self.model);
    }

    /// Ends a producer after its last counts and its goodbye.
    pub(super) async fn end_producer(&mut self, at: usize) {
        self.producers[at].stop();
        self.until("the goodbye is stored", |world| {
            world.producers[at].sender.is_finished()
        })
        .await;
        self.producers.remove(at);
    }
}
