//! Options of the `otlp` exporter, as in the Collector.

use std::time::Duration;

use tonic::client::Grpc;
use tonic::codec::CompressionEncoding;

use super::target::Target;
use crate::config::{Node, Problems};
use crate::delivery::{Delivery, QueueConfig, RetryConfig, TemporalityChoice};
use crate::net::TlsClientConfig;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};

crate::options! {
    /// Options of `otlp`.
    pub(super) struct Config {
        /// Where to send: `host:port`, `http://` (no TLS) or `https://host:port`, `unix:/path`.
        pub endpoint: Target = required,
        /// TLS; `insecure: true` for none.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// How requests are compressed.
        pub compression: Compression = Compression::Gzip,
        /// Request headers; their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Who we are, by an extension.
        pub auth: Option<AuthConfig> = None,
        /// How long one attempt may take; 0 = as long as it does.
        pub timeout: Duration = Duration::from_secs(5),
        /// What points of sums and histograms are to cover.
        pub temporality: TemporalityChoice = TemporalityChoice::Preserve,
        /// Retries.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// The queue.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    check = Config::check
}

crate::choices! {
    /// How requests are compressed.
    pub(super) enum Compression {
        /// RFC 1952.
        Gzip = "gzip",
        /// RFC 8878.
        Zstd = "zstd",
        /// Not at all.
        None = "none" | "",
    }
}

impl Compression {
    pub(super) fn apply<T>(self, grpc: Grpc<T>) -> Grpc<T> {
        let encoding = match self {
            Self::Gzip => CompressionEncoding::Gzip,
            Self::Zstd => CompressionEncoding::Zstd,
            Self::None => return grpc,
        };
        grpc.send_compressed(encoding).accept_compressed(encoding)
    }
}

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
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

    pub(super) fn delivery(&self) -> Delivery {
        Delivery {
            queue: self.sending_queue.clone(),
            retry: self.retry_on_failure.clone(),
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            temporality: self.temporality,
        }
    }
}
