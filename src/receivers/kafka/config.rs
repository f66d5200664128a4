// SPDX-License-Identifier: Apache-2.0

//! Options of the `kafka` receiver, in the Collector's names.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_kafka::transport::{Assignor, GroupOptions, KafkaAuthConfig, TOPICS};
use tidegate_kafka::{Connection, KafkaTlsConfig, check_topic};

use crate::batch::wire::MAX_ELEMENTS;
use crate::batch::{Signal, TelemetryEncoding};
use crate::config::{ByteSize, Node, Problems, WithoutEffect};
use crate::receivers::message_attributes::HeaderExtraction;

crate::choices! {
    /// Where reading begins without a committed offset.
    pub enum InitialOffset {
        /// Messages that arrive from now on.
        Latest = "latest",
        /// All messages of the topic.
        Earliest = "earliest",
    }
}

crate::choices! {
    /// How partitions are assigned to the members of a group.
    pub enum Strategy {
        /// Ranges of each topic.
        Range = "range",
        /// Partitions in turn.
        RoundRobin = "roundrobin",
        /// Partitions stay where they are, as far as possible.
        CooperativeSticky = "cooperative-sticky",
    }
}

crate::options! {
    /// Options of `kafka`.
    pub struct KafkaReceiverConfig {
        /// Brokers to ask first, as `host:port`.
        pub brokers: Vec<String> = vec!["localhost:9092".to_owned()],
        /// Group of consumers. Its members share the partitions.
        pub group_id: String = "otel-collector".to_owned(),
        /// Name of this client in the logs and quotas of the brokers.
        pub client_id: String = "otel-collector".to_owned(),
        /// Name of a member that keeps its partitions over a restart. Unset: they move to other members.
        pub group_instance_id: Option<String> = None,
        /// Ways to assign partitions, the preferred one first. All members must have one in common.
        pub group_rebalance_strategies: Vec<Strategy> = vec![Strategy::CooperativeSticky],
        /// Rack of this gateway, to read from replicas close to it.
        pub rack_id: Option<String> = None,
        /// Messages of metrics. Unset: the topic `otlp_metrics`.
        pub metrics: SignalTopics = SignalTopics::default(),
        /// Messages of traces. Unset: the topic `otlp_spans`.
        pub traces: SignalTopics = SignalTopics::default(),
        /// Messages of logs. Unset: the topic `otlp_logs`.
        pub logs: SignalTopics = SignalTopics::default(),
        /// Old form of the topic, for a receiver of one signal.
        pub topic: Option<String> = None,
        /// Old form of the encodings of all signals.
        pub encoding: Option<TelemetryEncoding> = None,
        /// Where reading begins if the group has no committed offset.
        pub initial_offset: InitialOffset = InitialOffset::Latest,
        /// Time without a heartbeat after which the brokers give the partitions to other members.
        pub session_timeout: Duration = Duration::from_secs(10),
        /// Interval of heartbeats.
        pub heartbeat_interval: Duration = Duration::from_secs(3),
        /// Commits of offsets.
        pub autocommit: AutoCommit = AutoCommit::default(),
        /// When a message counts as consumed.
        pub message_marking: MessageMarking = MessageMarking::default(),
        /// Headers of messages that become resource attributes.
        pub header_extraction: HeaderExtraction = HeaderExtraction::default(),
        /// Bytes that a broker waits for before it answers.
        pub min_fetch_size: i32 = 1,
        /// How long it waits for them.
        pub max_fetch_wait: Duration = Duration::from_millis(250),
        /// Most bytes of a batch of messages, as the brokers keep it and after decompression. The receiver skips and counts
        /// larger ones.
        pub max_batch_size: ByteSize = ByteSize::mib(8),
        /// Most attributes and other elements of a point, span, log record, resource, scope or metadata of a metric. Items
        /// with more are rejected.
        pub max_elements_per_item: NonZeroUsize = NonZeroUsize::MIN.saturating_add(MAX_ELEMENTS - 1),
        /// TLS to the brokers. Unset: connections are not encrypted.
        pub tls: Option<KafkaTlsConfig> = None,
        /// User of the brokers. Unset: the brokers do not ask.
        pub auth: KafkaAuthConfig = KafkaAuthConfig::default(),
    }
    refused = REFUSED;
    accepted = WITHOUT_EFFECT;
    check = KafkaReceiverConfig::check
}

crate::options! {
    /// The topics of a signal.
    pub struct SignalTopics {
        /// Names of the topics. Unset: `otlp_metrics`, `otlp_spans` or `otlp_logs`.
        pub topics: Vec<String> = Vec::new(),
        /// Old form of `topics`, for one topic.
        pub topic: Option<String> = None,
        /// Encoding of messages. Unset: `otlp_proto`.
        pub encoding: Option<TelemetryEncoding> = None,
    }
    refused = REFUSED_OF_SIGNALS;
}

crate::options! {
    /// `autocommit`.
    pub struct AutoCommit {
        /// Whether marked offsets are committed at an interval. `false`: at once.
        pub enable: bool = true,
        /// Interval between two commits.
        pub interval: Duration = Duration::from_secs(1),
    }
}

crate::options! {
    /// `message_marking`.
    pub struct MessageMarking {
        /// Whether a message is marked after the pipelines have taken it. `false`: before.
        pub after: bool = false,
        /// Whether a message that the pipelines refuse for now is dropped and counted. `false`: it waits.
        pub on_error: bool = false,
    }
    accepted = WITHOUT_EFFECT_OF_MARKING;
}

const REFUSED: &[(&str, &str)] = &[
    (
        "group_rebalance_strategy",
        "use `group_rebalance_strategies`, a list",
    ),
    ("profiles", "tidegate carries no profiles"),
];

const REFUSED_OF_SIGNALS: &[(&str, &str)] = &[
    (
        "exclude_topics",
        "topics have names here, no expressions: list them",
    ),
    (
        "exclude_topic",
        "topics have names here, no expressions: list them",
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
    ("use_leader_epoch", "the client uses the epochs that brokers have"),
    (
        "max_fetch_size",
        "a fetch brings one batch of each broker, so that its memory is bounded",
    ),
    (
        "max_partition_fetch_size",
        "a fetch brings one batch of each broker, so that its memory is bounded",
    ),
    ("default_fetch_size", "a fetch brings one batch of each broker"),
    (
        "error_backoff",
        "a message that is refused for now waits as long as the pipelines say",
    ),
    (
        "partition_processing",
        "partitions are always independent of each other",
    ),
    (
        "telemetry",
        "tidegate's own metrics do not measure the delay of messages",
    ),
];

const WITHOUT_EFFECT_OF_MARKING: &WithoutEffect = &[(
    "on_permanent_error",
    "a message that can't be taken is always marked and counted: it would stop its partition",
)];

/// The bounds of `max_batch_size`.
const BATCH_BYTES: std::ops::RangeInclusive<usize> = 64 << 10..=512 << 20;

impl KafkaReceiverConfig {
    fn of(&self, signal: Signal) -> &SignalTopics {
        match signal {
            Signal::Metrics => &self.metrics,
            Signal::Traces => &self.traces,
            Signal::Logs => &self.logs,
        }
    }

    /// The topics of a signal.
    pub(super) fn topics(&self, signal: Signal) -> Vec<String> {
        let own = self.of(signal);
        let old = own.topic.as_ref().or(self.topic.as_ref());
        match (own.topics.is_empty(), old) {
            (false, _) => own.topics.clone(),
            (true, Some(old)) => vec![old.clone()],
            (true, None) => vec![TOPICS[signal as usize].to_owned()],
        }
    }

    /// The encoding of a signal.
    pub(super) fn encoding(&self, signal: Signal) -> TelemetryEncoding {
        let own = self.of(signal).encoding;
        own.or(self.encoding).unwrap_or(TelemetryEncoding::OtlpProto)
    }

    /// How to reach the brokers.
    pub(super) fn connection(&self) -> Connection {
        /// Most time for a connection, and for an answer beyond the waits of the protocol.
        const CONNECT: Duration = Duration::from_secs(5);
        Connection {
            brokers: self.brokers.clone(),
            client_id: self.client_id.clone(),
            sasl: self.auth.user(),
            tls: self.auth.tls_beside(self.tls.as_ref()),
            connect_timeout: CONNECT,
            request_timeout: 2 * CONNECT + self.session_timeout.max(self.max_fetch_wait),
            creates_topics: false,
        }
    }

    /// The membership in the group, for these topics.
    pub(super) fn group(&self, topics: Vec<String>) -> GroupOptions {
        let assignor = |strategy: &Strategy| match strategy {
            Strategy::Range => Assignor::Range,
            Strategy::RoundRobin => Assignor::RoundRobin,
            Strategy::CooperativeSticky => Assignor::CooperativeSticky,
        };
        GroupOptions {
            group: self.group_id.clone(),
            instance: self.group_instance_id.clone().filter(|id| !id.is_empty()),
            rack: self.rack_id.clone().filter(|id| !id.is_empty()),
            topics,
            headers: self.wanted_headers().to_vec(),
            from_beginning: self.initial_offset == InitialOffset::Earliest,
            session_timeout: self.session_timeout,
            heartbeat_interval: self.heartbeat_interval,
            assignors: self.group_rebalance_strategies.iter().map(assignor).collect(),
            min_fetch_bytes: self.min_fetch_size,
            max_fetch_wait: self.max_fetch_wait,
            max_batch_bytes: self.max_batch_size.as_usize(),
        }
    }

    /// The names of the headers that become resource attributes.
    pub(super) fn wanted_headers(&self) -> &[String] {
        self.header_extraction.names()
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        self.auth.check(&self.connection(), at, cx);
        for signal in Signal::ALL {
            let of = self.of(signal);
            if of.topic.is_some() && !of.topics.is_empty() {
                cx.at(at.child(signal.name()))
                    .error("give either `topics` or `topic`");
            }
            for topic in self.topics(signal) {
                if let Err(error) = check_topic(&topic) {
                    cx.at(at).error(format!("{}: {error}", signal.name()));
                }
            }
        }
        self.check_group(at, cx);
        if !self.message_marking.after {
            cx.at(at.child("message_marking"))
                .help("set `message_marking: {after: true}`: then messages come again instead")
                .warning(
                    "offsets are committed before the pipelines have taken the messages: a crash loses them",
                );
        }
    }

    fn check_group(&self, at: &Node, cx: &mut Problems) {
        if self.group_id.is_empty() {
            cx.at(at.child("group_id")).error("must not be empty");
        }
        if self.group_rebalance_strategies.is_empty() {
            cx.at(at.child("group_rebalance_strategies"))
                .error("must not be empty");
        }
        if self.heartbeat_interval.is_zero() || self.heartbeat_interval >= self.session_timeout {
            cx.at(at.child("heartbeat_interval"))
                .error("must be greater than zero and less than `session_timeout`");
        }
        if self.autocommit.enable && self.autocommit.interval.is_zero() {
            cx.at(at.child("autocommit"))
                .error("`interval` must be greater than zero");
        }
        if self.min_fetch_size < 1 {
            cx.at(at.child("min_fetch_size")).error("must be at least 1");
        }
        if !BATCH_BYTES.contains(&self.max_batch_size.as_usize()) {
            cx.at(at.child("max_batch_size"))
                .error("must be between 64KiB and 512MiB");
        }
        self.header_extraction.check(at.child("header_extraction"), cx);
    }
}
