// SPDX-License-Identifier: Apache-2.0

//! Damaged and hostile files: no panic, no allocation without a bound, and the rest is read as ever.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::path::{Path, PathBuf};
use std::time::Duration;

use common::{count, counter, reader};
use proptest::prelude::*;
use tidegate_cells::{FamilySpec, GaugeMode, Kind, Limits, Options, Store};

/// A damage: where, and what is written there.
#[derive(Clone, Debug)]
enum Damage {
    Byte(usize, u8),
    Word(usize, u64),
    Truncate(usize),
    Extend(usize),
}

fn damages() -> impl Strategy<Value = Vec<Damage>> {
    // The header, the table, the records and the values; words of the file are counted from the same places.
    let place = prop_oneof![
        0..160_usize,
        512..560_usize,
        4096..5600_usize,
        69_632..71_000_usize,
        0..140_000_usize
    ];
    let word = prop_oneof![
        any::<u64>(),
        0..16_u64,
        Just(u64::MAX),
        (0..64_u32).prop_map(|bit| 1 << bit)
    ];
    let damage = prop_oneof![
        6 => (place.clone(), any::<u8>()).prop_map(|(at, byte)| Damage::Byte(at, byte)),
        6 => (place.clone(), word).prop_map(|(at, word)| Damage::Word(at & !7, word)),
        1 => place.clone().prop_map(Damage::Truncate),
        1 => place.prop_map(Damage::Extend),
    ];
    prop::collection::vec(damage, 1..6)
}

fn apply(bytes: &mut Vec<u8>, damage: &Damage) {
    let mut put = |at: usize, new: &[u8]| {
        if let Some(there) = bytes.get_mut(at..at + new.len()) {
            there.copy_from_slice(new);
        }
    };
    match damage {
        Damage::Byte(at, byte) => put(*at, &[*byte]),
        Damage::Word(at, word) => put(*at, &word.to_le_bytes()),
        Damage::Truncate(len) => bytes.truncate(*len),
        Damage::Extend(by) => bytes.resize(bytes.len() + by, 0xa5),
    }
}

/// A store with one of everything, and its file.
fn everything(directory: &Path) -> (Store, PathBuf) {
    let options = Options {
        resource: vec![("service.name".into(), "test".into())],
        ..Options::default()
    };
    let store = Store::create(directory, options).unwrap();
    let bounds = [1.0, 2.0].into();
    let kinds = [
        Kind::Counter,
        Kind::FloatCounter,
        Kind::UpDownCounter,
        Kind::Gauge(GaugeMode::MostRecent),
        Kind::Gauge(GaugeMode::All),
        Kind::Histogram { bounds },
        Kind::ExponentialHistogram { max_scale: 3 },
        Kind::Summary,
    ];
    for (number, kind) in kinds.into_iter().enumerate() {
        let family = store
            .family(&FamilySpec::new(format!("f{number}"), kind).labels(["a", "b"]))
            .unwrap();
        family.with(&["x", "y"]);
        family.with(&["ended", "y"]);
        family.remove(&["ended", "y"]);
        family.with(&[]); // its overflow series is used
    }
    let path = directory.join(format!("{}.cells", store.identity().unwrap()));
    (store, path)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn a_damaged_file_does_no_harm(rounds in prop::collection::vec(damages(), 1..4), retained in any::<bool>()) {
        let directory = tempfile::tempdir().unwrap();
        let sound = Store::create(directory.path(), Options::default()).unwrap();
        counter(&sound, "sound").add(7);
        let (store, mut path) = everything(directory.path());
        drop(store);
        if retained {
            reader(directory.path()).fold(Duration::ZERO).unwrap();
            path = directory.path().join("retained.cells");
        }
        let original = std::fs::read(&path).unwrap();
        let mut known = reader(directory.path());
        known.scan();
        for damages in rounds {
            let mut bytes = original.clone();
            damages.iter().for_each(|damage| apply(&mut bytes, damage));
            // In place: a process that has it open sees it.
            std::fs::write(&path, &bytes).unwrap();
            for reader in [&mut known, &mut reader(directory.path())] {
                let scan = reader.scan();
                assert_eq!(count(&scan, "sound"), 7);
                let of_file = scan.problems.iter().all(|problem| problem.path == path);
                assert!(of_file && scan.problems.len() <= 1, "{:?}", scan.problems);
                let _ = reader.fold(Duration::ZERO); // an error at most
                assert_eq!(count(&reader.scan(), "sound"), 7);
            }
        }
    }
}

#[test]
fn files_that_hold_no_cells_are_reported() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name);
    let (store, original) = everything(directory.path());
    std::fs::copy(original, path("copy.cells")).unwrap();
    std::fs::create_dir(path("directory.cells")).unwrap();
    std::fs::write(path("empty.cells"), b"").unwrap();
    std::fs::write(path("other.cells"), vec![b'x'; 8192]).unwrap();
    std::os::unix::fs::symlink("copy.cells", path("link.cells")).unwrap();
    std::os::unix::net::UnixListener::bind(path("socket.cells")).unwrap();
    let pipe = std::process::Command::new("mkfifo")
        .arg(path("pipe.cells"))
        .status()
        .unwrap();
    assert!(pipe.success());
    std::fs::write(path("unrelated"), b"").unwrap();
    let scan = reader(directory.path()).scan();
    let mut told: Vec<_> = scan
        .problems
        .iter()
        .map(|problem| {
            (
                problem.path.file_name().unwrap().to_str().unwrap(),
                problem.why.as_str(),
            )
        })
        .collect();
    told.sort_unstable();
    let expected = [
        ("copy.cells", "the file name does not match the file's process"),
        ("directory.cells", "not a regular file"),
        ("empty.cells", "too short for a header"),
        ("link.cells", "not a regular file"),
        ("other.cells", "the magic bytes are missing"),
        ("pipe.cells", "not a regular file"),
        ("socket.cells", "not a regular file"),
    ];
    assert_eq!(told, expected);
    assert_eq!(scan.processes.len(), 1);
    drop(store);
}

#[test]
fn series_beyond_the_limits_are_omitted_and_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (_store, path) = everything(directory.path());
    let size = std::fs::metadata(&path).unwrap().len();
    let with = |limits| {
        let scan = tidegate_cells::Directory::open(directory.path(), limits)
            .unwrap()
            .scan();
        scan.problems.first().map(|problem| problem.why.clone())
    };
    let limits = Limits::default();
    assert_eq!(with(limits), None);
    let more = |what: &str| Some(format!("more {what} than the limit"));
    assert_eq!(
        with(Limits {
            max_file_bytes: size - 1,
            ..limits
        }),
        more("bytes")
    );
    assert_eq!(
        with(Limits {
            max_families: 7,
            ..limits
        }),
        more("families")
    );
    assert_eq!(
        with(Limits {
            max_series: 15,
            ..limits
        }),
        more("series")
    );
    assert_eq!(
        with(Limits {
            max_files: 0,
            ..limits
        }),
        more("files")
    );
}
