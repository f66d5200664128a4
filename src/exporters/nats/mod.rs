// SPDX-License-Identifier: Apache-2.0

//! `nats`: writes metrics, traces and logs to streams of NATS JetStream.
//!
//! A request is one message, as its bytes came in, unless it is too large. An attempt sends only messages that no stream has
//! confirmed (`../progress.rs`). A message that comes again has the same id, so the stream drops duplicates.

mod config;
mod part;
mod sending;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use bytes::Bytes;
use tidegate_nats::NatsConnection;
use tidegate_nats::transport::{
    NatsMessageOut, NatsProducer, NatsSendError, StreamOptions, header_bytes, is_header,
};

use crate::batch::{Signal, TelemetryEncoding};
use crate::component::{ConfigType, ExporterFactory, Factory, PeerLabels, Shared, Stability};
use crate::config::ByteSize;
use crate::delivery::errors::DELIVERY_ERRORS;
use crate::delivery::{Attempt, Destination, EncodingPermit, ExportRequest, INLINE_BYTES, Outcome, apart};
use crate::exporters::producer_cell::ProducerCell;
use crate::exporters::progress::{MessagePart, Progress};
use crate::net::{Coding, compress};
use config::NatsExporterConfig;
use part::{ID_BYTES, NatsPart};
use sending::NatsSending;

/// The factory of `nats`.
pub static FACTORY: ExporterFactory = Factory {
    kind: "nats",
    aliases: &[],
    stability: &[
        (Signal::Metrics, Stability::Alpha),
        (Signal::Traces, Stability::Alpha),
        (Signal::Logs, Stability::Alpha),
    ],
    help: "writes metrics, traces and logs to streams of NATS JetStream",
    errors: &[DELIVERY_ERRORS],
    config: ConfigType::of::<NatsExporterConfig>(),
    build: |settings, cx| {
        let config = settings.get::<NatsExporterConfig>();
        for (signal, ledger) in Signal::ALL.into_iter().zip(&cx.ledgers) {
            let ledger = ledger.as_ref();
            ledger
                .into_iter()
                .for_each(|ledger| ledger.goes_to(peer(&config, signal)));
        }
        let writer = NatsWriter::new(&config, cx.base.id.clone(), cx.base.shared.clone());
        let destination = Destination::new(cx, &config.delivery(), writer);
        Ok(Arc::new(destination.only_leader(config.only_leader.as_deref())?))
    },
};

/// The least bytes that may wait for their acknowledgement, for each request.
const WINDOW_BYTES: usize = 1 << 20;

/// The header with the compression of a message.
const CONTENT_ENCODING: &str = "Content-Encoding";

/// The default port of NATS.
const PORT: &str = "4222";

struct NatsWriter {
    exporter: Arc<str>,
    shared: Arc<Shared>,
    connection: NatsConnection,
    stream: Option<StreamOptions>,
    targets: [SubjectTarget; 3],
    coding: Coding,
    /// Kept headers that become headers of messages.
    metadata_keys: Vec<String>,
    headers: Vec<(String, String)>,
    max_message_bytes: usize,
    max_in_flight: usize,
    timeout: Duration,
    /// Replaced after the loss of the connection.
    producer: ProducerCell<NatsProducer>,
}

/// What a signal becomes.
struct SubjectTarget {
    subject: String,
    encoding: TelemetryEncoding,
}

fn peer(config: &NatsExporterConfig, signal: Signal) -> PeerLabels {
    let server = config.servers.first().map_or("", |server| server);
    let address = server.split_once("://").map_or(server, |(_, address)| address);
    let (host, port) = address.rsplit_once(':').unwrap_or((address, PORT));
    vec![
        ("server.address", host.to_owned()),
        ("server.port", port.to_owned()),
        ("messaging.destination.name", config.subject(signal).to_owned()),
    ]
}

/// A message that is ready, or why there is none.
enum PreparedMessage {
    Ready(NatsMessageOut),
    TooLarge(usize),
    Broken(String),
}

impl NatsWriter {
    fn new(config: &NatsExporterConfig, exporter: Arc<str>, shared: Arc<Shared>) -> Self {
        let headers = config.headers.iter();
        let coding = config.coding();
        let coding_header = coding
            .header()
            .map(|name| (CONTENT_ENCODING.to_owned(), name.to_owned()));
        Self {
            exporter,
            shared,
            connection: config.connection(),
            stream: config.stream.clone(),
            targets: Signal::ALL.map(|signal| SubjectTarget {
                subject: config.subject(signal).to_owned(),
                encoding: config.encoding(signal),
            }),
            coding,
            metadata_keys: config.include_metadata_keys.clone(),
            headers: headers
                .map(|(name, value)| (name.to_owned(), value.expose().to_owned()))
                .chain(coding_header)
                .collect(),
            max_message_bytes: config.max_message_size.map_or(usize::MAX, ByteSize::as_usize),
            max_in_flight: config.max_in_flight.get(),
            timeout: config.timeout,
            producer: ProducerCell::default(),
        }
    }

    fn target(&self, signal: Signal) -> &SubjectTarget {
        &self.targets[signal as usize]
    }

    /// The producer, which connects when it is needed first, and after its connection is lost.
    async fn producer(&self) -> Result<Arc<NatsProducer>, NatsSendError> {
        self.producer.replace_if(|producer| producer.is_lost());
        let connect = async || {
            let subjects: Vec<_> = self.targets.iter().map(|target| target.subject.clone()).collect();
            let stream = self.stream.as_ref().map(|stream| (stream, &*subjects));
            NatsProducer::connect(&self.connection, self.timeout, self.max_in_flight, stream).await
        };
        self.producer.get(connect).await
    }

    /// The progress of a request, which is one part at first.
    async fn progress(&self, export: &ExportRequest) -> Result<Arc<Progress<NatsPart>>, String> {
        Progress::of(
            export,
            &self.shared,
            |_| 0,
            |encoded| vec![NatsPart::whole(encoded)],
        )
        .await
    }

    /// The most bytes of a message.
    fn most(&self, producer: &NatsProducer) -> usize {
        producer.max_payload().min(self.max_message_bytes)
    }

    /// Reserves memory for the messages in flight: their content, its compressed form, and the protocol's form.
    async fn reserve(&self, export: &ExportRequest, window: usize) -> Result<EncodingPermit, String> {
        let bytes = match self.target(export.signal()).encoding {
            TelemetryEncoding::OtlpProto => 3 * export.encoded_bytes().min(window),
            TelemetryEncoding::OtlpJson => export.clone().weighed(ExportRequest::json_bytes).await?.1,
        };
        Ok(EncodingPermit::reserve(&self.shared, bytes).await)
    }

    /// The headers of the messages of a request. Headers of senders that NATS does not allow are left out.
    fn headers(&self, export: &ExportRequest) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        let Some(client) = export.client() else {
            return headers;
        };
        for name in &self.metadata_keys {
            for value in client.headers().get_all(name) {
                if let Ok(value) = value.to_str()
                    && is_header(name, value)
                {
                    headers.push((name.clone(), value.to_owned()));
                }
            }
        }
        headers
    }

    /// Makes a message of at most `most` bytes with its headers, before and after compression.
    async fn prepare(
        &self,
        signal: Signal,
        part: NatsPart,
        headers: &[(String, String)],
        most: usize,
    ) -> PreparedMessage {
        let target = self.target(signal);
        let most = most.saturating_sub(ID_BYTES + header_bytes("", headers));
        let (bytes, encoding, coding) = (part.encoded.bytes(), target.encoding, self.coding);
        if bytes > most && part.items() > 1 {
            return PreparedMessage::TooLarge(bytes);
        }
        let needs_work = part.encoded.parts.len() > 1
            || encoding == TelemetryEncoding::OtlpJson
            || coding != Coding::Identity;
        let id = part.id.clone();
        let work = move || form(&part, encoding, coding, most);
        match apart(needs_work && bytes > INLINE_BYTES, work).await {
            Ok(Ok(Formed::Payload(payload))) => PreparedMessage::Ready(NatsMessageOut {
                subject: target.subject.clone(),
                id,
                headers: headers.to_vec(),
                payload,
            }),
            Ok(Ok(Formed::TooLarge(bytes))) => PreparedMessage::TooLarge(bytes),
            Ok(Err(why)) | Err(why) => PreparedMessage::Broken(why),
        }
    }
}

/// The content of a message, or its size if it is too large.
enum Formed {
    Payload(Bytes),
    TooLarge(usize),
}

fn form(part: &NatsPart, encoding: TelemetryEncoding, coding: Coding, most: usize) -> Result<Formed, String> {
    let payload = encoding.encode(&part.encoded)?;
    if payload.len() > most {
        return Ok(Formed::TooLarge(payload.len()));
    }
    if coding == Coding::Identity {
        return Ok(Formed::Payload(payload));
    }
    let packed = compress(coding, &payload).map_err(|error| format!("can't compress a message: {error}"))?;
    // Content that does not shrink may grow by some bytes.
    if packed.len() > most {
        return Ok(Formed::TooLarge(packed.len()));
    }
    Ok(Formed::Payload(packed.into()))
}

/// The outcome when the connection fails.
fn unconnected(error: NatsSendError) -> Outcome {
    let why = error.to_string();
    match error {
        NatsSendError::Login(_) => Outcome::login(why),
        NatsSendError::Permanent(_) => Outcome::permanent(why),
        _ => Outcome::retry(why),
    }
}

#[async_trait]
impl Attempt for NatsWriter {
    fn endpoint(&self) -> String {
        self.connection.servers.join(",")
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
        let most = self.most(&producer);
        let window = most.max(WINDOW_BYTES);
        let _permit = match self.reserve(&export, window).await {
            Ok(permit) => permit,
            Err(why) => return Outcome::permanent(why),
        };
        let (signal, headers) = (export.signal(), self.headers(&export));
        let sending = NatsSending::new(self, producer, &progress, (signal, headers), (most, window));
        let failed = sending.run().await;
        progress.outcome(failed)
    }

    async fn close(&self, deadline: Instant) {
        if let Some(producer) = self.producer.take() {
            let left = deadline.saturating_duration_since(Instant::now());
            producer.close(left).await;
        }
    }
}
