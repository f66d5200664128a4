// SPDX-License-Identifier: Apache-2.0

//! Reads partitions of the topic, from their beginnings and without a group.

use std::collections::HashMap;
use std::time::Duration;

use krafka::consumer::{AutoOffsetReset, Consumer, ConsumerRecord, IsolationLevel};
use krafka::{CloseOptions, Kafka, KrafkaError};

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
        if let Some((partition, first)) = error.and_then(|error| undecodable(error, &self.topic)) {
            let next = self.next_decodable(partition, first).await?;
            self.seek(partition, next).await?;
            self.skipped = Some((partition, first));
            return Ok(Vec::new());
        }
        Ok(polled?.into_iter().map(log_record).collect())
    }

    /// The offset behind records that can't be decoded. The library does not say where their batch ends, and a batch may have
    /// millions of offsets: steps double until a record is decodable, and then halve. Of two such batches that are close to
    /// each other, the search may find the end of the second one.
    async fn next_decodable(&self, partition: i32, first: i64) -> Result<i64, ClientError> {
        // Its own reader: records of other partitions that wait in this one would keep it from asking the broker.
        let probe = Self::open(self.kafka.clone(), &self.topic, &[partition]).await?;
        let (_, end) = probe.consumer()?.fetch_watermarks(&self.topic, partition).await?;
        let mut search = DecodableSearch::new(first, end);
        while let Some(offset) = search.probe() {
            search.note(offset, probe.is_decodable(partition, offset).await?);
        }
        Ok(search.next)
    }

    /// Whether the record at an offset can be decoded. Without an answer in time it counts as decodable: a poll that finds that
    /// it is not begins again.
    async fn is_decodable(&self, partition: i32, offset: i64) -> Result<bool, ClientError> {
        self.seek(partition, offset).await?;
        match self.consumer()?.poll(FETCH_WAIT).await {
            Ok(_) => Ok(true),
            Err(error) if undecodable(&error, &self.topic).is_some() => Ok(false),
            Err(error) => Err(error.into()),
        }
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

/// The search for the first record behind those that can't be decoded.
struct DecodableSearch {
    /// This record can't be decoded.
    last: i64,
    /// This one can, or it is the end of the log.
    next: i64,
    step: i64,
}

impl DecodableSearch {
    fn new(first: i64, end: i64) -> Self {
        Self {
            last: first,
            next: end.max(first.saturating_add(1)),
            step: 1,
        }
    }

    /// The offset to try; `None`: `next` is found.
    fn probe(&self) -> Option<i64> {
        let gap = self.next.saturating_sub(self.last);
        (gap > 1).then(|| self.last + self.step.min(gap / 2))
    }

    fn note(&mut self, offset: i64, is_decodable: bool) {
        if is_decodable {
            self.next = offset;
        } else {
            self.last = offset;
            self.step = self.step.saturating_mul(2);
        }
    }
}

/// The partition and the offset of a batch that can't be decoded. The library has no kind of its own for this error.
fn undecodable(error: &KrafkaError, topic: &str) -> Option<(i32, i64)> {
    let KrafkaError::Protocol { message, .. } = error else {
        return None;
    };
    let place = message.strip_prefix("undecodable record batch at ")?;
    let (partition, rest) = place
        .strip_prefix(topic)?
        .strip_prefix('-')?
        .split_once(" offset ")?;
    let offset = rest.split([' ', ';']).next()?;
    Some((partition.parse().ok()?, offset.parse().ok()?))
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

#[cfg(test)]
mod tests {
    use krafka::error::ProtocolErrorKind;

    use super::*;

    #[test]
    fn a_search_finds_the_end_of_a_batch_in_few_steps() {
        for (first, behind, end) in [
            (0, 1, 1),
            (5, 6, 9),
            (5, 8, 8),
            (7, 600_007, 9_000_000),
            (3, 4, i64::MAX),
        ] {
            let mut search = DecodableSearch::new(first, end);
            let mut steps = 0;
            while let Some(offset) = search.probe() {
                assert!(first < offset && offset < end);
                search.note(offset, offset >= behind);
                steps += 1;
            }
            assert_eq!(search.next, behind);
            assert!(steps <= 45, "{steps} steps");
        }
        // An end that is too low, as a broker may say, does not move a reader back.
        assert_eq!(DecodableSearch::new(5, -1).probe(), None);
        assert_eq!(DecodableSearch::new(5, -1).next, 6);
    }

    #[test]
    fn an_error_names_the_place_of_a_batch() {
        let error = |message: &str| KrafkaError::protocol_kind(ProtocolErrorKind::Malformed, message);
        let text = "undecodable record batch at t-1-3 offset 7; the partition cannot advance";
        assert_eq!(undecodable(&error(text), "t-1"), Some((3, 7)));
        let text = "undecodable record batch at t-3 offset 7 (2 partitions affected in this poll); the rest";
        assert_eq!(undecodable(&error(text), "t"), Some((3, 7)));
        for text in [
            "undecodable record batch at other-3 offset 7; x",
            "unexpected end",
        ] {
            assert_eq!(undecodable(&error(text), "t"), None);
        }
    }
}
