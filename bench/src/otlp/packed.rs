// SPDX-License-Identifier: Apache-2.0

//! Bodies as they travel: plain or compressed.

use std::io::{Read, Write};

use bytes::Bytes;

use crate::BenchError;

/// How bodies are compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Compression {
    None,
    Gzip,
    Zstd,
}

/// No request of ours is larger, and no subject joins this number of them.
const LARGEST: usize = 64 << 20;

impl Compression {
    /// As headers say it; `None` where nothing is said.
    pub(crate) fn name(self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Gzip => Some("gzip"),
            Self::Zstd => Some("zstd"),
        }
    }

    pub(super) fn of(header: Option<&http::HeaderValue>) -> Result<Self, BenchError> {
        match header.map(http::HeaderValue::as_bytes) {
            None | Some(b"" | b"identity") => Ok(Self::None),
            Some(b"gzip") => Ok(Self::Gzip),
            Some(b"zstd") => Ok(Self::Zstd),
            Some(other) => Err(format!("unknown compression {}", String::from_utf8_lossy(other)).into()),
        }
    }

    /// Compressed quickly rather than well.
    pub(crate) fn pack(self, body: Bytes) -> Result<Bytes, BenchError> {
        Ok(match self {
            Self::None => body,
            Self::Gzip => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                encoder.write_all(&body)?;
                encoder.finish()?.into()
            }
            Self::Zstd => zstd::bulk::compress(&body, 1)?.into(),
        })
    }
}

/// Unpacks bodies into one piece of memory.
pub(super) struct Unpacker {
    zstd: zstd::bulk::Decompressor<'static>,
    plain: Vec<u8>,
}

impl Unpacker {
    pub(super) fn new() -> Result<Self, BenchError> {
        Ok(Self {
            zstd: zstd::bulk::Decompressor::new()?,
            plain: Vec::new(),
        })
    }

    /// The body as it was.
    pub(super) fn unpack<'a>(
        &'a mut self,
        compression: Compression,
        body: &'a [u8],
    ) -> Result<&'a [u8], BenchError> {
        self.plain.clear();
        match compression {
            Compression::None => return Ok(body),
            Compression::Gzip => {
                flate2::read::MultiGzDecoder::new(body).read_to_end(&mut self.plain)?;
            }
            Compression::Zstd => {
                self.plain.reserve(LARGEST);
                self.zstd.decompress_to_buffer(body, &mut self.plain)?;
            }
        }
        Ok(&self.plain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_packed_is_unpacked() {
        let mut unpacker = Unpacker::new().unwrap();
        let body = Bytes::from(b"point ".repeat(1000));
        for compression in [Compression::None, Compression::Gzip, Compression::Zstd] {
            let packed = compression.pack(body.clone()).unwrap();
            assert_eq!(unpacker.unpack(compression, &packed).unwrap(), body);
            assert_eq!(
                packed.len() < body.len() / 10,
                compression != Compression::None,
                "{compression:?}"
            );
        }
        assert!(unpacker.unpack(Compression::Gzip, b"no gzip").is_err());
        assert!(unpacker.unpack(Compression::Zstd, b"no zstd").is_err());
    }
}
