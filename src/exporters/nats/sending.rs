// SPDX-License-Identifier: Apache-2.0

//! The messages of one attempt.

use std::sync::Arc;

use tidegate_nats::transport::{NatsMessageOut, NatsProducer, NatsSendError};
use tokio::task::JoinSet;

use super::part::NatsPart;
use super::{NatsWriter, PreparedMessage};
use crate::batch::Signal;
use crate::component::Reason;
use crate::exporters::progress::Progress;

pub(super) struct NatsSending<'a> {
    writer: &'a NatsWriter,
    producer: Arc<NatsProducer>,
    progress: &'a Progress<NatsPart>,
    signal: Signal,
    headers: Vec<(String, String)>,
    /// The most bytes of a message.
    most: usize,
    /// The most bytes that wait for their acknowledgement.
    window: usize,
    /// Acknowledgements of messages, by number and size.
    flying: JoinSet<(u64, usize, Result<bool, NatsSendError>)>,
    flying_bytes: usize,
    /// Why the rest must come again.
    failed: Option<String>,
}

impl<'a> NatsSending<'a> {
    pub(super) fn new(
        writer: &'a NatsWriter,
        producer: Arc<NatsProducer>,
        progress: &'a Progress<NatsPart>,
        (signal, headers): (Signal, Vec<(String, String)>),
        (most, window): (usize, usize),
    ) -> Self {
        Self {
            writer,
            producer,
            progress,
            signal,
            headers,
            most,
            window,
            flying: JoinSet::new(),
            flying_bytes: 0,
            failed: None,
        }
    }

    /// Sends all messages that wait, and waits for their outcomes.
    pub(super) async fn run(mut self) -> Option<String> {
        loop {
            self.fill().await;
            match self.flying.join_next().await {
                None => return self.failed,
                Some(Ok((number, bytes, sent))) => {
                    self.flying_bytes -= bytes;
                    self.resolve(number, sent);
                }
                // The message stays, and comes again.
                Some(Err(error)) => self.failed = Some(error.to_string()),
            }
        }
    }

    /// Sends messages as long as there is room.
    async fn fill(&mut self) {
        while self.failed.is_none()
            && self.flying_bytes < self.window
            && self.flying.len() < self.writer.max_in_flight
        {
            let Some((number, part)) = self.progress.next() else {
                return;
            };
            let prepared = self.writer.prepare(self.signal, part, &self.headers, self.most);
            match prepared.await {
                PreparedMessage::Ready(message) => self.publish(number, message).await,
                PreparedMessage::TooLarge(bytes) => self.cut(number, bytes),
                PreparedMessage::Broken(why) => self.progress.lose(number, Reason::Invalid, why),
            }
        }
    }

    fn cut(&self, number: u64, bytes: usize) {
        let most = self.most;
        let why = format!(
            "one item of {bytes} bytes is larger than a message, which has {most} bytes with its headers: raise \
             `max_payload` of the server and `max_message_size`"
        );
        self.progress.halve(number, most, Reason::Limit, why);
    }

    async fn publish(&mut self, number: u64, message: NatsMessageOut) {
        let bytes = message.payload.len();
        match self.producer.publish(message).await {
            Ok(delivery) => {
                self.flying_bytes += bytes;
                self.flying
                    .spawn(async move { (number, bytes, delivery.acknowledged().await) });
            }
            Err(error) => self.resolve(number, Err(error)),
        }
    }

    /// Records the outcome of a message.
    fn resolve(&mut self, number: u64, sent: Result<bool, NatsSendError>) {
        let error = match sent {
            Ok(is_duplicate) => {
                if is_duplicate {
                    let exporter = self.writer.exporter.clone();
                    metrics::counter!("tidegate_nats_duplicate_messages_total", "exporter" => exporter)
                        .increment(1);
                }
                return self.progress.taken(number);
            }
            Err(error) => error,
        };
        let why = error.to_string();
        match error {
            NatsSendError::TooLarge(_) => self.progress.halve(number, self.most, Reason::Rejected, why),
            NatsSendError::Permanent(_) => self.progress.lose(number, Reason::Rejected, why),
            // A new connection creates the stream that the options name.
            NatsSendError::NoStream(_) if self.writer.stream.is_none() => self.failed = Some(why),
            NatsSendError::Login(_) | NatsSendError::Broken(_) | NatsSendError::NoStream(_) => {
                self.writer.producer.replace(&self.producer);
                self.failed = Some(why);
            }
            NatsSendError::Retry(_) => self.failed = Some(why),
        }
    }
}
