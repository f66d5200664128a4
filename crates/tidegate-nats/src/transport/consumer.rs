// SPDX-License-Identifier: Apache-2.0

//! A durable consumer, for the `nats` receiver.
//!
//! A pull names the most bytes of its messages. So [`DurableConsumer::room`] bounds what it takes.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, FromConsumer, pull};
use async_nats::jetstream::context::{ConsumerInfoErrorKind, GetStreamByNameErrorKind};
use async_nats::jetstream::{Context, ContextBuilder};
use futures_util::StreamExt;
use tokio::time::{Instant, timeout_at};

use super::consumer_config::DurableOptions;
use super::incoming::{Acknowledgement, NatsMessageIn, ReplySubject, incoming, messages_bytes};
use crate::connection::{LiveConnection, NatsConnection};

/// The most messages of a pull.
pub const MAX_MESSAGES: usize = 256;

/// The most time for an answer of JetStream.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// How long the server may take to end a pull beyond its time.
const LATE: Duration = Duration::from_secs(4);

/// The bytes of subjects and of the protocol beside a message, which the limit of a pull counts too.
const PROTOCOL_BYTES: usize = 16 << 10;

/// What fails if a pull does.
const READ: &str = "can't read messages";

/// The end of a pull before a message that would exceed its bytes.
const BYTES_EXCEEDED: &str = "Exceeds MaxBytes";

/// The ends of a pull that has messages.
const NORMAL_ENDS: [&str; 2] = [BYTES_EXCEEDED, "Batch Completed"];

/// Why messages can't be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NatsReadError {
    /// The connection is lost.
    #[error("the connection is lost")]
    Lost,
    /// Another reason.
    #[error("{0}")]
    Failed(String),
}

/// A connection of the receiver.
pub struct TransportLink {
    connection: LiveConnection,
    context: Context,
}

impl TransportLink {
    /// Connects to one of the servers.
    ///
    /// # Errors
    /// No server answers, or they refuse the user.
    pub async fn connect(connection: &NatsConnection) -> Result<Self, NatsReadError> {
        let opened = LiveConnection::open(connection).await;
        let connection = opened.map_err(|error| NatsReadError::Failed(error.to_string()))?;
        let context = ContextBuilder::new()
            .timeout(ANSWER_TIMEOUT)
            .build(connection.client.clone());
        Ok(Self { connection, context })
    }

    /// The server, without credentials.
    pub fn server(&self) -> String {
        self.connection.server()
    }

    /// Waits for the loss of the connection.
    pub async fn lost(&self) {
        self.connection.lost().await;
    }

    /// Answers a message. Without a connection, the answer is lost, and the message comes again.
    pub async fn answer(&self, reply: &ReplySubject, with: Acknowledgement) {
        tokio::select! {
            _ = self.connection.client.publish(reply.0.clone(), with.payload()) => {}
            () = self.lost() => {}
        }
    }

    /// Waits until answers have left for the server.
    pub async fn flush(&self, timeout: Duration) {
        // Without it, messages come again.
        let _ = tokio::time::timeout(timeout, self.connection.client.flush()).await;
    }

    /// The name of the stream.
    async fn stream_name(&self, options: &DurableOptions) -> Result<String, NatsReadError> {
        if let Some(name) = &options.stream {
            return Ok(name.clone());
        }
        let subject = options.subjects.first().map_or("", |subject| subject);
        let found = self.context.stream_by_subject(subject).await;
        found.map_err(|error| match error.kind() {
            GetStreamByNameErrorKind::NotFound => NatsReadError::Failed(format!(
                "no stream takes the subject `{subject}`: create one, or set `stream`"
            )),
            _ => self.broken(&format!("can't find the stream of `{subject}`"), &error),
        })
    }

    /// The error of a connection that is of no use: its owner must make a new one. The library does not say that a connection
    /// has ended if it fails to read a message.
    fn broken(&self, what: &str, error: &dyn Display) -> NatsReadError {
        self.connection.end();
        self.error(what, error)
    }

    /// The error, with the permission that the user lacks.
    fn error(&self, what: &str, error: &dyn Display) -> NatsReadError {
        NatsReadError::Failed(match self.connection.denied() {
            Some(denied) => format!(
                "{what}: {error}: {denied}: grant the user to publish on `$JS.API.>` and `$JS.ACK.>`, and to subscribe to \
                 `_INBOX.>`"
            ),
            None => format!("{what}: {error}"),
        })
    }
}

/// A durable consumer. Several gateways may share it.
pub struct DurableConsumer {
    link: Arc<TransportLink>,
    consumer: Consumer<pull::Config>,
    headers: Vec<String>,
    fetch_bytes: usize,
}

impl DurableConsumer {
    /// Opens a consumer, and creates it if it does not exist. Also returns the settings in which one that exists differs.
    /// `fetch_bytes`: the most bytes of a pull. It has room for one message of the largest size in any case.
    ///
    /// # Errors
    /// The stream does not exist, or the consumer has other messages.
    pub async fn open(
        link: Arc<TransportLink>,
        options: &DurableOptions,
        fetch_bytes: usize,
    ) -> Result<(Self, Vec<String>), NatsReadError> {
        let name = link.stream_name(options).await?;
        let stream = link.context.get_stream_no_info(&name).await;
        let stream =
            stream.map_err(|error| link.error(&format!("can't open the stream `{name}`"), &error))?;
        let what = format!(
            "can't open the consumer `{}` of the stream `{name}`",
            options.name
        );
        let consumer = match stream.consumer_info(&options.name).await {
            Ok(info) if info.config.deliver_subject.is_some() => {
                return Err(NatsReadError::Failed(format!(
                    "{what}: it pushes messages: delete it, or set another `durable`"
                )));
            }
            Ok(_) => stream
                .get_consumer(&options.name)
                .await
                .map_err(|error| link.error(&what, &error))?,
            Err(error) => match error.kind() {
                ConsumerInfoErrorKind::NotFound => {
                    let created = stream.create_consumer(options.settings()).await;
                    created.map_err(|error| link.error(&what, &error))?
                }
                ConsumerInfoErrorKind::StreamNotFound => {
                    return Err(NatsReadError::Failed(format!(
                        "the stream `{name}` does not exist: create it, or set another `stream`"
                    )));
                }
                _ => return Err(link.broken(&what, &error)),
            },
        };
        let found = pull::Config::try_from_consumer_config(consumer.cached_info().config.clone());
        let found = found.map_err(|error| NatsReadError::Failed(format!("{what}: {error}")))?;
        options.check(&found).map_err(NatsReadError::Failed)?;
        let differences = options.differences(&found);
        let least = link.connection.client.max_payload() + PROTOCOL_BYTES;
        let consumer = Self {
            fetch_bytes: fetch_bytes.max(least),
            headers: options.headers.clone(),
            link,
            consumer,
        };
        Ok((consumer, differences))
    }

    /// The time without an answer after which a message is delivered again.
    pub fn ack_wait(&self) -> Duration {
        let config = &self.consumer.cached_info().config;
        let all = config.backoff.iter().copied().chain([config.ack_wait]);
        all.min().unwrap_or_default()
    }

    /// When the consumer was created, in nanoseconds since 1970.
    pub fn created(&self) -> i128 {
        self.consumer.cached_info().created.unix_timestamp_nanos()
    }

    /// The bytes to reserve for a pull.
    pub fn room(&self) -> usize {
        self.fetch_bytes + messages_bytes(MAX_MESSAGES, self.headers.len())
    }

    /// Asks for messages: at most `most`, and [`MAX_MESSAGES`]. If there are none, the server waits for one until `wait` is over.
    ///
    /// # Errors
    /// The connection is lost.
    pub async fn pull(&self, most: usize, wait: Duration) -> Result<Pull<'_>, NatsReadError> {
        let pull = self.consumer.fetch().max_messages(most.clamp(1, MAX_MESSAGES));
        let pull = pull.max_bytes(self.fetch_bytes).expires(wait).messages();
        let batch = tokio::select! {
            batch = pull => batch.map_err(|error| self.link.broken(READ, &error))?,
            () = self.link.lost() => return Err(NatsReadError::Lost),
        };
        Ok(Pull {
            consumer: self,
            batch,
            is_empty: true,
            end: Instant::now() + wait + LATE,
        })
    }

    fn error(&self, error: &dyn Display) -> NatsReadError {
        self.link.error(READ, error)
    }
}

/// Messages that the server sends for one request.
pub struct Pull<'a> {
    consumer: &'a DurableConsumer,
    batch: pull::Batch,
    is_empty: bool,
    /// When the server must have ended it.
    end: Instant,
}

impl Pull<'_> {
    /// The next message; `None`: the pull is over. The caller must not wait long between two calls.
    ///
    /// # Errors
    /// The server does not answer, or the consumer is gone.
    pub async fn next(&mut self) -> Result<Option<NatsMessageIn>, NatsReadError> {
        let next = tokio::select! {
            next = timeout_at(self.end, self.batch.next()) => next,
            () = self.consumer.link.lost() => return Err(NatsReadError::Lost),
        };
        match next {
            Err(_) if self.is_empty => Err(self.consumer.link.broken(READ, &"the server does not answer")),
            Err(_) | Ok(None) => Ok(None),
            Ok(Some(Ok(message))) => {
                self.is_empty = false;
                let message = incoming(&message, &self.consumer.headers);
                let message = message.ok_or_else(|| self.consumer.error(&"a message without a position"));
                message.map(Some)
            }
            Ok(Some(Err(error))) => self.end(&error.to_string()),
        }
    }

    /// The end that the server names.
    fn end(&self, status: &str) -> Result<Option<NatsMessageIn>, NatsReadError> {
        let is_normal = NORMAL_ENDS.iter().any(|end| status.contains(end));
        if !self.is_empty && is_normal {
            return Ok(None);
        }
        if status.contains(BYTES_EXCEEDED) {
            return Err(NatsReadError::Failed(format!(
                "the next message is larger than {} bytes: raise `max_fetch_size`",
                self.consumer.fetch_bytes
            )));
        }
        Err(self.consumer.error(&status))
    }
}
