// SPDX-License-Identifier: Apache-2.0

//! Snapshots that are written piece by piece, and what becomes of those that are not whole.

use std::fs::File;
use std::io::{self, Read, Write};
use std::panic::AssertUnwindSafe;
use std::sync::mpsc;

use parking_lot::Mutex;
use proptest::prelude::*;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use super::super::segment_pool;
use super::super::snapshot::{self, Underway};
use super::*;

/// The restored data, if any.
#[derive(Default)]
struct Image(Mutex<Option<Vec<u8>>>);

impl State for Image {
    fn joins(&self) -> Joins {
        Joins::WhenKept
    }

    fn restore(&self, snapshot: &[u8]) {
        *self.0.lock() = Some(snapshot.to_vec());
    }

    fn replay(&self, _: &[u8]) {}

    fn save(&self, _: &mut dyn FnMut()) -> Saving {
        unreachable!("these are written by hand")
    }
}

/// The number and the state that a log would begin with.
fn read(directory: &Path) -> (u64, Option<Vec<u8>>) {
    let image = Image::default();
    let seq = snapshot::read(directory, &image);
    (seq, image.0.into_inner())
}

fn saving(pieces: Vec<Vec<u8>>) -> Saving {
    Box::new(move |to| pieces.iter().try_for_each(|piece| to.write_all(piece)))
}

/// The result of `work`, and the log lines that it writes.
fn with_log<T>(work: impl FnOnce() -> T) -> (T, String) {
    let lines = Arc::new(Lines::default());
    let logs = tracing_subscriber::fmt().with_writer(lines.clone()).finish();
    let done = tracing::subscriber::with_default(logs, work);
    let lines = std::mem::take(&mut *lines.0.lock());
    (done, String::from_utf8(lines).unwrap())
}

#[derive(Default)]
struct Lines(Mutex<Vec<u8>>);

impl Write for &Lines {
    fn write(&mut self, some: &[u8]) -> io::Result<usize> {
        self.0.lock().write(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(directory: &Path, seq: u64, state: &[u8]) {
    let written = snapshot::write(directory, seq, saving(vec![state.to_vec()]));
    assert_eq!(written.unwrap(), state.len() as u64);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(30))]

    /// Written over others that are longer or shorter, in pieces of any size, some of them synced in between.
    #[test]
    fn a_state_in_pieces_comes_back_whole(
        snapshots in prop::collection::vec(prop::collection::vec(0usize..3_000_000, 0..6), 1..5),
    ) {
        let directory = tempfile::tempdir().unwrap();
        for (seq, sizes) in (7..).zip(snapshots) {
            let pieces: Vec<_> = sizes.iter().map(|size| vec![*size as u8 ^ seq as u8; *size]).collect();
            let whole = pieces.concat();
            let written = snapshot::write(directory.path(), seq, saving(pieces));
            prop_assert_eq!(written.unwrap(), whole.len() as u64);
            prop_assert!(read(directory.path()) == (seq, Some(whole)));
        }
    }
}

#[test]
fn what_is_cut_or_changed_anywhere_is_not_used_and_said_to_be_damaged() {
    let directory = tempfile::tempdir().unwrap();
    write(directory.path(), 5, b"the state of a table");
    let (path, whole) = (directory.path().join("state"), b"the state of a table".len() + 20);
    let sound = std::fs::read(&path).unwrap();
    assert_eq!(sound.len(), whole);
    let cut = (0..whole).map(|length| sound[..length].to_vec());
    let changed = (0..whole).map(|at| {
        let mut bytes = sound.clone();
        bytes[at] ^= 0x10;
        bytes
    });
    for bytes in cut.chain(changed).chain([[&sound[..], b"more"].concat()]) {
        std::fs::write(&path, &bytes).unwrap();
        let (found, lines) = with_log(|| read(directory.path()));
        assert_eq!(found, (0, None), "{bytes:?}");
        assert!(
            lines.contains("the snapshot is damaged: it is not used"),
            "{lines}"
        );
    }
    std::fs::write(&path, &sound).unwrap();
    assert_eq!(
        read(directory.path()),
        (5, Some(b"the state of a table".to_vec()))
    );
}

#[test]
fn a_pipe_in_the_place_of_a_snapshot_blocks_no_start() {
    let directory = tempfile::tempdir().unwrap();
    for name in ["state", "state.new"] {
        let path = directory.path().join(name);
        mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    }
    let (found, lines) = with_log(|| read(directory.path()));
    assert_eq!(found, (0, None));
    assert!(lines.contains("not a regular file"), "{lines}");
    // The first one trades places with the pipe.
    for seq in 1..=3 {
        write(directory.path(), seq, b"the state");
        assert_eq!(read(directory.path()), (seq, Some(b"the state".to_vec())));
    }
}

#[test]
fn what_ends_between_two_pieces_leaves_the_snapshot_before() {
    let directory = tempfile::tempdir().unwrap();
    let piece = vec![7; 5 << 20];
    let before = (1, Some(b"before".to_vec()));
    // With a file to be written over, and without.
    for old in 0..2 {
        (0..=old).for_each(|_| write(directory.path(), 1, b"before"));
        let (first, path) = (piece.clone(), directory.path().to_owned());
        let fails: Saving = Box::new(move |to| {
            to.write_all(&first)?;
            to.write_all(&first)?;
            // The files that a killed process would leave now.
            assert_eq!(read(copy(&path).path()), (1, Some(b"before".to_vec())));
            Err(io::ErrorKind::StorageFull.into())
        });
        let failed = snapshot::write(directory.path(), 2, fails).map_err(|error| error.kind());
        assert_eq!(failed, Err(io::ErrorKind::StorageFull));
        assert_eq!(read(directory.path()), before);
        let first = piece.clone();
        let panics: Saving = Box::new(move |to| {
            to.write_all(&first)?;
            panic!("a bug")
        });
        let write_it = AssertUnwindSafe(|| snapshot::write(directory.path(), 3, panics));
        assert!(std::panic::catch_unwind(write_it).is_err());
        assert_eq!(read(directory.path()), before);
    }
    write(directory.path(), 4, b"after");
    assert_eq!(read(directory.path()), (4, Some(b"after".to_vec())));
    assert!(std::fs::metadata(directory.path().join("state")).unwrap().len() < 100);
}

#[test]
fn the_outcome_of_a_snapshot_is_reported_even_after_a_panic() {
    let directory = tempfile::tempdir().unwrap();
    let outcome = |saving: Saving| {
        let (ended, ends) = mpsc::sync_channel(1);
        let end = move || ended.send(()).unwrap();
        let underway = Underway::start(directory.path(), 9, saving, 70, end).unwrap();
        ends.recv().unwrap();
        assert_eq!((underway.seq, underway.covered), (9, 70));
        underway.wait().map_err(|error| error.to_string())
    };
    assert_eq!(outcome(saving(vec![vec![1; 100], vec![2; 20]])), Ok(120));
    let panicked = outcome(Box::new(|_| panic!("a bug")));
    assert_eq!(panicked, Err("making a snapshot panicked (a bug)".to_owned()));
    let failed = outcome(Box::new(|_| Err(io::Error::other("no room"))));
    assert_eq!(failed, Err("no room".to_owned()));
    assert_eq!(
        read(directory.path()),
        (9, Some([vec![1; 100], vec![2; 20]].concat()))
    );
}

/// A state whose first snapshot panics, whose second can't be written, and whose others are sound.
struct Unlucky(Mutex<u32>, mpsc::SyncSender<u32>);

impl State for Unlucky {
    fn joins(&self) -> Joins {
        Joins::WhenKept
    }

    fn restore(&self, _: &[u8]) {}

    fn replay(&self, _: &[u8]) {}

    fn save(&self, _: &mut dyn FnMut()) -> Saving {
        let mut saved = self.0.lock();
        *saved += 1;
        let (number, begun) = (*saved, self.1.clone());
        Box::new(move |to| {
            // No receiver is left at the end.
            let _ = begun.send(number);
            match number {
                1 => panic!("a bug"),
                2 => Err(io::Error::other("no room")),
                _ => to.write_all(&number.to_le_bytes()),
            }
        })
    }
}

#[tokio::test]
async fn a_snapshot_that_panics_or_fails_is_complained_of_and_the_log_goes_on() {
    let directory = tempfile::tempdir().unwrap();
    let (begun, begins) = mpsc::sync_channel(16);
    let (store, _) = Store::open(
        "unlucky".into(),
        directory.path(),
        &rules(1000),
        Quota::new(1 << 20),
        Arc::default(),
        Some(Arc::new(Unlucky(Mutex::new(0), begun))),
    )
    .unwrap();
    let append = || {
        let (done, kept) = oneshot::channel();
        store.append(Append {
            tag: 0,
            items: 1,
            payload: smallvec![Bytes::from_static(&[7; 1000])],
            purpose: Purpose::State,
            done: Some(Done(Box::new(|result| done.send(result).unwrap()))),
            share: store.reserve(1100).unwrap(),
        });
        kept
    };
    for number in 1..=3 {
        append().await.unwrap().unwrap();
        assert_eq!(begins.recv(), Ok(number), "one after the other");
    }
    append().await.unwrap().unwrap();
    drop(store);
    let (seq, state) = read(directory.path());
    assert!(seq > 0 && state.is_some_and(|state| u32::from_le_bytes(state.try_into().unwrap()) >= 3));
}

#[test]
fn what_is_deleted_is_gone_at_once_and_let_go_soon() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("a.seg");
    std::fs::write(&path, b"bytes").unwrap();
    let mut reader = File::open(&path).unwrap();
    segment_pool::delete(&path);
    assert!(!path.exists());
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"bytes", "its reader continues");
    drop(reader);
    let is_open = || {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        let mut open = open.filter_map(|fd| std::fs::read_link(fd.unwrap().path()).ok());
        open.any(|file| file.starts_with(directory.path()))
    };
    while is_open() {
        std::thread::sleep(Duration::from_millis(1));
    }
    // It is gone already: nothing to do.
    segment_pool::delete(&path);
}
