// SPDX-License-Identifier: Apache-2.0

//! The last record of each subject of a partition with records. A read on demand takes only the new records.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use tidegate_cluster::StoredMessage;

use crate::client::{Client, ClientError, LogReader};
use crate::compare::CurrentRecord;
use crate::record::{LogRecord, TopicLayout};

/// A message up to this size is kept. A larger one is read again when it is wanted.
const SMALL_MESSAGE: usize = 1 << 10;

/// The bytes of an entry besides its subject and its message.
const ENTRY_BYTES: usize = 256;

/// The bytes of a header besides its name and its value.
const HEADER_BYTES: usize = 64;

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
        let message = self.message.as_ref().map_or(0, |stored| {
            let headers = stored.message.headers.iter();
            let headers = headers.map(|(name, value)| HEADER_BYTES + name.len() + value.len());
            headers.sum::<usize>() + stored.message.body.len()
        });
        ENTRY_BYTES + 2 * subject.len() + message
    }
}

/// The last records of a partition.
pub(crate) struct RecordView {
    layout: TopicLayout,
    partition: i32,
    max_bytes: usize,
    reader: Option<LogReader>,
    position: i64,
    entries: HashMap<String, ViewEntry>,
    bytes: usize,
    /// Whether records are missing because there was no room.
    is_full: bool,
}

impl RecordView {
    pub(crate) fn new(layout: TopicLayout, partition: i32, max_bytes: usize) -> Self {
        Self {
            layout,
            partition,
            max_bytes,
            reader: None,
            position: 0,
            entries: HashMap::new(),
            bytes: 0,
            is_full: false,
        }
    }

    /// Forgets everything: the connection is new, and the log may be another one.
    pub(crate) fn reset(&mut self) {
        *self = Self::new(self.layout.clone(), self.partition, self.max_bytes);
    }

    /// Reads up to an offset. An open transaction before it delays this. If the time is over, the next call goes on.
    pub(crate) async fn read_to(
        &mut self,
        client: &Client,
        end: i64,
        wait: Duration,
    ) -> Result<(), ClientError> {
        match self.try_read_to(client, end, wait).await {
            Ok(true) => Ok(()),
            Ok(false) => Err(ClientError::Kafka(
                "the records are not read to their end yet: they are many, or a transaction of another writer is open. \
                 The next call goes on"
                    .to_owned(),
            )),
            Err(error) => {
                self.reset();
                Err(error)
            }
        }
    }

    /// `false`: the time is over before the end.
    async fn try_read_to(&mut self, client: &Client, end: i64, wait: Duration) -> Result<bool, ClientError> {
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
                    "the topic has lost records: the next call reads it again".to_owned(),
                ));
            }
            self.position = position.unwrap_or(self.position);
            if position.is_some_and(|position| position >= end) {
                self.reader = Some(reader);
                return Ok(true);
            }
            if start.elapsed() >= wait {
                self.reader = Some(reader);
                return Ok(false);
            }
            for record in reader.poll(POLL).await? {
                self.take(&record);
            }
        }
    }

    /// Notes a record. The cluster did not write a record whose key belongs to another partition.
    fn take(&mut self, record: &LogRecord) {
        let is_own = |subject: &&str| self.layout.partition(subject) == Some(self.partition);
        let Some(subject) = record.subject().filter(is_own) else {
            return;
        };
        if let Some(before) = self.entries.remove(subject) {
            self.bytes -= before.bytes(subject);
        }
        if record.body.is_none() {
            return;
        }
        let entry = ViewEntry {
            offset: record.offset,
            current: CurrentRecord {
                sequence: record.sequence(),
                millis: record.millis,
                term: record.term(),
            },
            message: is_small(record).then(|| own_copy(record)).flatten(),
        };
        let bytes = self.bytes.saturating_add(entry.bytes(subject));
        if bytes > self.max_bytes {
            self.is_full = true;
            return;
        }
        self.bytes = bytes;
        self.entries.insert(subject.to_owned(), entry);
    }

    /// The last record of a subject.
    pub(crate) fn current(&self, subject: &str) -> Result<Option<CurrentRecord>, ClientError> {
        let current = self.entries.get(subject).map(|entry| entry.current);
        if current.is_none() && self.is_full {
            return Err(ClientError::Kafka(
                "the list of records is full: raise `max_index_bytes`".to_owned(),
            ));
        }
        Ok(current)
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
        Err(ClientError::Kafka(
            "Kafka does not give the current record in time".to_owned(),
        ))
    }
}

fn is_small(record: &LogRecord) -> bool {
    let bytes = |value: &Option<Bytes>| value.as_ref().map_or(0, Bytes::len);
    let headers = record.headers.iter();
    let headers = headers.map(|(name, value)| HEADER_BYTES + name.len() + bytes(value));
    headers.sum::<usize>() + bytes(&record.body) <= SMALL_MESSAGE
}

/// The message, without the response that it came in.
fn own_copy(record: &LogRecord) -> Option<StoredMessage> {
    let mut stored = record.stored()?;
    stored.message.body = Bytes::copy_from_slice(&stored.message.body);
    Some(stored)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(max_bytes: usize) -> RecordView {
        let layout = TopicLayout {
            cluster: "c".to_owned(),
            pages: 1,
        };
        let claims = layout.claims();
        RecordView::new(layout, claims, max_bytes)
    }

    fn record(subject: &str, offset: i64, body: Option<&'static [u8]>) -> LogRecord {
        LogRecord {
            offset,
            millis: 1_000,
            key: Some(Bytes::copy_from_slice(subject.as_bytes())),
            headers: Vec::new(),
            body: body.map(Bytes::from_static),
        }
    }

    #[test]
    fn a_view_keeps_records_of_its_own_partition_only() {
        let mut view = view(1 << 20);
        for subject in ["tg.c.k.leader", "tg.d.k.leader", "tg.c.r.00.p", "clock", ""] {
            view.take(&record(subject, 1, Some(b"x")));
        }
        assert_eq!(view.offsets(), HashMap::from([("tg.c.k.leader".to_owned(), 1)]));
        view.take(&record("tg.c.k.leader", 2, None));
        assert_eq!((view.offsets().len(), view.bytes), (0, 0));
    }

    #[test]
    fn large_headers_are_not_kept() {
        let mut view = view(1 << 20);
        let mut large = record("tg.c.k.leader", 1, Some(b"x"));
        large.headers = vec![("h".to_owned(), Some(Bytes::from_static(&[b'x'; SMALL_MESSAGE])))];
        view.take(&large);
        assert!(view.bytes < SMALL_MESSAGE);
        assert!(view.entries["tg.c.k.leader"].message.is_none());
    }

    #[test]
    fn a_full_view_refuses_subjects_that_it_does_not_know() {
        let mut view = view(2 * ENTRY_BYTES);
        for (subject, offset) in [
            ("tg.c.k.leader", 1),
            ("tg.c.k.producers.p", 2),
            ("tg.c.k.leader", 3),
        ] {
            view.take(&record(subject, offset, Some(b"")));
        }
        assert!(view.current("tg.c.k.leader").unwrap().is_some());
        assert!(view.current("tg.c.k.producers.p").is_err());
        assert_eq!(view.offsets(), HashMap::from([("tg.c.k.leader".to_owned(), 3)]));
    }
}
