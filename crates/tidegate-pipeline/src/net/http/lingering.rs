// SPDX-License-Identifier: Apache-2.0

//! A stream that closes only after its peer has stopped sending, or after a limit.
//!
//! An answer may precede the end of its request, for example if the request is too large or not authenticated. A
//! close with unread bytes would reset the connection, and the peer would lose the answer.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

use super::activity::Activity;

/// A peer that is silent for this long has stopped.
const SILENCE: Duration = Duration::from_secs(2);

/// The longest wait for a peer.
const LONGEST: Duration = Duration::from_secs(30);

/// The size of a read, which is discarded.
const BUFFER_BYTES: usize = 16 << 10;

/// The stream; see the module.
pub(super) struct Lingering<S> {
    stream: S,
    activity: Arc<Activity>,
    /// Set after the last write.
    waits: Option<Waits>,
}

struct Waits {
    until: Instant,
    silence: Pin<Box<Sleep>>,
}

impl<S> Lingering<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            waits: None,
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Lingering<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(cx, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Lingering<S> {
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
        let this = &mut *self;
        if this.waits.is_none() {
            ready!(Pin::new(&mut this.stream).poll_shutdown(cx))?;
            if !this.activity.may_send.load(SeqCst) {
                return Poll::Ready(Ok(()));
            }
        }
        let waits = this.waits.get_or_insert_with(|| {
            let now = Instant::now();
            Waits {
                until: now + LONGEST,
                silence: Box::pin(sleep_until(now + SILENCE)),
            }
        });
        let mut bytes = [0; BUFFER_BYTES];
        loop {
            if waits.silence.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut buffer = ReadBuf::new(&mut bytes);
            match Pin::new(&mut this.stream).poll_read(cx, &mut buffer) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                    let silent = Instant::now() + SILENCE;
                    waits.silence.as_mut().reset(silent.min(waits.until));
                }
                // The peer has stopped or has closed.
                Poll::Ready(_) => return Poll::Ready(Ok(())),
            }
        }
    }
}
