// SPDX-License-Identifier: Apache-2.0

//! Transactions: the brokers refuse all earlier writers of the same subject.

use std::time::Duration;

use krafka::producer::TransactionalProducer;
use krafka::{CloseOptions, Compression};

use super::{BUFFER_BYTES, CLOSE_TIME, Client, ClientError, NewRecord, close_later, closed, delivery_time};
use crate::record::Appended;

/// The only writer of a subject, until another one begins.
pub(crate) struct SubjectTransaction<'a> {
    client: &'a Client,
    /// `None`: it is closed.
    producer: Option<TransactionalProducer>,
}

impl<'a> SubjectTransaction<'a> {
    pub(super) async fn begin(client: &'a Client, subject: &str) -> Result<Self, ClientError> {
        let (config, topic) = (&client.config, &client.topic);
        let builder = client.kafka.producer();
        let producer = builder
            .compression(Compression::Zstd)
            .linger(Duration::ZERO)
            .max_request_size(BUFFER_BYTES)
            .max_block(config.request_timeout)
            .delivery_timeout(delivery_time(config))
            .transaction_timeout(delivery_time(config))
            .metrics_push(false)
            .build_transactional(format!("{topic}/{subject}"))
            .await?;
        Ok(Self {
            client,
            producer: Some(producer),
        })
    }

    /// Appends a record that nobody sees yet. Its time is at least `least`.
    pub(crate) async fn append(&self, record: NewRecord, least: i64) -> Result<Appended, ClientError> {
        let producer = self.producer()?;
        producer.begin()?;
        let (sent, millis) = self.client.stamp(least);
        let record = record.into_record(&self.client.topic, millis)?;
        let metadata = producer.send(record).await?;
        self.client.appended(sent, millis, &metadata)
    }

    /// Shows the record to all readers.
    pub(crate) async fn commit(&self) -> Result<(), ClientError> {
        Ok(self.producer()?.commit().await?)
    }

    /// Takes the record back.
    pub(crate) async fn abort(&self) -> Result<(), ClientError> {
        Ok(self.producer()?.abort().await?)
    }

    fn producer(&self) -> Result<&TransactionalProducer, ClientError> {
        self.producer.as_ref().ok_or_else(closed)
    }
}

impl Drop for SubjectTransaction<'_> {
    fn drop(&mut self) {
        if let Some(producer) = self.producer.take() {
            close_later(async move {
                let options = CloseOptions::new().timeout(CLOSE_TIME);
                let _ = producer.close_with(options).await;
            });
        }
    }
}
