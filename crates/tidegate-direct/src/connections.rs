// SPDX-License-Identifier: Apache-2.0

//! The connections of the server: their number is limited, and silent ones end.

use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tidegate_runtime::Every;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep, sleep};
use tokio_stream::{Stream, StreamExt};
use tonic::transport::server::{Connected, TcpIncoming};

/// A connection that sends nothing for this long ends. Live ones answer the pings of the server.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The time between two log lines about refused connections.
const LOG_INTERVAL: Duration = Duration::from_mins(1);

/// A connection that counts until it ends.
pub(crate) struct Connection {
    stream: TcpStream,
    idle_timeout: Duration,
    idle: Pin<Box<Sleep>>,
    _permit: OwnedSemaphorePermit,
}

/// The connections of a listener. Those above the limit are closed.
pub(crate) fn limited(
    incoming: TcpIncoming,
    max_connections: usize,
) -> impl Stream<Item = io::Result<Connection>> {
    let permits = Arc::new(Semaphore::new(max_connections.clamp(1, Semaphore::MAX_PERMITS)));
    let log_limit = Every::new(LOG_INTERVAL);
    incoming.filter_map(move |accepted| {
        let stream = match accepted {
            Ok(stream) => stream,
            Err(error) => return Some(Err(error)),
        };
        if let Ok(permit) = permits.clone().try_acquire_owned() {
            return Some(Ok(Connection::new(stream, permit, IDLE_TIMEOUT)));
        }
        if let Some(more) = log_limit.ready() {
            tracing::warn!(
                max_connections,
                more,
                "the replica closes a new connection: it has the most that it may have"
            );
        }
        None
    })
}

impl Connection {
    fn new(stream: TcpStream, permit: OwnedSemaphorePermit, idle_timeout: Duration) -> Self {
        Self {
            stream,
            idle_timeout,
            idle: Box::pin(sleep(idle_timeout)),
            _permit: permit,
        }
    }
}

impl AsyncRead for Connection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Poll::Ready(result) = Pin::new(&mut self.stream).poll_read(cx, buffer) {
            let end = Instant::now() + self.idle_timeout;
            self.idle.as_mut().reset(end);
            return Poll::Ready(result);
        }
        ready!(self.idle.as_mut().poll(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncWrite for Connection {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, pieces)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

/// The address of the peer, which each request of the connection has among its extensions.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PeerAddress(pub(crate) Option<IpAddr>);

impl Connected for Connection {
    type ConnectInfo = PeerAddress;

    fn connect_info(&self) -> PeerAddress {
        let address = self.stream.peer_addr().ok();
        PeerAddress(address.map(|address| address.ip().to_canonical()))
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::AsyncReadExt;
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn a_silent_connection_ends_with_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let _silent = TcpStream::connect(address).await.unwrap();
        let (stream, _) = listener.accept().await.unwrap();
        let permit = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let mut connection = Connection::new(stream, permit, Duration::from_millis(20));
        let error = connection.read(&mut [0]).await.unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::TimedOut);
    }
}
