// SPDX-License-Identifier: Apache-2.0

//! Options of the `otlp` receiver, with the Collector's names.

use std::num::{NonZeroU32, NonZeroUsize};
use std::time::Duration;

use crate::batch::wire;
use crate::config::{ByteSize, Node, Problems, WithoutEffect};
use crate::net::auth::AuthConfig;
use crate::net::body::{LITTLE_MEMORY_BYTES, MAX_BODY_OF_LITTLE_MEMORY};
use crate::net::cors::CorsConfig;
use crate::net::headers::{self, Headers};
use crate::net::http::{AGE_GRACE, HTTP2_MAX_STREAMS, HttpConfig, READER_STALL, SENDER_IDLE};
use crate::net::metadata::IncludeMetadata;
use crate::net::{
    BUFFER_SIZES, Coding, Endpoint, SERVER_MIDDLEWARES, SocketFileConfig, TlsServerConfig, Transport,
};

/// The OTLP specification recommends 64 MiB for both protocols.
const MAX_MESSAGE_BYTES: usize = 64 << 20;
/// The Collector's default, used with a low memory limit.
const MAX_GRPC_MESSAGE_OF_LITTLE_MEMORY: usize = 4 << 20;
/// SDKs stop at 128 attributes.
const MAX_ELEMENTS: NonZeroUsize = NonZeroUsize::new(wire::MAX_ELEMENTS).expect("not zero");
/// Every process of a large node may keep one open.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8192).expect("not zero");
/// Ports that IANA has registered for OTLP.
const GRPC_PORT: u16 = 4317;
const HTTP_PORT: u16 = 4318;

crate::options! {
    /// Options of the `otlp` receiver.
    pub struct OtlpReceiverConfig {
        /// Protocols of the receiver, at least one.
        pub protocols: Protocols = Protocols::default(),
        /// Most attributes and other elements of a point, span, log record, resource, scope or metric's metadata.
        /// The receiver rejects larger ones and takes the rest of the request.
        pub max_elements_per_item: NonZeroUsize = MAX_ELEMENTS,
    }
    check = OtlpReceiverConfig::check
}

crate::options! {
    /// The protocols. A key without a value means the defaults.
    pub struct Protocols {
        /// OTLP over gRPC. Unset: no gRPC server.
        pub grpc: Option<GrpcConfig> = None,
        /// OTLP/HTTP, protobuf and JSON.
        pub http: Option<HttpProtocolConfig> = None,
    }
}

crate::options! {
    /// OTLP/gRPC.
    pub struct GrpcConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(GRPC_PORT),
        /// `tcp` or `unix`. The endpoint determines it, so this option is optional.
        pub transport: Option<Transport> = None,
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// Largest message in MiB, before and after decompression. Larger ones are refused. Unset: 64, or 4 with
        /// a memory limit below 1 GiB.
        pub max_recv_msg_size_mib: Option<NonZeroUsize> = None,
        /// Most concurrent calls of one connection.
        pub max_concurrent_streams: NonZeroU32 = NonZeroU32::new(HTTP2_MAX_STREAMS).unwrap_or(NonZeroU32::MIN),
        /// Most concurrent connections. Further ones wait.
        pub max_connections: NonZeroUsize = MAX_CONNECTIONS,
        /// Most connections of one address. The server closes further ones. Unset: a quarter of
        /// `max_connections`, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Pings, and age of connections.
        pub keepalive: KeepaliveConfig = KeepaliveConfig::default(),
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Request headers to keep with the data, for `headers_setter`: `true`, or a list of names.
        pub include_metadata: IncludeMetadata = IncludeMetadata::None,
        /// Authentication of clients by an extension. Unset: every client that can connect is admitted.
        pub auth: Option<AuthConfig> = None,
    }
    refused = SERVER_MIDDLEWARES;
    accepted = BUFFER_SIZES;
    check = GrpcConfig::check
}

crate::options! {
    /// gRPC keepalive.
    pub struct KeepaliveConfig {
        /// Actions of the server.
        pub server_parameters: ServerParameters = ServerParameters::default(),
    }
    accepted = OF_GRPC;
}

/// Options of the Collector's gRPC servers that can mean nothing here.
const OF_GRPC: &WithoutEffect = &[(
    "enforcement_policy",
    "clients may ping as often as they like; a ping costs next to nothing",
)];

crate::options! {
    /// gRPC keepalive, the actions of the server.
    pub struct ServerParameters {
        /// Longest time that a connection stays open without a call. 0: no limit.
        pub max_connection_idle: Duration = SENDER_IDLE,
        /// Age at which the server asks a client to close its connection. It balances clients over replicas.
        /// Unset: no limit.
        pub max_connection_age: Option<Duration> = None,
        /// Time for running calls after that.
        pub max_connection_age_grace: Duration = AGE_GRACE,
        /// Time without traffic after which the server pings the client.
        pub time: Duration = Duration::from_secs(7200),
        /// Longest wait for the answer to a ping. Then the connection ends.
        pub timeout: Duration = Duration::from_secs(20),
    }
}

crate::options! {
    /// OTLP/HTTP.
    pub struct HttpProtocolConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = Endpoint::localhost(HTTP_PORT),
        /// `tcp` or `unix`. The endpoint determines it, so this option is optional.
        pub transport: Option<Transport> = None,
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// Largest body, before and after decompression. Larger ones are refused. Unset: 64 MiB, or 20 MiB with a
        /// memory limit below 1 GiB.
        pub max_request_body_size: Option<ByteSize> = None,
        /// HTTP path for metrics.
        pub metrics_url_path: String = "/v1/metrics".to_owned(),
        /// HTTP path for traces.
        pub traces_url_path: String = "/v1/traces".to_owned(),
        /// HTTP path for logs.
        pub logs_url_path: String = "/v1/logs".to_owned(),
        /// Most concurrent connections. Further ones wait.
        pub max_connections: NonZeroUsize = MAX_CONNECTIONS,
        /// Most connections of one address. The server closes further ones. Unset: a quarter of
        /// `max_connections`, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Longest time for the headers of the first request on a connection.
        pub read_header_timeout: Duration = Duration::from_secs(60),
        /// Longest time that a connection stays open without a request. 0: no limit.
        pub idle_timeout: Duration = SENDER_IDLE,
        /// Longest time for a whole request, headers and body. 0: no limit except those for headers and for
        /// silence.
        pub read_timeout: Duration = Duration::ZERO,
        /// Longest time that a client may read nothing of its response. Then the connection ends. 0: no limit.
        pub write_timeout: Duration = READER_STALL,
        /// Whether a connection may serve more than one request.
        pub keep_alives_enabled: bool = true,
        /// Accepted codings of bodies: `gzip`, `zstd`, `zlib`, `deflate`, `snappy`, `x-snappy-framed`, `lz4`, and
        /// the empty string for uncompressed bodies. Empty list: all.
        pub compression_algorithms: Vec<String> = Vec::new(),
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Web pages of other origins that may send. Unset: none.
        pub cors: Option<CorsConfig> = None,
        /// Additional headers of every response. Their values are secrets.
        pub response_headers: Headers = Headers::new(),
        /// Request headers to keep with the data, for `headers_setter`: `true`, or a list of names.
        pub include_metadata: IncludeMetadata = IncludeMetadata::None,
        /// Authentication of clients by an extension. Unset: every client that can connect is admitted.
        pub auth: Option<AuthConfig> = None,
    }
    refused = SERVER_MIDDLEWARES;
    check = HttpProtocolConfig::check
}

impl Protocols {
    /// Both protocols, if they share a port.
    pub(super) fn shared(&self) -> Option<(&GrpcConfig, &HttpProtocolConfig)> {
        let (grpc, http) = (self.grpc.as_ref()?, self.http.as_ref()?);
        let any_port = matches!(grpc.endpoint, Endpoint::Tcp { port: 0, .. });
        (grpc.endpoint == http.endpoint && !any_port).then_some((grpc, http))
    }
}

impl OtlpReceiverConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        if let Some((grpc, http)) = self.protocols.shared()
            && (grpc.tls != http.tls || grpc.socket != http.socket)
        {
            let http = at.child("protocols").child("http");
            cx.at(http.child("endpoint"))
                .help("give both the same `tls` and `socket`, or ports of their own")
                .error("gRPC and HTTP share this endpoint, but not its `tls` and `socket` options");
        }
        if let Some((grpc, http)) = self.protocols.shared()
            && grpc.serving().max_idle != http.serving().max_idle
        {
            let http = at.child("protocols").child("http");
            cx.at(http.child("idle_timeout"))
                .help("set both to the same time, or give the protocols ports of their own")
                .error(
                    "gRPC and HTTP share this endpoint, but `http::idle_timeout` is not \
                     `grpc::keepalive::server_parameters::max_connection_idle`",
                );
        }
        if self.protocols.grpc.is_none() && self.protocols.http.is_none() {
            cx.at(at)
                .help("for example `protocols: {grpc: {}, http: {}}`")
                .error("must specify at least one protocol when using the OTLP receiver");
        }
    }
}

impl GrpcConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        self.endpoint.check_transport(self.transport, at, cx);
        // gRPC's length prefix has 32 bits.
        if u32::try_from(self.max_message_bytes(usize::MAX)).is_err() {
            cx.at(at.child("max_recv_msg_size_mib"))
                .error("must be less than 4096");
        }
    }

    /// The largest message under this memory limit, in bytes.
    pub fn max_message_bytes(&self, memory_limit: usize) -> usize {
        match self.max_recv_msg_size_mib {
            Some(mib) => mib.get().saturating_mul(1 << 20),
            None if memory_limit < LITTLE_MEMORY_BYTES => MAX_GRPC_MESSAGE_OF_LITTLE_MEMORY,
            None => MAX_MESSAGE_BYTES,
        }
    }

    /// The options of connections.
    pub fn serving(&self) -> HttpConfig {
        let keepalive = &self.keepalive.server_parameters;
        HttpConfig {
            http2_only: true,
            max_concurrent_streams: self.max_concurrent_streams.get(),
            ping_interval: Some(keepalive.time),
            ping_timeout: keepalive.timeout,
            max_idle: Some(keepalive.max_connection_idle).filter(|idle| !idle.is_zero()),
            max_age: keepalive.max_connection_age,
            max_age_grace: keepalive.max_connection_age_grace,
            max_stall: Some(READER_STALL),
            ..HttpConfig::default()
        }
    }
}

impl HttpProtocolConfig {
    /// The options of connections.
    pub fn serving(&self) -> HttpConfig {
        HttpConfig {
            header_timeout: self.header_timeout(),
            max_idle: Some(self.idle_timeout).filter(|idle| !idle.is_zero()),
            max_stall: Some(self.write_timeout).filter(|timeout| !timeout.is_zero()),
            keeps_alive: self.keep_alives_enabled,
            ..HttpConfig::default()
        }
    }

    /// The largest body under this memory limit, in bytes.
    pub fn max_body_bytes(&self, memory_limit: usize) -> usize {
        match self.max_request_body_size {
            Some(size) => size.as_usize(),
            None if memory_limit < LITTLE_MEMORY_BYTES => MAX_BODY_OF_LITTLE_MEMORY,
            None => MAX_MESSAGE_BYTES,
        }
    }

    /// Time for a request's headers.
    pub(super) fn header_timeout(&self) -> Duration {
        self.read_timeout().map_or(self.read_header_timeout, |whole| {
            whole.min(self.read_header_timeout)
        })
    }

    /// Time for a whole request.
    pub(super) fn read_timeout(&self) -> Option<Duration> {
        Some(self.read_timeout).filter(|timeout| !timeout.is_zero())
    }

    fn check(&self, at: &Node, cx: &mut Problems) {
        for (name, at) in (self.compression_algorithms.iter())
            .zip(at.child("compression_algorithms").as_list().unwrap_or_default())
        {
            if Coding::named(name).is_none() {
                cx.at(at)
                    .help(format!("known: {}", Coding::ACCEPTED))
                    .error(format!("{name:?} is not a coding"));
            }
        }
        headers::check(&self.response_headers, at.child("response_headers"), cx);
        self.endpoint.check_transport(self.transport, at, cx);
        let paths = [
            ("metrics_url_path", &self.metrics_url_path),
            ("traces_url_path", &self.traces_url_path),
            ("logs_url_path", &self.logs_url_path),
        ];
        for (index, (option, path)) in paths.iter().enumerate() {
            if !path.starts_with('/') {
                cx.at(at.child(option)).error("a path begins with `/`");
            }
            if paths.iter().take(index).any(|(_, other)| other == path) {
                cx.at(at.child(option)).error("another signal has the same path");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::settings;

    #[test]
    fn messages_and_bodies_are_small_where_memory_is_short() {
        let config =
            settings::<OtlpReceiverConfig>("protocols: {grpc: {}, http: {}}").get::<OtlpReceiverConfig>();
        let (grpc, http) = (
            config.protocols.grpc.clone().unwrap(),
            config.protocols.http.clone().unwrap(),
        );
        let limits = |memory: usize| {
            (
                grpc.max_message_bytes(memory) >> 20,
                http.max_body_bytes(memory) >> 20,
            )
        };
        assert_eq!(limits((1 << 30) - 1), (4, 20));
        assert_eq!(limits(1 << 30), (64, 64));
        let set = "protocols: {grpc: {max_recv_msg_size_mib: 7}, http: {max_request_body_size: 9MiB}}";
        let config = settings::<OtlpReceiverConfig>(set).get::<OtlpReceiverConfig>();
        let (grpc, http) = (
            config.protocols.grpc.clone().unwrap(),
            config.protocols.http.clone().unwrap(),
        );
        assert_eq!(
            (grpc.max_message_bytes(0) >> 20, http.max_body_bytes(0) >> 20),
            (7, 9)
        );
    }

    #[test]
    fn protocols_that_share_a_port_have_one_idle_time() {
        use crate::component::testing::options;
        let of = |grpc: &str, http: &str| {
            let grpc = format!("grpc: {{endpoint: 'localhost:4317', {grpc}}}");
            options::<OtlpReceiverConfig>(&format!(
                "{{protocols: {{{grpc}, http: {{endpoint: 'localhost:4317', {http}}}}}}}"
            ))
        };
        let none = "transport: tcp";
        let of_grpc = "keepalive: {server_parameters: {max_connection_idle: 60s}}";
        assert!(of(none, none).is_ok());
        assert!(of(of_grpc, "idle_timeout: 60s").is_ok());
        for (grpc, http) in [
            (of_grpc, none),
            (none, "idle_timeout: 60s"),
            (none, "idle_timeout: 0s"),
        ] {
            let problems = of(grpc, http).err().unwrap();
            assert!(problems.contains("max_connection_idle"), "{problems}");
        }
    }

    #[test]
    fn a_client_that_reads_no_answer_is_cut_off_by_default() {
        let config =
            settings::<OtlpReceiverConfig>("protocols: {grpc: {}, http: {}}").get::<OtlpReceiverConfig>();
        let (grpc, http) = (&config.protocols.grpc, &config.protocols.http);
        assert_eq!(grpc.as_ref().unwrap().serving().max_stall, Some(READER_STALL));
        assert_eq!(http.as_ref().unwrap().serving().max_stall, Some(READER_STALL));
        let never = settings::<OtlpReceiverConfig>("protocols: {http: {write_timeout: 0s}}")
            .get::<OtlpReceiverConfig>();
        assert_eq!(never.protocols.http.as_ref().unwrap().serving().max_stall, None);
    }
}
