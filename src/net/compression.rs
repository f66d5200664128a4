//! Content codings: made, and undone under a limit, since what a small body unpacks to is the sender's choice.

use std::io::{self, Read, Write};

use bytes::Bytes;

/// Largest zstd window: RFC 9659 forbids more in HTTP, and the decoder allocates what the sender asks for.
const ZSTD_WINDOW_LOG_MAX: u32 = 23;

/// Bodies up to this size are unpacked on the spot; larger ones would keep a runtime thread from its other work.
const INLINE_MAX_BYTES: usize = 256 << 10;

/// Room is not made in smaller steps.
const MIN_GROWTH_BYTES: usize = 4 << 10;

/// Making a body smaller may not cost more than making it.
const GZIP_LEVEL: flate2::Compression = flate2::Compression::fast();
const ZSTD_LEVEL: i32 = 1;

/// First guess of how much larger a body gets.
const USUAL_RATIO: usize = 4;

/// A content coding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Coding {
    /// As it is.
    Identity,
    /// RFC 1952.
    Gzip,
    /// RFC 8878.
    Zstd,
    /// RFC 1950, and bare RFC 1951 as some senders understand the name.
    Deflate,
    /// Snappy, a bare block or framed: HTTP clients send the one, gRPC's the other.
    Snappy,
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
    ("x-snappy-framed", Coding::Snappy),
];

impl Coding {
    /// What a server accepts, as the value of `Accept-Encoding` and `grpc-accept-encoding`.
    pub const ACCEPTED: &str = "identity,gzip,zstd,deflate,snappy";

    /// The coding of that name, in any case.
    pub fn named(name: &str) -> Option<Self> {
        let name = name.trim();
        NAMES
            .iter()
            .find(|(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(_, coding)| *coding)
    }

    /// The value of `Content-Encoding`; none for a body as it is.
    pub fn header(self) -> Option<&'static str> {
        let named = NAMES
            .iter()
            .find(|(name, coding)| *coding == self && !name.is_empty());
        named.map(|(name, _)| *name).filter(|_| self != Self::Identity)
    }
}

/// A body in this coding. Snappy is a bare block.
pub fn compress(coding: Coding, body: &[u8]) -> io::Result<Vec<u8>> {
    match coding {
        Coding::Identity => Ok(body.to_vec()),
        Coding::Gzip => {
            let mut encoder = flate2::write::GzEncoder::new(Vec::new(), GZIP_LEVEL);
            encoder.write_all(body)?;
            encoder.finish()
        }
        Coding::Zstd => zstd::bulk::compress(body, ZSTD_LEVEL),
        Coding::Deflate => {
            let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), GZIP_LEVEL);
            encoder.write_all(body)?;
            encoder.finish()
        }
        Coding::Snappy => Ok(snap::raw::Encoder::new().compress_vec(body)?),
    }
}

/// Why a body could not be unpacked.
#[derive(Debug, thiserror::Error)]
pub enum DecompressError {
    /// It unpacks to more than the limit.
    #[error("the decompressed body is larger than {limit_bytes} bytes")]
    TooLarge {
        /// The limit.
        limit_bytes: usize,
    },
    /// It is not what its header says.
    #[error("can't decompress the body: {0}")]
    Corrupt(#[from] io::Error),
}

/// Undoes a coding; more than `limit_bytes` of output is an error. Large bodies are unpacked off the runtime's threads.
pub async fn decompress(coding: Coding, body: Bytes, limit_bytes: usize) -> Result<Bytes, DecompressError> {
    if coding == Coding::Identity || body.len() <= INLINE_MAX_BYTES {
        return decompress_now(coding, body, limit_bytes);
    }
    tokio::task::spawn_blocking(move || decompress_now(coding, body, limit_bytes))
        .await
        .unwrap_or_else(|_| Err(io::Error::other("the decompression was cut short").into()))
}

/// The same here and now.
pub(crate) fn decompress_now(
    coding: Coding,
    body: Bytes,
    limit_bytes: usize,
) -> Result<Bytes, DecompressError> {
    match coding {
        Coding::Identity if body.len() > limit_bytes => Err(DecompressError::TooLarge { limit_bytes }),
        Coding::Identity => Ok(body),
        Coding::Gzip => unpack(flate2::bufread::MultiGzDecoder::new(&*body), &body, limit_bytes),
        Coding::Deflate if has_zlib_header(&body) => {
            unpack(flate2::bufread::ZlibDecoder::new(&*body), &body, limit_bytes)
        }
        Coding::Deflate => unpack(flate2::bufread::DeflateDecoder::new(&*body), &body, limit_bytes),
        Coding::Zstd => {
            let mut decoder = zstd::stream::read::Decoder::with_buffer(&*body)?;
            decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
            unpack(decoder, &body, limit_bytes)
        }
        Coding::Snappy if body.starts_with(SNAPPY_FRAMED) => {
            unpack(snap::read::FrameDecoder::new(&*body), &body, limit_bytes)
        }
        Coding::Snappy => {
            let unpacked_bytes = snap::raw::decompress_len(&body).map_err(io::Error::from)?;
            if unpacked_bytes > limit_bytes {
                return Err(DecompressError::TooLarge { limit_bytes });
            }
            let unpacked = snap::raw::Decoder::new().decompress_vec(&body);
            Ok(unpacked.map_err(io::Error::from)?.into())
        }
    }
}

/// Snappy framing format, 4.1: the stream identifier.
const SNAPPY_FRAMED: &[u8] = b"\xff\x06\x00\x00sNaPpY";

/// RFC 1950, 2.2: method 8 in the low bits, and a check value that makes the first two bytes divisible by 31.
fn has_zlib_header(body: &[u8]) -> bool {
    match body {
        [cmf, flg, ..] => cmf & 0x0f == 8 && u16::from_be_bytes([*cmf, *flg]) % 31 == 0,
        _ => false,
    }
}

fn unpack(mut decoder: impl Read, body: &[u8], limit_bytes: usize) -> Result<Bytes, DecompressError> {
    let guess = body.len().saturating_mul(USUAL_RATIO).min(limit_bytes);
    let mut unpacked = Vec::with_capacity(guess.max(MIN_GROWTH_BYTES));
    loop {
        // As much as there is room for, so that the room grows here: never beyond the limit and a byte.
        let room = unpacked.capacity() - unpacked.len();
        let read = (&mut decoder).take(room as u64).read_to_end(&mut unpacked)?;
        if unpacked.len() > limit_bytes {
            return Err(DecompressError::TooLarge { limit_bytes });
        }
        if read < room {
            break;
        }
        let growth = unpacked.len().max(MIN_GROWTH_BYTES);
        unpacked.reserve_exact(growth.min(limit_bytes.saturating_add(1) - unpacked.len()));
    }
    unpacked.shrink_to_fit();
    Ok(unpacked.into())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pack(coding: &str, data: &[u8]) -> Bytes {
        let level = flate2::Compression::default();
        let packed = match coding {
            "gzip" => {
                let mut encoder = flate2::write::GzEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            "zlib" => {
                let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            "bare deflate" => {
                let mut encoder = flate2::write::DeflateEncoder::new(Vec::new(), level);
                encoder.write_all(data).and_then(|()| encoder.finish())
            }
            "zstd" => zstd::stream::encode_all(data, 0),
            "snappy" => snap::raw::Encoder::new().compress_vec(data).map_err(Into::into),
            "framed snappy" => {
                let mut encoder = snap::write::FrameEncoder::new(Vec::new());
                let written = encoder.write_all(data);
                written.and_then(|()| {
                    encoder
                        .into_inner()
                        .map_err(|error| io::Error::other(error.to_string()))
                })
            }
            _ => Ok(data.to_vec()),
        };
        packed.unwrap().into()
    }

    const ALL: [(&str, Coding); 7] = [
        ("snappy", Coding::Snappy),
        ("framed snappy", Coding::Snappy),
        ("identity", Coding::Identity),
        ("gzip", Coding::Gzip),
        ("zlib", Coding::Deflate),
        ("bare deflate", Coding::Deflate),
        ("zstd", Coding::Zstd),
    ];

    #[test]
    fn exactly_the_limit_passes_and_a_byte_more_does_not() {
        let data = vec![b'x'; 100_000];
        for (name, coding) in ALL {
            let packed = pack(name, &data);
            let unpacked = decompress_now(coding, packed.clone(), data.len()).unwrap();
            assert_eq!(*unpacked, *data, "{name}");
            let refused = decompress_now(coding, packed, data.len() - 1);
            assert!(matches!(refused, Err(DecompressError::TooLarge { .. })), "{name}");
        }
    }

    #[test]
    fn what_is_compressed_is_what_its_name_says() {
        let data = b"all work and no play ".repeat(100);
        for name in ["gzip", "zstd", "deflate", "snappy"] {
            let coding = Coding::named(name).unwrap();
            assert_eq!(coding.header(), Some(name));
            let packed = compress(coding, &data).unwrap();
            assert!(packed.len() < data.len() / 2, "{name}");
            assert_eq!(*decompress_now(coding, packed.into(), data.len()).unwrap(), *data);
        }
        assert_eq!(Coding::Identity.header(), None);
    }

    #[test]
    fn gzip_members_are_joined_as_the_format_says() {
        let two = [pack("gzip", b"one "), pack("gzip", b"two")].concat();
        assert_eq!(
            *decompress_now(Coding::Gzip, two.into(), 100).unwrap(),
            *b"one two"
        );
    }

    #[test]
    fn a_zstd_frame_that_asks_for_a_huge_window_is_refused() {
        // RFC 8878, 3.1.1: magic, no content size, window descriptor for 2^27 bytes.
        let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x01, 0x00, 0x00];
        let refused = decompress_now(Coding::Zstd, Bytes::copy_from_slice(&frame), 1 << 20);
        assert!(matches!(refused, Err(DecompressError::Corrupt(_))));
    }

    #[tokio::test]
    async fn a_large_body_is_unpacked_elsewhere_with_the_same_result() {
        let noise: Vec<u8> = (0..INLINE_MAX_BYTES * 2).map(|_| rand::random()).collect();
        let packed = pack("gzip", &noise);
        assert!(packed.len() > INLINE_MAX_BYTES);
        assert_eq!(*decompress(Coding::Gzip, packed, 1 << 30).await.unwrap(), *noise);
    }

    proptest! {
        #[test]
        fn noise_is_an_error_or_short(noise in proptest::collection::vec(any::<u8>(), 0..512)) {
            for (_, coding) in ALL {
                if let Ok(unpacked) = decompress_now(coding, noise.clone().into(), 4096) {
                    prop_assert!(unpacked.len() <= 4096);
                }
            }
        }
    }
}
