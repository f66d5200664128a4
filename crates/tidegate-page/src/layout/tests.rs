use proptest::prelude::*;

use super::*;

fn page_bytes(capacity: u32) -> ([u8; HEADER_SIZE], u64) {
    let geometry = Geometry::of_capacity(capacity);
    (header_bytes(geometry, 7), geometry.file_size())
}

#[test]
fn offsets_are_what_the_document_says() {
    let header = [
        (header::MAGIC, 0),
        (header::VERSION, 8),
        (header::HEADER_SIZE, 12),
        (header::CAPACITY, 16),
        (header::SLOT_SIZE, 20),
        (header::BOOT, 24),
        (header::HEARTBEAT_NS, 64),
        (header::LAYOUT_SEQ, 128),
        (header::USED, 136),
        (header::HIGH, 140),
    ];
    let slot = [
        (slot::LOCK, 0),
        (slot::GENERATION, 8),
        (slot::STATE, 16),
        (slot::QUANTILES, 17),
        (slot::FLAGS, 18),
        (slot::NAME_LEN, 20),
        (slot::LABELS_LEN, 22),
        (slot::SEQ, 24),
        (slot::VALUE, 32),
        (slot::MIN, 40),
        (slot::AVG, 48),
        (slot::MAX, 56),
        (slot::SUM, 64),
        (slot::COUNT, 72),
        (slot::LAST, 80),
        (slot::WINDOW_NS, 88),
        (slot::AS_OF_NS, 96),
        (slot::NEWEST_NS, 104),
        (slot::SOURCES_EXPECTED, 112),
        (slot::SOURCES_REPORTING, 116),
        (slot::QUANTILE_Q, 128),
        (slot::QUANTILE_VALUE, 160),
        (slot::TEXT, 192),
    ];
    for (found, documented) in header.into_iter().chain(slot) {
        assert_eq!(found, documented);
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
