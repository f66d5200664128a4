// SPDX-License-Identifier: Apache-2.0

//! Listening sockets, TCP or Unix. A [`Server`](super::Server) accepts their connections.

use std::io;
use std::path::PathBuf;

use rustix::net::SocketType;
use tokio::net::{TcpListener, UnixListener};

use super::endpoint::Endpoint;
use super::stream::{Credentials, Peer, Stream};
use super::unix::{SocketFile, SocketFileConfig};

/// The error of listening on an endpoint.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address is in use, not local, or can't be resolved.
    #[error("can't listen on {endpoint}: {source}{}", remedy(.source))]
    Bind {
        /// The endpoint.
        endpoint: Endpoint,
        /// The error of the system.
        source: io::Error,
    },
    /// An operation on a socket file failed.
    #[error("can't {action} the socket {path}: {source}{}", remedy(.source))]
    SocketFile {
        /// The path of the file.
        path: PathBuf,
        /// The failed action.
        action: &'static str,
        /// The error of the system.
        source: io::Error,
    },
    /// Another kind of file has the path of the socket.
    #[error("{0} exists and is not a socket: move it away or choose another path")]
    NotASocket(PathBuf),
    /// Another process listens on the socket.
    #[error("another process listens on {0}: stop it or choose another path")]
    InUse(PathBuf),
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process or component listens there: stop it or choose another port; \
             `tidegate validate --env` names all ports that are taken"
        }
        io::ErrorKind::AddrNotAvailable => "; the address belongs to no interface of this machine",
        io::ErrorKind::PermissionDenied => "; check the permissions of the user that runs the gateway",
        io::ErrorKind::NotFound => "; make the directory first",
        io::ErrorKind::InvalidInput => "; the path of a socket has at most 107 bytes",
        _ => "",
    }
}

/// A bound socket.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    local: Endpoint,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener),
    Unix(UnixListener, SocketFile, SocketFileConfig),
}

/// Connections that wait to be accepted. The system has a limit of its own, usually the same. Beyond it the system
/// drops the first packet of a connection, and its sender retries after a second. The library's 128 are too few
/// for a reconnecting fleet.
const BACKLOG: i32 = 4096;

impl Listener {
    /// Binds the endpoint. `file` applies to Unix sockets only.
    ///
    /// # Errors
    /// `Bind`: the TCP address is in use, not local, or can't be resolved.
    /// `InUse`, `NotASocket` and `SocketFile`: the socket file can't be created.
    pub async fn bind(endpoint: &Endpoint, file: &SocketFileConfig) -> Result<Self, ListenError> {
        match endpoint {
            Endpoint::Tcp { host, port } => {
                let fail = |source| ListenError::Bind {
                    endpoint: endpoint.clone(),
                    source,
                };
                let socket = bind_tcp(host, *port).await.map_err(fail)?;
                rustix::net::listen(&socket, BACKLOG).map_err(|error| fail(error.into()))?;
                let local = socket.local_addr().map_err(fail)?.into();
                Ok(Self {
                    socket: Socket::Tcp(socket),
                    local,
                })
            }
            Endpoint::Unix(path) => {
                let config = file.clone();
                let (socket, file) = SocketFile::create(path, file, SocketType::STREAM, |path| {
                    let socket = UnixListener::bind(path)?;
                    rustix::net::listen(&socket, BACKLOG)?;
                    Ok(socket)
                })?;
                Ok(Self {
                    socket: Socket::Unix(socket, file, config),
                    local: endpoint.clone(),
                })
            }
        }
    }

    /// The address that it listens on. The port is the chosen one if 0 was configured.
    pub fn local(&self) -> &Endpoint {
        &self.local
    }

    pub(super) async fn accept(&self) -> io::Result<Stream> {
        match &self.socket {
            Socket::Tcp(listener) => {
                let (stream, _) = listener.accept().await?;
                // Answers are small and awaited; Nagle's algorithm would hold them back for an ACK.
                stream.set_nodelay(true)?;
                Ok(Stream::Tcp(stream))
            }
            Socket::Unix(listener, file, config) => loop {
                let stream = Stream::Unix(listener.accept().await?.0);
                let peer = match stream.peer()? {
                    Peer::Unix(peer) => peer,
                    Peer::Tcp(_) => None,
                };
                if config.allows(peer) {
                    break Ok(stream);
                }
                reject(file, peer);
            },
        }
    }
}

/// Logs a rejected process. The connection closes before a byte of it is read.
fn reject(file: &SocketFile, peer: Option<Credentials>) {
    let socket = file.path().display().to_string();
    tracing::debug!(
        socket,
        ?peer,
        "connection rejected: to allow it, add the uid to `allowed_uids` or the gid to `allowed_gids`"
    );
    metrics::counter!("tidegate_socket_rejected_connections_total", "socket" => socket).increment(1);
}

/// Binds TCP. An empty host means every interface, for IPv4 and IPv6 (as in the Collector).
async fn bind_tcp(host: &str, port: u16) -> io::Result<TcpListener> {
    if !host.is_empty() {
        return TcpListener::bind((host, port)).await;
    }
    match TcpListener::bind(("::", port)).await {
        Err(error) if error.kind() != io::ErrorKind::AddrInUse => TcpListener::bind(("0.0.0.0", port)).await,
        bound => bound,
    }
}
