// SPDX-License-Identifier: Apache-2.0

//! The last record of each subject of a partition with records. It is read on demand, each time only what is new.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_cluster::StoredMessage;

use crate::client::{Client, ClientError, LogReader};
use crate::compare::CurrentRecord;
use crate::record::LogRecord;

/// A body up to this size is kept. A larger one is read again when it is wanted.
const SMALL_BODY: usize = 256;

/// What an entry takes besides its subject and its body, in bytes.
const ENTRY_BYTES: usize = 256;

/// How long one poll waits. The end of a transaction has no record, so a poll does not end with it.
const POLL: Duration = Duration::from_millis(20);

#[derive(Clone, Debug)]
struct ViewEntry {
    offset: i64,
    current: CurrentRecord,
    /// The message, if it is small.
    message: Option<StoredMessage>,
}

impl ViewEntry {
    fn bytes(&self, subject: &str) -> usize {
        let body = self
            .message
            .as_ref()
            .map_or(0, |stored| stored.message.body.len());
        ENTRY_BYTES + 2 * subject.len() + body
    }
}

/// The last records of a partition.
pub(crate) struct RecordView {
    partition: i32,
    max_bytes: usize,
    reader: Option<LogReader>,
    position: i64,
    entries: HashMap<String, ViewEntry>,
    bytes: usize,
}

impl RecordView {
    pub(crate) fn new(partition: i32, max_bytes: usize) -> Self {
        Self {
            partition,
            max_bytes,
            reader: None,
            position: 0,
            entries: HashMap::new(),
            bytes: 0,
        }
    }

    /// Forgets everything: the connection is new, and the log may be another one.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.partition, self.max_bytes);
    }

    /// Reads up to an offset. An open transaction before it delays this.
    pub(crate) async fn read_to(
        &mut self,
        client: &Client,
        end: i64,
        wait: Duration,
    ) -> Result<(), ClientError> {
        let read = self.try_read_to(client, end, wait).await;
        if read.is_err() {
            self.reset();
        }
        read
    }

    async fn try_read_to(&mut self, client: &Client, end: i64, wait: Duration) -> Result<(), ClientError> {
        let start = Instant::now();
        // A call that was given up has taken the reader with it.
        let mut reader = match self.reader.take() {
            Some(reader) => reader,
            None => {
                self.reset();
                client.reader(&[self.partition]).await?
            }
        };
        loop {
            let position = reader.positions().await?.get(&self.partition).copied();
            if position.is_some_and(|position| position < self.position) {
                return Err(ClientError::Kafka(
                    "the log has lost records: it is read again".to_owned(),
                ));
            }
            self.position = position.unwrap_or(self.position);
            if position.is_some_and(|position| position >= end) {
                self.reader = Some(reader);
                return Ok(());
            }
            if start.elapsed() >= wait {
                return Err(ClientError::Kafka(
                    "a transaction of another writer is open: the broker ends it soon".to_owned(),
                ));
            }
            for record in reader.poll(POLL).await? {
                self.take(&record)?;
            }
        }
    }

    fn take(&mut self, record: &LogRecord) -> Result<(), ClientError> {
        let Some(subject) = record.subject() else {
            return Ok(());
        };
        if let Some(before) = self.entries.remove(subject) {
            self.bytes -= before.bytes(subject);
        }
        let Some(body) = &record.body else {
            return Ok(());
        };
        let entry = ViewEntry {
            offset: record.offset,
            current: CurrentRecord {
                sequence: record.sequence(),
                millis: record.millis,
                term: record.term(),
            },
            message: (body.len() <= SMALL_BODY).then(|| own_copy(record)).flatten(),
        };
        self.bytes += entry.bytes(subject);
        if self.bytes > self.max_bytes {
            return Err(ClientError::Kafka(
                "the records take more than `max_index_bytes`: raise it".to_owned(),
            ));
        }
        self.entries.insert(subject.to_owned(), entry);
        Ok(())
    }

    /// The last record of a subject.
    pub(crate) fn current(&self, subject: &str) -> Option<CurrentRecord> {
        self.entries.get(subject).map(|entry| entry.current)
    }

    /// The offsets of the last records.
    pub(crate) fn offsets(&self) -> HashMap<String, i64> {
        let entries = self.entries.iter();
        entries
            .map(|(subject, entry)| (subject.clone(), entry.offset))
            .collect()
    }

    /// The last record of a subject with its message.
    pub(crate) async fn message(
        &self,
        client: &Client,
        subject: &str,
        wait: Duration,
    ) -> Result<Option<StoredMessage>, ClientError> {
        let Some(entry) = self.entries.get(subject) else {
            return Ok(None);
        };
        if entry.message.is_some() {
            return Ok(entry.message.clone());
        }
        let start = Instant::now();
        let mut reader = client.reader(&[self.partition]).await?;
        reader.seek(self.partition, entry.offset).await?;
        while start.elapsed() < wait {
            let records = reader.poll(POLL).await?;
            let mut records = records.iter().filter(|record| record.subject() == Some(subject));
            if let Some(record) = records.next() {
                return Ok(own_copy(record));
            }
        }
        Err(ClientError::Kafka("the current record did not come".to_owned()))
    }
}

/// The message, without the response that it came in.
fn own_copy(record: &LogRecord) -> Option<StoredMessage> {
    let mut stored = record.stored()?;
    stored.message.body = Bytes::copy_from_slice(&stored.message.body);
    Some(stored)
}
