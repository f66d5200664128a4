// SPDX-License-Identifier: Apache-2.0

//! The Kafka client of the engine. Only this module and `transport` use the library for the protocol, so that another one can
//! replace it.

mod reader;
mod security;
mod topic;
mod transaction;
mod undecodable;

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bytes::Bytes;
use krafka::admin::{ListOffsetsOptions, OffsetSpec};
use krafka::consumer::TopicPartition;
use krafka::error::ErrorCode;
use krafka::producer::{Producer, RecordMetadata};
use krafka::{CloseOptions, Compression, Kafka, KafkaBuilder, KrafkaError, Record};
use parking_lot::Mutex;
use tokio::runtime::Handle;

pub(crate) use self::reader::LogReader;
pub(crate) use self::transaction::SubjectTransaction;
pub(crate) use self::undecodable::{next_decodable, undecodable};
use crate::KafkaConfig;
use crate::broker_time::BrokerTime;
use crate::connection::Connection;
use crate::record::{Appended, TopicLayout};

/// The most bytes of a response, and of the records that wait to be sent.
const BUFFER_BYTES: usize = 32 << 20;

/// The most bytes of a record: a body of 1 MiB, which is the limit of pages, with its key and its headers. [`LogReader`] takes no
/// larger one, so none is written.
const RECORD_BYTES: usize = (1 << 20) + (64 << 10);

/// Records leave together up to this size. A broker refuses a batch beyond its own limit, by default 1 MiB.
const BATCH_BYTES: usize = 64 << 10;

/// How long a record waits for others of its batch.
const LINGER: Duration = Duration::from_millis(5);

/// How long the end of a client may take.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The interval at which the library looks for changed files of TLS.
const RELOAD_INTERVAL: Duration = Duration::from_mins(1);

/// The key of a record without content. Its acknowledgement shows the clock of the broker.
const CLOCK_KEY: &str = "clock";

/// Why a request failed.
#[derive(Clone, Debug, thiserror::Error)]
pub(crate) enum ClientError {
    /// Another writer has begun a transaction for the same subject.
    #[error("another writer works on the subject")]
    Fenced,
    /// The broker does not take records of this size.
    #[error("the record is larger than the broker allows: raise `max.message.bytes` of the topic")]
    TooLarge,
    /// The topic does not fit the engine.
    #[error("the topic `{0}` {1}")]
    Topic(String, String),
    /// The user lacks a right.
    #[error("{0}: the user lacks an ACL. docs/cluster.md lists those of the topic and of transactional ids")]
    Access(String),
    /// Any other error.
    #[error("{0}")]
    Kafka(String),
}

impl From<KrafkaError> for ClientError {
    fn from(error: KrafkaError) -> Self {
        match &error {
            KrafkaError::Fenced { .. }
            | KrafkaError::Broker {
                code: ErrorCode::ProducerFenced | ErrorCode::InvalidProducerEpoch,
                ..
            } => Self::Fenced,
            KrafkaError::Broker {
                code: ErrorCode::MessageTooLarge | ErrorCode::RecordListTooLarge,
                ..
            } => Self::TooLarge,
            KrafkaError::Broker {
                code:
                    ErrorCode::TopicAuthorizationFailed
                    | ErrorCode::ClusterAuthorizationFailed
                    | ErrorCode::TransactionalIdAuthorizationFailed,
                ..
            } => Self::Access(error.to_string()),
            // In a transaction, the last word of a text is all that the library gives of the broker's answer.
            KrafkaError::TransactionAbortable { message } => match message.rsplit(' ').next() {
                Some("MessageTooLarge" | "RecordListTooLarge") => Self::TooLarge,
                Some("ProducerFenced" | "InvalidProducerEpoch") => Self::Fenced,
                _ => Self::Kafka(error.to_string()),
            },
            _ => Self::Kafka(error.to_string()),
        }
    }
}

/// A record to append.
#[derive(Clone, Debug)]
pub(crate) struct NewRecord {
    pub(crate) partition: i32,
    pub(crate) key: String,
    pub(crate) headers: Vec<(String, String)>,
    /// `None` removes the subject.
    pub(crate) body: Option<Bytes>,
}

impl NewRecord {
    fn into_record(self, topic: &str, millis: i64) -> Result<Record, ClientError> {
        if self.bytes() > RECORD_BYTES {
            return Err(ClientError::TooLarge);
        }
        let record = match self.body {
            Some(body) => Record::new(topic, body).key(self.key),
            None => Record::tombstone(topic, self.key),
        };
        let headers = self.headers.into_iter();
        let record = headers.fold(record, |record, (name, value)| record.header(name, value));
        Ok(record.partition(self.partition).timestamp(millis))
    }

    fn bytes(&self) -> usize {
        let headers = self.headers.iter().map(|(name, value)| name.len() + value.len());
        self.key.len() + headers.sum::<usize>() + self.body.as_ref().map_or(0, Bytes::len)
    }
}

/// A connection to the brokers for writes. Each [`LogReader`] has one of its own: a broker answers the requests of a connection
/// one after another, and a read waits there for news.
pub(crate) struct Client {
    config: KafkaConfig,
    topic: String,
    kafka: Kafka,
    /// `None`: it is closed.
    producer: Option<Producer>,
    time: Mutex<BrokerTime>,
}

impl Client {
    /// Connects, creates the topic if it is absent, and checks it.
    pub(crate) async fn connect(config: &KafkaConfig, layout: &TopicLayout) -> Result<Self, ClientError> {
        let kafka = builder(&config.connection()).connect().await?;
        let topic = config.topic_of(&layout.cluster);
        topic::ensure(&kafka, config, &topic, layout.partitions()).await?;
        let producer = kafka
            .producer()
            .compression(Compression::Zstd)
            .batch_size(BATCH_BYTES)
            .linger(LINGER)
            .max_request_size(BUFFER_BYTES)
            .buffer_memory(BUFFER_BYTES)
            .max_block(config.request_timeout)
            .delivery_timeout(delivery_time(config))
            .metrics_push(false)
            .build()
            .await?;
        let client = Self {
            config: config.clone(),
            topic,
            kafka,
            producer: Some(producer),
            time: Mutex::new(BrokerTime::new(Instant::now())),
        };
        let clock = NewRecord {
            partition: layout.claims(),
            key: CLOCK_KEY.to_owned(),
            headers: Vec::new(),
            body: None,
        };
        client.append(clock).await?;
        Ok(client)
    }

    /// Appends a record.
    pub(crate) async fn append(&self, record: NewRecord) -> Result<Appended, ClientError> {
        let (sent, millis) = self.stamp(0);
        let record = record.into_record(&self.topic, millis)?;
        let producer = self.producer.as_ref().ok_or_else(closed)?;
        let metadata = producer.send(record).await?;
        self.appended(sent, millis, &metadata)
    }

    /// Appends records together.
    pub(crate) async fn append_all(&self, records: Vec<NewRecord>) -> Result<(), ClientError> {
        let producer = self.producer.as_ref().ok_or_else(closed)?;
        let mut deliveries = Vec::with_capacity(records.len());
        for record in records {
            let (_, millis) = self.stamp(0);
            let record = record.into_record(&self.topic, millis)?;
            deliveries.push(producer.enqueue(record).await?);
        }
        for delivery in deliveries {
            let _ = delivery.await?;
        }
        Ok(())
    }

    /// The time for a record that is sent now, at least `least`.
    fn stamp(&self, least: i64) -> (Instant, i64) {
        let now = Instant::now();
        (now, self.time.lock().now(now).max(least))
    }

    fn appended(
        &self,
        sent: Instant,
        millis: i64,
        metadata: &RecordMetadata,
    ) -> Result<Appended, ClientError> {
        if !metadata.is_success() {
            return Err(ClientError::Kafka(
                "the broker has the record from an earlier attempt, at an unknown offset".to_owned(),
            ));
        }
        let mut time = self.time.lock();
        time.note(sent, Instant::now(), metadata.timestamp);
        Ok(Appended {
            offset: metadata.offset,
            millis,
            broker_millis: metadata.timestamp,
        })
    }

    /// The end of each partition: the offset of the next record, with those of open transactions.
    pub(crate) async fn ends(&self, partitions: &[i32]) -> Result<HashMap<i32, i64>, ClientError> {
        let specs = partitions.iter().map(|partition| {
            let place = TopicPartition::new(self.topic.clone(), *partition);
            (place, OffsetSpec::Latest)
        });
        let options = ListOffsetsOptions::default().timeout(self.config.request_timeout);
        let listed = self.kafka.admin().list_offsets(specs, options).await?;
        let ends = listed
            .into_iter()
            .map(|(place, listed)| Ok((place.partition(), listed?.offset)));
        ends.collect()
    }

    /// Reads partitions from their beginnings.
    pub(crate) async fn reader(&self, partitions: &[i32]) -> Result<LogReader, ClientError> {
        let kafka = builder(&self.config.connection()).connect().await?;
        LogReader::open(kafka, &self.topic, partitions).await
    }

    /// Becomes the only writer of a subject that is written by transactions.
    pub(crate) async fn transaction(&self, subject: &str) -> Result<SubjectTransaction<'_>, ClientError> {
        SubjectTransaction::begin(self, subject).await
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            close_later(async move {
                let options = CloseOptions::new().timeout(CLOSE_TIME);
                let _ = producer.close_with(options).await;
            });
        }
    }
}

/// Closes a client in the background: the library demands it, and it takes time.
pub(crate) fn close_later(close: impl Future<Output = ()> + Send + 'static) {
    if let Ok(runtime) = Handle::try_current() {
        runtime.spawn(close);
    }
}

/// The time for an acknowledgement. The library demands more than the time of a request, because a record waits before it.
fn delivery_time(config: &KafkaConfig) -> Duration {
    config.request_timeout.max(config.connect_timeout) + 2 * LINGER
}

fn closed() -> ClientError {
    ClientError::Kafka("the client is closed".to_owned())
}

/// The settings of a connection, for the library.
pub(crate) fn builder(connection: &Connection) -> KafkaBuilder {
    let request_timeout = connection.request_timeout.max(connection.connect_timeout);
    let builder = Kafka::builder(connection.brokers.join(","))
        .client_id(connection.client_id.clone())
        .connect_timeout(connection.connect_timeout)
        .request_timeout(request_timeout)
        .allow_auto_create_topics(connection.creates_topics)
        .max_response_size(BUFFER_BYTES)
        .tls_reload_interval(connection.encryption().map(|_| RELOAD_INTERVAL));
    match security::auth(connection) {
        Some(auth) => builder.security(auth),
        None => builder,
    }
}
