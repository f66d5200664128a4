// SPDX-License-Identifier: Apache-2.0

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
fn a_lock_is_seen_by_others_until_its_file_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    let first = File::create(&path).unwrap();
    let second = File::open(&path).unwrap();
    assert!(!is_locked(&second).unwrap());
    assert!(try_lock(&first).unwrap());
    assert!(is_locked(&second).unwrap() && !try_lock(&second).unwrap());
    drop(first);
    assert!(!is_locked(&second).unwrap() && try_lock(&second).unwrap());
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
