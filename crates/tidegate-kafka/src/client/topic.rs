// SPDX-License-Identifier: Apache-2.0

//! The topic: the engine creates it if it is absent, and checks it.

use std::time::{Duration, Instant};

use krafka::admin::{
    ConfigResource, CreateTopicsOptions, DescribeConfigsOptions, DescribeTopicsOptions, NewTopic,
    TopicDescription,
};
use krafka::error::ErrorCode;
use krafka::{Kafka, KrafkaError};

use super::ClientError;
use crate::KafkaConfig;

/// The settings that the engine relies on.
const NEEDED: [(&str, &str); 2] = [
    ("cleanup.policy", "compact"),
    ("message.timestamp.type", "LogAppendTime"),
];

/// Further settings of a new topic. Segments are closed often, because a broker compacts closed ones only. A record stays for a
/// minute after the next one of its key: a read that began before would lack the key until it has reached the next one.
const WANTED: [(&str, &str); 4] = [
    ("min.compaction.lag.ms", "60000"),
    ("min.cleanable.dirty.ratio", "0.1"),
    ("segment.ms", "600000"),
    ("segment.bytes", "67108864"),
];

/// How long a new topic may lack leaders, and how often they are looked for.
const LEADER_WAIT: Duration = Duration::from_secs(5);
const LEADER_STEP: Duration = Duration::from_millis(100);

/// Creates the topic if it is absent. It must have all partitions and the right settings.
pub(super) async fn ensure(
    kafka: &Kafka,
    config: &KafkaConfig,
    topic: &str,
    partitions: i32,
) -> Result<(), ClientError> {
    if describe(kafka, config, topic).await?.is_none() {
        create(kafka, config, topic, partitions).await?;
    }
    let start = Instant::now();
    while start.elapsed() < LEADER_WAIT {
        match describe(kafka, config, topic).await? {
            Some(found) if found.partitions.len() != partitions as usize => {
                let message = format!(
                    "has {} partitions: the cluster needs {partitions}, one per partition and two more. Name another `topic`",
                    found.partitions.len()
                );
                return Err(ClientError::Topic(topic.to_owned(), message));
            }
            Some(found) if found.partitions.iter().all(|one| one.leader.is_some()) => {
                return check(kafka, config, topic).await;
            }
            _ => tokio::time::sleep(LEADER_STEP).await,
        }
    }
    Err(ClientError::Topic(
        topic.to_owned(),
        "has partitions without a leader: check that all brokers run".to_owned(),
    ))
}

async fn describe(
    kafka: &Kafka,
    config: &KafkaConfig,
    topic: &str,
) -> Result<Option<TopicDescription>, ClientError> {
    let options = DescribeTopicsOptions::default().timeout(config.request_timeout);
    let found = kafka.admin().describe_topics([topic], options).await?;
    match found.into_values().next() {
        Some(Ok(found)) => Ok(Some(found)),
        Some(Err(error)) if !is_absent(&error) => Err(error.into()),
        Some(Err(_)) | None => Ok(None),
    }
}

fn is_absent(error: &KrafkaError) -> bool {
    matches!(
        error,
        KrafkaError::UnknownTopic { .. }
            | KrafkaError::Broker {
                code: ErrorCode::UnknownTopicOrPartition,
                ..
            }
    )
}

async fn create(
    kafka: &Kafka,
    config: &KafkaConfig,
    topic: &str,
    partitions: i32,
) -> Result<(), ClientError> {
    let copies = config.replication_factor.map_or(-1, i16::from);
    let settings = NEEDED.into_iter().chain(WANTED);
    let new = settings.fold(NewTopic::new(topic, partitions, copies)?, |new, (name, value)| {
        new.with_config(name, value)
    });
    let options = CreateTopicsOptions::default().timeout(config.request_timeout);
    let created = kafka.admin().create_topics([new], options).await?;
    match created.into_values().next() {
        // Another gateway was quicker.
        Some(Err(KrafkaError::Broker {
            code: ErrorCode::TopicAlreadyExists,
            ..
        })) => Ok(()),
        Some(Err(error)) => Err(error.into()),
        Some(Ok(())) | None => Ok(()),
    }
}

/// Compares the settings. Without the right to read them, the engine trusts the topic.
async fn check(kafka: &Kafka, config: &KafkaConfig, topic: &str) -> Result<(), ClientError> {
    let names = NEEDED.map(|(name, _)| name.to_owned());
    let options = DescribeConfigsOptions::default()
        .timeout(config.request_timeout)
        .config_names(names.into());
    let found = kafka
        .admin()
        .describe_configs([ConfigResource::topic(topic)], options)
        .await?;
    let Some(Ok(entries)) = found.into_values().next() else {
        return Ok(());
    };
    for (name, needed) in NEEDED {
        let entry = entries.iter().find(|entry| entry.name == name);
        let value = entry.and_then(|entry| entry.value.as_deref());
        if let Some(value) = value.filter(|value| *value != needed) {
            let message = format!("has `{name}` = `{value}`: set it to `{needed}`");
            return Err(ClientError::Topic(topic.to_owned(), message));
        }
    }
    Ok(())
}
