// SPDX-License-Identifier: Apache-2.0

//! Options of the `kafka` exporter, in the Collector's names.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_kafka::transport::{Codec, KafkaAuthConfig, KeyHasher, ProducerOptions, RequiredAcks, TOPICS};
use tidegate_kafka::{Connection, KafkaTlsConfig, check_topic};

use super::keys::KeyRule;
use crate::batch::{Signal, TelemetryEncoding};
use crate::config::{
    ByteSize, Decode, Headers, Node, Problems, ScalarKind, TypeHelp, WithoutEffect, YamlType, wrong_type,
};
use crate::delivery::{Delivery, QueueConfig, RetryConfig, Speaks};

crate::choices! {
    /// The compression of batches of messages.
    pub(super) enum Compression {
        /// No compression.
        None = "none" | "",
        /// gzip.
        Gzip = "gzip",
        /// Snappy.
        Snappy = "snappy",
        /// LZ4.
        Lz4 = "lz4",
        /// Zstandard.
        Zstd = "zstd",
    }
}

crate::choices! {
    /// How a key becomes a partition.
    pub(super) enum Hasher {
        /// FNV-1a as in Sarama, the default of the Collector.
        SaramaCompat = "sarama_compat",
        /// Murmur2, as in clients written in Java.
        Murmur2 = "murmur2",
    }
}

crate::options! {
    /// Options of `kafka`.
    pub(super) struct KafkaExporterConfig {
        /// Brokers to ask first, as `host:port`.
        pub brokers: Vec<String> = vec!["localhost:9092".to_owned()],
        /// Name of this client in the logs and quotas of the brokers.
        pub client_id: String = "otel-collector".to_owned(),
        /// Messages of metrics. Unset: the topic `otlp_metrics`.
        pub metrics: SignalConfig = SignalConfig::default(),
        /// Messages of traces. Unset: the topic `otlp_spans`.
        pub traces: SignalConfig = SignalConfig::default(),
        /// Messages of logs. Unset: the topic `otlp_logs`.
        pub logs: SignalConfig = SignalConfig::default(),
        /// Old form of the topics of all signals.
        pub topic: Option<String> = None,
        /// Old form of the encodings of all signals.
        pub encoding: Option<TelemetryEncoding> = None,
        /// Whether the spans of a trace go to one partition: each trace is a message with the trace id as its key.
        pub partition_traces_by_id: bool = false,
        /// Whether the metrics of a resource go to one partition: its key is a hash of the attributes.
        pub partition_metrics_by_resource_attributes: bool = false,
        /// The same for logs.
        pub partition_logs_by_resource_attributes: bool = false,
        /// Whether log records of a trace go to one partition. Records without a trace have no key.
        pub partition_logs_by_trace_id: bool = false,
        /// The choice of partitions.
        pub record_partitioner: RecordPartitioner = RecordPartitioner::default(),
        /// Kept headers of senders that become headers of messages.
        pub include_metadata_keys: Vec<String> = Vec::new(),
        /// Additional headers of all messages. Their values are secrets. A list may repeat a name.
        pub record_headers: Headers = Headers::new(),
        /// TLS to the brokers. Unset: connections are not encrypted.
        pub tls: Option<KafkaTlsConfig> = None,
        /// User of the brokers. Unset: the brokers do not ask.
        pub auth: KafkaAuthConfig = KafkaAuthConfig::default(),
        /// Settings of the producer: size, compression and acknowledgement of requests.
        pub producer: ProducerConfig = ProducerConfig::default(),
        /// Most time from a message to its acknowledgement. The exporter retries later.
        pub timeout: Duration = Duration::from_secs(5),
        /// Id of a `cluster` extension. The exporter drops and counts metrics while this replica does not lead the
        /// cluster. Each replica exports its traces and logs. Unset: every replica exports all data.
        pub only_leader: Option<String> = None,
        /// Retries of failed messages.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// Queue of batches that wait for delivery.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    refused = REFUSED;
    accepted = WITHOUT_EFFECT;
    check = KafkaExporterConfig::check
}

crate::options! {
    /// The messages of a signal.
    pub(super) struct SignalConfig {
        /// Name of the topic. Unset: `otlp_metrics`, `otlp_spans` or `otlp_logs`.
        pub topic: Option<String> = None,
        /// Encoding of messages. Unset: `otlp_proto`.
        pub encoding: Option<TelemetryEncoding> = None,
    }
    refused = REFUSED_OF_SIGNALS;
}

crate::options! {
    /// `record_partitioner`.
    pub(super) struct RecordPartitioner {
        /// A key decides, and messages without a key are spread.
        pub sticky_key: StickyKey = StickyKey::default(),
        /// Partitions take turns, whatever the keys are. Unset: `sticky_key`.
        pub round_robin: Option<RoundRobin> = None,
    }
    refused = REFUSED_PARTITIONERS;
}

crate::options! {
    /// `sticky_key`.
    pub(super) struct StickyKey {
        /// Hash of keys.
        pub hasher: Hasher = Hasher::SaramaCompat,
    }
}

crate::options! {
    /// `round_robin`. It has no options.
    pub(super) struct RoundRobin {}
}

crate::options! {
    /// `producer`.
    pub(super) struct ProducerConfig {
        /// Largest message before compression, in bytes. The exporter splits larger ones.
        pub max_message_bytes: ByteSize = ByteSize(1_000_000),
        /// Brokers that must have a message before it counts as sent: `1` is the leader, `all` or `-1` all in-sync
        /// replicas, `0` none.
        pub required_acks: Acks = Acks(RequiredAcks::Leader),
        /// Compression of batches of messages.
        pub compression: Compression = Compression::None,
        /// Level of the compression.
        pub compression_params: CompressionParams = CompressionParams::default(),
        /// Most messages of a batch of telemetry that are not acknowledged yet.
        pub flush_max_messages: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999),
        /// Whether the brokers may create a topic that is absent, if their settings allow it.
        pub allow_auto_topic_creation: bool = true,
        /// How long a message waits for others of its partition.
        pub linger: Duration = Duration::from_millis(10),
    }
    accepted = WITHOUT_EFFECT_OF_PRODUCER;
}

crate::options! {
    /// `compression_params`.
    pub(super) struct CompressionParams {
        /// Level: 1 to 9 for `gzip`, 1 to 22 for `zstd`. 0 and -1: the default.
        pub level: i32 = 0,
    }
}

/// `required_acks`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Acks(pub(super) RequiredAcks);

impl Decode for Acks {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        let Some(scalar) = node.scalar() else {
            return wrong_type(node, cx);
        };
        let acks = match (&scalar.kind, &*scalar.text) {
            (ScalarKind::Int(0), _) => Some(RequiredAcks::None),
            (ScalarKind::Int(1), _) => Some(RequiredAcks::Leader),
            (ScalarKind::Int(-1), _) | (_, "all") => Some(RequiredAcks::All),
            _ => None,
        };
        if acks.is_none() {
            let shown = node.shown();
            cx.at(node)
                .error(format!("{shown} is not one of 0, 1, -1 and all"));
        }
        acks.map(Self)
    }

    fn type_help() -> TypeHelp {
        let number = YamlType::Integer { min: -1, max: 1 };
        TypeHelp::like("number or word", "1, 0 or all")
            .accepting(YamlType::AnyOf(vec![number, YamlType::Pattern("^all$")]))
    }

    fn show(&self) -> String {
        let shown = match self.0 {
            RequiredAcks::None => "0",
            RequiredAcks::Leader => "1",
            RequiredAcks::All => "all",
        };
        shown.to_owned()
    }
}

const REFUSED: &[(&str, &str)] = &[
    (
        "topic_from_attribute",
        "the topic of a signal is fixed: use an exporter for each topic, and a `filter` processor before it",
    ),
    ("profiles", "tidegate carries no profiles"),
];

const REFUSED_OF_SIGNALS: &[(&str, &str)] = &[
    (
        "topic_from_metadata_key",
        "the topic of a signal is fixed: use an exporter for each topic",
    ),
    (
        "message_key_from_metadata_key",
        "keys come from resources or traces: use the options `partition_*`",
    ),
];

const REFUSED_PARTITIONERS: &[(&str, &str)] = &[
    ("least_backup", "use `round_robin`"),
    (
        "extension",
        "no extension chooses partitions: use `sticky_key` or `round_robin`",
    ),
];

const WITHOUT_EFFECT: &WithoutEffect = &[
    (
        "protocol_version",
        "the client negotiates versions with each broker",
    ),
    (
        "resolve_canonical_bootstrap_servers_only",
        "addresses are used as they are given",
    ),
    ("conn_idle_timeout", "unused connections close after 9 minutes"),
    (
        "metadata",
        "the client refreshes metadata every 5 minutes and after errors",
    ),
];

const WITHOUT_EFFECT_OF_PRODUCER: &WithoutEffect = &[(
    "max_broker_write_bytes",
    "a request has room for `max_message_bytes` and 1 MiB",
)];

/// The least `max_message_bytes`. Less leaves no room for a message beside its frame.
const MIN_MESSAGE_BYTES: usize = 1024;

/// The most: the wire format counts bytes in 31 bits, and a request has more than one message.
const MAX_MESSAGE_BYTES: usize = 512 << 20;

impl KafkaExporterConfig {
    fn of(&self, signal: Signal) -> &SignalConfig {
        match signal {
            Signal::Metrics => &self.metrics,
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
        }
    }

    /// The topic of a signal.
    pub(super) fn topic(&self, signal: Signal) -> &str {
        let own = self.of(signal).topic.as_deref();
        own.or(self.topic.as_deref()).unwrap_or(TOPICS[signal as usize])
    }

    /// The encoding of a signal.
    pub(super) fn encoding(&self, signal: Signal) -> TelemetryEncoding {
        let own = self.of(signal).encoding;
        own.or(self.encoding).unwrap_or(TelemetryEncoding::OtlpProto)
    }

    /// The keys of a signal.
    pub(super) fn key_rule(&self, signal: Signal) -> KeyRule {
        match signal {
            Signal::Metrics if self.partition_metrics_by_resource_attributes => KeyRule::Resource,
            Signal::Logs if self.partition_logs_by_resource_attributes => KeyRule::Resource,
            Signal::Logs if self.partition_logs_by_trace_id => KeyRule::TraceIfAny,
            Signal::Traces if self.partition_traces_by_id => KeyRule::Trace,
            _ => KeyRule::None,
        }
    }

    /// How to reach the brokers.
    pub(super) fn connection(&self) -> Connection {
        Connection {
            brokers: self.brokers.clone(),
            client_id: self.client_id.clone(),
            sasl: self.auth.user(),
            tls: self.auth.tls_beside(self.tls.as_ref()),
            connect_timeout: self.timeout,
            request_timeout: self.timeout,
            creates_topics: self.producer.allow_auto_topic_creation,
        }
    }

    /// How messages are sent.
    pub(super) fn producer_options(&self) -> ProducerOptions {
        let producer = &self.producer;
        let hasher = match (
            &self.record_partitioner.round_robin,
            self.record_partitioner.sticky_key.hasher,
        ) {
            (Some(_), _) => KeyHasher::RoundRobin,
            (None, Hasher::SaramaCompat) => KeyHasher::Sarama,
            (None, Hasher::Murmur2) => KeyHasher::Murmur2,
        };
        ProducerOptions {
            acks: producer.required_acks.0,
            codec: producer.codec(),
            level: Some(producer.compression_params.level).filter(|level| *level > 0),
            max_batch_bytes: producer.max_message_bytes.as_usize(),
            linger: producer.linger,
            timeout: self.timeout,
            hasher,
        }
    }

    /// The producer bounds each attempt: one that ends early could not say which messages the brokers have.
    pub(super) fn delivery(&self) -> Delivery {
        Delivery::plain(self.sending_queue.clone(), self.retry_on_failure.clone())
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        self.retry_on_failure.check_statuses(Speaks::Other, at, cx);
        self.auth.check(&self.connection(), at, cx);
        for signal in Signal::ALL {
            if let Err(error) = check_topic(self.topic(signal)) {
                cx.at(at).error(format!("{}: {error}", signal.name()));
            }
        }
        if self.partition_logs_by_resource_attributes && self.partition_logs_by_trace_id {
            cx.at(at.child("partition_logs_by_trace_id"))
                .error("can't be combined with `partition_logs_by_resource_attributes`");
        }
        self.producer.check(at.child("producer"), cx);
        if self.timeout.is_zero() {
            cx.at(at.child("timeout")).error("must be greater than zero");
        }
    }
}

impl ProducerConfig {
    fn codec(&self) -> Codec {
        match self.compression {
            Compression::None => Codec::None,
            Compression::Gzip => Codec::Gzip,
            Compression::Snappy => Codec::Snappy,
            Compression::Lz4 => Codec::Lz4,
            Compression::Zstd => Codec::Zstd,
        }
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        let bytes = self.max_message_bytes.as_usize();
        if !(MIN_MESSAGE_BYTES..=MAX_MESSAGE_BYTES).contains(&bytes) {
            cx.at(at.child("max_message_bytes"))
                .error("must be between 1KiB and 512MiB");
        }
        if self.required_acks.0 == RequiredAcks::None {
            cx.at(at.child("required_acks"))
                .help("set it to `1` or `all`")
                .warning(
                    "with 0, a message counts as sent before any broker has it: failures lose it silently",
                );
        }
        let most = match self.compression {
            Compression::Gzip => 9,
            Compression::Zstd => 22,
            _ => 0,
        };
        let level = self.compression_params.level;
        if !(-1..=most).contains(&level) {
            cx.at(at.child("compression_params"))
                .error(format!("`{}` has no level {level}", self.compression));
        }
    }
}
