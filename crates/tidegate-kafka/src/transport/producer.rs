// SPDX-License-Identifier: Apache-2.0

//! The producer of the `kafka` exporter.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use krafka::producer::{Acks, DeliveryHandle, Producer};
use krafka::{CloseOptions, Compression, Record};

use super::partitioner::{KeyHasher, KeyPartitioner};
use super::send_error::SendError;
use crate::client;
use crate::connection::Connection;

/// The most bytes of messages that wait in the library, if messages are no larger.
const BUFFER_BYTES: usize = 64 << 20;

/// The most bytes of a request beyond those of one full batch.
const REQUEST_EXTRA: usize = 1 << 20;

/// How long the end of a producer may take whose owner does not close it.
const CLOSE_TIME: Duration = Duration::from_secs(1);

/// The brokers that must have a message before it counts as sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequiredAcks {
    /// None: the producer does not wait for an answer.
    None,
    /// The leader of the partition.
    Leader,
    /// All in-sync replicas.
    All,
}

/// The compression of batches of messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Codec {
    /// No compression.
    None,
    /// gzip.
    Gzip,
    /// Snappy.
    Snappy,
    /// LZ4.
    Lz4,
    /// Zstandard.
    Zstd,
}

/// How messages are sent.
#[derive(Clone, Debug)]
pub struct ProducerOptions {
    /// When a message counts as sent.
    pub acks: RequiredAcks,
    /// The compression.
    pub codec: Codec,
    /// The level of the compression; `None`: its default.
    pub level: Option<i32>,
    /// The most bytes of a batch of messages before compression.
    pub max_batch_bytes: usize,
    /// How long a message waits for others of its partition.
    pub linger: Duration,
    /// Most time from the acceptance of a message to its acknowledgement.
    pub timeout: Duration,
    /// How keys become partitions.
    pub hasher: KeyHasher,
}

/// A message to send.
#[derive(Clone, Debug)]
pub struct OutgoingMessage {
    /// The topic.
    pub topic: String,
    /// The key; `None`: the partition does not matter.
    pub key: Option<Bytes>,
    /// The content.
    pub value: Bytes,
    /// Headers.
    pub headers: Vec<(String, Bytes)>,
}

/// A connection to the brokers for messages.
pub struct TransportProducer {
    /// `None`: it is closed.
    producer: Option<Producer>,
}

impl TransportProducer {
    /// Connects to the brokers.
    ///
    /// # Errors
    /// No broker answers, or they refuse the user.
    pub async fn connect(connection: &Connection, options: &ProducerOptions) -> Result<Self, SendError> {
        let open = async {
            let kafka = client::builder(connection).connect().await?;
            let (acks, is_idempotent) = match options.acks {
                RequiredAcks::None => (Acks::None, false),
                RequiredAcks::Leader => (Acks::Leader, false),
                RequiredAcks::All => (Acks::All, true),
            };
            let request_timeout = connection.request_timeout.max(connection.connect_timeout);
            kafka
                .producer()
                .acks(acks)
                .idempotent(is_idempotent)
                .compression(compression(options.codec))
                .compression_level(options.level)
                .batch_size(options.max_batch_bytes)
                .max_request_size(options.max_batch_bytes.saturating_add(REQUEST_EXTRA))
                .buffer_memory(BUFFER_BYTES.max(options.max_batch_bytes.saturating_mul(2)))
                .linger(options.linger)
                .max_block(options.timeout)
                // The library demands more than the time of a request, because a message waits before it.
                .delivery_timeout(options.timeout.max(request_timeout) + options.linger)
                .partitioner(KeyPartitioner::new(options.hasher))
                .metrics_push(false)
                .build()
                .await
        };
        match open.await {
            Ok(producer) => Ok(Self {
                producer: Some(producer),
            }),
            Err(error) => Err(connect_error(&error)),
        }
    }

    /// Takes a message. It waits for room behind messages that are not acknowledged yet.
    ///
    /// # Errors
    /// The message can't be sent.
    pub async fn enqueue(&self, message: OutgoingMessage) -> Result<Delivery, SendError> {
        let topic = message.topic.clone();
        let Some(producer) = &self.producer else {
            return Err(SendError::Broken("the producer is closed".to_owned()));
        };
        let mut record = Record::new(message.topic, message.value);
        if let Some(key) = message.key {
            record = record.key(key);
        }
        for (name, value) in message.headers {
            record = record.header(name, value);
        }
        match producer.enqueue(record).await {
            Ok(handle) => Ok(Delivery { handle, topic }),
            Err(error) => Err(SendError::of(&error, &topic)),
        }
    }

    /// Waits for messages that are not acknowledged yet, and closes the connections.
    pub async fn close(mut self, timeout: Duration) {
        if let Some(producer) = self.producer.take() {
            let _ = producer.close_with(CloseOptions::new().timeout(timeout)).await;
        }
    }
}

impl Drop for TransportProducer {
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            client::close_later(async move {
                let _ = producer.close_with(CloseOptions::new().timeout(CLOSE_TIME)).await;
            });
        }
    }
}

fn connect_error(error: &krafka::KrafkaError) -> SendError {
    match error {
        krafka::KrafkaError::Auth { .. } => SendError::Login(error.to_string()),
        krafka::KrafkaError::Config { .. } => SendError::Permanent(error.to_string()),
        _ => SendError::Retry(format!("no broker answers: {error}")),
    }
}

fn compression(codec: Codec) -> Compression {
    match codec {
        Codec::None => Compression::None,
        Codec::Gzip => Compression::Gzip,
        Codec::Snappy => Compression::Snappy,
        Codec::Lz4 => Compression::Lz4,
        Codec::Zstd => Compression::Zstd,
    }
}

/// The acknowledgement of a message, once it is here. The message is sent even if nobody waits.
pub struct Delivery {
    handle: DeliveryHandle,
    topic: String,
}

impl Future for Delivery {
    type Output = Result<(), SendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let delivered = ready!(Pin::new(&mut self.handle).poll(cx));
        let sent = delivered.map(|_| ());
        Poll::Ready(sent.map_err(|error| SendError::of(&error, &self.topic)))
    }
}
