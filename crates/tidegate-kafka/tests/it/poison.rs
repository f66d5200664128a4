// SPDX-License-Identifier: Apache-2.0

//! Pages that a reader can't use: it counts them by producer and reason, and reads on.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tidegate_cluster::testing::{COUNTER, sender_config, series};
use tidegate_cluster::{
    ClusterEngine, PageReader, PageSender, ProducerCounts, ProducerName, ReaderConfig, ReplicaState,
    SentItem, StoreCall, StoreMessage, StoreSession,
};
use tidegate_engine::{MergeMode, MergedLimits, Point, Value, clock};
use tidegate_kafka::KafkaEngine;

use crate::broker::Broker;
use crate::machine::{Machine, PATIENCE, engine, page};

const CLUSTER: &str = "poison";

/// A change of a page before it is stored.
type Damage = fn(&mut StoreMessage);

/// A producer publishes a total. Its page with the total gets the damage, and its heartbeat none.
async fn publish(engine: &KafkaEngine, name: &str, total: i64, damage: Damage) {
    let mut machine = Machine::new(engine);
    let mut sender = PageSender::new(sender_config(CLUSTER, ProducerName::new(name).unwrap()));
    let now = clock::now();
    let point = Point {
        series: Arc::new(series("requests", COUNTER)),
        start: 1_700_000_000_000_000_000,
        time: clock::wall(now),
        value: Value::Int(total),
        exemplars: Vec::new(),
    };
    sender.update([SentItem::Value(MergeMode::Add, point)], now);
    while let Some((id, mut call)) = sender.poll(now) {
        if let StoreCall::Publish(message) = &mut call
            && !message.subject.ends_with(".0")
        {
            damage(message);
        }
        let result = machine.insist(call).await;
        sender.answer(id, result, now);
    }
    assert_eq!(sender.stats(now).waiting, 0);
}

/// Stores a page of text and without headers, as another program may write it.
async fn write_text() {
    let kafka = krafka::Kafka::builder(Broker::shared().address())
        .connect()
        .await
        .unwrap();
    let other = kafka.producer().build().await.unwrap();
    let text = krafka::Record::new("tidegate.poison", b"a text".to_vec())
        .key(page(CLUSTER, 1, 1, b"").subject)
        .partition(0);
    let _ = other.send(text).await.unwrap();
}

/// The reader of a replica.
struct Replica {
    reader: PageReader,
    session: StoreSession,
}

impl Replica {
    fn new(engine: &KafkaEngine) -> Self {
        let config = ReaderConfig {
            merged: MergedLimits {
                lease_ns: u64::MAX / 4,
                ..MergedLimits::default()
            },
            ..ReaderConfig::new(CLUSTER)
        };
        Self {
            reader: PageReader::new(config, Vec::new(), &Arc::default()).unwrap(),
            session: engine.open(),
        }
    }

    /// Reads until the replica knows everything, and shows this total.
    async fn until(&mut self, total: i64) {
        let reads = async {
            loop {
                while let Some((id, call)) = self.reader.poll() {
                    self.session.store.start(id, call);
                }
                let event = self.session.events.recv().await.expect("the engine runs");
                self.reader.event(event, clock::now());
                let state = self.reader.status(clock::now()).state;
                if state == ReplicaState::Partial && shown(&mut self.reader) == total {
                    break;
                }
            }
        };
        let result = tokio::time::timeout(PATIENCE, reads).await;
        let (state, shown) = (self.reader.status(clock::now()), shown(&mut self.reader));
        assert!(
            result.is_ok(),
            "not within {PATIENCE:?}: {total}; {state:?}, {shown}"
        );
    }

    /// The producers that have messages that are not readable (the first), and newer ones. A message whose acknowledgement
    /// is late is there twice.
    fn counts(&self) -> BTreeMap<String, [bool; 2]> {
        let producers = self.reader.producers(clock::now());
        producers
            .map(|status| {
                let ProducerCounts { poisoned, newer } = status.counts;
                (
                    status.name.as_str().to_owned(),
                    [poisoned, newer].map(|count| count > 0),
                )
            })
            .collect()
    }
}

fn shown(reader: &mut PageReader) -> i64 {
    let mut total = 0;
    reader.merged().read(&mut |reading| {
        if let Value::Int(value) = reading.value {
            total += value;
        }
    });
    total
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_are_not_readable_are_counted_and_stop_no_reader() {
    let engine = engine(&Broker::shared().address(), CLUSTER);
    publish(&engine, "before", 7, |_| {}).await;
    let damages: [(&str, Damage); 3] = [
        ("bytes", |message| message.body = Bytes::from_static(&[0xff; 10])),
        ("cut", |message| message.body.truncate(message.body.len() / 2)),
        ("newer", |message| {
            let version = message.headers.iter_mut().find(|(name, _)| name == "tg-v");
            version.unwrap().1 = "2".to_owned();
        }),
    ];
    for (name, damage) in damages {
        publish(&engine, name, 100, damage).await;
    }
    write_text().await;
    publish(&engine, "after", 2, |_| {}).await;
    let mut replica = Replica::new(&engine);
    replica.until(9).await;
    let (poisoned, newer) = ([true, false], [false, true]);
    let expected = [
        ("after", [false; 2]),
        ("before", [false; 2]),
        ("bytes", poisoned),
        ("cut", poisoned),
        ("newer", newer),
        // The producer of the text.
        ("node.1", poisoned),
    ];
    let expected = expected.map(|(name, counts)| (name.to_owned(), counts));
    assert_eq!(replica.counts(), BTreeMap::from(expected));
    // The reader that has met them reads on.
    publish(&engine, "later", 30, |_| {}).await;
    replica.until(39).await;
}
