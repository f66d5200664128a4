// SPDX-License-Identifier: Apache-2.0

use std::fs::OpenOptions;
use std::os::unix::fs::{FileExt, PermissionsExt};

use proptest::prelude::*;
use tempfile::TempDir;

use super::writer::{DEFAULT_BOUNDS_US, MpStoreWriter};
use super::*;

fn identity() -> StoreIdentity {
    StoreIdentity {
        pid: 4711,
        instance: 2,
        agent_name: "agent \u{e4}".to_owned(),
        hostname: "node-1".to_owned(),
        local_rank: None,
    }
}

fn store() -> (TempDir, MpStoreWriter) {
    let directory = tempfile::tempdir().unwrap();
    let writer = MpStoreWriter::create(&directory, &identity(), &DEFAULT_BOUNDS_US).unwrap();
    (directory, writer)
}

fn reason(path: &Path) -> &'static str {
    MpStore::open(path).unwrap_err().reason()
}

#[test]
fn what_is_recorded_is_read_as_nixl_would_total_it() {
    let (_directory, mut writer) = store();
    for (kind, value) in [
        (0, 1024),
        (0, 2048),
        (2, 1),
        (6, 10),
        (6, 11),
        (6, 20_000_000),
        (99, 1),
    ] {
        writer.record(kind, value);
    }
    let store = MpStore::open(writer.path()).unwrap();
    let snapshot = store.snapshot().unwrap();
    assert_eq!(*store.identity(), identity());
    assert_eq!((snapshot.counters[0], snapshot.gauges[0]), (3072, 2048));
    assert_eq!((snapshot.counters[2], snapshot.gauges[2]), (1, 0));
    let times = snapshot.histogram(6).unwrap();
    assert_eq!((times.sum, times.count()), (20_000_021, 3));
    assert_eq!((times.buckets[0], times.buckets[1], times.buckets[18]), (1, 1, 1));
    assert_eq!((times.bounds, times.buckets.len()), (&DEFAULT_BOUNDS_US[..], 19));
    assert!(snapshot.histogram(21).is_none());
    assert!(snapshot.last_update_ns > 0);
}

#[test]
fn a_store_is_private_and_named_as_nixl_names_it() {
    let (_directory, writer) = store();
    let name = writer.path().file_name().unwrap().to_str().unwrap();
    assert!(
        MpStore::is_store_name(name) && name.starts_with("nixl.4711."),
        "{name}"
    );
    assert!(name.ends_with(".2.mmap"));
    assert!(!MpStore::is_store_name("nixl-owner.127.0.0.1:9090.lock"));
    let metadata = std::fs::metadata(writer.path()).unwrap();
    assert_eq!(
        (metadata.len(), metadata.permissions().mode() & 0o777),
        (6800, 0o600)
    );
}

#[test]
fn a_store_is_alive_while_its_writer_holds_it_and_asking_leaves_no_lock() {
    let (_directory, writer) = store();
    let path = writer.path().to_owned();
    let store = MpStore::open(&path).unwrap();
    assert!(store.alive().unwrap());
    drop(writer);
    assert!(!store.alive().unwrap());
    let other = File::open(&path).unwrap();
    assert!(tidegate_shm::try_lock(&other).unwrap());
}

#[test]
fn fields_that_do_not_fit_are_cut() {
    let directory = tempfile::tempdir().unwrap();
    let long = StoreIdentity {
        agent_name: "a".repeat(300),
        local_rank: Some("3".to_owned()),
        ..identity()
    };
    let bounds: Vec<f64> = (1..50).map(f64::from).collect();
    let writer = MpStoreWriter::create(&directory, &long, &bounds).unwrap();
    let store = MpStore::open(writer.path()).unwrap();
    assert_eq!(store.identity().agent_name, "a".repeat(255));
    assert_eq!(store.identity().local_rank.as_deref(), Some("3"));
    assert_eq!(
        store.snapshot().unwrap().histogram(6).unwrap().bounds,
        &bounds[..32]
    );
}

#[test]
fn what_is_no_store_is_refused_with_its_reason() {
    let (directory, writer) = store();
    let path = directory.path().join("copy");
    let cases: [(usize, &[u8], &str); 4] = [
        (0, b"NIXLMPS2", "bad_magic"),
        (0, &[0; 8], "being_created"),
        (8, &2_u32.to_le_bytes(), "unknown_schema"),
        (12, &22_u32.to_le_bytes(), "bad_slot_count"),
    ];
    for (offset, bytes, expected) in cases {
        std::fs::copy(writer.path(), &path).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(bytes, offset as u64).unwrap();
        assert_eq!(reason(&path), expected);
    }
    std::fs::write(&path, [0; 100]).unwrap();
    assert_eq!(reason(&path), "wrong_store_size");
    std::fs::write(&path, []).unwrap();
    assert_eq!(reason(&path), "being_created");
    let link = directory.path().join("link");
    std::os::unix::fs::symlink(writer.path(), &link).unwrap();
    assert_eq!(reason(&link), "not_regular");
}

#[test]
fn impossible_bounds_and_truncation_are_found_at_the_next_snapshot() {
    let (_directory, writer) = store();
    let store = MpStore::open(writer.path()).unwrap();
    let file = OpenOptions::new().write(true).open(writer.path()).unwrap();
    let reason = || store.snapshot().unwrap_err().reason();
    file.write_all_at(&33_u64.to_le_bytes(), 40).unwrap();
    assert_eq!(reason(), "bad_buckets");
    file.write_all_at(&2_u64.to_le_bytes(), 40).unwrap();
    assert!(store.snapshot().is_ok());
    file.write_all_at(&f64::NAN.to_le_bytes(), 504).unwrap();
    assert_eq!(reason(), "bad_buckets");
    file.set_len(0).unwrap();
    assert_eq!(reason(), "being_created");
    file.set_len(6800).unwrap();
    assert_eq!(reason(), "being_created");
}

proptest! {
    #[test]
    fn no_bytes_make_a_store_panic(
        noise in prop::collection::vec((0..6792_u64, any::<[u8; 8]>()), 0..30),
    ) {
        let (_directory, writer) = store();
        let file = OpenOptions::new().write(true).open(writer.path()).unwrap();
        for (offset, bytes) in noise {
            file.write_all_at(&bytes, offset).unwrap();
            if let Ok(store) = MpStore::open(writer.path()) {
                let _ = store.snapshot();
            }
        }
    }
}
