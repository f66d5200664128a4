// SPDX-License-Identifier: Apache-2.0

//! The stream of an accepted connection, over any transport, and its peer.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};

/// A connection after its TLS handshake, if it has one.
#[derive(Debug)]
pub enum Stream {
    /// Plain TCP.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// Plain TCP to a proxy, which reads the requests and needs absolute URLs.
    Proxied(TcpStream),
    /// TLS over either.
    Tls(Box<tokio_rustls::TlsStream<Stream>>),
}

/// The peer of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    /// A TCP address.
    Tcp(SocketAddr),
    /// A process on this machine, if the kernel identifies it.
    Unix(Option<Credentials>),
}

/// The identity of a process at the time it connected or sent, guaranteed by the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credentials {
    /// The process id, if it has one in our namespace.
    pub pid: Option<i32>,
    /// Effective user id.
    pub uid: u32,
    /// Effective group id.
    pub gid: u32,
}

impl Stream {
    /// The peer of the connection.
    ///
    /// # Errors
    /// The system does not know the address, for example because the connection is closed.
    pub fn peer(&self) -> io::Result<Peer> {
        match self {
            Self::Tcp(stream) | Self::Proxied(stream) => stream.peer_addr().map(Peer::Tcp),
            Self::Unix(stream) => Ok(Peer::Unix(stream.peer_cred().ok().map(Credentials::from))),
            Self::Tls(stream) => stream.get_ref().0.peer(),
        }
    }
}

impl From<tokio::net::unix::UCred> for Credentials {
    fn from(cred: tokio::net::unix::UCred) -> Self {
        Self {
            pid: cred.pid(),
            uid: cred.uid(),
            gid: cred.gid(),
        }
    }
}

impl From<rustix::net::UCred> for Credentials {
    fn from(cred: rustix::net::UCred) -> Self {
        Self {
            pid: Some(cred.pid.as_raw_nonzero().get()),
            uid: cred.uid.as_raw(),
            gid: cred.gid.as_raw(),
        }
    }
}

macro_rules! each_stream {
    ($self:expr, $stream:ident => $call:expr) => {
        match $self.get_mut() {
            Stream::Tcp(inner) | Stream::Proxied(inner) => {
                let $stream = Pin::new(inner);
                $call
            }
            Stream::Unix(inner) => {
                let $stream = Pin::new(inner);
                $call
            }
            Stream::Tls(inner) => {
                let $stream = Pin::new(inner.as_mut());
                $call
            }
        }
    };
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        each_stream!(self, stream => stream.poll_read(cx, buf))
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        each_stream!(self, stream => stream.poll_write(cx, buf))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        each_stream!(self, stream => stream.poll_write_vectored(cx, bufs))
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Tcp(stream) | Self::Proxied(stream) => stream.is_write_vectored(),
            Self::Unix(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each_stream!(self, stream => stream.poll_flush(cx))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        each_stream!(self, stream => stream.poll_shutdown(cx))
    }
}
