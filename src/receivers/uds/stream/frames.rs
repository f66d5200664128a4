// SPDX-License-Identifier: Apache-2.0

//! Splits the bytes of a connection into messages.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use prost::encoding::decode_varint;
use rustix::net::Shutdown;
use tokio::io::AsyncReadExt;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{PAUSES, StreamError, make_room};
use crate::component::Held;
use crate::component::account::{Arriving, Late};
use crate::net::Stream;
use crate::receivers::uds::silence::Silence;

/// Room for reading when no more is known to be needed.
pub(super) const READ_BYTES: usize = 64 << 10;

/// A varint has at most ten bytes.
const MAX_VARINT_BYTES: usize = 10;

/// Splits the stream into messages.
pub(super) struct Frames {
    pub(super) stream: Stream,
    pub(super) buffer: BytesMut,
    pub(super) limit: usize,
    pub(super) closed: bool,
    /// The read buffer, on the gateway's account.
    pub(super) held: Held,
    /// The time at which a message began or continued, or the last one was finished.
    pub(super) went_on: Instant,
    /// The start of a wait for memory to read on. The caller may stop asking meanwhile.
    pub(super) waiting: Option<Instant>,
    /// Set during a partial message. Others get its memory if it does not continue.
    pub(super) arriving: Option<Arriving>,
    pub(super) silence: Silence,
    pub(super) stopping: CancellationToken,
}

impl Frames {
    /// The next message; `None` at the end of the stream. Nothing is lost when this is dropped half-way, and a peer gets
    /// no more time by it.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, StreamError> {
        loop {
            if let Some(frame) = split(&mut self.buffer, self.limit)? {
                return Ok(Some(frame));
            }
            let has_begun = !self.buffer.is_empty();
            let (account, ceiling) = (self.held.account(), self.held.ceiling());
            if has_begun {
                _ = self
                    .arriving
                    .get_or_insert_with(|| Arriving::on(account.clone(), ceiling));
            } else {
                self.arriving = None;
            }
            if !has_begun && self.held.bytes() > 2 * READ_BYTES {
                // Room for a large message is given back between messages.
                self.buffer = BytesMut::new();
                self.held.keep(0);
            }
            self.make_room().await?;
            let read = self.read().await?;
            self.went_on = Instant::now();
            if read == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::Error::from(io::ErrorKind::UnexpectedEof).into())
                };
            }
        }
    }

    /// Makes room for the next read: as many bytes as are there, but not beyond the end of the message.
    async fn make_room(&mut self) -> Result<(), StreamError> {
        let len = self.buffer.len();
        if self.buffer.capacity() - len >= READ_BYTES / 2 && self.held.bytes() >= len {
            return Ok(());
        }
        let rest = wanted(&self.buffer).unwrap_or(self.limit).saturating_sub(len);
        let more = rest.min(len).max(READ_BYTES);
        // Unread, it stays with the sender. While one is copied into the other both are there.
        let waiting = *self.waiting.get_or_insert_with(Instant::now);
        make_room(&mut self.held, 2 * len + more, self.went_on, &self.stopping).await?;
        // The peer's data was not read meanwhile.
        self.waiting = None;
        self.went_on += waiting.elapsed();
        self.silence.pardon(waiting.elapsed());
        let mut larger = BytesMut::with_capacity(len + more);
        larger.extend_from_slice(&self.buffer);
        self.buffer = larger;
        self.held.keep(len + more);
        Ok(())
    }

    /// Reads available data. A message must continue once it has begun, and silence has a limit.
    async fn read(&mut self) -> Result<usize, StreamError> {
        let (went_on, is_closed) = (self.went_on, self.closed);
        let Self {
            stream,
            buffer,
            arriving,
            silence,
            ..
        } = self;
        let read = stream.read_buf(buffer);
        let read = async move {
            let Some(arriving) = arriving else {
                return Ok::<_, StreamError>(read.await?);
            };
            match arriving.wait_for(read, went_on, PAUSES).await {
                Ok(read) => Ok(read?),
                Err(Late::TimedOut) => Err(StreamError::Paused),
                Err(Late::WhileShort) => Err(StreamError::TooSlow),
            }
        };
        tokio::select! {
            biased;
            read = read => read,
            why = silence.too_long(went_on), if !is_closed => Err(StreamError::Silent(why)),
        }
    }

    /// The peer can send no more; the reader still reads the bytes that it has sent.
    pub(super) fn close(&mut self) -> Result<(), StreamError> {
        self.closed = true;
        if let Stream::Unix(stream) = &self.stream {
            rustix::net::shutdown(stream, Shutdown::Read).map_err(io::Error::from)?;
        }
        Ok(())
    }
}

/// The length of the buffer's first message with its prefix; `None`: the prefix is incomplete.
fn wanted(mut buffer: &[u8]) -> Option<usize> {
    let all = buffer.len();
    let length = decode_varint(&mut buffer).ok()?;
    usize::try_from(length).ok()?.checked_add(all - buffer.len())
}

/// Takes a whole message off the front of the buffer, if there is one.
pub(super) fn split(buffer: &mut BytesMut, limit: usize) -> Result<Option<Bytes>, StreamError> {
    let mut rest = &buffer[..];
    if buffer.len() < MAX_VARINT_BYTES && buffer.iter().all(|byte| byte & 0x80 != 0) {
        return Ok(None);
    }
    let length = decode_varint(&mut rest).map_err(|_| StreamError::NoLength)?;
    let length = match usize::try_from(length) {
        Ok(fits) if fits <= limit => fits,
        _ => return Err(StreamError::TooLarge { length, limit }),
    };
    let prefix = buffer.len() - rest.len();
    if rest.len() < length {
        return Ok(None);
    }
    buffer.advance(prefix);
    Ok(Some(buffer.split_to(length).freeze()))
}
