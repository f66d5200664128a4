// SPDX-License-Identifier: Apache-2.0

use std::path::Path;
use std::time::Duration;

use crate::error::Error;
use crate::spec::{FamilySpec, Kind};
use crate::store::{Options, Store};
use crate::value::Value;
use crate::{Directory, Limits};

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
