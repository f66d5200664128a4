// SPDX-License-Identifier: Apache-2.0

//! Options of the `otlphttp` exporter, as in the Collector.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::body::{Compression, CompressionParams, Encoding};
use crate::batch::Signal;
use crate::config::{Node, Problems, Secret, WithoutEffect};
use crate::delivery::http::PING;
use crate::delivery::{NameRules, QueueConfig, RetryConfig, Speaks, TemporalityChoice};
use crate::exporters::vendor::{VendorName, check_led, vendor_methods};
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::url::Url;
use crate::net::via::Proxy;
use crate::net::{BUFFER_SIZES, CLIENT_MIDDLEWARES, TlsClientConfig};

crate::options! {
    /// Options of `otlphttp`.
    pub(super) struct OtlpHttpExporterConfig {
        /// Base URL. The exporter appends `/v1/metrics`, `/v1/traces` or `/v1/logs`. `unix:/path` is allowed.
        pub endpoint: Option<Url> = None,
        /// Complete URL for metrics.
        pub metrics_endpoint: Option<Url> = None,
        /// Complete URL for traces.
        pub traces_endpoint: Option<Url> = None,
        /// Complete URL for logs.
        pub logs_endpoint: Option<Url> = None,
        /// TLS of `https` URLs.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Encoding of requests.
        pub encoding: Encoding = Encoding::Proto,
        /// Compression of requests. Unset: gzip, or the vendor's preference.
        pub compression: Option<Compression> = None,
        /// Compression level.
        pub compression_params: CompressionParams = CompressionParams::default(),
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Credentials of the gateway, from an extension.
        pub auth: Option<AuthConfig> = None,
        /// Longest duration of one attempt. The exporter retries an attempt that takes longer. 0: no limit.
        pub timeout: Duration = Duration::from_secs(30),
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
    accepted = OF_HTTP, BUFFER_SIZES, NO_PROFILES;
    check = OtlpHttpExporterConfig::check
}

/// Options of the Collector's HTTP clients that can mean nothing here.
pub(in crate::exporters) const OF_HTTP: &WithoutEffect = &[
    ("cookies", "no cookies are kept from answers"),
    ("max_idle_conns_per_host", "`max_idle_conns` counts by host"),
];

const NO_PROFILES: &WithoutEffect = &[("profiles_endpoint", "tidegate carries no profiles")];

/// Below the base URL, by `Signal as usize`.
const PATHS: [&str; 3] = ["/v1/metrics", "/v1/traces", "/v1/logs"];

impl OtlpHttpExporterConfig {
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
        let (leader, temporality) = (self.only_leader.as_ref(), self.chosen().temporality());
        check_led(leader, temporality, Some(&self.sending_queue), at, cx);
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
}

vendor_methods!(OtlpHttpExporterConfig, Compression);
