// SPDX-License-Identifier: Apache-2.0

//! Helpers for tests of several processes.
#![allow(dead_code)] // each test binary uses some of it

use std::path::Path;
use std::process::{Child, Command, Stdio};

use tidegate_cells::{Directory, FamilySpec, Kind, Limits, Scan, Store, Value};

/// Tells a process of a test what to do and where.
const ROLE: &str = "TIDEGATE_CELLS_TEST_ROLE";
const PATH: &str = "TIDEGATE_CELLS_TEST_PATH";

/// The role of this process, if a test has started it.
pub(crate) fn role() -> Option<(String, std::path::PathBuf)> {
    Some((std::env::var(ROLE).ok()?, std::env::var_os(PATH)?.into()))
}

/// Runs the test of that name in a process of its own, where [`role`] is `role`.
pub(crate) fn spawn(test: &str, role: &str, path: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", test, "--test-threads=1", "--nocapture"]);
    command.env(ROLE, role).env(PATH, path).stdout(Stdio::piped());
    command.spawn().unwrap()
}

/// A child made by `fork`.
pub(crate) struct Forked(libc::pid_t);

/// Runs `run` in a child of this process.
pub(crate) fn fork(run: impl FnOnce()) -> Forked {
    // SAFETY: the C library's allocator works in the child of several threads, and `run` takes no other lock of
    // this process than the crate's.
    match unsafe { libc::fork() } {
        -1 => panic!("fork: {}", std::io::Error::last_os_error()),
        0 => leave(run),
        pid => Forked(pid),
    }
}

/// The same without the C library's `fork`: no handler is called.
#[cfg(target_arch = "x86_64")]
pub(crate) fn bare_fork(run: impl FnOnce()) -> Forked {
    // SAFETY: as above; a null stack is the parent's, copied.
    match unsafe { libc::syscall(libc::SYS_clone, libc::SIGCHLD, 0, 0, 0, 0) } {
        -1 => panic!("clone: {}", std::io::Error::last_os_error()),
        0 => leave(run),
        pid => Forked(pid as libc::pid_t),
    }
}

fn leave(run: impl FnOnce()) -> ! {
    let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(run));
    // SAFETY: ends the process without the parent's handlers.
    unsafe { libc::_exit(i32::from(done.is_err())) }
}

impl Forked {
    /// Waits for its end, which is in order.
    pub(crate) fn join(self) {
        let mut status = 0;
        // SAFETY: a child of ours, and room for its status.
        let waited = unsafe { libc::waitpid(self.0, &raw mut status, 0) };
        assert_eq!((waited, status), (self.0, 0), "the child failed");
    }
}

pub(crate) fn reader(path: &Path) -> Directory {
    Directory::open(path, Limits::default()).unwrap()
}

/// The scan of a new reader.
pub(crate) fn scan(path: &Path) -> Scan {
    let scan = reader(path).scan();
    assert_eq!(scan.problems, []);
    scan
}

/// A counter without labels.
pub(crate) fn counter(store: &Store, name: &str) -> tidegate_cells::CounterCell {
    let family = store.family(&FamilySpec::new(name, Kind::Counter)).unwrap();
    family.with(&[]).counter().unwrap()
}

/// The number of values of a series of whatever instrument.
pub(crate) fn count(scan: &Scan, name: &str) -> u64 {
    match scan.merged.value(name, &[]) {
        Some(Value::Counter(count) | Value::Summary { count, .. }) => *count,
        Some(Value::FloatCounter(sum)) => *sum as u64,
        Some(Value::UpDownCounter(sum)) => *sum as u64,
        Some(Value::Histogram { buckets, .. }) => buckets.iter().sum(),
        Some(Value::Exponential(value)) => value.count,
        Some(Value::Gauge { value, .. }) => *value as u64,
        None => 0,
    }
}
