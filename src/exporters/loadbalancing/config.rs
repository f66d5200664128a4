// SPDX-License-Identifier: Apache-2.0

//! Options of the `loadbalancing` exporter, as in the Collector.

use std::path::PathBuf;
use std::time::Duration;

use crate::batch::Signal;
use crate::config::{Decode, Node, Problems, TypeHelp, WithoutEffect, YamlType, wrong_type};
use crate::delivery::{QueueConfig, RetryConfig, Speaks};
use crate::exporters::otlp;
use crate::net::auth::AuthConfig;
use crate::net::headers::{self, Headers};
use crate::net::{BUFFER_SIZES, CLIENT_MIDDLEWARES, TlsClientConfig};

crate::choices! {
    /// The property that keeps items together.
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
    pub(super) struct LoadBalancingConfig {
        /// Protocol of all endpoints.
        pub protocol: ProtocolConfig = ProtocolConfig::default(),
        /// Source of the list of endpoints.
        pub resolver: Resolver = required,
        /// Property of the items that stay together on one endpoint. Unset: `traceID` for traces and logs,
        /// `service` for metrics.
        pub routing_key: Option<RoutingKey> = None,
        /// Longest duration of one attempt, unless `protocol::otlp` sets it. 0: no limit.
        pub timeout: Option<Duration> = None,
        /// Retries for each endpoint, unless `protocol::otlp` sets them.
        pub retry_on_failure: Option<RetryConfig> = None,
        /// Queue of each endpoint, unless `protocol::otlp` sets it.
        pub sending_queue: Option<QueueConfig> = None,
    }
    check = LoadBalancingConfig::check
}

crate::options! {
    /// `protocol`.
    pub(super) struct ProtocolConfig {
        /// OTLP over gRPC.
        pub otlp: Peer = Peer::default(),
    }
}

crate::options! {
    /// Options of the `otlp` exporter without the endpoint. Each endpoint has its own queue and retries.
    pub(super) struct Peer {
        /// TLS. `insecure: true` turns it off.
        pub tls: TlsClientConfig = TlsClientConfig::default(),
        /// Compression of requests.
        pub compression: otlp::Compression = otlp::Compression::Gzip,
        /// Additional request headers. Their values are secrets.
        pub headers: Headers = Headers::new(),
        /// Credentials of the gateway, from an extension.
        pub auth: Option<AuthConfig> = None,
        /// Pings that detect a dead connection, as in the `otlp` exporter.
        pub keepalive: Option<otlp::Keepalive> = None,
        /// Server name in requests (`:authority`).
        pub authority: Option<String> = None,
        /// Longest duration of one attempt. 0: no limit. Unset: 5s.
        pub timeout: Option<Duration> = None,
        /// Retries, for each endpoint.
        pub retry_on_failure: Option<RetryConfig> = None,
        /// Queue, for each endpoint.
        pub sending_queue: Option<QueueConfig> = None,
    }
    refused = CLIENT_MIDDLEWARES;
    accepted = otlp::OF_GRPC, BUFFER_SIZES, OF_EXPORTER;
    check = Peer::check
}

const OF_EXPORTER: &WithoutEffect = &[("endpoint", "endpoints come from `resolver`")];

/// Resolvers of the Collector that are not supported.
const OTHER_RESOLVERS: &[(&str, &str)] = &[("aws_cloud_map", "use `dns`")];

crate::options! {
    /// `resolver`: exactly one of these.
    pub(super) struct Resolver {
        /// Fixed list of endpoints.
        pub r#static: Option<Static> = None,
        /// Addresses of a DNS name.
        pub dns: Option<Dns> = None,
        /// Ready endpoints of a service of Kubernetes.
        pub k8s: Option<K8s> = None,
    }
    refused = OTHER_RESOLVERS;
    check = Resolver::check
}

crate::options! {
    /// `static`.
    pub(super) struct Static {
        /// Endpoints: `host` or `host:port`.
        pub hostnames: Vec<String> = required,
    }
    check = Static::check
}

crate::options! {
    /// `dns`.
    pub(super) struct Dns {
        /// DNS name. A headless service of Kubernetes has one address for each pod.
        pub hostname: String = required,
        /// Port of all addresses.
        pub port: Port = Port(DEFAULT_PORT),
        /// Interval of lookups.
        pub interval: Duration = Duration::from_secs(5),
        /// Longest duration of one lookup. After a failure the previous addresses remain.
        pub timeout: Duration = Duration::from_secs(1),
    }
    check = Dns::check
}

crate::options! {
    /// `k8s`.
    pub(super) struct K8s {
        /// Service and namespace: `name.namespace`. Without a namespace: that of this pod, or else `default`.
        pub service: String = required,
        /// Ports of each address. Each port is an endpoint of its own.
        pub ports: Vec<Port> = vec![Port(DEFAULT_PORT)],
        /// Longest time for which the start waits for the endpoints. After it, they are used as soon as they are known.
        pub timeout: Duration = Duration::from_secs(1),
        /// Whether the endpoints are host names instead of addresses. It needs a headless service of a StatefulSet.
        pub return_hostnames: bool = false,
        /// File with the address and the credentials of the API server. Unset: those of this pod.
        pub kubeconfig_file: Option<PathBuf> = None,
    }
    check = K8s::check
}

/// OTLP over gRPC.
const DEFAULT_PORT: u16 = 4317;

/// A port, as a number or, as in the Collector, as a string.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Port(pub(super) u16);

impl Decode for Port {
    fn decode(node: &Node, cx: &mut Problems) -> Option<Self> {
        match node.as_text().and_then(|text| text.parse().ok()) {
            Some(port) => Some(Self(port)),
            None => wrong_type(node, cx),
        }
    }

    fn type_help() -> TypeHelp {
        TypeHelp::like("port", "4317").accepting(YamlType::Text)
    }

    fn show(&self) -> String {
        self.0.to_string()
    }
}

impl LoadBalancingConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Some(retry) = &self.retry_on_failure {
            retry.check_statuses(Speaks::Grpc, at, cx);
        }
        let queue = self.protocol.otlp.sending_queue.as_ref();
        let has_storage = queue
            .or(self.sending_queue.as_ref())
            .is_some_and(|queue| queue.storage.is_some());
        if let Some(resolver) = self.resolver.changing().filter(|_| has_storage) {
            cx.at(at.child("protocol"))
                .help("stored data belongs to one address, and addresses change; use `resolver: static`")
                .error(format!(
                    "`sending_queue::storage` can't be combined with `resolver: {resolver}`"
                ));
        }
    }

    /// The property that keeps the items of a signal together.
    pub(super) fn key(&self, signal: Signal) -> RoutingKey {
        self.routing_key.unwrap_or(match signal {
            Signal::Metrics => RoutingKey::Service,
            Signal::Traces | Signal::Logs => RoutingKey::Trace,
        })
    }
}

impl LoadBalancingConfig {
    /// The options of the exporter for one endpoint.
    pub(super) fn at(&self, endpoint: otlp::Target) -> otlp::OtlpExporterConfig {
        let peer = &self.protocol.otlp;
        let queue = peer.sending_queue.as_ref().or(self.sending_queue.as_ref());
        let retry = peer.retry_on_failure.as_ref().or(self.retry_on_failure.as_ref());
        otlp::OtlpExporterConfig {
            endpoint,
            tls: peer.tls.clone(),
            compression: Some(peer.compression),
            headers: peer.headers.clone(),
            auth: peer.auth.clone(),
            keepalive: peer.keepalive.clone(),
            authority: peer.authority.clone(),
            timeout: peer.timeout.or(self.timeout).unwrap_or(TIMEOUT),
            retry_on_failure: retry.cloned().unwrap_or_default(),
            sending_queue: queue.cloned().unwrap_or_default(),
            vendor: None,
            api_key: None,
            temporality: None,
            max_buckets: None,
            metric_names: None,
            only_leader: None,
        }
    }
}

impl Peer {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.headers, at.child("headers"), cx);
        otlp::check_authority(self.authority.as_ref(), at, cx);
        if let Some(retry) = &self.retry_on_failure {
            retry.check_statuses(Speaks::Grpc, at, cx);
        }
    }
}

/// The default time limit of one attempt.
const TIMEOUT: Duration = Duration::from_secs(5);

impl Resolver {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let given = [self.r#static.is_some(), self.dns.is_some(), self.k8s.is_some()];
        if given.into_iter().filter(|given| *given).count() != 1 {
            cx.at(at).error("one of `static`, `dns` and `k8s` must be given");
        }
    }

    /// The resolver whose endpoints change.
    pub(super) fn changing(&self) -> Option<&'static str> {
        let dns = self.dns.as_ref().map(|_| "dns");
        dns.or(self.k8s.as_ref().map(|_| "k8s"))
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

    /// The distinct endpoints in order, with default ports.
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

impl K8s {
    fn check(&self, at: &Node, cx: &mut Problems) {
        let (name, namespace) = self.names();
        if !is_label(name) || namespace.is_some_and(|namespace| !is_label(namespace)) {
            cx.at(at.child("service"))
                .help("name a service and its namespace, such as `gateways.monitoring`, without a domain behind them")
                .error(format!("`{}` is not a service", self.service));
        }
        if self.ports.is_empty() {
            cx.at(at.child("ports")).error("must not be empty");
        }
    }

    /// The service, and its namespace.
    pub(super) fn names(&self) -> (&str, Option<&str>) {
        match self.service.split_once('.') {
            Some((name, namespace)) => (name, Some(namespace)),
            None => (&self.service, None),
        }
    }
}

/// Whether a text may be the name of a service or namespace.
fn is_label(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=63).contains(&text.len()) && text.bytes().all(is_plain)
}

fn with_port(host: &str) -> String {
    let behind_address = host.rsplit(']').next().unwrap_or(host);
    if behind_address.contains(':') || host.starts_with("unix:") {
        host.to_owned()
    } else {
        format!("{host}:{DEFAULT_PORT}")
    }
}
