// SPDX-License-Identifier: Apache-2.0

//! `fork` without the C library, which calls no handlers. The test is alone in its binary: such a child holds the locks
//! of all stores of its parent until it first records.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use common::{count, counter, scan};
use tidegate_cells::{Options, Store};

#[test]
#[cfg(target_arch = "x86_64")]
fn a_child_of_a_bare_system_call_has_its_own_file_too() {
    let directory = tempfile::tempdir().unwrap();
    let store = Store::create(directory.path(), Options::default()).unwrap();
    let requests = counter(&store, "requests");
    requests.add(1);
    common::bare_fork(|| requests.add(2)).join();
    assert_eq!(requests.get(), 1);
    let scan = scan(directory.path());
    assert_eq!((scan.processes.len(), count(&scan, "requests")), (2, 3));
}
