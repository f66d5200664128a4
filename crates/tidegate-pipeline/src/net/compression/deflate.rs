// SPDX-License-Identifier: Apache-2.0

//! Deflate streams: RFC 1951, raw or wrapped as in RFC 1950.

use std::io;

use bytes::Bytes;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

use super::codec_pool::CodecPool;
use super::{DecompressError, MIN_GROWTH_BYTES, USUAL_RATIO, Unpacked};
use crate::component::account::Held;

/// Compressing a body must not cost more than creating it.
const LEVEL: Compression = Compression::fast();

static INFLATERS: CodecPool<Decompress> = CodecPool::new();
static BARE_DEFLATERS: CodecPool<Compress> = CodecPool::new();
static ZLIB_DEFLATERS: CodecPool<Compress> = CodecPool::new();

/// The coding `deflate` means a body with a header, but some senders omit it.
pub(super) fn decompress(body: &[u8], limit_bytes: usize, held: &mut Held) -> Result<Bytes, DecompressError> {
    let mut unpacked = Unpacked::new(body.len().saturating_mul(USUAL_RATIO), limit_bytes, held)?;
    inflate(body, has_zlib_header(body), &mut unpacked)?;
    Ok(unpacked.into())
}

pub(super) fn compress(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = Vec::new();
    deflate_with(&ZLIB_DEFLATERS, true, body, &mut packed)?;
    Ok(packed)
}

/// RFC 1950, 2.2: method 8 in the low bits, and a check value that makes the first two bytes divisible by 31.
fn has_zlib_header(body: &[u8]) -> bool {
    match body {
        [cmf, flg, ..] => cmf & 0x0f == 8 && u16::from_be_bytes([*cmf, *flg]) % 31 == 0,
        _ => false,
    }
}

/// Appends the decompressed stream, and returns its compressed length in bytes.
pub(super) fn inflate(
    body: &[u8],
    has_header: bool,
    unpacked: &mut Unpacked<'_>,
) -> Result<usize, DecompressError> {
    INFLATERS.with(
        || Ok(Decompress::new(has_header)),
        |inflater| {
            inflater.reset(has_header);
            unpacked.fill(|into| {
                let rest = body.get(inflater.total_in() as usize..).unwrap_or_default();
                let status = inflater.decompress_vec(rest, into, FlushDecompress::None)?;
                Ok(status == Status::StreamEnd)
            })?;
            Ok(inflater.total_in() as usize)
        },
    )
}

/// Appends the body as a raw stream.
pub(super) fn deflate(body: &[u8], packed: &mut Vec<u8>) -> io::Result<()> {
    deflate_with(&BARE_DEFLATERS, false, body, packed)
}

fn deflate_with(
    pool: &CodecPool<Compress>,
    has_header: bool,
    body: &[u8],
    packed: &mut Vec<u8>,
) -> io::Result<()> {
    pool.with(
        || Ok(Compress::new(LEVEL, has_header)),
        |deflater| {
            deflater.reset();
            loop {
                packed.reserve((body.len() / USUAL_RATIO).max(MIN_GROWTH_BYTES));
                let rest = body.get(deflater.total_in() as usize..).unwrap_or_default();
                match deflater.compress_vec(rest, packed, FlushCompress::Finish)? {
                    Status::StreamEnd => return Ok(()),
                    // The next turn has free space again.
                    Status::Ok | Status::BufError => {}
                }
            }
        },
    )
}
