// SPDX-License-Identifier: Apache-2.0

//! Options of the `nats` receiver.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_nats::transport::{
    DeliverFrom, DurableOptions, NatsAuthConfig, SUBJECTS, check_name, check_subject,
};
use tidegate_nats::{NatsConnection, NatsTlsConfig};

use crate::batch::wire::MAX_ELEMENTS;
use crate::batch::{Signal, TelemetryEncoding};
use crate::config::{ByteSize, Node, Problems};
use crate::receivers::message_attributes::HeaderExtraction;

crate::choices! {
    /// Where a new consumer begins.
    pub enum DeliverPolicy {
        /// All messages of the stream.
        All = "all",
        /// The last message of the stream, and those behind it.
        Last = "last",
        /// Messages that arrive from now on.
        New = "new",
    }
}

crate::options! {
    /// Options of `nats`.
    pub struct NatsReceiverConfig {
        /// URLs of servers, without credentials. `tls://` demands TLS.
        pub servers: Vec<String> = vec!["nats://localhost:4222".to_owned()],
        /// User of the servers. Unset: the servers do not ask.
        pub auth: NatsAuthConfig = NatsAuthConfig::default(),
        /// TLS. Unset: only if a server demands it, with the authorities of the system.
        pub tls: Option<NatsTlsConfig> = None,
        /// Name of the stream. Unset: the stream that has the first subject of the signal.
        pub stream: Option<String> = None,
        /// Begin of the names of the consumers, one for each signal: `-metrics`, `-traces` or `-logs` follows. Gateways with the
        /// same names share the messages.
        pub durable: String = "tidegate".to_owned(),
        /// Messages of metrics. Unset: the subject `otlp.metrics`.
        pub metrics: SignalSubjects = SignalSubjects::default(),
        /// Messages of traces. Unset: the subject `otlp.traces`.
        pub traces: SignalSubjects = SignalSubjects::default(),
        /// Messages of logs. Unset: the subject `otlp.logs`.
        pub logs: SignalSubjects = SignalSubjects::default(),
        /// Where a new consumer begins. One that exists goes on.
        pub deliver_policy: DeliverPolicy = DeliverPolicy::All,
        /// Time without an answer after which the server delivers a message again. The receiver extends it while it has the
        /// message.
        pub ack_wait: Duration = Duration::from_secs(30),
        /// Most messages of a consumer that all gateways together may have without an answer.
        pub max_ack_pending: NonZeroUsize = NonZeroUsize::MIN.saturating_add(999),
        /// Most messages of a signal that go to the pipelines at a time. More than 1 changes their order.
        pub max_in_flight: NonZeroUsize = NonZeroUsize::MIN,
        /// Headers of messages that become resource attributes.
        pub header_extraction: HeaderExtraction = HeaderExtraction::default(),
        /// Most bytes of messages that the receiver asks for at a time, for each signal. At least `max_payload` of the server
        /// counts.
        pub max_fetch_size: ByteSize = ByteSize::mib(4),
        /// Largest message after decompression. The receiver skips and counts larger ones.
        pub max_decompressed_size: ByteSize = ByteSize::mib(32),
        /// Most attributes and other elements of a point, span, log record, resource, scope or metadata of a metric. Items
        /// with more are rejected.
        pub max_elements_per_item: NonZeroUsize = NonZeroUsize::MIN.saturating_add(MAX_ELEMENTS - 1),
    }
    check = NatsReceiverConfig::check
}

crate::options! {
    /// The subjects of a signal.
    pub struct SignalSubjects {
        /// Subjects of the messages; `*` and `>` are wildcards. Unset: `otlp.metrics`, `otlp.traces` or `otlp.logs`.
        pub subjects: Vec<String> = Vec::new(),
        /// Encoding of messages.
        pub encoding: TelemetryEncoding = TelemetryEncoding::OtlpProto,
        /// Name of the stream. Unset: `stream` of the receiver.
        pub stream: Option<String> = None,
        /// Name of the consumer. Unset: `durable` of the receiver with the signal.
        pub durable: Option<String> = None,
    }
}

/// The bounds of `max_fetch_size` and `max_decompressed_size`.
const SIZES: std::ops::RangeInclusive<usize> = 64 << 10..=512 << 20;

/// The least `ack_wait`: the receiver extends it three times in this time.
const MIN_ACK_WAIT: Duration = Duration::from_secs(1);

impl NatsReceiverConfig {
    fn of(&self, signal: Signal) -> &SignalSubjects {
        match signal {
            Signal::Metrics => &self.metrics,
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
        }
    }

    /// The subjects of a signal.
    pub(super) fn subjects(&self, signal: Signal) -> Vec<String> {
        let own = &self.of(signal).subjects;
        if own.is_empty() {
            vec![SUBJECTS[signal as usize].to_owned()]
        } else {
            own.clone()
        }
    }

    /// The encoding of a signal.
    pub(super) fn encoding(&self, signal: Signal) -> TelemetryEncoding {
        self.of(signal).encoding
    }

    /// How to reach the servers.
    pub(super) fn connection(&self) -> NatsConnection {
        self.auth.connection(&self.servers, self.tls.as_ref())
    }

    /// The consumer of a signal.
    pub(super) fn consumer(&self, signal: Signal) -> DurableOptions {
        let own = self.of(signal);
        let name = own.durable.clone();
        DurableOptions {
            stream: own.stream.clone().or_else(|| self.stream.clone()),
            name: name.unwrap_or_else(|| format!("{}-{}", self.durable, signal.name())),
            subjects: self.subjects(signal),
            ack_wait: self.ack_wait,
            max_ack_pending: i64::try_from(self.max_ack_pending.get()).unwrap_or(i64::MAX),
            deliver: match self.deliver_policy {
                DeliverPolicy::All => DeliverFrom::All,
                DeliverPolicy::Last => DeliverFrom::Last,
                DeliverPolicy::New => DeliverFrom::New,
            },
            headers: self.header_extraction.names().to_vec(),
        }
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Err(error) = self.connection().validate() {
            cx.at(at).error(error.to_string());
        }
        for signal in Signal::ALL {
            self.check_signal(signal, at, cx);
        }
        self.check_consumers(at, cx);
        if self.ack_wait < MIN_ACK_WAIT {
            cx.at(at.child("ack_wait")).error("must be at least 1s");
        }
        for (name, size) in [
            ("max_fetch_size", self.max_fetch_size),
            ("max_decompressed_size", self.max_decompressed_size),
        ] {
            if !SIZES.contains(&size.as_usize()) {
                cx.at(at.child(name)).error("must be between 64KiB and 512MiB");
            }
        }
        self.header_extraction.check(at.child("header_extraction"), cx);
    }

    fn check_signal(&self, signal: Signal, at: &Node, cx: &mut Problems) {
        let consumer = self.consumer(signal);
        let name = signal.name();
        for subject in &consumer.subjects {
            if let Err(error) = check_subject(subject, true) {
                cx.at(at.child(name)).error(format!("subjects: {error}"));
            }
        }
        let stream = consumer.stream.as_deref().map(|stream| ("stream", stream));
        for (option, text) in [("durable", &*consumer.name)].into_iter().chain(stream) {
            if let Err(error) = check_name(option, text) {
                cx.at(at).error(format!("{name}: {error}"));
            }
        }
    }

    /// A message has one signal, and a consumer too.
    fn check_consumers(&self, at: &Node, cx: &mut Problems) {
        let [metrics, traces, logs] = Signal::ALL;
        for (one, other) in [(metrics, traces), (metrics, logs), (traces, logs)] {
            let (of_one, of_other) = (self.consumer(one), self.consumer(other));
            let mut subjects = of_one.subjects.iter();
            if let Some(subject) = subjects.find(|subject| of_other.subjects.contains(subject)) {
                cx.at(at).error(format!(
                    "the subject `{subject}` is read for more than one signal: name another subject"
                ));
            } else if of_one.name == of_other.name && of_one.stream == of_other.stream {
                cx.at(at).error(format!(
                    "`{}` and `{}` have the same `durable`: give each its own",
                    one.name(),
                    other.name()
                ));
            }
        }
    }
}
