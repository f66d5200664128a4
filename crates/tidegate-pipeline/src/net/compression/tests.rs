// SPDX-License-Identifier: Apache-2.0

//! Codings there and back, under limits and damaged.

use std::io::{Read, Write};

use proptest::prelude::*;

use super::*;

/// Without an account.
fn decompress_now(coding: Coding, body: Bytes, limit_bytes: usize) -> Result<Bytes, DecompressError> {
    let mut held = Held::new(Default::default());
    let unpacked = unpack_now(coding, body, limit_bytes, &mut held);
    if let Ok(unpacked) = &unpacked
        && coding != Coding::Identity
    {
        assert_eq!(held.bytes(), unpacked.len());
    }
    unpacked
}

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
        "zstd" => ::zstd::stream::encode_all(data, 0),
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
        "lz4" | "lz4 of linked blocks" => {
            let info = lz4_flex::frame::FrameInfo::new()
                .block_mode(match coding {
                    "lz4" => lz4_flex::frame::BlockMode::Independent,
                    _ => lz4_flex::frame::BlockMode::Linked,
                })
                .content_checksum(true);
            let mut encoder = lz4_flex::frame::FrameEncoder::with_frame_info(info, Vec::new());
            let written = encoder.write_all(data);
            written.and_then(|()| Ok(encoder.finish()?))
        }
        _ => Ok(data.to_vec()),
    };
    packed.unwrap().into()
}

const ALL: [(&str, Coding); 10] = [
    ("snappy", Coding::Snappy),
    ("framed snappy", Coding::Snappy),
    ("framed snappy", Coding::SnappyFramed),
    ("lz4", Coding::Lz4),
    ("lz4 of linked blocks", Coding::Lz4),
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
fn each_coding_compresses_as_its_name_says() {
    let data = b"all work and no play ".repeat(100);
    for name in ["gzip", "zstd", "deflate", "snappy", "x-snappy-framed", "lz4"] {
        let coding = Coding::named(name).unwrap();
        assert_eq!(coding.header(), Some(name));
        let packed = compress(coding, &data).unwrap();
        assert!(packed.len() < data.len() / 2, "{name}");
        assert_eq!(*decompress_now(coding, packed.into(), data.len()).unwrap(), *data);
    }
    assert_eq!(Coding::Identity.header(), None);
}

#[test]
fn a_body_that_ends_early_is_an_error_in_every_coding() {
    let noise: Vec<u8> = (0..1000).map(|_| rand::random()).collect();
    for name in ["gzip", "zlib", "zstd", "snappy", "framed snappy", "lz4"] {
        let coding = Coding::named(name.trim_start_matches("framed ")).unwrap();
        let packed = pack(name, &noise);
        for missing in [1, 2, 4, 8, 100, packed.len() - 1] {
            let cut = packed.slice(..packed.len() - missing);
            let refused = decompress_now(coding, cut, noise.len());
            assert!(refused.is_err(), "{name} without its last {missing} bytes");
        }
    }
}

#[test]
fn lz4_frames_are_joined_as_the_format_says() {
    let two = [pack("lz4", b"one "), pack("lz4 of linked blocks", b"two")].concat();
    assert_eq!(
        *decompress_now(Coding::Lz4, two.into(), 100).unwrap(),
        *b"one two"
    );
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
fn gzip_is_what_others_read_and_write() {
    let data = b"all work and no play ".repeat(1000);
    let packed = compress(Coding::Gzip, &data).unwrap();
    let mut read = Vec::new();
    flate2::read::MultiGzDecoder::new(&*packed)
        .read_to_end(&mut read)
        .unwrap();
    assert_eq!(read, data);

    // All that RFC 1952 lets a header have, but its checksum, which this encoder does not make.
    let mut encoder = flate2::GzBuilder::new()
        .extra(*b"ex\0tra")
        .filename("name")
        .comment("comment")
        .mtime(1_700_000_000)
        .write(Vec::new(), flate2::Compression::best());
    encoder.write_all(&data).unwrap();
    let packed = encoder.finish().unwrap();
    let unpack = |packed: &[u8]| decompress_now(Coding::Gzip, packed.to_vec().into(), data.len());
    assert_eq!(*unpack(&packed).unwrap(), *data);
    let mut checked = packed.clone();
    checked[3] |= 1 << 1;
    let header = packed.len() - flate2_stream_and_trailer(&packed);
    checked.splice(header..header, [0xab, 0xcd]);
    assert_eq!(*unpack(&checked).unwrap(), *data, "the two bytes are skipped");

    for end in 0..packed.len() {
        assert!(unpack(&packed[..end]).is_err(), "cut off at {end}");
    }
    let last = packed.len() - 1;
    for at in [0, 1, 2, last, last - 4] {
        let mut damaged = packed.clone();
        damaged[at] ^= 0x80;
        let refused = unpack(&damaged);
        assert!(
            matches!(refused, Err(DecompressError::Corrupt(_))),
            "byte {at} is wrong"
        );
    }
    let and_more = [&*packed, b"more"].concat();
    assert!(unpack(&and_more).is_err(), "the rest is not a member");
}

/// How many bytes follow the header.
fn flate2_stream_and_trailer(packed: &[u8]) -> usize {
    let mut decoder = flate2::bufread::GzDecoder::new(packed);
    let header = 10 + 2 + 6 + "name\0comment\0".len();
    assert_eq!(decoder.header().unwrap().comment(), Some(&b"comment"[..]));
    decoder.read_to_end(&mut Vec::new()).unwrap();
    packed.len() - header
}

#[test]
fn zstd_frames_of_unknown_size_are_unpacked_step_by_step() {
    let data = b"all work and no play ".repeat(100_000);
    let known = ::zstd::bulk::compress(&data, 1).unwrap();
    let unknown = ::zstd::stream::encode_all(&*data, 1).unwrap();
    for (name, packed, times) in [
        ("known", known.clone(), 1),
        ("unknown", unknown.clone(), 1),
        ("two", [known, unknown].concat(), 2),
    ] {
        let unpack = |packed: &[u8], limit| decompress_now(Coding::Zstd, packed.to_vec().into(), limit);
        assert_eq!(
            *unpack(&packed, data.len() * times).unwrap(),
            *data.repeat(times),
            "{name}"
        );
        let refused = unpack(&packed, data.len() * times - 1);
        assert!(matches!(refused, Err(DecompressError::TooLarge { .. })), "{name}");
        for end in [1, 5, packed.len() / 2, packed.len() - 1] {
            let cut = unpack(&packed[..end], data.len() * times);
            assert!(
                matches!(cut, Err(DecompressError::Corrupt(_))),
                "{name}, cut off at {end}"
            );
        }
    }
}

#[test]
fn coders_that_were_used_before_make_the_same() {
    let bodies = [b"all work ".repeat(1000), b"no play".to_vec(), vec![0; 100_000]];
    for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd] {
        let first: Vec<_> = bodies
            .iter()
            .map(|body| compress(coding, body).unwrap())
            .collect();
        for (body, packed) in bodies.iter().zip(&first).rev() {
            assert_eq!(compress(coding, body).unwrap(), *packed, "{coding:?}");
            let cut = Bytes::copy_from_slice(&packed[..packed.len() - 1]);
            assert!(decompress_now(coding, cut, body.len()).is_err());
            let unpacked = decompress_now(coding, packed.clone().into(), body.len()).unwrap();
            assert_eq!(*unpacked, **body);
        }
    }
}

/// RFC 8878, 3.1: frames follow each other, and decoders skip some.
#[test]
fn empty_and_skippable_zstd_frames_may_stand_anywhere() {
    let data = b"what is in it".repeat(10);
    let frame = ::zstd::stream::encode_all(&*data, 1).unwrap();
    let empty = ::zstd::stream::encode_all(&b""[..], 1).unwrap();
    let skipped = [
        &0x184d_2a50_u32.to_le_bytes()[..],
        &7_u32.to_le_bytes(),
        b"skip me",
    ]
    .concat();
    for body in [
        [&skipped[..], &frame].concat(),
        [&empty[..], &frame].concat(),
        [&frame[..], &skipped, &empty].concat(),
        [&skipped[..], &skipped, &empty, &empty, &frame, &skipped].concat(),
    ] {
        assert_eq!(
            *decompress_now(Coding::Zstd, body.into(), 1 << 20).unwrap(),
            *data
        );
    }
}

#[test]
fn a_zstd_frame_that_asks_for_a_huge_window_is_refused() {
    // RFC 8878, 3.1.1: magic, no content size, window descriptor for 2^27 bytes.
    let frame = [0x28, 0xb5, 0x2f, 0xfd, 0x00, 17 << 3, 0x01, 0x00, 0x00];
    let refused = decompress_now(Coding::Zstd, Bytes::copy_from_slice(&frame), 1 << 20);
    assert!(matches!(refused, Err(DecompressError::Corrupt(_))));
}

/// A streaming encoder says no length: its window counts under the ceiling of the request, whatever frame asks for it.
#[test]
fn the_window_of_every_zstd_frame_is_reserved_and_given_back() {
    let streamed = |window_log: u32| {
        let mut encoder = ::zstd::stream::Encoder::new(Vec::new(), 1).unwrap();
        encoder.window_log(window_log).unwrap();
        std::io::Write::write_all(&mut encoder, b"body").unwrap();
        encoder.finish().unwrap()
    };
    let body = Bytes::from([streamed(10), streamed(22)].concat());
    let unpacked = |hard: usize| {
        let account = std::sync::Arc::new(crate::component::Account::default());
        account.add_limit(crate::component::Limit { soft: 1, hard });
        let mut held = Held::under(crate::component::Ceiling::Hard, account.clone());
        held.try_grow(body.len()).unwrap();
        let unpacked = unpack_now(Coding::Zstd, body.clone(), 1 << 20, &mut held);
        drop(held);
        assert_eq!(account.reserved_bytes(), 0);
        unpacked
    };
    assert!(matches!(
        unpacked(2 << 20),
        Err(DecompressError::NeverFits { .. })
    ));
    let enough = unpacked(256 << 20);
    assert_eq!(*enough.unwrap(), *b"bodybody");
}

#[tokio::test]
async fn a_large_body_is_unpacked_elsewhere_with_the_same_result() {
    let noise: Vec<u8> = (0..INLINE_MAX_BYTES * 2).map(|_| rand::random()).collect();
    let packed = pack("gzip", &noise);
    assert!(packed.len() > INLINE_MAX_BYTES);
    assert_eq!(*decompress(Coding::Gzip, packed, 1 << 30).await.unwrap(), *noise);
}

#[test]
fn an_empty_body_survives_each_coding() {
    for (_, coding) in ALL {
        let packed = compress(coding, &[]).unwrap();
        assert!(
            decompress_now(coding, packed.into(), 0).unwrap().is_empty(),
            "{coding:?}"
        );
    }
}

proptest! {
    #[test]
    fn what_is_packed_unpacks_to_the_same(data in proptest::collection::vec(0..4u8, 0..20_000), level in 0..10u32) {
        for coding in [Coding::Gzip, Coding::Deflate, Coding::Zstd, Coding::Snappy, Coding::SnappyFramed, Coding::Lz4] {
            let packed = compress(coding, &data).unwrap();
            prop_assert_eq!(&*decompress_now(coding, packed.into(), data.len()).unwrap(), &*data);
        }
        let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::new(level));
        encoder.write_all(&data).unwrap();
        let packed = encoder.finish().unwrap();
        prop_assert_eq!(&*decompress_now(Coding::Gzip, packed.into(), data.len()).unwrap(), &*data);
    }

    #[test]
    fn noise_is_an_error_or_short(noise in proptest::collection::vec(any::<u8>(), 0..512)) {
        for (_, coding) in ALL {
            if let Ok(unpacked) = decompress_now(coding, noise.clone().into(), 4096) {
                prop_assert!(unpacked.len() <= 4096);
            }
        }
    }
}

#[test]
fn more_effort_makes_less_of_it() {
    let data: Vec<u8> = (0..40_000_u32)
        .flat_map(|n| (n / 7 % 300).to_string().into_bytes())
        .collect();
    for (coding, least, most) in [
        (Coding::Gzip, 1, 9),
        (Coding::Deflate, 1, 9),
        (Coding::Zstd, 1, 19),
    ] {
        let packed = |level| compress_at(coding, &data, level).unwrap();
        assert!(packed(most).len() < packed(least).len(), "{coding:?}");
        let unpacked = decompress_now(coding, packed(most).into(), data.len()).unwrap();
        assert_eq!(unpacked, data, "{coding:?}");
    }
}

/// The decoder reserves the memory of a body before it unpacks it, and releases memory that it does not need any more.
#[test]
fn nothing_is_unpacked_beyond_the_room_that_there_is() {
    const LIMIT: usize = 4 << 20;
    let data = vec![7; 8 * LIMIT];
    for (name, coding) in ALL.into_iter().filter(|(_, coding)| *coding != Coding::Identity) {
        let account = std::sync::Arc::new(crate::component::Account::default());
        account.add_limit(crate::component::Limit::of(LIMIT));
        let mut held = Held::new(account.clone());
        let packed = pack(name, &data);
        held.try_grow(packed.len()).unwrap();
        let refused = unpack_now(coding, packed, 64 << 20, &mut held);
        let never = matches!(refused, Err(DecompressError::NeverFits { .. }));
        assert!(
            never || matches!(refused, Err(DecompressError::NoRoom(_))),
            "{name}"
        );
        assert!(account.used_bytes() <= LIMIT, "{name}");
        drop(held);
        assert_eq!(
            (account.reserved_bytes(), account.filled_bytes()),
            (0, 0),
            "{name}"
        );
        let mut held = Held::new(account.clone());
        let small = unpack_now(coding, pack(name, &data[..100_000]), 64 << 20, &mut held).unwrap();
        assert_eq!(
            (small.len(), account.reserved_bytes()),
            (100_000, 100_000),
            "{name}"
        );
    }
}

#[tokio::test]
async fn a_small_body_that_unpacks_to_much_is_reserved_as_it_is_in_the_end() {
    let data = vec![7; 4 << 20];
    let account = std::sync::Arc::new(crate::component::Account::default());
    let mut held = Held::new(account.clone());
    let packed = pack("gzip", &data);
    held.grow(packed.len());
    let unpacked = unpack(Coding::Gzip, packed, 64 << 20, &mut held, &mut None)
        .await
        .unwrap();
    assert_eq!(unpacked, data);
    assert_eq!(
        (account.reserved_bytes(), account.filled_bytes()),
        (data.len(), data.len())
    );
}
