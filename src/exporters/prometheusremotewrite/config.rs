// SPDX-License-Identifier: Apache-2.0

//! Options of the `prometheusremotewrite` exporter, in the Collector's names.

use std::num::NonZeroUsize;
use std::time::Duration;

use tidegate_engine::Pattern;

use crate::config::{ByteSize, Node, Ordered, Problems, WithoutEffect};
use crate::delivery::http::PING;
use crate::delivery::{
    Delivery, QueueConfig, RetryConfig, Shape, Speaks, StorageMode, TemporalityChoice, Together,
};
use crate::exporters::vendor::check_led;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::url::Url;
use crate::net::via::Proxy;
use crate::net::{BUFFER_SIZES, CLIENT_MIDDLEWARES, TlsClientConfig};
use crate::prom::remote::Version;
use crate::prom::remote::translate::Settings;
use crate::prom::{Escaping, LabelSources, Naming, ResourceLabels, Strategy};

crate::choices! {
    /// The protobuf message of requests.
    pub(super) enum ProtobufMessage {
        /// Remote write 1.0.
        One = "prometheus.WriteRequest",
        /// Remote write 2.0.
        Two = "io.prometheus.write.v2.Request",
        /// 2.0 until the receiver proves not to support it, then 1.0.
        Auto = "auto",
    }
}

crate::options! {
    /// Options of `prometheusremotewrite`.
    pub(super) struct RemoteWriteExporterConfig {
        /// Complete URL, for example `https://mimir.example.com/api/v1/push`. `unix:/path` is allowed.
        pub endpoint: Url = required,
        /// TLS of an `https` URL.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Credentials of the gateway, from an extension.
        pub auth: Option<AuthConfig> = None,
        /// Longest duration of one request. The exporter retries a request that takes longer. 0: no limit.
        pub timeout: Duration = Duration::from_secs(5),
        /// Most unused connections that stay open, for each host.
        pub max_idle_conns: usize = 100,
        /// Longest time that an unused connection stays open.
        pub idle_conn_timeout: Duration = Duration::from_secs(90),
        /// HTTP proxy: `http://host:port`, optionally with `user:password@`. Unset: no proxy, and environment
        /// variables don't count.
        pub proxy_url: Option<Proxy> = None,
        /// Most concurrent requests, each of which may need a connection. 0: no limit besides `num_consumers`.
        pub max_conns_per_host: usize = 0,
        /// Whether each request uses a connection of its own.
        pub disable_keep_alives: bool = false,
        /// Whether TLS may negotiate HTTP/2.
        pub force_attempt_http2: bool = true,
        /// Interval of HTTP/2 pings while a request is in flight. 0: no pings.
        pub http2_read_idle_timeout: Duration = PING,
        /// Longest wait for the answer to an HTTP/2 ping. Then the connection ends.
        pub http2_ping_timeout: Duration = PING,
        /// Protobuf message of requests.
        pub protobuf_message: ProtobufMessage = ProtobufMessage::One,
        /// Prefix of every metric name.
        pub namespace: String = String::new(),
        /// Labels for every series. A series keeps its own label of the same name.
        pub external_labels: Ordered<String> = Ordered::default(),
        /// Translation of names. Unset: `UnderscoreEscapingWithSuffixes`.
        pub translation_strategy: Option<Strategy> = None,
        /// Old form of `translation_strategy`: `true` is `UnderscoreEscapingWithSuffixes`, `false` is
        /// `UnderscoreEscapingWithoutSuffixes`.
        pub add_metric_suffixes: Option<bool> = None,
        /// Resource attributes as labels.
        pub resource_to_telemetry_conversion: ResourceConversion = ResourceConversion::default(),
        /// The series `target_info`.
        pub target_info: TargetInfo = TargetInfo::default(),
        /// Whether the labels `otel_scope_*` are omitted.
        pub disable_scope_info: bool = false,
        /// Whether series have the label `otel_scope_schema_url`. The Collector has no such label.
        pub scope_schema_url: bool = true,
        /// Whether requests of 1.0 contain type, help and unit of every metric. Requests of 2.0 always do.
        pub send_metadata: bool = false,
        /// Whether histograms are sent as native histograms with custom buckets. It needs 2.0.
        pub convert_histograms_to_nhcb: bool = false,
        /// Temporality of sums and histograms. Prometheus supports only cumulative ones: with `preserve`, deltas
        /// are dropped.
        pub temporality: TemporalityChoice = TemporalityChoice::Cumulative,
        /// Largest request before compression, in bytes. The exporter splits larger ones.
        pub max_batch_size_bytes: ByteSize = ByteSize(3_000_000),
        /// Most concurrent requests, 256 at most. Requests with the same series are never concurrent. Unset: the
        /// queue's `num_consumers`.
        pub max_batch_request_parallelism: Option<NonZeroUsize> = None,
        /// Id of a `cluster` extension. The exporter drops and counts metrics while this replica does not lead the
        /// cluster. Unset: every replica exports.
        pub only_leader: Option<String> = None,
        /// Retries of failed requests.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// Queue of batches that wait for delivery. Unset: `num_consumers: 5`.
        pub sending_queue: Option<QueueConfig> = None,
        /// Old form of `sending_queue`.
        pub remote_write_queue: Option<RemoteWriteQueue> = None,
    }
    refused = CLIENT_MIDDLEWARES;
    accepted = OF_HTTP, BUFFER_SIZES;
    check = RemoteWriteExporterConfig::check
}

crate::options! {
    /// All resource attributes as labels.
    pub(super) struct ResourceConversion {
        /// Whether every resource attribute becomes a label of every series.
        pub enabled: bool = false,
        /// Whether `service.name`, `service.namespace` and `service.instance.id` are omitted. They are also the
        /// labels `job` and `instance`.
        pub exclude_service_attributes: bool = false,
    }
}

crate::options! {
    /// `target_info`.
    pub(super) struct TargetInfo {
        /// Whether the exporter sends one series with the attributes of each resource.
        pub enabled: bool = true,
    }
}

crate::options! {
    /// The queue as in contrib's exporter.
    pub(super) struct RemoteWriteQueue {
        /// Whether batches may wait for the one in flight.
        pub enabled: bool = true,
        /// Most batches in the queue.
        pub queue_size: NonZeroUsize = NonZeroUsize::MIN.saturating_add(9_999),
        /// Most concurrent requests.
        pub num_consumers: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4),
    }
}

/// Options of the Collector's HTTP clients that can mean nothing here.
const OF_HTTP: &WithoutEffect = &[
    ("cookies", "no cookies are kept from answers"),
    ("max_idle_conns_per_host", "`max_idle_conns` counts by host"),
];

/// Points that go together when several batches are ready: a few requests for every shard.
const TOGETHER: Together = Together {
    items: 20_000,
    bytes: 8 << 20,
};

/// The most shards. More concurrent requests have no benefit.
const MAX_SHARDS: usize = 256;

/// The attributes that make `job` and `instance`.
const SERVICE: [&str; 3] = ["service.name", "service.namespace", "service.instance.id"];

/// Headers that the protocol sets.
const RESERVED: [&str; 4] = [
    "content-encoding",
    "content-type",
    "x-prometheus-remote-write-version",
    "user-agent",
];

impl RemoteWriteExporterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.retry_on_failure.check_statuses(Speaks::Http, at, cx);
        headers::check(&self.headers, at.child("headers"), cx);
        for (index, (name, _)) in self.headers.iter().enumerate() {
            if RESERVED
                .iter()
                .any(|reserved| name.eq_ignore_ascii_case(reserved))
            {
                cx.at(headers::node(at.child("headers"), index, name))
                    .error("the protocol sets this header itself");
            }
        }
        for (name, value) in self.external_labels.iter() {
            let label = at.child("external_labels").child(name);
            if name == "__name__" || !crate::prom::escaping::is_legacy_label_name(name) {
                cx.at(label).error(format!("{name:?} is not a label name"));
            } else if value.is_empty() {
                cx.at(label).error("a label must have a value");
            }
        }
        if let (Some(strategy), Some(suffixes)) = (self.translation_strategy, self.add_metric_suffixes)
            && strategy.adds_suffixes() != suffixes
        {
            cx.at(at.child("add_metric_suffixes"))
                .error("contradicts `translation_strategy`");
        }
        if self.convert_histograms_to_nhcb && self.protobuf_message != ProtobufMessage::Two {
            cx.at(at.child("convert_histograms_to_nhcb"))
                .help("set `protobuf_message: io.prometheus.write.v2.Request`")
                .error("remote write 1.0 has no custom buckets");
        }
        if self.max_batch_size_bytes.as_usize() == 0 {
            cx.at(at.child("max_batch_size_bytes"))
                .error("must be greater than 0");
        }
        let (leader, queue) = (self.only_leader.as_ref(), self.sending_queue.as_ref());
        check_led(leader, self.temporality, queue, at, cx);
        self.check_queue(at, cx);
    }

    fn check_queue(&self, at: &Node, cx: &mut Problems) {
        let Some(queue) = &self.sending_queue else { return };
        if self.remote_write_queue.is_some() {
            cx.at(at.child("remote_write_queue"))
                .error("can't be combined with `sending_queue`");
        }
        if queue.storage.is_some() && queue.storage_mode == StorageMode::Spill {
            cx.at(at.child("sending_queue").child("storage_mode"))
                .help("leave it at `always`")
                .error("`spill` does not keep the order of samples across a restart");
        }
    }

    fn strategy(&self) -> Strategy {
        self.translation_strategy
            .unwrap_or(match self.add_metric_suffixes {
                Some(false) => Strategy::Underscores,
                _ => Strategy::UnderscoresAndSuffixes,
            })
    }

    /// The settings of the translation.
    pub(super) fn settings(&self) -> Settings {
        let conversion = &self.resource_to_telemetry_conversion;
        let glob = |text: &str| Pattern::Glob(text.into());
        let resource = match (conversion.enabled, conversion.exclude_service_attributes) {
            (false, _) => ResourceLabels::default(),
            (true, excludes) => ResourceLabels {
                included: vec![glob("*")],
                excluded: if excludes {
                    SERVICE.map(glob).into()
                } else {
                    Vec::new()
                },
            },
        };
        Settings {
            naming: Naming {
                namespace: self.namespace.clone(),
                strategy: self.strategy(),
                // The strategy already decides about characters, so the escaping keeps the rest.
                escaping: Escaping::AllowUtf8,
            },
            sources: LabelSources {
                constant: Vec::new(),
                resource,
                without_scope: self.disable_scope_info,
                without_schema_url: !self.scope_schema_url,
            },
            external: self
                .external_labels
                .iter()
                .map(|(name, value)| (name.to_owned(), value.clone()))
                .collect(),
            target_info: self.target_info.enabled,
            custom_buckets: self.convert_histograms_to_nhcb,
        }
    }

    /// The message to begin with, and whether the other one may be tried.
    pub(super) fn version(&self) -> (Version, bool) {
        match self.protobuf_message {
            ProtobufMessage::One => (Version::One, false),
            ProtobufMessage::Two => (Version::Two, false),
            ProtobufMessage::Auto => (Version::Two, true),
        }
    }

    fn queue(&self) -> QueueConfig {
        if let Some(queue) = &self.sending_queue {
            return queue.clone();
        }
        let old = self.remote_write_queue.clone();
        let consumers = old.as_ref().map(|old| old.num_consumers);
        let own = QueueConfig::default();
        QueueConfig {
            enabled: old.as_ref().is_none_or(|old| old.enabled),
            queue_size: old.as_ref().map_or(own.queue_size, |old| old.queue_size),
            num_consumers: consumers.unwrap_or(RemoteWriteQueue::default().num_consumers),
            ..own
        }
    }

    /// Requests at a time.
    pub(super) fn shards(&self) -> usize {
        let shards = self
            .max_batch_request_parallelism
            .unwrap_or(self.queue().num_consumers);
        shards.get().min(MAX_SHARDS)
    }

    /// Whether a request that is refused is searched for what is wrong.
    pub(super) fn isolates(&self) -> bool {
        self.queue().isolate_refused
    }

    pub(super) fn delivery(&self) -> Delivery {
        Delivery {
            queue: self.queue(),
            retry: self.retry_on_failure.clone(),
            // Each request of an attempt has its own time.
            timeout: None,
            temporality: self.temporality,
            refuses_falling: true,
            shape: Shape::NONE,
            in_order: true,
            together: Some(TOGETHER),
        }
    }
}
