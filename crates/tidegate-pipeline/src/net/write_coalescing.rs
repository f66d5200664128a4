// SPDX-License-Identifier: Apache-2.0

//! Write coalescing: small writes to a stream go out together.
//!
//! HTTP/2 libraries write and flush every frame separately, and most servers accept only frames of 16 KiB. A
//! request of 200 KiB would take a dozen system calls, and as many segments. Here writes are buffered until their
//! task is idle.

use std::future::Future;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// The most bytes that are buffered. A larger write goes out directly.
const MAX_BUFFERED: usize = 128 << 10;

/// The side of the writer: writes are buffered, and `poll_flush` does nothing.
///
/// Writer and driver share the stream behind a lock, which each holds for one poll only.
#[derive(Debug)]
pub struct CoalescedWriter<S>(Arc<Mutex<WriteBuffer<S>>>);

#[derive(Debug)]
struct WriteBuffer<S> {
    stream: S,
    /// Written bytes. Those from `sent` on have not been handed to the stream.
    buffered: Vec<u8>,
    sent: usize,
}

/// Sends the buffered bytes whenever the future that writes them is idle.
#[derive(Debug)]
pub struct Driver<S>(Arc<Mutex<WriteBuffer<S>>>);

/// A future and the stream that it writes to.
#[derive(Debug)]
struct Driven<S, F> {
    driver: Driver<S>,
    future: F,
}

impl<S> CoalescedWriter<S> {
    /// A buffering writer for `stream`, and the driver that sends the buffered bytes.
    pub fn pair(stream: S) -> (Self, Driver<S>) {
        let inner = Arc::new(Mutex::new(WriteBuffer {
            stream,
            buffered: Vec::new(),
            sent: 0,
        }));
        (Self(inner.clone()), Driver(inner))
    }
}

impl<S: AsyncWrite + Unpin> Driver<S> {
    /// Runs a future that writes to the stream.
    pub fn drive<F: Future + Unpin>(self, future: F) -> impl Future<Output = F::Output> {
        Driven { driver: self, future }
    }
}

impl<S: AsyncWrite + Unpin> WriteBuffer<S> {
    /// Hands all buffered bytes to the stream and flushes it.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while let Some(rest) = self.buffered.get(self.sent..).filter(|rest| !rest.is_empty()) {
            match ready!(Pin::new(&mut self.stream).poll_write(cx, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                sent => self.sent += sent,
            }
        }
        self.buffered.clear();
        self.sent = 0;
        Pin::new(&mut self.stream).poll_flush(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for CoalescedWriter<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, into: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0.lock().stream).poll_read(cx, into)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for CoalescedWriter<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let mut inner = self.0.lock();
        let bytes = slices.iter().map(|slice| slice.len()).sum::<usize>();
        if inner.buffered.len() + bytes > MAX_BUFFERED {
            ready!(inner.poll_send(cx))?;
            if bytes > MAX_BUFFERED {
                return Pin::new(&mut inner.stream).poll_write_vectored(cx, slices);
            }
        }
        slices
            .iter()
            .for_each(|slice| inner.buffered.extend_from_slice(slice));
        Poll::Ready(Ok(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    /// Does nothing: see [`Driver`].
    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let mut inner = self.0.lock();
        ready!(inner.poll_send(cx))?;
        Pin::new(&mut inner.stream).poll_shutdown(cx)
    }
}

impl<S, F> Future for Driven<S, F>
where
    S: AsyncWrite + Unpin,
    F: Future + Unpin,
{
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let outcome = Pin::new(&mut self.future).poll(cx);
        // The future detects the broken stream at its next write or read.
        let _ = self.driver.0.lock().poll_send(cx);
        outcome
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use proptest::prelude::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    /// A driver that writes these one by one, flushing each, and then ends the stream.
    async fn write(mut stream: CoalescedWriter<DuplexStream>, pieces: Vec<Vec<u8>>) -> io::Result<()> {
        for piece in pieces {
            stream.write_all(&piece).await?;
            stream.flush().await?;
        }
        stream.shutdown().await
    }

    #[tokio::test]
    async fn what_a_driver_wrote_leaves_when_it_waits() {
        let (near, mut far) = tokio::io::duplex(1 << 20);
        let (mut stream, driver) = CoalescedWriter::pair(near);
        let mut waiting = std::pin::pin!(driver.drive(Box::pin(async move {
            stream.write_all(b"one").await.unwrap();
            stream.flush().await.unwrap();
            stream.write_all(b" two").await.unwrap();
            std::future::pending::<()>().await;
        })));
        poll_fn(|cx| {
            assert!(waiting.as_mut().poll(cx).is_pending());
            Poll::Ready(())
        })
        .await;
        let mut seen = [0; 7];
        far.read_exact(&mut seen).await.unwrap();
        assert_eq!(&seen, b"one two");
    }

    proptest! {
        /// The bytes that come out are the same for all sizes of writes and buffers.
        #[test]
        fn nothing_is_lost_or_moved(
            sizes in prop::collection::vec(prop_oneof![0_usize..100, 10_000_usize..200_000], 0..12),
            room in 1_usize..100_000,
        ) {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let pieces: Vec<Vec<u8>> = sizes.iter().enumerate().map(|(n, size)| vec![n as u8; *size]).collect();
            let whole = pieces.concat();
            let arrived = runtime.block_on(async {
                let (near, mut far) = tokio::io::duplex(room);
                let (stream, driver) = CoalescedWriter::pair(near);
                let writing = tokio::spawn(driver.drive(Box::pin(write(stream, pieces))));
                let mut arrived = Vec::new();
                far.read_to_end(&mut arrived).await.unwrap();
                writing.await.unwrap().unwrap();
                arrived
            });
            prop_assert!(arrived == whole);
        }
    }
}
