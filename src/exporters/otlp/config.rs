// SPDX-License-Identifier: Apache-2.0

//! Options of the `otlp` exporter, as in the Collector.

use std::time::Duration;

use super::target::Target;
use crate::config::{Node, Problems, Secret, WithoutEffect};
use crate::delivery::{NameRules, QueueConfig, RetryConfig, Speaks, TemporalityChoice};
use crate::exporters::vendor::{VendorName, check_led, vendor_methods};
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::{BUFFER_SIZES, CLIENT_MIDDLEWARES, Coding, TlsClientConfig};

crate::options! {
    /// Options of `otlp`.
    pub(in crate::exporters) struct OtlpExporterConfig {
        /// Address of the receiver: `host:port`, `http://host:port` (no TLS), `https://host:port` or
        /// `unix:/path`.
        pub endpoint: Target = required,
        /// TLS. `insecure: true` turns it off.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Compression of requests. Unset: gzip, or the vendor's preference.
        pub compression: Option<Compression> = None,
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Credentials of the gateway, from an extension.
        pub auth: Option<AuthConfig> = None,
        /// Pings that detect a dead connection. Unset: no pings; after two requests without an answer, the
        /// connection ends.
        pub keepalive: Option<Keepalive> = None,
        /// Server name in requests (`:authority`). Unset: that of the endpoint.
        pub authority: Option<String> = None,
        /// Longest duration of one attempt. The exporter retries an attempt that takes longer. 0: no limit.
        pub timeout: Duration = Duration::from_secs(5),
        /// Preset of a vendor. It sets the options that are unset here; `tidegate components KIND --options`
        /// lists its values.
        pub vendor: Option<VendorName> = None,
        /// API key for the vendor. The exporter sends it in the header that the vendor expects.
        pub api_key: Option<Secret> = None,
        /// Temporality of sums and histograms in requests. Unset: as received, or as the vendor requires.
        pub temporality: Option<TemporalityChoice> = None,
        /// Most buckets of a histogram. The exporter joins neighbouring buckets of a larger one. 0: no limit.
        /// Unset: the vendor's limit, or none.
        pub max_buckets: Option<usize> = None,
        /// Rules for the names of metrics and of their attributes. Unset: any name, or the vendor's rules.
        pub metric_names: Option<NameRules> = None,
        /// Id of a `cluster` extension. The exporter drops and counts metrics while this replica does not lead the
        /// cluster. Each replica exports its traces and logs. Unset: every replica exports all data.
        pub only_leader: Option<String> = None,
        /// Retries of failed requests.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// Queue of batches that wait for delivery.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    refused = CLIENT_MIDDLEWARES;
    accepted = OF_GRPC, BUFFER_SIZES;
    check = OtlpExporterConfig::check
}

/// Options of the Collector's gRPC client that can mean nothing here.
pub(in crate::exporters) const OF_GRPC: &WithoutEffect = &[
    (
        "wait_for_ready",
        "requests wait for the connection, and are sent again where it fails",
    ),
    (
        "balancer_name",
        "there is one connection; `loadbalancing` uses all addresses of a name",
    ),
];

crate::options! {
    /// Pings of a gRPC client, with the names of grpc-go.
    pub(in crate::exporters) struct Keepalive {
        /// Interval of pings, at least 1 s. Servers may refuse clients that ping more often than every 5 minutes.
        pub time: Duration = Duration::from_secs(10),
        /// Longest wait for the answer to a ping. Then the connection ends.
        pub timeout: Duration = Duration::from_secs(20),
        /// Whether the exporter pings while no request is in flight.
        pub permit_without_stream: bool = false,
    }
    check = Keepalive::check
}

/// As grpc-go has an interval of at least 10 s; shorter ones are of use in a cluster of one's own.
const MIN_PING_INTERVAL: Duration = Duration::from_secs(1);

impl Keepalive {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.time < MIN_PING_INTERVAL {
            cx.at(at.child("time")).error("must be at least 1s");
        }
        if self.timeout.is_zero() {
            cx.at(at.child("timeout")).error("must be greater than zero");
        }
    }
}

/// Reports a name that no request may carry as its authority.
pub(in crate::exporters) fn check_authority(authority: Option<&String>, at: &Node, cx: &mut Problems) {
    let is_wrong = |authority: &&String| authority.parse::<http::uri::Authority>().is_err();
    if authority.as_ref().is_some_and(is_wrong) {
        cx.at(at.child("authority"))
            .error("expected a name such as otlp.example.com or otlp.example.com:443");
    }
}

crate::choices! {
    /// The compression of requests.
    pub(in crate::exporters) enum Compression {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstd = "zstd",
        /// Snappy, framed.
        Snappy = "snappy",
        /// No compression.
        None = "none" | "",
    }
}

impl Compression {
    pub(super) fn coding(self) -> Option<Coding> {
        match self {
            Self::Gzip => Some(Coding::Gzip),
            Self::Zstd => Some(Coding::Zstd),
            Self::Snappy => Some(Coding::SnappyFramed),
            Self::None => None,
        }
    }

    /// The value of `grpc-encoding`.
    pub(super) fn header(self) -> Option<&'static str> {
        match self {
            // gRPC gives the framed format the short name.
            Self::Snappy => Some("snappy"),
            other => other.coding().and_then(Coding::header),
        }
    }
}

impl OtlpExporterConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        check_authority(self.authority.as_ref(), at, cx);
        self.chosen().check(at, true, cx);
        let (leader, temporality) = (self.only_leader.as_ref(), self.chosen().temporality());
        check_led(leader, temporality, Some(&self.sending_queue), at, cx);
        self.retry_on_failure.check_statuses(Speaks::Grpc, at, cx);
        let mut named = self.headers.iter().enumerate();
        let binary = named.find(|(_, (name, _))| name.ends_with("-bin"));
        if let Some((index, (name, _))) = binary {
            cx.at(headers::node(at.child("headers"), index, name))
                .error("binary metadata (names that end in -bin) is not supported");
        }
    }

    /// A Unix socket needs no TLS; else the scheme decides, then `tls::insecure`.
    pub(super) fn is_secure(&self) -> bool {
        let unix = self.endpoint.unix_path().is_some();
        self.endpoint.secure.unwrap_or(!self.tls.insecure && !unix)
    }
}

vendor_methods!(OtlpExporterConfig, Compression);
