//! Options of the `loadbalancing` exporter, as in the Collector.

use std::time::Duration;

use crate::batch::Signal;
use crate::config::{Node, Problems};
use crate::delivery::{QueueConfig, RetryConfig};
use crate::exporters::otlp;
use crate::net::TlsClientConfig;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};

crate::choices! {
    /// What stays together.
    pub(super) enum RoutingKey {
        /// Spans and log records of a trace.
        Trace = "traceID",
        /// Everything of a `service.name`.
        Service = "service",
        /// Everything of a resource.
        Resource = "resource",
        /// All series of a metric.
        Metric = "metric",
        /// Every series by itself.
        Series = "streamID" | "series",
    }
}

crate::options! {
    /// Options of `loadbalancing`.
    pub(super) struct Config {
        /// How endpoints are spoken to.
        pub protocol: Protocol = Protocol::default(),
        /// What endpoints there are.
        pub resolver: Resolver = required,
        /// What stays together, on one endpoint. Without: traces and logs by `traceID`, metrics by `service`.
        pub routing_key: Option<RoutingKey> = None,
    }
    check = Config::check
}

crate::options! {
    /// `protocol`.
    pub(super) struct Protocol {
        /// OTLP over gRPC.
        pub otlp: Peer = Peer::default(),
    }
}

crate::options! {
    /// Options of the `otlp` exporter, all but the endpoint; each endpoint has a queue and retries of its own.
    pub(super) struct Peer {
        /// TLS; `insecure: true` for none.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// How requests are compressed.
        pub compression: otlp::Compression = otlp::Compression::Gzip,
        /// Request headers; their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Who we are, by an extension.
        pub auth: Option<AuthConfig> = None,
        /// How long one attempt may take; 0 = as long as it does.
        pub timeout: Duration = Duration::from_secs(5),
        /// Retries, of one endpoint.
        pub retry_on_failure: RetryConfig = RetryConfig::default(),
        /// The queue, of one endpoint.
        pub sending_queue: QueueConfig = QueueConfig::default(),
    }
    check = Peer::check
}

crate::options! {
    /// `resolver`: one of them.
    pub(super) struct Resolver {
        /// A list.
        pub r#static: Option<Static> = None,
        /// The addresses of a name.
        pub dns: Option<Dns> = None,
    }
    check = Resolver::check
}

crate::options! {
    /// `static`.
    pub(super) struct Static {
        /// `host` or `host:port`.
        pub hostnames: Vec<String> = required,
    }
    check = Static::check
}

crate::options! {
    /// `dns`.
    pub(super) struct Dns {
        /// The name; a headless service has an address for each of its pods.
        pub hostname: String = required,
        /// The port of all addresses.
        pub port: u16 = DEFAULT_PORT,
        /// How often it is looked up.
        pub interval: Duration = Duration::from_secs(5),
        /// How long that may take.
        pub timeout: Duration = Duration::from_secs(1),
    }
    check = Dns::check
}

/// OTLP over gRPC.
const DEFAULT_PORT: u16 = 4317;

impl Config {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.protocol.otlp.sending_queue.storage.is_some() && self.resolver.dns.is_some() {
            cx.at(at.child("protocol"))
                .help("addresses come and go, and with them whose data it is; use `resolver: static`")
                .error("`sending_queue::storage` can't be combined with `resolver: dns`");
        }
    }

    /// What of a signal stays together.
    pub(super) fn key(&self, signal: Signal) -> RoutingKey {
        self.routing_key.unwrap_or(match signal {
            Signal::Metrics => RoutingKey::Service,
            Signal::Traces | Signal::Logs => RoutingKey::Trace,
        })
    }
}

impl Peer {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
    }

    /// The options of the exporter for one endpoint.
    pub(super) fn at(&self, endpoint: otlp::Target) -> otlp::Config {
        otlp::Config {
            endpoint,
            tls: self.tls.clone(),
            compression: Some(self.compression),
            headers: self.headers.clone(),
            auth: self.auth.clone(),
            timeout: self.timeout,
            retry_on_failure: self.retry_on_failure.clone(),
            sending_queue: self.sending_queue.clone(),
            vendor: None,
            api_key: None,
            temporality: None,
            max_buckets: None,
            metric_names: None,
        }
    }
}

impl Resolver {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.r#static.is_some() == self.dns.is_some() {
            cx.at(at).error("one of `static` and `dns` must be given");
        }
    }
}

impl Static {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let at = at.child("hostnames");
        if self.hostnames.is_empty() {
            cx.at(at).error("must not be empty");
        }
        for hostname in self.endpoints() {
            if let Err(error) = hostname.parse::<otlp::Target>() {
                cx.at(at).error(format!("`{hostname}`: {error}"));
            }
        }
    }

    /// With the port where none is given, in order and once.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let mut endpoints: Vec<_> = self.hostnames.iter().map(|host| with_port(host)).collect();
        endpoints.sort_unstable();
        endpoints.dedup();
        endpoints
    }
}

impl Dns {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if self.hostname.is_empty() {
            cx.at(at.child("hostname")).error("must not be empty");
        }
        if self.interval.is_zero() {
            cx.at(at.child("interval")).error("must be greater than zero");
        }
    }
}

fn with_port(host: &str) -> String {
    let behind_address = host.rsplit(']').next().unwrap_or(host);
    match behind_address.contains(':') || host.starts_with("unix:") {
        true => host.to_owned(),
        false => format!("{host}:{DEFAULT_PORT}"),
    }
}
