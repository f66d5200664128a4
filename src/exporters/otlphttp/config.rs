//! Options of the `otlphttp` exporter, as in the Collector.

use std::path::PathBuf;
use std::time::Duration;

use http::Uri;

use super::body::{Compression, Encoding};
use crate::batch::Signal;
use crate::config::{Node, Problems, Secret};
use crate::delivery::{Delivery, NameRules, QueueConfig, RetryConfig, Speaks, TemporalityChoice};
use crate::exporters::vendor::{Chosen, VendorName};
use crate::net::TlsClientConfig;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::url::Url;

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
    check = Config::check
}

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

    /// Where a signal goes.
    pub(super) fn url(&self, signal: Signal) -> Option<Uri> {
        let (own, path) = (self.own_urls()[signal as usize], PATHS[signal as usize]);
        let of_vendor = self.vendor.and_then(|vendor| vendor.preset().metrics_path);
        let path = of_vendor.filter(|_| signal == Signal::Metrics).unwrap_or(path);
        let below_base = || self.endpoint.as_ref().map(|base| base.join(path));
        own.map(Url::exact).or_else(below_base)
    }

    /// The socket that every URL stands for, if it is one.
    pub(super) fn unix_path(&self) -> Option<PathBuf> {
        self.endpoint.as_ref().and_then(Url::unix_path)
    }

    /// What a vendor's preset may set.
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
        self.compression.unwrap_or(match self.chosen().prefers_zstd() {
            true => Compression::Zstd,
            false => Compression::Gzip,
        })
    }

    pub(super) fn delivery(&self) -> Delivery {
        self.chosen()
            .delivery(&self.sending_queue, &self.retry_on_failure, self.timeout)
    }
}
