// SPDX-License-Identifier: Apache-2.0

//! `fork` without the C library, which calls no handlers. The test is alone in its binary: such a child inherits locks of
//! the process that another thread holds.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::io::{Read, Write};

use common::{count, counter, scan};
use tidegate_cells::{Options, Scan, Store};

#[test]
#[cfg(target_arch = "x86_64")]
fn a_child_of_a_bare_system_call_has_its_own_file_too() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path(), Options::default()).unwrap();
    let requests = counter(&store, "requests");
    requests.add(1);
    common::bare_fork(|| requests.add(2)).join();
    assert_eq!(requests.get(), 1);
    let found = scan(directory.path());
    assert_eq!((found.processes.len(), count(&found, "requests")), (2, 3));
    let alive = |scan: &Scan| scan.processes.iter().filter(|process| process.alive).count();
    assert_eq!(alive(&found), 1, "the child leaves its parent the lock");
    let drop_all = || {
        // SAFETY: the child drops its copies of both. It ends without dropping them again.
        let copies = unsafe {
            (
                std::ptr::read(&raw const requests),
                std::ptr::read(&raw const store),
            )
        };
        drop(copies);
    };
    common::bare_fork(drop_all).join();
    let of_parent = alive(&scan(directory.path()));
    assert_eq!(of_parent, 1, "a child that drops the store leaves it too");

    // Until it records, a child has copies of the descriptors. The locks end with the store of the parent all the same.
    let (mut wait, mut go) = std::io::pipe().unwrap();
    let child = common::bare_fork(|| wait.read_exact(&mut [0]).unwrap());
    drop((requests, store));
    let found = scan(directory.path());
    go.write_all(&[0]).unwrap();
    child.join();
    assert_eq!(alive(&found), 0);
}
