// SPDX-License-Identifier: Apache-2.0

//! Zstandard (RFC 8878).

use std::io;

use bytes::Bytes;
use zstd::bulk;
use zstd::stream::raw::{Decoder, InBuffer, Operation, OutBuffer};
use zstd::zstd_safe;

use super::codec_pool::CodecPool;
use super::{DecompressError, USUAL_RATIO, Unpacked, grow};
use crate::component::account::Held;

/// Compressing a body must not cost more than creating it.
const LEVEL: i32 = 1;

/// The largest window: RFC 9659 forbids more in HTTP, and the decoder allocates the size that the sender asks for.
const WINDOW_LOG_MAX: u32 = 23;

static COMPRESSORS: CodecPool<bulk::Compressor<'static>> = CodecPool::new();
static DECOMPRESSORS: CodecPool<bulk::Decompressor<'static>> = CodecPool::new();

pub(super) fn compress(body: &[u8]) -> io::Result<Vec<u8>> {
    COMPRESSORS.with(|| bulk::Compressor::new(LEVEL), |coder| coder.compress(body))
}

pub(super) fn decompress(body: &[u8], limit_bytes: usize, held: &mut Held) -> Result<Bytes, DecompressError> {
    match whole_bytes(body) {
        Some(bytes) if bytes > limit_bytes as u64 => Err(DecompressError::TooLarge { limit_bytes }),
        Some(bytes) => {
            grow(held, bytes as usize)?;
            Ok(at_once(body, bytes as usize)?.into())
        }
        None => step_by_step(body, limit_bytes, held),
    }
}

/// The declared output size of a body with one frame.
fn whole_bytes(body: &[u8]) -> Option<u64> {
    let bytes = zstd_safe::get_frame_content_size(body).ok()??;
    (zstd_safe::find_frame_compressed_size(body) == Ok(body.len())).then_some(bytes)
}

/// Decompresses at once. The output itself serves as the window.
fn at_once(body: &[u8], bytes: usize) -> io::Result<Vec<u8>> {
    let mut unpacked = Vec::with_capacity(bytes);
    DECOMPRESSORS.with(bulk::Decompressor::new, |coder| {
        coder.decompress_to_buffer(body, &mut unpacked)
    })?;
    Ok(unpacked)
}

/// The largest window of a body's frames (RFC 8878, 3.1.1.1.2), up to the limit. Skippable frames have no window.
fn window_bytes(mut body: &[u8]) -> usize {
    let mut most = 0;
    while let Some([magic @ .., _, window]) = body.first_chunk::<6>() {
        if u32::from_le_bytes(*magic) == zstd_safe::MAGICNUMBER {
            let base = 1_usize << (10 + u32::from(window >> 3)).min(WINDOW_LOG_MAX);
            most = most.max(base + base / 8 * usize::from(window & 7));
        }
        let length = zstd_safe::find_frame_compressed_size(body)
            .unwrap_or(body.len())
            .max(1);
        body = body.get(length..).unwrap_or_default();
    }
    most
}

/// Decompresses frame by frame, with a decoder of its own, because its window may be large.
fn step_by_step(body: &[u8], limit_bytes: usize, held: &mut Held) -> Result<Bytes, DecompressError> {
    let window = window_bytes(body);
    grow(held, window)?;
    let unpacked = frame_by_frame(body, limit_bytes, held);
    held.shrink(window);
    unpacked
}

fn frame_by_frame(body: &[u8], limit_bytes: usize, held: &mut Held) -> Result<Bytes, DecompressError> {
    let mut decoder = Decoder::new()?;
    decoder.set_parameter(zstd_safe::DParameter::WindowLogMax(WINDOW_LOG_MAX))?;
    let mut input = InBuffer::around(body);
    let mut unpacked = Unpacked::new(body.len().saturating_mul(USUAL_RATIO), limit_bytes, held)?;
    unpacked.fill(|into| {
        let written = into.len();
        let mut output = OutBuffer::around_pos(into, written);
        loop {
            let (read, written) = (input.pos(), output.pos());
            let wanted = decoder.run(&mut input, &mut output)?;
            if wanted == 0 && input.pos() == body.len() {
                return Ok(true);
            }
            // An empty or skippable frame writes nothing, but others may follow.
            if output.pos() > written || input.pos() == read {
                return Ok(false);
            }
        }
    })?;
    Ok(unpacked.into())
}
