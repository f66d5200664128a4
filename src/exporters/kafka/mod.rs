// SPDX-License-Identifier: Apache-2.0

//! `kafka`: writes metrics, traces and logs to topics of Kafka, as the Collector's exporter does.
//!
//! A request is one message, as its bytes came in, unless a key divides it or it is too large. An attempt sends only messages
//! that no broker has confirmed (`../progress.rs`).

mod config;
mod keys;
mod map_hash;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Instant;

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_kafka::Connection;
use tidegate_kafka::transport::{OutgoingMessage, ProducerOptions, SendError, TransportProducer};
use tokio::task::JoinSet;

use crate::batch::{Signal, TelemetryEncoding};
use crate::component::{ConfigType, ExporterFactory, Factory, PeerLabels, Reason, Shared, Stability};
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::{Attempt, Destination, EncodingPermit, ExportRequest, INLINE_BYTES, Outcome, apart};
use crate::exporters::producer_cell::ProducerCell;
use crate::exporters::progress::{MessagePart, Progress};
use config::KafkaExporterConfig;
use keys::{KeyRule, Piece};

/// The factory of `kafka`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "kafka",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Alpha),
        (Signal::Traces, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
    ],
    help: "writes metrics, traces and logs to topics of Kafka",
    errors: &[DELIVERY_ERRORS],
    config: ConfigType::of::<KafkaExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<KafkaExporterConfig>();
        for (signal, ledger) in Signal::ALL.into_iter().zip(&cx.ledgers) {
            let ledger = ledger.as_ref();
            ledger
                .into_iter()
                .for_each(|ledger| ledger.goes_to(peer(&config, signal)));
        }
        let writer = KafkaWriter::new(&config, cx.base.shared.clone());
        let destination = Destination::new(cx, &config.delivery(), writer);
        Ok(Arc::new(destination.only_leader(config.only_leader.as_deref())?))
    },
};

/// Bytes of a message beside its key, its value and its headers: those of the batch and of the record.
const FRAME_BYTES: usize = 100;

/// The least bytes that may wait for their acknowledgement, for each request.
const WINDOW_BYTES: usize = 1 << 20;

struct KafkaWriter {
    shared: Arc<Shared>,
    connection: Connection,
    options: ProducerOptions,
    topics: [Topic; 3],
    /// Kept headers that become headers of messages.
    metadata_keys: Vec<String>,
    record_headers: Vec<(String, Bytes)>,
    max_messages: usize,
    /// Replaced after an error that the producer does not survive.
    producer: ProducerCell<TransportProducer>,
}

/// What a signal becomes.
struct Topic {
    name: String,
    encoding: TelemetryEncoding,
    rule: KeyRule,
}

fn peer(config: &KafkaExporterConfig, signal: Signal) -> PeerLabels {
    let broker = config.brokers.first().map_or("", |broker| broker);
    let (host, port) = broker.rsplit_once(':').unwrap_or((broker, ""));
    vec![
        ("server.address", host.to_owned()),
        ("server.port", port.to_owned()),
        ("messaging.destination.name", config.topic(signal).to_owned()),
    ]
}

/// A message that is ready, or why there is none.
enum Made {
    Message(OutgoingMessage),
    TooLarge(usize),
    Broken(String),
}

impl KafkaWriter {
    fn new(config: &KafkaExporterConfig, shared: Arc<Shared>) -> Self {
        let headers = config.record_headers.iter();
        Self {
            shared,
            connection: config.connection(),
            options: config.producer_options(),
            topics: Signal::ALL.map(|signal| Topic {
                name: config.topic(signal).to_owned(),
                encoding: config.encoding(signal),
                rule: config.key_rule(signal),
            }),
            metadata_keys: config.include_metadata_keys.clone(),
            record_headers: headers
                .map(|(name, value)| (name.to_owned(), Bytes::from(value.expose().to_owned())))
                .collect(),
            max_messages: config.producer.flush_max_messages.get(),
            producer: ProducerCell::default(),
        }
    }

    fn topic(&self, signal: Signal) -> &Topic {
        &self.topics[signal as usize]
    }

    /// The producer, which connects when it is needed first.
    async fn producer(&self) -> Result<Arc<TransportProducer>, SendError> {
        let connect = async || TransportProducer::connect(&self.connection, &self.options).await;
        self.producer.get(connect).await
    }

    /// The progress of a request, whose parts are those of its keys at first.
    async fn progress(&self, export: &ExportRequest) -> Result<Arc<Progress<Piece>>, String> {
        let rule = self.topic(export.signal()).rule;
        let room = |export: &ExportRequest| keys::room(rule, export);
        Progress::of(export, &self.shared, room, move |encoded| {
            keys::divide(rule, encoded)
        })
        .await
    }

    /// The most bytes that wait for their acknowledgement.
    fn window(&self) -> usize {
        self.options.max_batch_bytes.max(WINDOW_BYTES)
    }

    /// Reserves memory for the messages in flight: their content, and the library's form of it before and after compression.
    async fn reserve(&self, export: &ExportRequest) -> Result<EncodingPermit, String> {
        let bytes = match self.topic(export.signal()).encoding {
            TelemetryEncoding::OtlpProto => 3 * export.encoded_bytes().min(self.window()),
            TelemetryEncoding::OtlpJson => export.clone().weighed(ExportRequest::json_bytes).await?.1,
        };
        Ok(EncodingPermit::reserve(&self.shared, bytes).await)
    }

    /// The headers of the messages of a request.
    fn headers(&self, export: &ExportRequest) -> Vec<(String, Bytes)> {
        let mut headers = self.record_headers.clone();
        let Some(client) = export.client() else {
            return headers;
        };
        for name in &self.metadata_keys {
            for value in client.headers().get_all(name) {
                headers.push((name.clone(), Bytes::copy_from_slice(value.as_bytes())));
            }
        }
        headers
    }

    /// Makes a message.
    async fn make(&self, signal: Signal, piece: Piece, headers: &[(String, Bytes)]) -> Made {
        let topic = self.topic(signal);
        let key_bytes = piece.key.as_ref().map_or(0, Bytes::len);
        let header_bytes: usize = headers
            .iter()
            .map(|(name, value)| name.len() + value.len() + 10)
            .sum();
        let beside = FRAME_BYTES + key_bytes + header_bytes;
        let most = self.options.max_batch_bytes.saturating_sub(beside);
        if piece.bytes() > most && piece.items() > 1 {
            return Made::TooLarge(piece.bytes());
        }
        let (encoding, key) = (topic.encoding, piece.key.clone());
        let is_long = piece.bytes() > INLINE_BYTES
            && (piece.needs_encoding() || encoding == TelemetryEncoding::OtlpJson);
        let value = match apart(is_long, move || encoding.encode(&piece.encoded())).await {
            Ok(Ok(value)) => value,
            Ok(Err(why)) | Err(why) => return Made::Broken(why),
        };
        if value.len() > most {
            return Made::TooLarge(value.len());
        }
        Made::Message(OutgoingMessage {
            topic: topic.name.clone(),
            key,
            value,
            headers: headers.to_vec(),
        })
    }
}

/// A message that the producer has.
#[derive(Clone, Copy)]
struct SentMessage {
    number: u64,
    bytes: usize,
    /// Whether no other message of the attempt was on its way.
    is_alone: bool,
}

/// The messages of one attempt.
struct Sending<'a> {
    writer: &'a KafkaWriter,
    producer: Arc<TransportProducer>,
    progress: &'a Progress<Piece>,
    signal: Signal,
    headers: Vec<(String, Bytes)>,
    /// Acknowledgements of messages.
    flying: JoinSet<(SentMessage, Result<(), SendError>)>,
    flying_bytes: usize,
    /// Whether messages are sent one at a time: the brokers refused a batch as too large. The producer joins messages to
    /// batches, so only a message that is alone shows its own size.
    is_single: bool,
    /// Why the rest must come again.
    failed: Option<String>,
}

impl Sending<'_> {
    /// Sends all messages that wait, and waits for their outcomes.
    async fn run(mut self) -> Option<String> {
        loop {
            self.fill().await;
            match self.flying.join_next().await {
                None => return self.failed,
                Some(Ok((message, sent))) => {
                    self.flying_bytes -= message.bytes;
                    self.resolve(message, sent);
                }
                // The message stays, and comes again.
                Some(Err(error)) => self.failed = Some(error.to_string()),
            }
        }
    }

    /// Hands messages to the producer as long as there is room.
    async fn fill(&mut self) {
        let window = self.writer.window();
        let most = if self.is_single {
            1
        } else {
            self.writer.max_messages
        };
        while self.failed.is_none() && self.flying_bytes < window && self.flying.len() < most {
            let Some((number, piece)) = self.progress.next() else {
                return;
            };
            match self.writer.make(self.signal, piece, &self.headers).await {
                Made::Message(message) => self.enqueue(number, message).await,
                Made::TooLarge(bytes) => self.cut(number, bytes),
                Made::Broken(why) => self.progress.lose(number, Reason::Invalid, why),
            }
        }
    }

    fn cut(&self, number: u64, bytes: usize) {
        let most = self.writer.options.max_batch_bytes;
        let why = format!("one item of {bytes} bytes is larger than `max_message_bytes` ({most}) allows");
        self.progress.halve(number, most, Reason::Limit, why);
    }

    async fn enqueue(&mut self, number: u64, message: OutgoingMessage) {
        let sent = SentMessage {
            number,
            bytes: message.value.len(),
            is_alone: self.is_single,
        };
        match self.producer.enqueue(message).await {
            Ok(delivery) => {
                self.flying_bytes += sent.bytes;
                self.flying.spawn(async move { (sent, delivery.await) });
            }
            Err(error) => self.resolve(sent, Err(error)),
        }
    }

    /// Records the outcome of a message.
    fn resolve(&mut self, message: SentMessage, sent: Result<(), SendError>) {
        let number = message.number;
        let Err(error) = sent else {
            return self.progress.taken(number);
        };
        let why = error.to_string();
        match error {
            SendError::TooLarge(_) if message.is_alone => {
                let most = self.writer.options.max_batch_bytes;
                self.progress.halve(number, most, Reason::Rejected, why);
            }
            SendError::TooLarge(_) => {
                self.is_single = true;
                self.progress.send_again(number);
            }
            SendError::Permanent(_) => self.progress.lose(number, Reason::Rejected, why),
            SendError::Access(_) => {
                self.progress.deny(&why);
                self.progress.lose(number, Reason::Rejected, why);
            }
            SendError::Login(_) | SendError::Broken(_) => {
                self.writer.producer.replace(&self.producer);
                self.failed = Some(why);
            }
            SendError::Retry(_) => self.failed = Some(why),
        }
    }
}

/// The outcome when the connection fails.
fn unconnected(error: SendError) -> Outcome {
    let why = error.to_string();
    match error {
        SendError::Login(_) => Outcome::login(why),
        SendError::Permanent(_) => Outcome::permanent(why),
        _ => Outcome::retry(why),
    }
}

#[async_trait]
impl Attempt for KafkaWriter {
    fn endpoint(&self) -> String {
        self.connection.brokers.join(",")
    }

    async fn send(&self, export: ExportRequest) -> Outcome {
        let producer = match self.producer().await {
            Ok(producer) => producer,
            Err(error) => return unconnected(error),
        };
        let progress = match self.progress(&export).await {
            Ok(progress) => progress,
            Err(why) => return Outcome::permanent(why),
        };
        let _permit = match self.reserve(&export).await {
            Ok(permit) => permit,
            Err(why) => return Outcome::permanent(why),
        };
        let sending = Sending {
            writer: self,
            producer,
            progress: &progress,
            signal: export.signal(),
            headers: self.headers(&export),
            flying: JoinSet::new(),
            flying_bytes: 0,
            is_single: false,
            failed: None,
        };
        let failed = sending.run().await;
        progress.outcome(failed)
    }

    async fn close(&self, deadline: Instant) {
        if let Some(producer) = self.producer.take().and_then(Arc::into_inner) {
            producer
                .close(deadline.saturating_duration_since(Instant::now()))
                .await;
        }
    }
}
