// SPDX-License-Identifier: Apache-2.0

use std::path::Path;
use std::time::{Duration, Instant};

use super::open_files::OpenFiles;
use super::process::ReadError;
use super::rejected::Rejected;
use super::{Directory, Limits, NAMES, RETAINED, Scan};
use crate::spec::{FamilySpec, GaugeMode, Kind};
use crate::store::{Options, Store};
use crate::value::Value;

/// A process that counts once.
fn process(path: &Path) -> Store {
    let store = Store::create(path, Options::default()).unwrap();
    let family = store.family(&FamilySpec::new("requests", Kind::Counter)).unwrap();
    family.with(&[]).counter().unwrap().add(1);
    store
}

fn reader(path: &Path, limits: Limits) -> Directory {
    Directory::open(path, limits).unwrap()
}

fn requests(scan: &Scan) -> Option<u64> {
    match scan.merged.value("requests", &[]) {
        Some(Value::Counter(count)) => Some(*count),
        _ => None,
    }
}

#[test]
fn files_of_the_dead_are_closed_and_those_of_the_living_are_bounded() {
    let directory = tempfile::tempdir().unwrap();
    let mut reader = reader(directory.path(), Limits::default());
    reader.open_files = OpenFiles::at_most(1);
    (0..3).for_each(|_| drop(process(directory.path())));
    let scan = reader.scan();
    assert_eq!((requests(&scan), scan.problems), (Some(3), Vec::new()));
    let (one, other) = (process(directory.path()), process(directory.path()));
    let scan = reader.scan();
    assert_eq!((requests(&scan), scan.problems.len()), (Some(4), 1));
    assert!(scan.problems[0].why.contains("too many files"));
    assert_eq!(reader.without_files, 1);
    drop((one, other));
    // The first look closes the file that is open.
    reader.scan();
    let scan = reader.scan();
    assert_eq!((requests(&scan), scan.problems), (Some(5), Vec::new()));
    assert_eq!(reader.without_files, 0);
}

#[test]
fn a_new_file_of_the_dead_is_read_while_no_more_files_may_be_open() {
    let directory = tempfile::tempdir().unwrap();
    let mut bounded = reader(directory.path(), Limits::default());
    bounded.open_files = OpenFiles::at_most(1);
    for total in 1..=3 {
        drop(process(directory.path()));
        let mut other = reader(directory.path(), Limits::default());
        other.fold(Duration::ZERO).unwrap();
        let scan = bounded.scan();
        assert_eq!((requests(&scan), scan.problems), (Some(total), Vec::new()));
    }
}

#[test]
fn a_file_waits_if_the_system_allows_no_more_open_files() {
    for (code, waits) in [(libc::EMFILE, true), (libc::ENFILE, true), (libc::EACCES, false)] {
        let error = ReadError::from(std::io::Error::from_raw_os_error(code));
        assert_eq!(matches!(error, ReadError::NoFile), waits, "{error}");
    }
}

#[test]
fn the_limits_of_a_process_do_not_hold_for_the_file_of_the_dead() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        max_files: 2,
        max_file_bytes: 64 * 1024,
        max_families: 3,
        max_series: 10,
        ..Limits::default()
    };
    for number in 1..=20 {
        let store = process(directory.path());
        for name in ["depth", "length"] {
            let spec = FamilySpec::new(name, Kind::Gauge(GaugeMode::All)).labels(["label"]);
            let family = store.family(&spec).unwrap();
            for label in ["a", "b", "c"] {
                family.with(&[label]).float().unwrap().set(1.0);
            }
        }
        drop(store);
        reader(directory.path(), limits)
            .fold(Duration::from_mins(1))
            .unwrap();
        let scan = reader(directory.path(), limits).scan();
        assert_eq!(requests(&scan), Some(number));
        // Only the list of the dead needs them.
        let files = std::fs::read_dir(directory.path()).unwrap().flatten();
        let of_dead = files.filter(|file| file.file_name().to_string_lossy().starts_with(char::is_numeric));
        of_dead.for_each(|file| std::fs::remove_file(file.path()).unwrap());
    }
}

#[test]
fn many_names_are_one_problem_and_take_no_turn_of_known_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let _alive = process(path);
    let limits = Limits {
        max_files: 2,
        ..Limits::default()
    };
    let mut reader = reader(path, limits);
    assert_eq!(requests(&reader.scan()), Some(1));
    std::fs::write(path.join("0"), b"").unwrap();
    let mut made = 0;
    for names in [10, 2 * NAMES] {
        for number in made..names {
            std::fs::hard_link(path.join("0"), path.join(format!("0-{number}.cells"))).unwrap();
        }
        made = names;
        let scan = reader.scan();
        assert_eq!(requests(&scan), Some(1), "{names} names");
        let why: Vec<_> = scan.problems.iter().map(|problem| problem.why.as_str()).collect();
        assert_eq!(why, ["more files than the limit", "too short for a header"]);
        assert!(reader.fold(Duration::ZERO).is_ok(), "{names} names");
    }
}

#[test]
fn a_directory_with_too_many_names_is_folded_and_its_list_shrinks() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let store = process(path);
    let limits = Limits {
        max_files: 2,
        ..Limits::default()
    };
    let mut reader = reader(path, limits);
    assert_eq!(requests(&reader.scan()), Some(1));
    std::fs::write(path.join("0"), b"").unwrap();
    for number in 0..2 * NAMES {
        std::fs::hard_link(path.join("0"), path.join(format!("0-{number}.cells"))).unwrap();
    }
    drop(store);
    let list = |reader: &Directory| reader.last_retained.as_ref().unwrap().folded.len();
    // Its file stays for the grace period, and counts once.
    for (grace, folded, removed, left) in [
        (Duration::from_mins(1), 1, 0, 1),
        (Duration::ZERO, 0, 1, 1),
        (Duration::ZERO, 0, 0, 0),
    ] {
        let done = reader.fold(grace).unwrap();
        assert_eq!((done.processes.len(), done.removed), (folded, removed));
        assert_eq!(requests(&reader.scan()), Some(1));
        assert_eq!(list(&reader), left);
    }
}

#[test]
fn files_of_folded_processes_take_no_turn_of_new_ones() {
    let directory = tempfile::tempdir().unwrap();
    let limits = Limits {
        max_files: 2,
        ..Limits::default()
    };
    let mut reader = reader(directory.path(), limits);
    (0..2).for_each(|_| drop(process(directory.path())));
    assert_eq!(requests(&reader.scan()), Some(2));
    reader.fold(Duration::from_mins(1)).unwrap();
    let _new = [process(directory.path()), process(directory.path())];
    assert_eq!(requests(&reader.scan()), Some(4));
}

#[test]
fn known_files_of_a_directory_that_can_not_be_opened_are_read_on() {
    let root = tempfile::tempdir().unwrap();
    let (path, other) = (root.path().join("cells"), root.path().join("other"));
    let store = process(&path);
    let mut reader = reader(&path, Limits::default());
    assert_eq!(requests(&reader.scan()), Some(1));
    std::fs::rename(&path, &other).unwrap();
    std::fs::write(&path, b"").unwrap();
    let family = store.family(&FamilySpec::new("requests", Kind::Counter)).unwrap();
    family.with(&[]).counter().unwrap().add(1);
    let check = |reader: &mut Directory, alive: bool| {
        let scan = reader.scan();
        assert_eq!((requests(&scan), scan.problems.len()), (Some(2), 1));
        assert_eq!(scan.processes[0].alive, alive);
    };
    check(&mut reader, true);
    drop(family);
    drop(store);
    check(&mut reader, false);
}

#[test]
fn histograms_have_the_bounds_that_all_of_their_values_have() {
    let directory = tempfile::tempdir().unwrap();
    let store = |bounds: &[f64], is_used: bool| {
        let store = Store::create(directory.path(), Options::default()).unwrap();
        let bounds = bounds.into();
        let spec = FamilySpec::new("time", Kind::Histogram { bounds });
        let family = store.family(&spec).unwrap();
        if is_used {
            family.with(&[]).histogram().unwrap().observe(2.5);
        }
        store
    };
    let check = |bounds: &[f64], buckets: &[u64]| {
        let scan = reader(directory.path(), Limits::default()).scan();
        let spec = &scan.merged.families[0].spec;
        assert_eq!(
            spec.kind,
            Kind::Histogram {
                bounds: bounds.into()
            }
        );
        match scan.merged.value("time", &[]) {
            Some(Value::Histogram { buckets: found, .. }) => assert_eq!(found, buckets),
            other => panic!("{other:?}"),
        }
    };
    // The oldest file has a family without values.
    let _unused = store(&[1.0, 2.0], false);
    let _one = store(&[0.0, 2.0, 3.0], true);
    check(&[0.0, 2.0, 3.0], &[0, 0, 1, 0]);
    let _equal = store(&[-0.0, 2.0, 3.0], true);
    check(&[0.0, 2.0, 3.0], &[0, 0, 2, 0]);
    let _others = [store(&[2.0, 3.0, 4.0], true), store(&[1.0, 2.0, 3.0], true)];
    check(&[2.0, 3.0], &[0, 4, 0]);
}

#[test]
fn a_file_whose_read_took_long_is_not_read_again_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let (file, retained) = (directory.path().join("0.cells"), directory.path().join(RETAINED));
    let mut reader = reader(directory.path(), Limits::default());
    let why = |reader: &mut Directory| {
        let problems = reader.scan().problems.into_iter();
        problems.map(|problem| problem.why).collect::<Vec<_>>()
    };
    for path in [&file, &retained] {
        std::fs::write(path, b"").unwrap();
    }
    assert_eq!(why(&mut reader), ["too short for a header"; 2]);
    let rejected = |path: &Path, why: &str| {
        let took = Duration::from_mins(1);
        Rejected::new(path, why.to_owned(), Instant::now(), took).unwrap()
    };
    reader
        .rejected
        .insert(file.clone(), rejected(&file, "of the file"));
    reader.rejected_retained = Some(rejected(&retained, "of the retained file"));
    // More than one look.
    for _ in 0..2 {
        assert_eq!(why(&mut reader), ["of the retained file", "of the file"]);
    }
    for path in [&file, &retained] {
        std::fs::write(path, b"other").unwrap();
    }
    assert_eq!(why(&mut reader), ["too short for a header"; 2]);
}
