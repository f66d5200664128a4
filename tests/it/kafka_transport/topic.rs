// SPDX-License-Identifier: Apache-2.0

//! A topic as another client reads it, with the library itself.

use krafka::admin::{CreateTopicsOptions, NewTopic};
use krafka::consumer::{AutoOffsetReset, ConsumerRecord};
use krafka::producer::Record;
use krafka::{Compression, Kafka};
use std::time::{Duration, Instant};
use tokio::runtime::{Builder, Runtime};

use crate::kit::SOON;
use crate::kit::kafka_broker::{KafkaBroker, PARTITIONS};

fn runtime() -> Runtime {
    let runtime = Builder::new_current_thread().enable_all().build();
    runtime.expect("a runtime")
}

/// Creates a topic with [`PARTITIONS`] partitions and these settings.
pub(super) fn create(broker: &KafkaBroker, topic: &str, settings: &[(&str, &str)]) {
    runtime().block_on(async {
        let kafka = Kafka::builder(broker.address())
            .connect()
            .await
            .expect("a broker");
        let mut new = NewTopic::new(topic, PARTITIONS, 1).expect("a topic");
        for (name, value) in settings {
            new = new.with_config(*name, *value);
        }
        let created = kafka
            .admin()
            .create_topics([new], CreateTopicsOptions::default())
            .await;
        let created = created.expect("an answer").into_values().next();
        created.expect("one topic").expect("it is created");
    });
}

/// Reads all partitions from the beginning until `is_enough`; fails if that takes too long.
pub(super) fn read(
    broker: &KafkaBroker,
    topic: &str,
    is_enough: impl Fn(&[ConsumerRecord]) -> bool,
) -> Vec<ConsumerRecord> {
    runtime().block_on(async {
        let kafka = Kafka::builder(broker.address())
            .connect()
            .await
            .expect("a broker");
        let consumer = kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::Earliest);
        let consumer = consumer
            .enable_auto_commit(false)
            .build()
            .await
            .expect("a consumer");
        let all: Vec<i32> = (0..PARTITIONS).collect();
        consumer.assign(topic, all).await.expect("partitions");
        let (start, mut records) = (Instant::now(), Vec::new());
        while !is_enough(&records) {
            let many = records.len();
            assert!(
                start.elapsed() < SOON,
                "{topic} has only {many} messages that are wanted"
            );
            match consumer.poll(Duration::from_millis(200)).await {
                Ok(more) => records.extend(more),
                // On a busy machine, a request may take longer than the client waits.
                Err(error) => {
                    println!("{topic}: {error:?}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            }
        }
        consumer.close().await.expect("it closes");
        records
    })
}

/// Writes messages to one partition, in one batch that is compressed. `None`: a message without content.
pub(super) fn write(broker: &KafkaBroker, topic: &str, values: &[Option<Vec<u8>>]) {
    runtime().block_on(async {
        let kafka = Kafka::builder(broker.address())
            .connect()
            .await
            .expect("a broker");
        let producer = kafka
            .producer()
            .compression(Compression::Zstd)
            .batch_size(1 << 20);
        let producer = producer
            .linger(Duration::from_millis(50))
            .build()
            .await
            .expect("a producer");
        let mut deliveries = Vec::new();
        for value in values {
            let record = match value {
                Some(value) => Record::new(topic, value.clone()),
                None => Record::tombstone(topic, "key"),
            };
            deliveries.push(producer.enqueue(record.partition(0)).await.expect("it is taken"));
        }
        for delivery in deliveries {
            let _ = delivery.await.expect("it is written");
        }
        producer.close().await.expect("it closes");
    });
}
