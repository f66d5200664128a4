//! Options of the `otlp` exporter, as in the Collector.

use std::time::Duration;

use super::target::Target;
use crate::config::{Node, Problems, Secret};
use crate::delivery::{Delivery, NameRules, QueueConfig, RetryConfig, TemporalityChoice};
use crate::exporters::vendor::{Chosen, VendorName};
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::{Coding, TlsClientConfig};

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
    check = Config::check
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
        self.chosen().check(at, true, cx);
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
