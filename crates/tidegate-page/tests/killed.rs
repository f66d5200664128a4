// SPDX-License-Identifier: Apache-2.0

//! A writer that is killed while it writes: readers do not wait, and the next writer takes over.

#![allow(clippy::unwrap_used, reason = "a test fails by a panic")]

mod common;

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use common::{LABELS, NAME, consistent, entry, quantiles};
use tidegate_page::{Error, Handle, Page, ReadError, Reader};

/// Tells a process of this test that it is the writer, and where.
const PATH: &str = "TIDEGATE_PAGE_KILLED_PATH";

const TEST: &str = "a_killed_writer_blocks_no_reader";

#[test]
fn a_killed_writer_blocks_no_reader() {
    if let Some(path) = std::env::var_os(PATH) {
        return write_for_ever(Path::new(&path));
    }
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("page");
    let mut last_boot = 0;
    for _ in 0..5 {
        let mut writer = spawn(&path);
        let (reader, handle) = await_writer(&mut writer, &path, last_boot);
        let refused = Page::create(&path, 1, 0o600).unwrap_err();
        assert!(matches!(refused, Error::Locked { .. }), "{refused}");
        writer.kill().unwrap();
        writer.wait().unwrap();

        match reader.read(&handle) {
            Ok(snapshot) => assert!(consistent(&snapshot), "{snapshot:?}"),
            Err(error) => assert_eq!(error, ReadError::Busy),
        }
        assert!(reader.is_current(), "the file stays");
        let beat = reader.heartbeat().unwrap();
        assert!(!reader.is_alive(beat + 2_000_000_000, Duration::from_secs(1)));
        last_boot = reader.boot();
    }
    let reader = Reader::open(&path).unwrap();
    let next = Page::create(&path, 1, 0o600).unwrap();
    assert!(!reader.is_current());
    next.close().unwrap();
    let left = std::fs::read_dir(directory.path()).unwrap().count();
    assert_eq!(left, 0);
}

fn spawn(path: &Path) -> Child {
    let mut writer = Command::new(std::env::current_exe().unwrap());
    let writer = writer.args(["--exact", TEST, "--test-threads=1"]).env(PATH, path);
    writer.spawn().unwrap()
}

fn write_for_ever(path: &Path) {
    let mut page = Page::create(path, 1, 0o600).unwrap();
    for n in 1.. {
        page.publish(n, &[entry(n, &quantiles(n))]);
    }
}

/// Waits until the writer is in the midst of it.
fn await_writer(writer: &mut Child, path: &Path, last_boot: u64) -> (Reader, Handle) {
    loop {
        assert!(writer.try_wait().unwrap().is_none(), "the writer ended by itself");
        let found = Reader::open(path)
            .ok()
            .filter(|reader| reader.boot() != last_boot);
        let found = found.and_then(|reader| reader.find(NAME, LABELS).ok().map(|handle| (reader, handle)));
        if let Some((reader, handle)) = found
            && reader.read(&handle).is_ok_and(|snapshot| snapshot.seq > 10_000)
        {
            return (reader, handle);
        }
        std::thread::yield_now();
    }
}
