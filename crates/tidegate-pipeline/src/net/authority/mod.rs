// SPDX-License-Identifier: Apache-2.0

//! Requests over a Unix socket whose `:authority` is the path of the socket.
//!
//! gRPC's C-core (Python, C++, Ruby, PHP), Java and Swift send the path, percent-encoded or raw. RFC 3986 allows
//! no such host, so h2 resets the stream before we see it. [`AuthorityFilter`] reads the socket before h2 and
//! finds these authorities in header blocks. It replaces them by ones that h2 accepts: `%2Frun%2Fotlp.sock`
//! becomes `-2Frun-2Fotlp.sock`. All other bytes pass unchanged, and most are never copied.

mod block;
mod frames;
mod huffman;
#[cfg(test)]
mod tests;

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub(super) use frames::PREFACE;
use frames::{Frames, Next};

/// The read size while a header block is incomplete, in bytes.
const CHUNK_BYTES: usize = 4 << 10;

/// A stream with authorities that h2 accepts.
#[derive(Debug)]
pub struct AuthorityFilter<S> {
    stream: S,
    frames: Frames,
    /// Bytes that were read but not returned. Those up to `ready` may be returned.
    held: Vec<u8>,
    ready: usize,
    /// The bytes after `ready` that the next decision needs.
    need: usize,
}

impl<S> AuthorityFilter<S> {
    /// Creates a filter of `stream`.
    pub fn new(stream: S) -> Self {
        Self {
            stream,
            frames: Frames::default(),
            held: Vec::new(),
            ready: 0,
            need: 0,
        }
    }

    /// Creates a filter that passes everything, at the cost of one branch a read.
    pub fn passing(stream: S) -> Self {
        let mut filter = Self::new(stream);
        filter.frames.give_up();
        filter
    }

    /// Decides about the held bytes that are not ready.
    fn decide(&mut self) {
        while self.held.len() - self.ready >= self.need.max(1) {
            self.need = 0;
            match self.frames.follow(&self.held[self.ready..]) {
                Next::Pass => self.ready = self.held.len(),
                Next::Wait { pass, need } => {
                    self.ready += pass;
                    self.need = need;
                }
                Next::Replace { pass, frames, with } => {
                    let start = self.ready + pass;
                    self.ready = start + with.len();
                    self.held.splice(start..start + frames, with);
                }
            }
        }
    }

    /// Returns ready bytes.
    fn give(&mut self, into: &mut ReadBuf<'_>) {
        let given = self.ready.min(into.remaining());
        into.put_slice(&self.held[..given]);
        self.held.drain(..given);
        self.ready -= given;
        if self.held.is_empty() {
            self.held = Vec::new();
        }
    }

    /// Keeps the new bytes of `into` that must not pass yet. `into` had `before` bytes before the read.
    fn keep(&mut self, into: &mut ReadBuf<'_>, before: usize) {
        let fresh = &into.filled()[before..];
        let passed = match self.frames.follow(fresh) {
            Next::Pass => return,
            Next::Wait { pass, need } => {
                self.held.extend_from_slice(&fresh[pass..]);
                self.need = need;
                pass
            }
            Next::Replace { pass, frames, with } => {
                self.held.extend_from_slice(&with);
                self.ready = with.len();
                self.held.extend_from_slice(&fresh[pass + frames..]);
                pass
            }
        };
        into.set_filled(before + passed);
        self.decide();
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for AuthorityFilter<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = into.filled().len();
        loop {
            if this.ready > 0 {
                this.give(into);
                return Poll::Ready(Ok(()));
            }
            if this.held.is_empty() {
                ready!(Pin::new(&mut this.stream).poll_read(cx, into))?;
                let read = into.filled().len() - before;
                this.keep(into, before);
                // An empty read is the end of the stream. A read whose bytes must all wait is not.
                if read == 0 || into.filled().len() > before {
                    return Poll::Ready(Ok(()));
                }
                continue;
            }
            let mut chunk = [0; CHUNK_BYTES];
            let mut chunk = ReadBuf::new(&mut chunk);
            ready!(Pin::new(&mut this.stream).poll_read(cx, &mut chunk))?;
            this.held.extend_from_slice(chunk.filled());
            if chunk.filled().is_empty() {
                // h2 detects that the client stopped within a frame.
                this.ready = this.held.len();
            } else {
                this.decide();
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for AuthorityFilter<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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
