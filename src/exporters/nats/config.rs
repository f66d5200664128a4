// SPDX-License-Identifier: Apache-2.0

//! Options of the `nats` exporter.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_nats::transport::{
    NatsAuthConfig, SUBJECTS, StreamOptions, check_subject, header_bytes, is_header,
};
use tidegate_nats::{NatsConnection, NatsTlsConfig};

use super::part::ID_BYTES;
use crate::batch::{Signal, TelemetryEncoding};
use crate::config::{ByteSize, Headers, Node, Problems};
use crate::delivery::{Delivery, QueueConfig, RetryConfig, Speaks};
use crate::net::{Coding, headers};

crate::choices! {
    /// The compression of a message.
    pub(super) enum MessageCompression {
        /// No compression.
        None = "none" | "",
        /// gzip.
        Gzip = "gzip",
        /// Zstandard.
        Zstd = "zstd",
    }
}

crate::options! {
    /// Options of `nats`.
    pub(super) struct NatsExporterConfig {
        /// URLs of servers, without credentials. `tls://` demands TLS.
        pub servers: Vec<String> = vec!["nats://localhost:4222".to_owned()],
        /// User of the servers. Unset: the servers do not ask.
        pub auth: NatsAuthConfig = NatsAuthConfig::default(),
        /// TLS. Unset: only if a server demands it, with the authorities of the system.
        pub tls: Option<NatsTlsConfig> = None,
        /// Messages of metrics. Unset: the subject `otlp.metrics`.
        pub metrics: SubjectConfig = SubjectConfig::default(),
        /// Messages of traces. Unset: the subject `otlp.traces`.
        pub traces: SubjectConfig = SubjectConfig::default(),
        /// Messages of logs. Unset: the subject `otlp.logs`.
        pub logs: SubjectConfig = SubjectConfig::default(),
        /// Stream to create if it does not exist. Unset: the exporter creates none.
        pub stream: Option<StreamOptions> = None,
        /// Compression of messages. The header `Content-Encoding` names it.
        pub compression: MessageCompression = MessageCompression::None,
        /// Largest message with its headers, before compression. The exporter splits larger ones. Unset: `max_payload` of the
        /// server.
        pub max_message_size: Option<ByteSize> = None,
        /// Most messages of the exporter that wait for their acknowledgement.
        pub max_in_flight: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255),
        /// Kept headers of senders that become headers of messages.
        pub include_metadata_keys: Vec<String> = Vec::new(),
        /// Additional headers of all messages. Their values are secrets. A list may repeat a name.
        pub headers: Headers = Headers::new(),
        /// Most time from a message to its acknowledgement. The exporter sends it again later.
        pub timeout: Duration = Duration::from_secs(5),
        /// Id of a `cluster` extension. The exporter drops and counts metrics while this replica does not lead the
        /// cluster. Each replica exports its traces and logs. Unset: every replica exports all data.
        pub only_leader: Option<String> = None,
        /// Retries of messages without an acknowledgement.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// Queue of batches that wait for delivery.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    refused = REFUSED;
    check = NatsExporterConfig::check
}

crate::options! {
    /// The messages of a signal.
    pub(super) struct SubjectConfig {
        /// Subject of the messages. Unset: `otlp.metrics`, `otlp.traces` or `otlp.logs`.
        pub subject: Option<String> = None,
        /// Encoding of messages.
        pub encoding: TelemetryEncoding = TelemetryEncoding::OtlpProto,
    }
}

const REFUSED: &[(&str, &str)] = &[
    (
        "jetstream",
        "the exporter always writes to a stream: without one, no server confirms a message",
    ),
    ("subject", "set it in `metrics`, `traces` and `logs`"),
    ("encoding", "set it in `metrics`, `traces` and `logs`"),
];

/// The least `max_message_size`. Less leaves no room for a message beside its headers.
const MIN_MESSAGE_BYTES: usize = 1024;

/// The most: a server refuses a higher `max_payload`.
const MAX_MESSAGE_BYTES: usize = 64 << 20;

/// The most bytes of a message that `headers` may take.
const MAX_HEADER_BYTES: usize = MIN_MESSAGE_BYTES / 2;

/// Headers that the exporter or the server set.
const RESERVED_HEADERS: [&str; 2] = ["content-encoding", "nats-"];

fn is_reserved(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    RESERVED_HEADERS
        .iter()
        .any(|reserved| lower.starts_with(reserved))
}

impl NatsExporterConfig {
    fn of(&self, signal: Signal) -> &SubjectConfig {
        match signal {
            Signal::Metrics => &self.metrics,
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
        }
    }

    /// The subject of a signal.
    pub(super) fn subject(&self, signal: Signal) -> &str {
        let own = self.of(signal).subject.as_deref();
        own.unwrap_or(SUBJECTS[signal as usize])
    }

    /// The encoding of a signal.
    pub(super) fn encoding(&self, signal: Signal) -> TelemetryEncoding {
        self.of(signal).encoding
    }

    /// The compression of messages.
    pub(super) fn coding(&self) -> Coding {
        match self.compression {
            MessageCompression::None => Coding::Identity,
            MessageCompression::Gzip => Coding::Gzip,
            MessageCompression::Zstd => Coding::Zstd,
        }
    }

    /// How to reach the servers.
    pub(super) fn connection(&self) -> NatsConnection {
        self.auth.connection(&self.servers, self.tls.as_ref())
    }

    /// The producer bounds each attempt: one that ends early could not say which messages the stream has.
    pub(super) fn delivery(&self) -> Delivery {
        Delivery::plain(self.sending_queue.clone(), self.retry_on_failure.clone())
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        self.retry_on_failure.check_statuses(Speaks::Other, at, cx);
        if let Err(error) = self.connection().validate() {
            cx.at(at).error(error.to_string());
        }
        for signal in Signal::ALL {
            if let Err(error) = check_subject(self.subject(signal), false) {
                cx.at(at.child(signal.name())).error(format!("subject: {error}"));
            }
        }
        self.check_headers(at.child("headers"), cx);
        for name in self.include_metadata_keys.iter().filter(|name| is_reserved(name)) {
            cx.at(at.child("include_metadata_keys"))
                .error(format!("`{name}` is set by the exporter or by the server"));
        }
        if let Some(size) = self.max_message_size
            && !(MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES).contains(&size.as_usize())
        {
            cx.at(at.child("max_message_size"))
                .error("must be between 1KiB and 64MiB");
        }
        if self.timeout.is_zero() {
            cx.at(at.child("timeout")).error("must be greater than zero");
        }
    }

    fn check_headers(&self, at: &Node, cx: &mut Problems) {
        for (index, (name, value)) in self.headers.iter().enumerate() {
            let at = headers::node(at, index, name);
            if is_reserved(name) {
                cx.at(at)
                    .error(format!("`{name}` is set by the exporter or by the server"));
            } else if !is_header(name, value.expose()) {
                cx.at(at).error(format!("`{name}`: NATS allows no such header"));
            }
        }
        let headers = self.headers.iter();
        let all: Vec<_> = headers
            .map(|(name, value)| (name.to_owned(), value.expose().to_owned()))
            .collect();
        if header_bytes("", &all) + ID_BYTES > MAX_HEADER_BYTES {
            cx.at(at).error("must have at most 400 bytes together");
        }
    }
}
