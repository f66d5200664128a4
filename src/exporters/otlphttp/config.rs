//! Options of the `otlphttp` exporter, as in the Collector.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::body::{Compression, CompressionParams, Encoding};
use crate::batch::Signal;
use crate::config::{Node, Problems, Secret, WithoutEffect};
use crate::delivery::http::PING;
use crate::delivery::{Delivery, NameRules, QueueConfig, RetryConfig, Speaks, TemporalityChoice};
use crate::exporters::vendor::{Chosen, VendorName};
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::url::Url;
use crate::net::via::Proxy;
use crate::net::{BUFFER_SIZES, CLIENT_MIDDLEWARES, TlsClientConfig};

crate::options! {
    /// Options of `otlphttp`.
    pub(super) struct Config {
        /// Base URL; `/v1/metrics`, `/v1/traces` and `/v1/logs` are added. Also `unix:/path`.
        pub endpoint: Option<Url> = None,
        /// URL for metrics, used as it is.
        pub metrics_endpoint: Option<Url> = None,
        /// URL for traces, used as it is.
        pub traces_endpoint: Option<Url> = None,
        /// URL for logs, used as it is.
        pub logs_endpoint: Option<Url> = None,
        /// TLS, for `https` URLs.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// How telemetry is written.
        pub encoding: Encoding = Encoding::Proto,
        /// How requests are compressed. Without: gzip, or as the vendor likes it.
        pub compression: Option<Compression> = None,
        /// How hard to compress.
        pub compression_params: CompressionParams = CompressionParams::default(),
        /// Request headers; their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Who we are, by an extension.
        pub auth: Option<AuthConfig> = None,
        /// How long one attempt may take; 0 = as long as it does.
        pub timeout: Duration = Duration::from_secs(30),
        /// Unused connections to keep.
        pub max_idle_conns: usize = 100,
        /// How long an unused connection is kept.
        pub idle_conn_timeout: Duration = Duration::from_secs(90),
        /// The proxy to go through, `http://host:port`, perhaps with `user:password@`. Unset: none, whatever the environment
        /// says.
        pub proxy_url: Option<Proxy> = None,
        /// Requests at a time, each of which may need a connection; 0: as many as `num_consumers` sends.
        pub max_conns_per_host: usize = 0,
        /// Use a connection for one request only.
        pub disable_keep_alives: bool = false,
        /// Speak HTTP/2 where TLS agrees on it.
        pub force_attempt_http2: bool = true,
        /// Between two HTTP/2 pings while requests are under way; 0: none.
        pub http2_read_idle_timeout: Duration = PING,
        /// How long the answer to such a ping may take.
        pub http2_ping_timeout: Duration = PING,
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
    accepted = OF_HTTP, BUFFER_SIZES, NO_PROFILES;
    check = Config::check
}

/// Options of the Collector's HTTP clients that can mean nothing here.
pub(in crate::exporters) const OF_HTTP: &WithoutEffect = &[
    ("cookies", "no cookies are kept from answers"),
    ("max_idle_conns_per_host", "`max_idle_conns` counts by host"),
];

const NO_PROFILES: &WithoutEffect = &[("profiles_endpoint", "tidegate carries no profiles")];

/// Below the base URL, by `Signal as usize`.
const PATHS: [&str; 3] = ["/v1/metrics", "/v1/traces", "/v1/logs"];

impl Config {
    fn own_urls(&self) -> [Option<&Url>; 3] {
        [
            self.metrics_endpoint.as_ref(),
            self.traces_endpoint.as_ref(),
            self.logs_endpoint.as_ref(),
        ]
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        self.compression_params.check_with(self.compression(), at, cx);
        self.chosen().check(at, false, cx);
        self.retry_on_failure.check_statuses(Speaks::Http, at, cx);
        if self.endpoint.is_none() && self.own_urls() == [None; 3] {
            cx.at(at)
                .help("set `endpoint`, or `metrics_endpoint`, `traces_endpoint`, `logs_endpoint`")
                .error("at least one endpoint must be specified");
        }
        let socket = self.unix_path().is_some();
        let mut own = self.own_urls().into_iter().flatten();
        if own.any(|url| socket || url.unix_path().is_some()) {
            cx.at(at)
                .error("a Unix socket belongs in `endpoint`, and no other endpoint beside it");
        }
    }

    /// The URL of a signal.
    pub(super) fn url(&self, signal: Signal) -> Option<Uri> {
        let (own, path) = (self.own_urls()[signal as usize], PATHS[signal as usize]);
        let of_vendor = self.vendor.and_then(|vendor| vendor.preset().metrics_path);
        let path = of_vendor.filter(|_| signal == Signal::Metrics).unwrap_or(path);
        let below_base = || self.endpoint.as_ref().map(|base| base.join(path));
        own.map(Url::exact).or_else(below_base)
    }

    /// The socket of all URLs, if they name one.
    pub(super) fn unix_path(&self) -> Option<PathBuf> {
        self.endpoint.as_ref().and_then(Url::unix_path)
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
