// SPDX-License-Identifier: Apache-2.0

//! Content codings. Decompression has a size limit and reserves memory, because the sender controls the size of
//! the output.

mod codec_pool;
mod deflate;
mod gzip;
mod lz4;
mod zstd;

use std::io::{self, Read, Write};

use bytes::Bytes;

use super::refused::{Of, Why};
use crate::component::account::{Held, NoRoom};
use crate::component::worker::{Overloaded, Slot};

/// The largest body that is decompressed inline. A larger one would keep a runtime thread from other work.
const INLINE_MAX_BYTES: usize = 128 << 10;

/// The largest output that is decompressed inline.
const INLINE_MAX_UNPACKED_BYTES: usize = 1 << 20;

/// The smallest growth of the output buffer.
const MIN_GROWTH_BYTES: usize = 4 << 10;

/// The first estimate of the compression ratio.
const USUAL_RATIO: usize = 4;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// No coding.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// RFC 1950, and bare RFC 1951 as some senders understand the name.
    Deflate,
    /// Snappy as a bare block. Framed bodies are accepted too: HTTP clients send blocks, gRPC clients send frames.
    Snappy,
    /// Snappy in its framing format. Bare blocks are accepted too.
    SnappyFramed,
    /// LZ4 in its frame format.
    Lz4,
}

/// The names of the codings, in headers and in configuration.
const NAMES: &[(&str, Coding)] = &[
    ("", Coding::Identity),
    ("identity", Coding::Identity),
    ("gzip", Coding::Gzip),
    ("x-gzip", Coding::Gzip),
    ("zstd", Coding::Zstd),
    ("deflate", Coding::Deflate),
    ("zlib", Coding::Deflate),
    ("snappy", Coding::Snappy),
    ("x-snappy-framed", Coding::SnappyFramed),
    ("lz4", Coding::Lz4),
];

impl Coding {
    /// The codings that a server accepts, as the value of `Accept-Encoding` and `grpc-accept-encoding`.
    pub const ACCEPTED: &str = "identity,gzip,zstd,deflate,snappy,lz4";

    /// The coding with this name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim();
        NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, coding)| *coding)
    }

    /// The value of `Content-Encoding`; `None` for [`Coding::Identity`].
    pub fn header(self) -> Option<&'static str> {
        let named = NAMES
            .iter()
            .find(|(name, coding)| *coding == self && !name.is_empty());
        named.map(|(name, _)| *name).filter(|_| self != Self::Identity)
    }
}

/// Compresses a body with the default level.
///
/// # Errors
/// The library of the coding fails; for example, snappy refuses a body of nearly 4 GiB.
pub fn compress(coding: Coding, body: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Identity => Ok(body.to_vec()),
        Coding::Gzip => gzip::compress(body),
        Coding::Zstd => zstd::compress(body),
        Coding::Deflate => deflate::compress(body),
        Coding::Snappy => Ok(snap::raw::Encoder::new().compress_vec(body)?),
        Coding::SnappyFramed => {
            let mut encoder = snap::write::FrameEncoder::new(Vec::new());
            encoder.write_all(body)?;
            encoder
                .into_inner()
                .map_err(snap::write::IntoInnerError::into_error)
        }
        Coding::Lz4 => lz4::compress(body),
    }
}

/// Compresses a body with a level: 1 to 9 for gzip and deflate, 1 to 22 for zstd. Other codings have no levels.
///
/// # Errors
/// The library of the coding fails, as for [`compress`].
pub fn compress_at(coding: Coding, body: &[u8], level: u32) -> io::Result<Vec<u8>> {
    let effort = flate2::Compression::new(level.min(9));
    match coding {
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), effort);
            encoder.write_all(body)?;
            encoder.finish()
        }
        Coding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), effort);
            encoder.write_all(body)?;
            encoder.finish()
        }
        Coding::Zstd => ::zstd::bulk::compress(body, i32::try_from(level).unwrap_or(i32::MAX)),
        _ => compress(coding, body),
    }
}

/// The error of decompressing a body.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// The output is larger than the limit.
    #[error("the decompressed body is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit, in bytes.
        limit_bytes: usize,
    },
    /// The data is corrupt.
    #[error("can't decompress the body: {0}")]
    Corrupt(#[from] io::Error),
    /// The output does not fit into memory now.
    #[error(transparent)]
    NoRoom(#[from] NoRoom),
    /// The output would not fit into the memory limit even of an idle gateway.
    #[error(
        "the request needs {} MiB of memory to be unpacked, and the limit is {} MiB: send smaller ones",
        bytes >> 20,
        limit_bytes >> 20
    )]
    NeverFits {
        /// The needed memory, in bytes.
        bytes: usize,
        /// The memory limit, in bytes.
        limit_bytes: usize,
    },
    /// The gateway has too much other work.
    #[error(transparent)]
    Overloaded(#[from] Overloaded),
}

impl DecompressError {
    /// The reason of the refusal.
    pub fn why(&self) -> Why {
        match self {
            Self::TooLarge { .. } => Why::Short(Of::TooLarge),
            Self::Corrupt(_) => Why::Body,
            Self::NoRoom(_) => Why::Short(Of::Unpacking),
            Self::NeverFits { .. } => Why::Short(Of::All),
            Self::Overloaded(_) => Why::Short(Of::Work),
        }
    }
}

/// Decompresses a body without a memory reservation. An output of more than `limit_bytes` is an error.
///
/// # Errors
/// The body is corrupt, or its output is too large.
pub async fn decompress(coding: Coding, body: Bytes, limit_bytes: usize) -> Result<Bytes, DecompressError> {
    let mut held = Held::new(Default::default());
    unpack(coding, body, limit_bytes, &mut held, &mut None).await
}

/// Decompresses a body with a reservation. The output replaces the body in `held`. A large body is decompressed
/// outside of the runtime's threads, in a slot that the next step can use too.
///
/// # Errors
/// The body is corrupt, its output is too large or does not fit into memory, or too much other work waits.
pub async fn unpack(
    coding: Coding,
    body: Bytes,
    limit_bytes: usize,
    held: &mut Held,
    slot: &mut Option<Slot>,
) -> Result<Bytes, DecompressError> {
    if coding == Coding::Identity {
        return unpack_now(coding, body, limit_bytes, held);
    }
    if body.len() <= INLINE_MAX_BYTES {
        let inline_bytes = limit_bytes.min(INLINE_MAX_UNPACKED_BYTES);
        match unpack_now(coding, body.clone(), inline_bytes, held) {
            Err(DecompressError::TooLarge { .. }) if inline_bytes < limit_bytes => held.keep(body.len()),
            unpacked => return unpacked,
        }
    }
    let mut elsewhere = held.take();
    let unpacking = Slot::get_unless(slot, held).await?.run_on(move || {
        let unpacked = unpack_now(coding, body, limit_bytes, &mut elsewhere);
        (unpacked, elsewhere)
    });
    let ((unpacked, back), kept) = unpacking.await?;
    (*held, *slot) = (back, Some(kept));
    unpacked
}

/// Like [`unpack`], inline.
///
/// # Errors
/// The body is corrupt, or its output is too large or does not fit into memory.
pub fn unpack_now(
    coding: Coding,
    body: Bytes,
    limit_bytes: usize,
    held: &mut Held,
) -> Result<Bytes, DecompressError> {
    let too_large = Err(DecompressError::TooLarge { limit_bytes });
    let unpacked = match coding {
        Coding::Identity if body.len() > limit_bytes => return too_large,
        Coding::Identity => return Ok(body),
        Coding::Gzip => gzip::decompress(&body, limit_bytes, held)?,
        Coding::Deflate => deflate::decompress(&body, limit_bytes, held)?,
        Coding::Zstd => zstd::decompress(&body, limit_bytes, held)?,
        Coding::Lz4 => lz4::decompress(&body, limit_bytes, held)?,
        Coding::Snappy | Coding::SnappyFramed if body.starts_with(SNAPPY_FRAMED) => {
            let mut decoder = snap::read::FrameDecoder::new(&*body);
            let expected = body.len().saturating_mul(USUAL_RATIO);
            let mut unpacked = Unpacked::new(expected, limit_bytes, held)?;
            unpacked.fill(|into| {
                let room = into.capacity() - into.len();
                let read = (&mut decoder).take(room as u64).read_to_end(into)?;
                Ok(read < room)
            })?;
            unpacked.into()
        }
        // An encoder of frames writes nothing of an empty body, not even the identifier.
        Coding::SnappyFramed if body.is_empty() => Bytes::new(),
        Coding::Snappy | Coding::SnappyFramed => {
            let unpacked_bytes = snap::raw::decompress_len(&body).map_err(io::Error::from)?;
            if unpacked_bytes > limit_bytes {
                return too_large;
            }
            grow(held, unpacked_bytes)?;
            let unpacked = snap::raw::Decoder::new().decompress_vec(&body);
            unpacked.map_err(io::Error::from)?.into()
        }
    };
    drop(body);
    held.keep(unpacked.len());
    Ok(unpacked)
}

/// Reserves memory for the output. The error says whether it could ever fit.
fn grow(held: &mut Held, bytes: usize) -> Result<(), DecompressError> {
    held.try_grow(bytes).map_err(|no_room| {
        if held.could_ever_grow(bytes) {
            no_room.into()
        } else {
            DecompressError::NeverFits {
                bytes: held.bytes().saturating_add(bytes),
                limit_bytes: held.account().limit(),
            }
        }
    })
}

/// Snappy framing format, 4.1: the stream identifier.
const SNAPPY_FRAMED: &[u8] = b"\xff\x06\x00\x00sNaPpY";

/// The output so far. Its size is at most the limit plus a byte, and it is reserved before it is allocated.
struct Unpacked<'a> {
    bytes: Vec<u8>,
    limit_bytes: usize,
    held: &'a mut Held,
}

impl<'a> Unpacked<'a> {
    /// Allocates the expected size.
    fn new(expected_bytes: usize, limit_bytes: usize, held: &'a mut Held) -> Result<Self, DecompressError> {
        let room = expected_bytes
            .max(MIN_GROWTH_BYTES)
            .min(limit_bytes.saturating_add(1));
        grow(held, room)?;
        Ok(Self {
            bytes: Vec::with_capacity(room),
            limit_bytes,
            held,
        })
    }

    /// Calls `step` to write into the free part of the buffer, and grows the buffer, until `step` is done.
    fn fill(
        &mut self,
        mut step: impl FnMut(&mut Vec<u8>) -> io::Result<bool>,
    ) -> Result<(), DecompressError> {
        loop {
            let before = self.bytes.len();
            let is_done = step(&mut self.bytes)?;
            let len = self.bytes.len();
            self.held.fill(len - before);
            if len > self.limit_bytes {
                return Err(DecompressError::TooLarge {
                    limit_bytes: self.limit_bytes,
                });
            }
            if is_done {
                return Ok(());
            }
            if len < self.bytes.capacity() && len == before {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            if len == self.bytes.capacity() {
                let most = self.limit_bytes.saturating_add(1) - len;
                self.make_room(len.max(MIN_GROWTH_BYTES).min(most))?;
            }
        }
    }

    /// Grows the buffer. The old and the new buffer exist side by side during the copy.
    fn make_room(&mut self, more: usize) -> Result<(), DecompressError> {
        let len = self.bytes.len();
        grow(self.held, len + more)?;
        self.bytes.reserve_exact(more);
        self.held.shrink(len);
        Ok(())
    }
}

impl From<Unpacked<'_>> for Bytes {
    fn from(unpacked: Unpacked<'_>) -> Self {
        unpacked.bytes.into()
    }
}

#[cfg(test)]
mod tests;
