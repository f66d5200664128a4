// SPDX-License-Identifier: Apache-2.0

//! Gzip (RFC 1952) around raw streams. `crc32fast` computes the checksum in a tenth of the time that the deflate
//! library needs for it. That library would spend as much time on it as on decompression.

use std::io;

use bytes::Bytes;

use super::{DecompressError, USUAL_RATIO, Unpacked, deflate};
use crate::component::account::Held;

/// 2.3.1: magic, deflate, no flags, no time, "fastest", an unknown system.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 4, 255];

/// 2.3.1: CRC-32 and length.
const TRAILER_BYTES: usize = 8;

/// A higher ratio in the trailer of a body does not enlarge the allocation.
const HIGHEST_RATIO: usize = 64;

/// 2.3.1, FLG.
const HAS_CRC: u8 = 1 << 1;
const HAS_EXTRA: u8 = 1 << 2;
const HAS_NAME: u8 = 1 << 3;
const HAS_COMMENT: u8 = 1 << 4;
const RESERVED: u8 = 0b1110_0000;

/// Decompresses one or more members, and joins their contents.
pub(super) fn decompress(body: &[u8], limit_bytes: usize, held: &mut Held) -> Result<Bytes, DecompressError> {
    let mut unpacked = Unpacked::new(expected_bytes(body), limit_bytes, held)?;
    let mut rest = member(body, &mut unpacked)?;
    while !rest.is_empty() {
        rest = member(rest, &mut unpacked)?;
    }
    Ok(unpacked.into())
}

pub(super) fn compress(body: &[u8]) -> io::Result<Vec<u8>> {
    let mut packed = HEADER.to_vec();
    deflate::deflate(body, &mut packed)?;
    packed.extend(crc32fast::hash(body).to_le_bytes());
    packed.extend(length(body).to_le_bytes());
    Ok(packed)
}

/// The credible part of the length in the trailer, plus a margin so that the last step is not short of space.
fn expected_bytes(body: &[u8]) -> usize {
    let said = body.last_chunk().map_or(0, |length| u32::from_le_bytes(*length)) as usize;
    let said = said.saturating_add(512);
    if said <= body.len().saturating_mul(HIGHEST_RATIO) {
        said
    } else {
        body.len().saturating_mul(USUAL_RATIO)
    }
}

/// Appends the content of a member, and returns the bytes after it.
fn member<'a>(body: &'a [u8], unpacked: &mut Unpacked<'_>) -> Result<&'a [u8], DecompressError> {
    let stream = after_header(body).ok_or_else(|| corrupt("invalid gzip header"))?;
    let begin = unpacked.bytes.len();
    let stream_bytes = deflate::inflate(stream, false, unpacked)?;
    let content = unpacked.bytes.get(begin..).unwrap_or_default();
    let after = stream.get(stream_bytes..).unwrap_or_default();
    let (trailer, rest) = after
        .split_at_checked(TRAILER_BYTES)
        .ok_or(io::Error::from(io::ErrorKind::UnexpectedEof))?;
    let expected = [
        crc32fast::hash(content).to_le_bytes(),
        length(content).to_le_bytes(),
    ];
    if trailer == expected.as_flattened() {
        Ok(rest)
    } else {
        Err(corrupt("the checksum or length of a gzip member is not that of its content").into())
    }
}

/// 2.3.1, ISIZE: modulo 2^32.
fn length(content: &[u8]) -> u32 {
    content.len() as u32
}

/// The bytes after the header of a member. `None`: the header is missing or incomplete.
fn after_header(body: &[u8]) -> Option<&[u8]> {
    let [0x1f, 0x8b, 8, flags, _, _, _, _, _, _, rest @ ..] = body else {
        return None;
    };
    if flags & RESERVED != 0 {
        return None;
    }
    let mut rest = rest;
    if flags & HAS_EXTRA != 0 {
        let (length, after) = rest.split_first_chunk()?;
        rest = after.get(usize::from(u16::from_le_bytes(*length))..)?;
    }
    for text in [HAS_NAME, HAS_COMMENT] {
        if flags & text != 0 {
            let end = rest.iter().position(|byte| *byte == 0)?;
            rest = rest.get(end + 1..)?;
        }
    }
    if flags & HAS_CRC != 0 {
        rest = rest.get(2..)?;
    }
    Some(rest)
}

fn corrupt(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
