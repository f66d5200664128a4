// SPDX-License-Identifier: Apache-2.0

//! Reads partitions of the topic, from their beginnings and without a group.

use std::collections::HashMap;
use std::time::Duration;

use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord, IsolationLevel};
use krafka::{CloseOptions, Kafka};

use super::undecodable::{next_decodable, undecodable};
use super::{CLOSE_TIME, ClientError, close_later};
use crate::record::LogRecord;

/// The most bytes that a broker sends at a time, for each partition. One larger record comes alone.
const PARTITION_BYTES: i32 = 256 << 10;

/// The same for all partitions.
const FETCH_BYTES: i32 = 4 << 20;

/// The most bytes of a batch of records after it is decompressed: the largest record, and others before it.
const BATCH_BYTES: usize = super::RECORD_BYTES + 2 * super::BATCH_BYTES;

/// The most records at a time, and the most that wait.
const RECORDS: i32 = 128;

/// How long a broker holds a request without records.
const FETCH_WAIT: Duration = Duration::from_millis(500);

pub(crate) struct LogReader {
    kafka: Kafka,
    topic: String,
    partitions: Vec<i32>,
    /// `None`: it is closed.
    consumer: Option<Consumer>,
    /// The partition and the offset of the last batch that was skipped.
    pub(crate) skipped: Option<(i32, i64)>,
}

impl LogReader {
    pub(super) async fn open(kafka: Kafka, topic: &str, partitions: &[i32]) -> Result<Self, ClientError> {
        let consumer = kafka
            .consumer_without_group()
            .auto_offset_reset(AutoOffsetReset::Earliest)
            .enable_auto_commit(false)
            .isolation_level(IsolationLevel::ReadCommitted)
            .max_partition_fetch_bytes(PARTITION_BYTES)
            .fetch_max_bytes(FETCH_BYTES)
            .fetch_max_wait(FETCH_WAIT)
            .max_poll_records(RECORDS)
            .max_buffered_records(RECORDS)
            .max_decompressed_size(BATCH_BYTES)
            .metrics_push(false)
            .build()
            .await?;
        let reader = Self {
            kafka,
            topic: topic.to_owned(),
            partitions: partitions.to_vec(),
            consumer: Some(consumer),
            skipped: None,
        };
        reader.consumer()?.assign(topic, partitions.to_vec()).await?;
        Ok(reader)
    }

    /// Moves to an offset of a partition.
    pub(crate) async fn seek(&self, partition: i32, offset: i64) -> Result<(), ClientError> {
        Ok(self.consumer()?.seek(&self.topic, partition, offset).await?)
    }

    /// The next records. Waits at most `wait` for the first one. A batch that can't be decoded is skipped: it would stop every
    /// reader for ever. The batch comes again if the call is dropped.
    pub(crate) async fn poll(&mut self, wait: Duration) -> Result<Vec<LogRecord>, ClientError> {
        let polled = self.consumer()?.poll(wait).await;
        let error = polled.as_ref().err();
        let place = error.and_then(|error| undecodable(error, &self.topic));
        if let Some((partition, first)) = place {
            let next = self.next_decodable(partition, first).await?;
            self.seek(partition, next).await?;
            self.skipped = Some((partition, first));
            return Ok(Vec::new());
        }
        Ok(polled?.into_iter().map(log_record).collect())
    }

    /// The offset behind records that can't be decoded.
    async fn next_decodable(&self, partition: i32, first: i64) -> Result<i64, ClientError> {
        // Its own reader: records of other partitions that wait in this one would keep it from asking the broker.
        let probe = Self::open(self.kafka.clone(), &self.topic, &[partition]).await?;
        Ok(next_decodable(probe.consumer()?, &self.topic, partition, first).await?)
    }

    /// The offset of the next record of each partition; without those that are not known yet.
    pub(crate) async fn positions(&self) -> Result<HashMap<i32, i64>, ClientError> {
        let consumer = self.consumer()?;
        let mut positions = HashMap::new();
        for partition in &self.partitions {
            if let Some(position) = consumer.position(&self.topic, *partition).await {
                positions.insert(*partition, position);
            }
        }
        Ok(positions)
    }

    fn consumer(&self) -> Result<&Consumer, ClientError> {
        self.consumer.as_ref().ok_or_else(super::closed)
    }
}

impl Drop for LogReader {
    fn drop(&mut self) {
        if let Some(consumer) = self.consumer.take() {
            close_later(async move {
                let options = CloseOptions::new().timeout(CLOSE_TIME);
                let _ = consumer.close_with(options).await;
            });
        }
    }
}

/// The library gives the time that the writer set, and not that of the broker (0.28.1 reads the first time of a batch).
/// The engine sets it by the clock of the broker.
fn log_record(record: ConsumerRecord) -> LogRecord {
    LogRecord {
        offset: record.offset,
        millis: record.timestamp,
        key: record.key,
        headers: record.headers,
        body: record.value,
    }
}
