// SPDX-License-Identifier: Apache-2.0

//! No room: an error or the overflow series, counted; never a signal.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::process::Command;

use common::{role, scan, spawn};
use tidegate_cells::{Error, FamilySpec, Kind, OVERFLOW_LABEL, Options, Store, Value};

/// Registers more than there is room for, and checks that nothing is lost.
fn fill(path: &Path) {
    const LOOKUPS: u64 = 3000;
    let store = Store::create(
        path,
        Options {
            max_series: 1 << 20,
            ..Options::default()
        },
    )
    .unwrap();
    let spec = FamilySpec::new("requests", Kind::Counter).labels(["user"]);
    let family = store.family(&spec).unwrap();
    // Values first, which are written to as memory: what is not there would be a signal.
    let bounds: Vec<f64> = (0..1000).map(f64::from).collect();
    let mut made = 0;
    let error = loop {
        let kind = Kind::Histogram {
            bounds: bounds.as_slice().into(),
        };
        match store.family(&FamilySpec::new(format!("family {made}"), kind)) {
            Ok(family) => family.with(&[]).histogram().unwrap().observe(1.0),
            Err(error) => break error,
        }
        made += 1;
    };
    // The family, and perhaps the only series of the last one that was made.
    let before = store.refused().room;
    for user in 0..LOOKUPS {
        family.with(&[&format!("{user:0300}")]).counter().unwrap().add(1);
    }
    let refused = store.refused().room - before;
    assert!((1..=LOOKUPS).contains(&refused), "{refused}");
    let scan = scan(path);
    let overflow = scan.merged.value("requests", &[OVERFLOW_LABEL]);
    assert_eq!(overflow, Some(&Value::Counter(refused)));
    assert_eq!(
        scan.merged.family("requests").unwrap().series.len() as u64,
        LOOKUPS - refused + 1
    );
    assert_eq!(scan.processes[0].refused.room, refused + before);
    assert!(matches!(error, Error::NoRoom { .. }), "{error}");
    println!("{refused} of {LOOKUPS} look-ups refused; then {error}");
}

#[test]
fn a_full_file_system() {
    let directory = tempfile::tempdir().unwrap();
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=512k", "tmpfs"])
        .arg(directory.path());
    if !mount.output().is_ok_and(|done| done.status.success()) {
        println!("not tested: only root can mount");
        return;
    }
    let done = std::panic::catch_unwind(|| fill(directory.path()));
    // One more process finds no room at all.
    let more = Store::create(directory.path(), Options::default());
    Command::new("umount")
        .arg("-l")
        .arg(directory.path())
        .status()
        .unwrap();
    done.unwrap();
    assert!(matches!(more, Err(Error::Io { .. })), "{more:?}");
}

#[test]
fn a_limit_to_the_size_of_files() {
    const TEST: &str = "a_limit_to_the_size_of_files";
    if let Some((_, path)) = role() {
        let limit = libc::rlimit {
            rlim_cur: 400 * 1024,
            rlim_max: libc::RLIM_INFINITY,
        };
        // SAFETY: a valid structure.
        assert_eq!(
            unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) },
            0
        );
        return fill(&path);
    }
    let directory = tempfile::tempdir().unwrap();
    let output = spawn(TEST, "fill", directory.path()).wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn a_file_as_large_as_it_may_get() {
    let directory = tempfile::tempdir().unwrap();
    let options = Options {
        max_bytes: 300 * 1024,
        max_series: 1 << 20,
        ..Options::default()
    };
    let store = Store::create(directory.path(), options).unwrap();
    let family = store
        .family(&FamilySpec::new("requests", Kind::Counter).labels(["user"]))
        .unwrap();
    (0..2000).for_each(|user| family.with(&[&format!("{user:0300}")]).counter().unwrap().add(1));
    assert!(store.size() <= 300 * 1024);
    let refused = store.refused().room;
    let overflow = Value::Counter(refused);
    assert_eq!(
        scan(directory.path()).merged.value("requests", &[OVERFLOW_LABEL]),
        Some(&overflow)
    );
    assert!(refused > 0);
}
