// SPDX-License-Identifier: Apache-2.0

//! Options of the `prometheusremotewrite` receiver, those of the Collector's HTTP servers.

use std::num::NonZeroUsize;
use std::time::Duration;

use crate::component::future::FutureConfig;
use crate::config::{ByteSize, Node, Problems};
use crate::net::auth::AuthConfig;
use crate::net::body::{LITTLE_MEMORY_BYTES, MAX_BODY_OF_LITTLE_MEMORY};
use crate::net::headers::{self, Headers};
use crate::net::http::{HttpConfig, READER_STALL, SENDER_IDLE};
use crate::net::metadata::IncludeMetadata;
use crate::net::{Endpoint, SocketFileConfig, TlsServerConfig, Transport};

/// Every shard of every sender keeps one open.
const MAX_CONNECTIONS: NonZeroUsize = NonZeroUsize::new(8192).expect("not zero");

/// Prometheus sends far less, and so do aggregating senders.
const MAX_BODY_BYTES: usize = 64 << 20;

crate::options! {
    /// Options of the `prometheusremotewrite` receiver.
    pub struct RemoteWriteReceiverConfig {
        /// Address to listen on: `host:port` or `unix:/path`.
        pub endpoint: Endpoint = required,
        /// `tcp` or `unix`. The endpoint determines it, so this option is optional.
        pub transport: Option<Transport> = None,
        /// Permissions, owner and allowed peers of the socket file of a `unix:` endpoint.
        pub socket: SocketFileConfig = SocketFileConfig::default(),
        /// HTTP path of writes.
        pub path: String = "/api/v1/write".to_owned(),
        /// Largest body, before and after decompression. Larger ones are refused. Unset: 64 MiB, or 20 MiB with a
        /// memory limit below 1 GiB.
        pub max_request_body_size: Option<ByteSize> = None,
        /// Most concurrent connections. Further ones wait.
        pub max_connections: NonZeroUsize = MAX_CONNECTIONS,
        /// Most connections of one address. The server closes further ones. Unset: a quarter of
        /// `max_connections`, and connections of this machine don't count.
        pub max_connections_per_peer: Option<NonZeroUsize> = None,
        /// Longest time for the headers of the first request on a connection.
        pub read_header_timeout: Duration = Duration::from_secs(60),
        /// Longest time that a connection stays open without a request. 0: no limit.
        pub idle_timeout: Duration = SENDER_IDLE,
        /// TLS of the server. Unset: no TLS.
        pub tls: Option<TlsServerConfig> = None,
        /// Additional headers of every response. Their values are secrets.
        pub response_headers: Headers = Headers::new(),
        /// Request headers to keep with the data, for `headers_setter`: `true`, or a list of names.
        pub include_metadata: IncludeMetadata = IncludeMetadata::None,
        /// Treatment of samples whose time is too far ahead of the gateway's clock.
        pub future: FutureConfig = FutureConfig::default(),
        /// Authentication of clients by an extension. Unset: every client that can connect is admitted.
        pub auth: Option<AuthConfig> = None,
    }
    check = RemoteWriteReceiverConfig::check
}

impl RemoteWriteReceiverConfig {
    fn check(&self, at: &Node, cx: &mut Problems) {
        headers::check(&self.response_headers, at.child("response_headers"), cx);
        self.endpoint.check_transport(self.transport, at, cx);
        if !self.path.starts_with('/') {
            cx.at(at.child("path")).error("a path begins with `/`");
        }
    }

    /// The largest body under this memory limit, in bytes.
    pub(super) fn max_body_bytes(&self, memory_limit: usize) -> usize {
        match self.max_request_body_size {
            Some(size) => size.as_usize(),
            None if memory_limit < LITTLE_MEMORY_BYTES => MAX_BODY_OF_LITTLE_MEMORY,
            None => MAX_BODY_BYTES,
        }
    }

    /// The options of connections.
    pub(super) fn serving(&self) -> HttpConfig {
        HttpConfig {
            header_timeout: self.read_header_timeout,
            max_idle: Some(self.idle_timeout).filter(|idle| !idle.is_zero()),
            max_stall: Some(READER_STALL),
            ..HttpConfig::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::testing::settings;

    #[test]
    fn bodies_may_be_as_large_as_those_of_otlp() {
        let config = settings::<RemoteWriteReceiverConfig>("{endpoint: '127.0.0.1:0'}")
            .get::<RemoteWriteReceiverConfig>();
        let of = |memory| config.max_body_bytes(memory) >> 20;
        assert_eq!((of((1 << 30) - 1), of(1 << 30)), (20, 64));
    }
}
