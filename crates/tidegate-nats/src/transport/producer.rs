// SPDX-License-Identifier: Apache-2.0

//! The producer of the `nats` exporter.

use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::PublishAckFuture;
use async_nats::jetstream::message::PublishMessage;
use async_nats::jetstream::{Context, ContextBuilder};
use async_nats::{HeaderMap, HeaderName, HeaderValue};
use bytes::Bytes;

use super::options::StreamOptions;
use super::send_error::NatsSendError;
use crate::connection::{LiveConnection, NatsConnection};

/// The first line of headers and the empty line behind them.
const HEADER_FRAME_BYTES: usize = 12;

/// The name of the header with the id.
const ID: &str = "Nats-Msg-Id";

/// The bytes of a header beside its name and value.
const HEADER_EXTRA: usize = 4;

/// A message to send.
#[derive(Clone, Debug)]
pub struct NatsMessageOut {
    /// The subject.
    pub subject: String,
    /// The id, by which the stream recognises a message that comes again.
    pub id: String,
    /// Further headers. Those that NATS does not allow are left out; see [`is_header`].
    pub headers: Vec<(String, String)>,
    /// The content.
    pub payload: Bytes,
}

/// Whether NATS allows a header.
pub fn is_header(name: &str, value: &str) -> bool {
    !name.is_empty() && HeaderName::from_str(name).is_ok() && HeaderValue::from_str(value).is_ok()
}

/// The bytes that headers and an id take of the limit of a message.
pub fn header_bytes(id: &str, headers: &[(String, String)]) -> usize {
    let of = |name: &str, value: &str| name.len() + value.len() + HEADER_EXTRA;
    let others: usize = headers.iter().map(|(name, value)| of(name, value)).sum();
    HEADER_FRAME_BYTES + of(ID, id) + others
}

/// A connection to the servers for messages.
pub struct NatsProducer {
    connection: Arc<LiveConnection>,
    context: Context,
}

impl NatsProducer {
    /// Connects to one of the servers, and creates the stream if it is given and does not exist.
    ///
    /// # Errors
    /// No server answers, they refuse the user, or the stream can't be created.
    pub async fn connect(
        connection: &NatsConnection,
        timeout: Duration,
        max_in_flight: usize,
        stream: Option<(&StreamOptions, &[String])>,
    ) -> Result<Self, NatsSendError> {
        let opened = LiveConnection::open(connection).await;
        let connection = opened.map_err(|error| NatsSendError::of_connection(&error))?;
        let context = ContextBuilder::new()
            .timeout(timeout)
            .ack_timeout(timeout)
            .max_ack_inflight(max_in_flight)
            .backpressure_on_inflight(true)
            .build(connection.client.clone());
        if let Some((options, subjects)) = stream {
            let created = context.get_or_create_stream(options.settings(subjects)).await;
            created.map_err(|error| {
                let denied = connection.denied().map(|denied| format!(": {denied}"));
                NatsSendError::Retry(format!(
                    "can't create the stream `{}`: {error}{}",
                    options.name,
                    denied.unwrap_or_default()
                ))
            })?;
        }
        Ok(Self {
            connection: Arc::new(connection),
            context,
        })
    }

    /// The largest message that the server takes, with its headers.
    pub fn max_payload(&self) -> usize {
        self.connection.client.max_payload()
    }

    /// Whether only a new connection can send messages.
    pub fn is_lost(&self) -> bool {
        self.connection.is_lost()
    }

    /// Sends a message. It waits for room behind messages that are not acknowledged yet.
    ///
    /// # Errors
    /// The message can't be sent.
    pub async fn publish(&self, message: NatsMessageOut) -> Result<NatsDelivery, NatsSendError> {
        let NatsMessageOut {
            subject,
            id,
            headers,
            payload,
        } = message;
        let mut map = HeaderMap::new();
        for (name, value) in &headers {
            if is_header(name, value) {
                map.append(name.as_str(), value.as_str());
            }
        }
        let publish = PublishMessage::build()
            .payload(payload)
            .headers(map)
            .message_id(id);
        let sent = tokio::select! {
            sent = self.context.send_publish(subject.clone(), publish) => sent,
            () = self.connection.lost() => return Err(lost()),
        };
        match sent {
            Ok(ack) => Ok(NatsDelivery {
                ack,
                subject,
                connection: self.connection.clone(),
            }),
            Err(error) => Err(NatsSendError::of(&error, &subject, self.connection.denied())),
        }
    }

    /// Waits until messages have left for the server.
    pub async fn close(&self, timeout: Duration) {
        // Without an answer, the messages are sent again by their next attempt.
        let _ = tokio::time::timeout(timeout, self.connection.client.flush()).await;
    }
}

fn lost() -> NatsSendError {
    NatsSendError::Broken("the connection is lost".to_owned())
}

/// The acknowledgement of a message, once it is here.
pub struct NatsDelivery {
    ack: PublishAckFuture,
    subject: String,
    connection: Arc<LiveConnection>,
}

impl NatsDelivery {
    /// Waits for the acknowledgement. Whether the stream had the message already.
    ///
    /// # Errors
    /// The stream did not take the message, or its answer is not known.
    pub async fn acknowledged(self) -> Result<bool, NatsSendError> {
        let answer = tokio::select! {
            answer = self.ack.into_future() => answer,
            () = self.connection.lost() => return Err(lost()),
        };
        match answer {
            Ok(ack) => Ok(ack.duplicate),
            Err(error) => Err(NatsSendError::of(&error, &self.subject, self.connection.denied())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_that_would_break_the_protocol_are_recognised() {
        assert!(is_header("Content-Encoding", "zstd"));
        assert!(!is_header("a b:", "x") && !is_header("", "x"));
        assert!(!is_header("tenant", "a\r\nb"));
    }

    #[test]
    fn the_bytes_of_headers_are_those_on_the_wire() {
        let headers = [("a".to_owned(), "bc".to_owned())];
        let wire = "NATS/1.0\r\nNats-Msg-Id: id\r\na: bc\r\n\r\n";
        assert_eq!(header_bytes("id", &headers), wire.len());
    }
}
