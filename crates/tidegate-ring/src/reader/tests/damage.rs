// SPDX-License-Identifier: Apache-2.0

//! Damaged, replaced and foreign files.

use super::*;

/// A damage, and the reason under which it must be counted.
type Damage = (&'static str, fn(&Ring), Reset);

const DAMAGES: [Damage; 7] = [
    ("truncated to nothing", |ring| ring.resize(0), Reset::Truncated),
    (
        "truncated in the slots",
        |ring| ring.resize(100),
        Reset::Truncated,
    ),
    ("grown", |ring| ring.resize(100_000), Reset::Grown),
    ("zeroed", |ring| ring.overwrite(0, &[0; 296]), Reset::Zeroed),
    ("noise", |ring| ring.overwrite(0, &[0xa7; 296]), Reset::BadHeader),
    (
        "capacity 100",
        |ring| ring.overwrite(24, &100_u64.to_le_bytes()),
        Reset::BadHeader,
    ),
    (
        "far position",
        |ring| ring.overwrite(0, &77_u64.to_le_bytes()),
        Reset::BadPositions,
    ),
];

#[test]
fn each_damage_is_one_reset_under_its_own_reason_and_ends_with_a_restart() {
    for (name, damage, reason) in DAMAGES {
        let mut ring = Ring::new(Layout::V4, 16);
        ring.push(0..5);
        ring.drain();
        damage(&ring);
        assert_eq!(ring.settled(), reset(reason, 0), "{name}");
        assert!(matches!(ring.read(), Poll::Unreadable(_)), "{name}");
        ring.writer.restart(Layout::V4, 16).unwrap();
        ring.push(50..53);
        assert_eq!(ring.drain(), [50, 51, 52], "{name}");
        assert_eq!(ring.reader.stats().resets, 1, "{name}");
    }
}

#[test]
fn a_replaced_file_is_drained_before_it_is_given_up() {
    let mut ring = Ring::new(Layout::V4, 16);
    ring.push(0..3);
    std::fs::remove_file(ring.path()).unwrap();
    assert_eq!(ring.drain(), [0, 1, 2]);
    assert_eq!(ring.read(), Poll::Gone(Reset::Removed));
    Writer::create(ring.path(), Layout::V4, 16).unwrap();
    assert_eq!(ring.read(), Poll::Gone(Reset::Replaced));
    assert_ne!(FileId::of_path(&ring.path()).unwrap(), ring.reader.id());
}

#[test]
fn what_is_no_ring_is_refused_with_its_reason_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let header = |write, read, version: i32, capacity: u64, mask: u64| {
        let mut bytes = [write, read, version as u64, capacity, mask]
            .map(u64::to_le_bytes)
            .concat();
        bytes.resize(40 + 16 * 16, 0);
        bytes
    };
    let cases = [
        (vec![], "being_created"),
        (header(0, 0, 0, 16, 15), "being_created"),
        (vec![1; 39], "too_small"),
        (header(0, 0, 9, 16, 15), "unknown_version"),
        (header(0, 0, 4, 15, 14), "bad_capacity"),
        (header(0, 0, 4, 0, u64::MAX), "bad_capacity"),
        (header(0, 0, 4, 16, 7), "bad_capacity"),
        (header(0, 0, 4, 1 << 40, (1 << 40) - 1), "too_large"),
        (header(0, 0, 4, 8, 7), "size_mismatch"),
        (header(16, 0, 4, 16, 15), "bad_positions"),
        (header(0, 99, 4, 16, 15), "bad_positions"),
        (b"#!/bin/sh\n".repeat(30), "unknown_version"),
    ];
    for (bytes, reason) in cases {
        std::fs::write(&path, &bytes).unwrap();
        let error = Reader::open(&path, Options::default()).unwrap_err();
        assert_eq!(error.reason(), reason, "{error}");
        assert_eq!(
            open::inspect(&path).unwrap().verdict.unwrap_err().reason(),
            reason
        );
        assert_eq!(std::fs::read(&path).unwrap(), bytes);
    }
}
