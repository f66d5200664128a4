// SPDX-License-Identifier: Apache-2.0

use proptest::prelude::*;

use super::*;

fn page_bytes(capacity: u32) -> ([u8; HEADER_SIZE], u64) {
    let geometry = Geometry::of_capacity(capacity);
    (header_bytes(geometry, 7), geometry.file_size())
}

#[test]
fn offsets_are_what_both_documents_say() {
    let documents = [
        include_str!("../../../../docs/page.md"),
        include_str!("../lib.rs"),
    ];
    let fields = [
        ("magic", header::MAGIC, 0),
        ("version", header::VERSION, 8),
        ("header_size", header::HEADER_SIZE, 12),
        ("capacity", header::CAPACITY, 16),
        ("slot_size", header::SLOT_SIZE, 20),
        ("boot", header::BOOT, 24),
        ("heartbeat_ns", header::HEARTBEAT_NS, 64),
        ("layout_seq", header::LAYOUT_SEQ, 128),
        ("used", header::USED, 136),
        ("high", header::HIGH, 140),
        ("lock", slot::LOCK, 0),
        ("generation", slot::GENERATION, 8),
        ("state", slot::STATE, 16),
        ("quantiles", slot::QUANTILES, 17),
        ("flags", slot::FLAGS, 18),
        ("name_len", slot::NAME_LEN, 20),
        ("labels_len", slot::LABELS_LEN, 22),
        ("seq", slot::SEQ, 24),
        ("value", slot::VALUE, 32),
        ("min", slot::MIN, 40),
        ("avg", slot::AVG, 48),
        ("max", slot::MAX, 56),
        ("sum", slot::SUM, 64),
        ("count", slot::COUNT, 72),
        ("last", slot::LAST, 80),
        ("window_ns", slot::WINDOW_NS, 88),
        ("as_of_ns", slot::AS_OF_NS, 96),
        ("newest_ns", slot::NEWEST_NS, 104),
        ("sources_expected", slot::SOURCES_EXPECTED, 112),
        ("sources_reporting", slot::SOURCES_REPORTING, 116),
        ("quantile_q", slot::QUANTILE_Q, 128),
        ("quantile_value", slot::QUANTILE_VALUE, 160),
        ("text", slot::TEXT, 192),
    ];
    for (name, found, pinned) in fields {
        assert_eq!(found, pinned, "{name}");
        let row = format!("| {pinned} | `{name}` | ");
        assert!(documents.iter().all(|text| text.contains(&row)), "no row {row}");
    }
    assert_eq!((HEADER_SIZE, SLOT_SIZE, TEXT_SIZE), (256, 704, 512));
    assert_eq!(&MAGIC.to_le_bytes(), b"TIDEPAGE");
}

#[test]
fn a_new_header_passes() {
    for capacity in [1, 2, 100, MAX_CAPACITY] {
        let (bytes, size) = page_bytes(capacity);
        assert_eq!(check(&bytes, size), Ok((Geometry::of_capacity(capacity), 7)));
    }
}

#[test]
fn larger_parts_of_a_later_writer_pass() {
    let geometry = Geometry {
        header_size: 320,
        slot_size: 768,
        capacity: 3,
    };
    let bytes = header_bytes(geometry, 1);
    assert_eq!(check(&bytes, 320 + 3 * 768), Ok((geometry, 1)));
    assert_eq!(geometry.slot_word(2), (320 + 2 * 768) / 8);
}

#[test]
fn hostile_headers_are_refused_by_name() {
    let (good, size) = page_bytes(4);
    let with = |offset: usize, value: u32| {
        let mut bytes = good;
        bytes[offset..offset + 4].copy_from_slice(&value.to_le_bytes());
        check(&bytes, size).unwrap_err()
    };
    assert_eq!(check(&good, 255), Err(Reject::TooSmall { file_size: 255 }));
    assert_eq!(with(header::MAGIC, 0), Reject::BadMagic);
    assert_eq!(with(header::VERSION, 2), Reject::UnknownVersion { version: 2 });
    for size in [0, 192, 257, 4160, u32::MAX] {
        let error = with(header::HEADER_SIZE, size);
        assert!(matches!(error, Reject::BadSizes { .. }), "{error}");
    }
    for size in [0, 64, 640, 705, 4160, u32::MAX - 63] {
        let error = with(header::SLOT_SIZE, size);
        assert!(matches!(error, Reject::BadSizes { .. }), "{error}");
    }
    for capacity in [0, MAX_CAPACITY + 1, u32::MAX] {
        assert_eq!(with(header::CAPACITY, capacity), Reject::BadCapacity { capacity });
    }
    let mismatch = |file_size, capacity| Reject::SizeMismatch { file_size, capacity };
    assert_eq!(with(header::CAPACITY, 5), mismatch(size, 5));
    assert_eq!(with(header::SLOT_SIZE, 768), mismatch(size, 4));
    assert_eq!(check(&good, size - 1), Err(mismatch(size - 1, 4)));
    assert_eq!(check(&good, size + 1), Err(mismatch(size + 1, 4)));
}

proptest! {
    #[test]
    fn what_passes_fits_the_file(
        parts in prop::array::uniform3(any::<u32>()),
        plausible in any::<[bool; 3]>(),
        off_by in -1_i64..=1,
    ) {
        let part = |i: usize, good: u32| if plausible[i] { good } else { parts[i] };
        let geometry = Geometry {
            header_size: part(0, 256),
            slot_size: part(1, 704),
            capacity: part(2, 9),
        };
        let size = geometry.file_size().saturating_add_signed(off_by);
        let checked = check(&header_bytes(geometry, 1), size);
        if let Ok((found, _)) = checked {
            prop_assert_eq!(found, geometry);
            prop_assert_eq!(off_by, 0);
            prop_assert!(found.file_size() <= (1 << 12) * (1 << 16) + (1 << 12));
        } else {
            prop_assert!(off_by != 0 || plausible != [true; 3]);
        }
    }
}
