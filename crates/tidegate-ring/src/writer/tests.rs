// SPDX-License-Identifier: Apache-2.0

use super::*;

fn bytes_of(layout: Layout, write: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent");
    let mut writer = Writer::create(&path, layout, 4).unwrap();
    write(&mut writer);
    std::fs::read(path).unwrap()
}

fn error_event() -> Event {
    Event {
        kind: 11,
        value: 0x0102_0304_0506_0708,
        timestamp_us: 0x1112_1314_1516_1718,
    }
}

fn written(layout: Layout) -> Vec<u8> {
    bytes_of(layout, |writer| {
        assert_eq!(writer.push_all(&[error_event()]), 1);
    })
}

const VALUE: [u8; 8] = [8, 7, 6, 5, 4, 3, 2, 1];

#[test]
fn the_header_of_versions_1_to_4_is_nixls() {
    for layout in [Layout::V1, Layout::V2a, Layout::V2b, Layout::V3, Layout::V4] {
        let bytes = written(layout);
        assert_eq!(bytes.len() as u64, layout.file_size(4));
        let version = layout.version() as u64;
        let header = [1, 0, version | version << 32, 4, 3]
            .map(u64::to_le_bytes)
            .concat();
        assert_eq!(bytes[..40], header);
    }
}

#[test]
fn the_header_of_version_5_is_as_proposed() {
    let bytes = written(Layout::V5);
    let header = [1, 4, 5 | 5 << 32, 3].map(u64::to_le_bytes).concat();
    assert_eq!(bytes[..32], header);
    assert_eq!(bytes[32..512], [0; 480]);
    assert_eq!(bytes.len(), 512 + 4 * 16);
    assert_eq!(bytes[512..528], [&[11, 0, 0, 0, 0, 0, 0, 0], &VALUE[..]].concat());
}

#[test]
fn slots_are_laid_out_as_the_table_says() {
    let mut name = b"NIXL_ERR_NOT_FOUND".to_vec();
    name.resize(32, 0);
    let time = [0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11];
    let named = [&[4, 0, 0, 0], &name[..], &[0; 4], &VALUE].concat();
    let stamped = [&time[..], &named].concat();
    let kind: [u8; 4] = [11, 0, 0, 0];
    let both = [&[4, 0, 0, 0], &kind[..], &VALUE].concat();
    let plain = [&kind[..], &[0; 4], &VALUE].concat();
    let expected = [
        (Layout::V1, stamped),
        (Layout::V2a, named),
        (Layout::V2b, both),
        (Layout::V3, plain.clone()),
        (Layout::V4, plain),
    ];
    for (layout, slot) in expected {
        assert_eq!(slot.len(), layout.event_size());
        assert_eq!(written(layout)[40..][..slot.len()], slot, "{layout}");
    }
}

#[test]
fn a_long_name_is_cut_to_31_bytes() {
    let bytes = bytes_of(Layout::V2a, |writer| {
        assert!(writer.push_named(&"n".repeat(40), Category::Custom, Event::default()));
    });
    assert_eq!(bytes[44..76], [&[b'n'; 31][..], &[0]].concat());
}

#[test]
fn nothing_is_visible_before_the_flush_and_the_newest_are_dropped() {
    let mut unread = 0;
    let bytes = bytes_of(Layout::V4, |writer| {
        let pushed = (0..5).filter(|_| writer.push(error_event())).count();
        assert_eq!((pushed, writer.dropped()), (3, 2));
        unread = writer.unread();
    });
    assert_eq!((bytes[0], unread), (0, 3));
}

#[test]
fn a_ring_of_one_slot_drops_everything() {
    let directory = tempfile::tempdir().unwrap();
    let mut writer = Writer::create(directory.path().join("one"), Layout::V4, 1).unwrap();
    assert!(!writer.push(error_event()));
}

#[test]
fn restarting_keeps_the_inode_and_the_old_slots() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent");
    let mut first = Writer::create(&path, Layout::V4, 4).unwrap();
    first.push_all(&[error_event()]);
    let before = crate::FileId::of_path(&path).unwrap();
    let second = Writer::create(&path, Layout::V4, 4).unwrap();
    assert_eq!(crate::FileId::of_path(&path).unwrap(), before);
    let bytes = std::fs::read(second.path()).unwrap();
    assert_eq!((bytes[0], bytes[40], &bytes[48..56]), (0, 11, &VALUE[..]));
}

#[test]
fn impossible_capacities_are_refused_before_the_file_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("agent");
    for (capacity, reason) in [(0, "bad_capacity"), (100, "bad_capacity"), (1 << 30, "too_large")] {
        let error = Writer::create(&path, Layout::V4, capacity).unwrap_err();
        assert_eq!(error.reason(), reason);
        assert!(!path.exists());
    }
}
