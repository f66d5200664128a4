// SPDX-License-Identifier: Apache-2.0

//! A stream with an observer of its reads.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Observes the reads of a stream.
pub(super) trait Reads {
    /// Receives the bytes of each read.
    ///
    /// # Errors
    /// The stream must end.
    fn observe(&mut self, bytes: &[u8], cx: &mut Context<'_>) -> io::Result<()>;
}

pub(super) struct ObservedStream<S, R> {
    stream: S,
    by: R,
}

impl<S, R> ObservedStream<S, R> {
    pub(super) fn new(stream: S, by: R) -> Self {
        Self { stream, by }
    }
}

impl<S: AsyncRead + Unpin, R: Reads + Unpin> AsyncRead for ObservedStream<S, R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, into))?;
        Poll::Ready(self.by.observe(&into.filled()[before..], cx))
    }
}

impl<S: AsyncWrite + Unpin, R: Unpin> AsyncWrite for ObservedStream<S, R> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        runs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, runs)
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
