// SPDX-License-Identifier: Apache-2.0

use std::time::{Duration, Instant};

use super::*;

#[test]
fn links_directories_and_pipes_are_refused_without_blocking() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("file"), "").unwrap();
    std::os::unix::fs::symlink(at("file"), at("link")).unwrap();
    let made = std::process::Command::new("mkfifo")
        .arg(at("pipe"))
        .status()
        .unwrap();
    assert!(made.success());
    let _socket = std::os::unix::net::UnixListener::bind(at("socket")).unwrap();
    for name in ["link", "pipe", "socket", "."] {
        for write in [false, true] {
            let refused = open(OpenOptions::new().read(true).write(write), &at(name)).unwrap_err();
            assert!(matches!(refused, OpenError::NotRegular), "{name}: {refused}");
        }
    }
    let missing = open(OpenOptions::new().read(true), &at("none")).unwrap_err();
    assert_eq!(io::Error::from(missing).kind(), ErrorKind::NotFound);
}

#[test]
fn a_file_is_at_its_path_until_another_one_is() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("file"), directory.path().join("other"));
    std::fs::write(&path, "one").unwrap();
    let (_file, metadata) = open(OpenOptions::new().read(true), &path).unwrap();
    let id = FileId::of(&metadata);
    assert!(id.is_at(&path) && !id.is_at(&other));
    std::fs::write(&other, "another").unwrap();
    std::fs::rename(&other, &path).unwrap();
    assert!(!id.is_at(&path));
}

#[test]
fn a_pinned_directory_stays_the_same_when_its_path_leads_elsewhere() {
    let root = tempfile::tempdir().unwrap();
    let at = |name: &str| root.path().join(name);
    for name in ["one", "other"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::write(at(name).join("file"), name).unwrap();
    }
    let pinned = PinnedDirectory::open(&at("one"), false).unwrap();
    std::fs::rename(at("one"), at("aside")).unwrap();
    std::os::unix::fs::symlink("other", at("one")).unwrap();
    assert_eq!(std::fs::read(pinned.at("file")).unwrap(), b"one");
    let followed = PinnedDirectory::open(&at("one"), true).unwrap();
    assert_eq!(std::fs::read(followed.at("file")).unwrap(), b"other");
    assert_ne!(pinned.id(), followed.id());
    assert_eq!(followed.id(), FileId::of_path(&at("other")).unwrap());
    assert!(PinnedDirectory::open(&at("one"), false).is_err(), "a link");
    assert!(PinnedDirectory::open(&at("other/file"), true).is_err(), "a file");
}

#[test]
fn a_lock_is_seen_by_others_until_its_file_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let first = File::create(&path).unwrap();
    let second = File::open(&path).unwrap();
    assert!(!is_locked(&second).unwrap());
    assert!(try_lock(&first).unwrap());
    assert!(is_locked(&second).unwrap() && !try_lock(&second).unwrap());
    drop(first);
    // A child that another test starts has a copy of the descriptor until it executes its program.
    let until = Instant::now() + Duration::from_secs(30);
    while is_locked(&second).unwrap() {
        assert!(Instant::now() < until, "the lock outlasts its file");
        std::thread::yield_now();
    }
    assert!(try_lock(&second).unwrap());
}

/// Two descriptors of a file. Locks of one are seen by the other.
fn two_of_a_file() -> [File; 2] {
    let file = tempfile::NamedTempFile::new().unwrap();
    [File::open(file.path()).unwrap(), File::open(file.path()).unwrap()]
}

#[test]
fn a_holder_releases_its_lock_while_a_copy_of_its_descriptor_is_open() {
    let [file, other] = two_of_a_file();
    let holder = LockHolder::new(file);
    assert!(try_lock(&holder).unwrap());
    // As in a child that has not executed its program yet.
    let _copy = holder.try_clone().unwrap();
    assert!(!try_lock(&other).unwrap());
    drop(holder);
    assert!(try_lock(&other).unwrap());
}

#[test]
fn a_holder_without_a_lock_releases_none() {
    let [file, other] = two_of_a_file();
    assert!(try_lock(&file).unwrap());
    drop(LockHolder::new(other.try_clone().unwrap()));
    assert!(is_locked(&other).unwrap());
}

#[test]
fn a_child_of_fork_leaves_the_lock_of_its_parent() {
    let [file, other] = two_of_a_file();
    let parent = LockHolder::new(file);
    assert!(try_lock(&parent).unwrap());
    drop(LockHolder {
        file: parent.try_clone().unwrap(),
        process: 0,
    });
    assert!(is_locked(&other).unwrap());
}

#[test]
fn reserved_bytes_are_there_and_zero() {
    let file = tempfile::tempfile().unwrap();
    file.write_all_at(b"text", 0).unwrap();
    reserve(&file, 4, 40_000).unwrap();
    zeros(&file, 40_004, 40_000).unwrap();
    let mut bytes = vec![1; 80_010];
    assert_eq!(read_at(&file, &mut bytes, 2).unwrap(), 80_002);
    assert_eq!(&bytes[..2], b"xt");
    assert!(bytes[2..80_002].iter().all(|byte| *byte == 0));
}
