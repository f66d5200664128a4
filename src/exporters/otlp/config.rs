//! Options of the `otlp` exporter, as in the Collector.

use std::time::Duration;

use super::target::Target;
use crate::config::{Node, Problems, Secret, WithoutEffect};
use crate::delivery::{Delivery, NameRules, QueueConfig, RetryConfig, Speaks, TemporalityChoice};
use crate::exporters::vendor::{Chosen, VendorName};
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::{BUFFER_SIZES, CLIENT_MIDDLEWARES, Coding, TlsClientConfig};

crate::options! {
    /// Options of `otlp`.
    pub(in crate::exporters) struct Config {
        /// Where to send: `host:port`, `http://` (no TLS) or `https://host:port`, `unix:/path`.
        pub endpoint: Target = required,
        /// TLS; `insecure: true` for none.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// How requests are compressed. Without: gzip, or as the vendor likes it.
        pub compression: Option<Compression> = None,
        /// Request headers; their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Who we are, by an extension.
        pub auth: Option<AuthConfig> = None,
        /// Pings that find a connection dead. Without: none is sent, and two requests without an answer end it.
        pub keepalive: Option<Keepalive> = None,
        /// The name of the server in requests (`:authority`), where it is not that of the endpoint.
        pub authority: Option<String> = None,
        /// How long one attempt may take; 0 = as long as it does.
        pub timeout: Duration = Duration::from_secs(5),
        /// Whose rules to keep: sets what is not set here, as `tidegate components KIND --options` shows.
        pub vendor: Option<VendorName> = None,
        /// What the vendor knows us by; goes into its header.
        pub api_key: Option<Secret> = None,
        /// What points of sums and histograms are to cover. Without: what they do, or what the vendor takes.
        pub temporality: Option<TemporalityChoice> = None,
        /// Most buckets of a histogram, neighbours being joined beyond; 0 = any number. Without: the vendor's.
        pub max_buckets: Option<usize> = None,
        /// What names of metrics and of their attributes may look like. Without: anything, or what the vendor takes.
        pub metric_names: Option<NameRules> = None,
        /// Retries.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// The queue.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    refused = CLIENT_MIDDLEWARES;
    accepted = OF_GRPC, BUFFER_SIZES;
    check = Config::check
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
    /// Pings of a gRPC client, under grpc-go's names.
    pub(in crate::exporters) struct Keepalive {
        /// Between two pings; at least 1 s. Servers may refuse clients that ping more often than every 5 minutes.
        pub time: Duration = Duration::from_secs(10),
        /// How long the answer to a ping may take before the connection is given up.
        pub timeout: Duration = Duration::from_secs(20),
        /// Whether pings go out while no request is under way.
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
    if authority.filter(is_wrong).is_some() {
        cx.at(at.child("authority"))
            .error("expected a name such as otlp.example.com or otlp.example.com:443");
    }
}

crate::choices! {
    /// How requests are compressed.
    pub(in crate::exporters) enum Compression {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstd = "zstd",
        /// Snappy, framed.
        Snappy = "snappy",
        /// Not at all.
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

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        check_authority(self.authority.as_ref(), at, cx);
        self.chosen().check(at, true, cx);
        self.retry_on_failure.check_statuses(Speaks::Grpc, at, cx);
        let binary = self.headers.keys().find(|name| name.ends_with("-bin"));
        if let Some(name) = binary {
            cx.at(at.child("headers").child(name))
                .error("binary metadata (names that end in -bin) is not supported");
        }
    }

    /// A Unix socket needs no TLS; else the scheme decides, then `tls::insecure`.
    pub(super) fn is_secure(&self) -> bool {
        let unix = self.endpoint.unix_path().is_some();
        self.endpoint.secure.unwrap_or(!self.tls.insecure && !unix)
    }

    /// The options that a vendor's preset may set.
    pub(super) fn chosen(&self) -> Chosen<'_> {
        Chosen {
            vendor: self.vendor,
            api_key: self.api_key.as_ref(),
            temporality: self.temporality,
            max_buckets: self.max_buckets,
            metric_names: self.metric_names,
        }
    }

    pub(super) fn compression(&self) -> Compression {
        self.compression.unwrap_or(if self.chosen().prefers_zstd() {
            Compression::Zstd
        } else {
            Compression::Gzip
        })
    }

    pub(super) fn delivery(&self) -> Delivery {
        self.chosen()
            .delivery(&self.sending_queue, &self.retry_on_failure, self.timeout)
    }
}
