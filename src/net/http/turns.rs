//! A connection that gives way to others after so many bytes. The runtime has it give way after 128 reads, whatever their
//! length: the heads in so many bytes may take tens of milliseconds to decode, and a health check waits for all connections.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

/// The runtime's budget of a task.
const UNITS: usize = 128;

pub(super) struct Turns<S> {
    stream: S,
    /// Bytes read that cost a unit of the budget.
    unit_bytes: usize,
}

impl<S> Turns<S> {
    /// It gives way after `bytes` read.
    pub(super) fn of(stream: S, bytes: usize) -> Self {
        let unit_bytes = (bytes / UNITS).max(1);
        Self { stream, unit_bytes }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Turns<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        for _ in 0..(buffer.filled().len() - before) / self.unit_bytes {
            // Without budget the next read is pending, and its task is woken.
            let Poll::Ready(unit) = coop::poll_proceed(cx) else {
                break;
            };
            unit.made_progress();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Turns<S> {
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

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn others_have_their_turn_after_so_many_bytes() {
        const TURN_BYTES: usize = 64 << 10;
        let endless = tokio::io::repeat(7);
        let mut turns = Turns::of(endless, TURN_BYTES);
        let mut bytes = [0; 4 << 10];
        let mut read_in_turn = 0;
        poll_fn(|cx| {
            // What is read within one poll.
            while coop::has_budget_remaining() {
                let mut buffer = ReadBuf::new(&mut bytes);
                assert!(Pin::new(&mut turns).poll_read(cx, &mut buffer).is_ready());
                read_in_turn += buffer.filled().len();
            }
            Poll::Ready(())
        })
        .await;
        assert!(read_in_turn <= TURN_BYTES, "{read_in_turn}");
        assert!(read_in_turn > TURN_BYTES / 2, "{read_in_turn}");
        turns.read_exact(&mut bytes).await.unwrap();
    }
}
