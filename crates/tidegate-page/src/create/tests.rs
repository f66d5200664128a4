// SPDX-License-Identifier: Apache-2.0

use std::os::unix::fs::PermissionsExt;

use super::*;
use crate::writer::Page;

fn rejection(made: Result<Page, Error>) -> Reject {
    match made {
        Err(Error::Rejected { reject, .. }) => reject,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_a_page_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("text"), "a user's notes").unwrap();
    std::fs::write(at("short"), "TIDE").unwrap();
    std::fs::write(at("empty"), "").unwrap();
    drop(Page::create(at("page"), 1, 0o600));
    std::os::unix::fs::symlink(at("nowhere"), at("dangling")).unwrap();
    std::os::unix::fs::symlink(at("text"), at("link")).unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, at("pipe"), Mode::RUSR).unwrap();
    for name in ["text", "short", "empty"] {
        assert_eq!(
            rejection(Page::create(at(name), 1, 0o600)),
            Reject::BadMagic,
            "{name}"
        );
    }
    for name in ["dangling", "link", "pipe"] {
        assert_eq!(
            rejection(Page::create(at(name), 1, 0o600)),
            Reject::NotRegular,
            "{name}"
        );
    }
    let directory_there = Page::create(directory.path(), 1, 0o600);
    assert!(directory_there.is_err());
    assert_eq!(std::fs::read(at("text")).unwrap(), b"a user's notes");
    assert!(at("link").is_symlink() && at("dangling").is_symlink());
}

#[test]
fn a_lock_file_that_is_a_link_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("target");
    std::os::unix::fs::symlink(&target, directory.path().join("page.lock")).unwrap();
    let made = Page::create(directory.path().join("page"), 1, 0o600);
    assert_eq!(rejection(made), Reject::NotRegular);
    assert!(!target.exists());
}

#[test]
fn a_second_writer_is_refused_until_the_first_has_gone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let first = Page::create(&path, 1, 0o600).unwrap();
    let refused = Page::create(&path, 1, 0o600).unwrap_err();
    assert!(matches!(refused, Error::Locked { .. }), "{refused}");
    assert!(refused.to_string().contains("page.lock"), "{refused}");
    let elsewhere = Page::create(directory.path().join("other"), 1, 0o600);
    assert!(elsewhere.is_ok());
    first.close().unwrap();
    Page::create(&path, 1, 0o600).unwrap();
}

/// The next writer may have opened the file before the first removes it.
#[test]
fn a_closed_page_has_no_lock_while_a_copy_of_its_descriptor_is_open() {
    let directory = tempfile::tempdir().unwrap();
    let lock = Lock::take(&directory.path().join("page")).unwrap();
    let next = File::open(&lock.path).unwrap();
    // As in a child that has not executed its program yet.
    let _copy = lock._file.try_clone().unwrap();
    drop(lock);
    assert!(try_lock(&next).unwrap());
}

#[test]
fn a_lock_that_was_removed_after_its_open_is_not_the_lock() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let lock = Lock::take(&path).unwrap();
    let other = directory.path().join("page.lock");
    std::fs::remove_file(&other).unwrap();
    std::fs::write(&other, "another writer's").unwrap();
    drop(lock);
    assert!(other.exists(), "not ours to remove");
}

#[test]
fn writers_that_come_and_go_are_never_two_at_a_time() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let inside = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                let mut got = 0;
                while got < 100 {
                    let Ok(lock) = Lock::take(&path) else {
                        std::thread::yield_now();
                        continue;
                    };
                    let others = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                    assert_eq!(others, 0);
                    inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    drop(lock);
                    got += 1;
                }
            });
        }
    });
}

#[test]
fn closing_removes_its_own_files_and_no_others() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let left = || std::fs::read_dir(directory.path()).unwrap().count();
    Page::create(&path, 1, 0o600).unwrap().close().unwrap();
    assert_eq!(left(), 0);
    drop(Page::create(&path, 1, 0o600).unwrap());
    assert_eq!(left(), 0);
    let page = Page::create(&path, 1, 0o600).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::fs::write(&path, "another's").unwrap();
    page.close().unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"another's");
}

#[test]
fn files_of_a_killed_writer_do_not_hinder_the_next() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("page.new"), "half").unwrap();
    std::fs::write(at("page.lock"), "").unwrap();
    let page = Page::create(at("page"), 2, 0o600).unwrap();
    assert!(!at("page.new").exists());
    assert_eq!(std::fs::metadata(at("page")).unwrap().len(), 256 + 2 * 704);
    page.close().unwrap();
}

#[test]
fn mode_bits_are_exact_and_only_the_owner_may_write() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    for mode in [0o600, 0o640, 0o604, 0o644] {
        let _page = Page::create(&path, 1, mode).unwrap();
        assert_eq!(
            std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777,
            mode
        );
    }
    for mode in [0o666, 0o660, 0o622, 0o755, 0o444, 0, 0o4644] {
        let refused = Page::create(&path, 1, mode).unwrap_err();
        assert!(matches!(refused, Error::Mode { .. }), "{refused}");
    }
    for capacity in [0, 65_537, u32::MAX] {
        let refused = Page::create(&path, capacity, 0o600).unwrap_err();
        assert!(matches!(refused, Error::Capacity { .. }), "{refused}");
    }
    assert!(!path.exists());
}
