// SPDX-License-Identifier: Apache-2.0

//! Files in the directory of a log that it has not written.

use std::fs::File;

use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::segment::MAX_FILE_BYTES;
use super::*;

fn pipe(directory: &Path, name: &str) -> PathBuf {
    let path = directory.join(name);
    mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    path
}

#[test]
fn a_pipe_and_a_file_that_is_too_large_are_reported_and_stay() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), 1 << 20);
    (1..=3).for_each(|seq| append(&mut log, seq, false));
    log.flush().unwrap();
    drop(log);
    // They have the names that come next.
    let pipe = pipe(directory.path(), "00000000000000000004.seg");
    let large = directory.path().join("00000000000000000005.seg");
    let file = File::create(&large).unwrap();
    file.set_len(MAX_FILE_BYTES + 1).unwrap();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!((recovered.unreadable, recovered.records), (2, 3));
    assert_eq!(read_all(&mut log), [1, 2, 3]);
    assert_eq!(log.next_seq(), 6);
    append(&mut log, 6, false);
    log.flush().unwrap();
    assert_eq!(read_all(&mut log), [6]);
    assert!(pipe.exists());
    assert_eq!(std::fs::metadata(&large).unwrap().len(), MAX_FILE_BYTES + 1);
}

#[test]
fn a_pipe_in_the_place_of_the_lock_is_an_error_at_once() {
    let directory = tempfile::tempdir().unwrap();
    pipe(directory.path(), "lock");
    let opened = Log::open(directory.path(), &rules(1 << 20), Quota::new(1), None);
    assert!(opened.is_err());
}

#[test]
fn a_pipe_among_the_spare_files_is_deleted() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = pipe(directory.path(), "00000000000000000001.spare");
    let (log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!((recovered, log.segments()), (Recovered::default(), 0));
    assert!(!pipe.exists());
}
