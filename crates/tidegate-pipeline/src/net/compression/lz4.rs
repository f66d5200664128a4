// SPDX-License-Identifier: Apache-2.0

//! LZ4's frame format. A decoder holds at most two of the largest blocks (8 MiB) besides what it returns.

use std::io::{self, BufRead, Read, Write};

use bytes::Bytes;
use lz4_flex::frame::{FrameDecoder, FrameEncoder};

use super::{DecompressError, USUAL_RATIO, Unpacked};
use crate::component::account::Held;

pub(super) fn compress(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut encoder = FrameEncoder::new(Vec::new());
    encoder.write_all(body)?;
    Ok(encoder.finish()?)
}

/// Decompresses one or more frames, and joins their contents.
pub(super) fn decompress(body: &[u8], limit_bytes: usize, held: &mut Held) -> Result<Bytes, DecompressError> {
    let mut decoder = FrameDecoder::new(Input {
        rest: body,
        is_short: false,
    });
    let mut unpacked = Unpacked::new(body.len().saturating_mul(USUAL_RATIO), limit_bytes, held)?;
    unpacked.fill(|into| {
        while into.len() < into.capacity() {
            let block = decoder.fill_buf()?;
            let taken = block.len().min(into.capacity() - into.len());
            into.extend_from_slice(block.get(..taken).unwrap_or_default());
            decoder.consume(taken);
            if taken == 0 && decoder.get_ref().is_at_end()? {
                return Ok(true);
            }
        }
        Ok(false)
    })?;
    Ok(unpacked.into())
}

/// A body that detects a read past its end. The decoder would take a missing end for a regular one.
struct Input<'a> {
    rest: &'a [u8],
    is_short: bool,
}

impl Input<'_> {
    /// Whether all bytes are used. An error means that the body ends within a frame.
    fn is_at_end(&self) -> io::Result<bool> {
        if self.is_short {
            Err(io::ErrorKind::UnexpectedEof.into())
        } else {
            Ok(self.rest.is_empty())
        }
    }
}

impl Read for Input<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.rest.read(buffer)?;
        self.is_short |= read < buffer.len();
        Ok(read)
    }
}
