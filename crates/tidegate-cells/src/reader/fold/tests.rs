// SPDX-License-Identifier: Apache-2.0

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Duration;

use super::super::{EARLIEST_NS, RETAINED};
use crate::error::Error;
use crate::file::SUFFIX;
use crate::layout::header;
use crate::spec::{FamilySpec, Kind};
use crate::store::{Options, Store};
use crate::value::Value;
use crate::{Directory, Follower, Limits};

fn add(store: &Store, count: u64) {
    let family = store.family(&FamilySpec::new("requests", Kind::Counter)).unwrap();
    family.with(&[]).counter().unwrap().add(count);
}

fn total(path: &Path) -> Option<u64> {
    let scan = Directory::open(path, Limits::default()).unwrap().scan();
    assert_eq!(scan.problems, []);
    match scan.merged.value("requests", &[]) {
        Some(Value::Counter(count)) => Some(*count),
        _ => None,
    }
}

/// Folds up to a step and no further. True if it got that far.
fn fold_until(path: &Path, stop_before: usize) -> bool {
    let mut steps = 0;
    let mut step = || {
        steps += 1;
        if steps > stop_before {
            Err(Error::Resource)
        } else {
            Ok(())
        }
    };
    let mut directory = Directory::open(path, Limits::default()).unwrap();
    directory
        .fold_by_steps(Duration::ZERO, &mut step, &mut |_| true)
        .is_err()
}

#[test]
fn counts_once_wherever_it_ends() {
    let mut stop_before = 0;
    loop {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path();
        let alive = Store::create(path, Options::default()).unwrap();
        add(&alive, 1);
        // Two generations of the dead: one is in the retained file, with its files left, and one is not.
        let dead = |count| add(&Store::create(path, Options::default()).unwrap(), count);
        [10, 20].into_iter().for_each(dead);
        Directory::open(path, Limits::default())
            .unwrap()
            .fold(Duration::from_mins(1))
            .unwrap();
        [300, 400].into_iter().for_each(dead);
        let stopped = fold_until(path, stop_before);
        assert_eq!(total(path), Some(731), "stopped before step {stop_before}");
        add(&alive, 1000);
        // Each fold that was begun is run to the end twice: in the second run, names leave the list.
        assert!(!fold_until(path, usize::MAX));
        assert!(!fold_until(path, usize::MAX));
        assert_eq!(total(path), Some(1731), "stopped before step {stop_before}");
        let left = std::fs::read_dir(path).unwrap().count();
        assert_eq!(left, 3, "one process, the retained file, the lock");
        if !stopped {
            break;
        }
        stop_before += 1;
    }
    assert!(
        stop_before >= 6,
        "{stop_before} steps: tidy up, rename, four files"
    );
}

#[test]
fn leaves_alone_what_it_can_not_read() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    add(&Store::create(path, Options::default()).unwrap(), 1);
    std::fs::write(path.join("retained.cells"), b"of another version").unwrap();
    let mut folder = Directory::open(path, Limits::default()).unwrap();
    assert!(folder.fold(Duration::ZERO).is_err());
    assert_eq!(
        std::fs::read(path.join("retained.cells")).unwrap(),
        b"of another version"
    );
    assert_eq!(std::fs::read_dir(path).unwrap().count(), 3);
}

#[test]
fn one_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let lock = super::lock(directory.path()).unwrap().unwrap();
    let mut folder = Directory::open(directory.path(), Limits::default()).unwrap();
    assert!(folder.fold(Duration::ZERO).unwrap().busy);
    // As in a child that has not executed its program yet.
    let _copy = lock.try_clone().unwrap();
    drop(lock);
    assert!(!folder.fold(Duration::ZERO).unwrap().busy);
}

#[test]
fn removes_what_was_left_half_made() {
    let directory = tempfile::tempdir().unwrap();
    let left = |name: &str| directory.path().join(name);
    std::fs::write(left(".1-2-3.cells.new"), b"").unwrap();
    std::fs::write(left(".retained.cells.new"), b"half").unwrap();
    let locked = std::fs::File::create(left(".4-5-6.cells.new")).unwrap();
    rustix::fs::flock(&locked, rustix::fs::FlockOperation::LockExclusive).unwrap();
    add(&Store::create(directory.path(), Options::default()).unwrap(), 5);
    let mut folder = Directory::open(directory.path(), Limits::default()).unwrap();
    assert_eq!(folder.fold(Duration::ZERO).unwrap().processes.len(), 1);
    assert!(!left(".1-2-3.cells.new").exists() && !left(".retained.cells.new").exists());
    assert!(left(".4-5-6.cells.new").exists(), "a process is making it");
    assert_eq!(total(directory.path()), Some(5));
}

#[test]
fn pipes_and_links_with_names_of_unfinished_files_stay_and_block_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let left = |name: &str| directory.path().join(name);
    let read = rustix::fs::Mode::RUSR;
    rustix::fs::mkfifoat(rustix::fs::CWD, left(".a.cells.new"), read).unwrap();
    std::fs::write(left("other"), b"").unwrap();
    std::os::unix::fs::symlink("other", left(".b.cells.new")).unwrap();
    add(&Store::create(directory.path(), Options::default()).unwrap(), 5);
    let mut folder = Directory::open(directory.path(), Limits::default()).unwrap();
    assert_eq!(folder.fold(Duration::ZERO).unwrap().processes.len(), 1);
    assert_eq!(total(directory.path()), Some(5));
    for name in [".a.cells.new", ".b.cells.new", "other"] {
        assert!(left(name).symlink_metadata().is_ok(), "{name}");
    }
}

/// The names and contents of files.
fn contents(path: &Path) -> Vec<(std::ffi::OsString, Vec<u8>)> {
    let entries = std::fs::read_dir(path).unwrap().flatten();
    let files = entries.map(|entry| (entry.file_name(), std::fs::read(entry.path()).unwrap()));
    let mut files: Vec<_> = files.collect();
    files.sort_unstable();
    files
}

#[test]
fn a_fold_stays_in_its_directory_when_the_path_leads_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let alive = Store::create(&at("victim"), Options::default()).unwrap();
    add(&alive, 1);
    add(&Store::create(&at("victim"), Options::default()).unwrap(), 2);
    let victim = contents(&at("victim"));
    add(&Store::create(&at("own"), Options::default()).unwrap(), 40);
    let mut folder = Directory::open(at("own"), Limits::default()).unwrap();
    let mut is_swapped = false;
    let mut step = || {
        if !std::mem::replace(&mut is_swapped, true) {
            std::fs::rename(at("own"), at("aside")).unwrap();
            std::os::unix::fs::symlink("victim", at("own")).unwrap();
        }
        Ok::<(), Error>(())
    };
    let folded = folder.fold_by_steps(Duration::ZERO, &mut step, &mut |_| true);
    assert_eq!(folded.unwrap().removed, 1);
    assert_eq!(contents(&at("victim")), victim);
    assert_eq!(total(&at("aside")), Some(40));
    // What it knows of the one says nothing about the other.
    folder.fold(Duration::ZERO).unwrap();
    assert_eq!(total(&at("victim")), Some(3));
}

#[test]
fn files_of_a_directory_say_nothing_about_another_one_at_its_path() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    let alive = Store::create(&at("victim"), Options::default()).unwrap();
    add(&alive, 1);
    let name = format!("{}{SUFFIX}", alive.identity().unwrap());
    // A copy without a lock.
    std::fs::create_dir(at("own")).unwrap();
    std::fs::copy(at("victim").join(&name), at("own").join(&name)).unwrap();
    let mut folder = Directory::open(at("own"), Limits::default()).unwrap();
    assert!(!folder.scan().processes[0].alive);
    std::fs::rename(at("own"), at("aside")).unwrap();
    std::os::unix::fs::symlink("victim", at("own")).unwrap();
    let folded = folder.fold(Duration::ZERO).unwrap();
    assert_eq!((folded.processes.len(), folded.removed), (0, 0));
    assert!(at("victim").join(&name).exists());
    let unlinked = Directory::open_unlinked(at("own"), Limits::default());
    assert!(unlinked.unwrap_err().to_string().contains("own"));
}

#[test]
fn a_file_with_a_lock_is_not_removed() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path(), Options::default()).unwrap();
    let file = format!("{}{SUFFIX}", store.identity().unwrap());
    let file = directory.path().join(file);
    drop(store);
    let mut folder = Directory::open(directory.path(), Limits::default()).unwrap();
    folder.fold(Duration::from_mins(1)).unwrap();
    let locked = File::open(&file).unwrap();
    locked.lock().unwrap();
    let folded = folder.fold(Duration::ZERO).unwrap();
    assert_eq!((folded.removed, folded.problems.len()), (0, 1));
    assert!(folded.problems[0].path == file && file.exists());
    locked.unlock().unwrap();
    assert_eq!(folder.fold(Duration::ZERO).unwrap().removed, 1);
}

const HOUR: u64 = 3_600_000_000_000;
/// The time of readers.
const NOW: u64 = EARLIEST_NS + 10 * HOUR;

/// Overwrites a word of the header.
fn set_word(path: &Path, at: usize, word: u64) {
    let file = File::options().read(true).write(true).open(path).unwrap();
    file.write_all_at(&word.to_le_bytes(), at as u64).unwrap();
    let mut fixed = [0; header::CRC];
    file.read_exact_at(&mut fixed, 0).unwrap();
    file.write_all_at(&crc32fast::hash(&fixed).to_le_bytes(), header::CRC as u64)
        .unwrap();
}

/// A process whose file says that it was made at that time.
fn file_of(path: &Path, created_ns: u64) -> Store {
    let store = Store::create(path, Options::default()).unwrap();
    let file = format!("{}{SUFFIX}", store.identity().unwrap());
    set_word(&path.join(file), header::CREATED_NS, created_ns);
    store
}

/// The start that a new reader finds.
fn start(path: &Path, now: u64) -> Option<u64> {
    let mut directory = Directory::open(path, Limits::default()).unwrap();
    assert_eq!(directory.scan().problems, []);
    directory.start_ns(now)
}

fn follower(path: &Path) -> Follower {
    let mut follower = Follower::new(Directory::open(path, Limits::default()).unwrap());
    assert_eq!(follower.look().problems, []);
    follower
}

#[test]
fn the_start_is_the_time_of_the_oldest_file_if_it_is_possible() {
    let empty = tempfile::tempdir().unwrap();
    assert_eq!(start(empty.path(), NOW), None);
    for (times, expected) in [
        (&[NOW - 5][..], NOW - 5),
        (&[NOW - 5, NOW - 7], NOW - 7),
        (&[NOW + HOUR], NOW),
        (&[0], NOW),
        (&[1], NOW),
        (&[u64::MAX, 0, NOW - 5, 1], NOW - 5),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let made = times.iter().map(|time| file_of(directory.path(), *time));
        let _made: Vec<_> = made.collect();
        assert_eq!(start(directory.path(), NOW), Some(expected), "{times:?}");
    }
}

#[test]
fn a_start_that_others_would_not_find_is_saved_and_stays() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    let first = file_of(path, NOW + HOUR);
    add(&first, 1);
    let mut reader = follower(path);
    assert!(!reader.is_start_due(), "none is shown");
    assert_eq!(reader.start_ns(NOW), Some(NOW));
    reader.keep_start(NOW);
    assert!(reader.is_start_due());
    assert_eq!(start(path, NOW + 1), Some(NOW + 1));
    reader.fold(Duration::ZERO).unwrap();
    reader.look();
    assert!(!reader.is_start_due(), "it is saved");
    add(&file_of(path, NOW - 5), 10);
    assert_eq!(start(path, NOW + 2 * HOUR), Some(NOW));
    // By a reader that has shown none, and by one that has shown another.
    for shown in [None, Some(NOW - 5)] {
        let mut other = follower(path);
        shown.into_iter().for_each(|shown| other.keep_start(shown));
        assert!(!other.is_start_due());
        other.fold(Duration::ZERO).unwrap();
        assert_eq!(start(path, NOW + 2 * HOUR), Some(NOW));
        add(&file_of(path, NOW - 9), 100);
    }
    assert_eq!(total(path), Some(211));
}

#[test]
fn a_start_that_others_find_as_well_takes_no_fold_of_its_own() {
    let directory = tempfile::tempdir().unwrap();
    let _alive = file_of(directory.path(), NOW);
    let mut reader = follower(directory.path());
    reader.keep_start(NOW);
    assert!(!reader.is_start_due());
    reader.fold(Duration::ZERO).unwrap();
    assert!(!directory.path().join(RETAINED).exists());
    drop(file_of(directory.path(), NOW + 5));
    reader.look();
    reader.fold(Duration::ZERO).unwrap();
    // Also if an older file comes while nobody reads.
    let _older = file_of(directory.path(), NOW - 5);
    assert_eq!(start(directory.path(), NOW + HOUR), Some(NOW));
}

#[test]
fn a_retained_file_with_only_a_start_leaves_the_resource_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        resource: vec![("service.name".to_owned(), "llm".to_owned())],
        ..Options::default()
    };
    let _alive = Store::create(directory.path(), options.clone()).unwrap();
    let mut reader = follower(directory.path());
    reader.keep_start(NOW);
    reader.fold(Duration::ZERO).unwrap();
    assert!(directory.path().join(RETAINED).exists());
    assert_eq!(follower(directory.path()).resource(), options.resource);
}

#[test]
fn a_saved_start_of_the_future_is_replaced_and_older_files_have_none() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path();
    drop(file_of(path, NOW - 5));
    follower(path).fold(Duration::ZERO).unwrap();
    // As in files of older builds, which save none.
    assert_eq!(start(path, NOW), Some(NOW - 5));
    set_word(&path.join(RETAINED), header::SHOWN_NS, u64::MAX);
    assert_eq!(start(path, NOW), Some(NOW));
    let mut reader = follower(path);
    reader.keep_start(NOW);
    assert!(reader.is_start_due());
    reader.fold(Duration::ZERO).unwrap();
    assert_eq!(start(path, NOW + HOUR), Some(NOW));
}
