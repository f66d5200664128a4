// SPDX-License-Identifier: Apache-2.0

//! The network, shared by servers and clients: endpoints, listeners, TLS, limits, decompression.
//!
//! A server takes three steps: [`Listener::bind`], a handler, [`Server::start`]. HTTP servers use [`http::serve`]
//! in their handler. `pages` serves readers: health, the API, scrapes, the gateway's own metrics.

pub mod accept;
pub mod auth;
pub mod authority;
pub mod body;
pub mod client;
pub mod compression;
pub mod cors;
pub mod descriptors;
pub mod endpoint;
pub mod errors;
pub mod grpc;
pub mod headers;
pub mod http;
pub mod listener;
pub mod measured;
pub mod metadata;
pub mod pages;
mod peers;
pub mod refused;
pub mod reload;
pub mod retry_after;
pub mod server;
pub mod shares;
pub mod stream;
pub mod tls;
pub mod unix;
pub mod url;
pub mod via;
pub mod write_coalescing;
pub mod yield_first;

pub use body::{BodyError, BodyLimits, read_answer, read_body};
pub use client::Connector;
pub use compression::unpack;
pub use compression::{Coding, DecompressError, compress, compress_at, decompress};
pub use endpoint::{Endpoint, EndpointError, Transport};
pub use listener::{ListenError, Listener};
pub use server::{Connection, ConnectionLimits, Server};
pub use stream::{Credentials, Peer, Stream};
pub use tls::{TlsClientConfig, TlsError, TlsServer, TlsServerConfig};
pub use unix::{FileMode, Owner, SocketFile, SocketFileConfig};

use tidegate_config::WithoutEffect;

/// Options of the Collector's servers and clients that have no effect here.
pub const BUFFER_SIZES: &WithoutEffect = &[
    ("read_buffer_size", "buffers grow and shrink with what is read"),
    (
        "write_buffer_size",
        "what is written together is written at one go, whatever its size",
    ),
];

/// Options for the Collector's server middleware, which the configuration refuses.
pub const SERVER_MIDDLEWARES: &[(&str, &str)] = &[(
    "middlewares",
    "no extension stands between requests and the receiver: take it out, and limit by `max_connections`, the processor `memory_limiter`, or a proxy in front",
)];

/// The same for clients.
pub const CLIENT_MIDDLEWARES: &[(&str, &str)] = &[(
    "middlewares",
    "no extension stands between the exporter and its requests: take it out; `headers`, `auth`, `sending_queue` and `retry_on_failure` say how requests go out",
)];

#[cfg(test)]
mod tests;
