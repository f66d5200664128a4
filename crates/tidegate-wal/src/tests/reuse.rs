// SPDX-License-Identifier: Apache-2.0

//! Files that are written over, and what is left in them.

use std::io::{Read, Seek, SeekFrom};
use std::os::unix::fs::MetadataExt;

use super::super::write_batch::WriteBatch;
use super::*;

const SEGMENT: u64 = 2000;
/// The bytes of a record of ours.
const RECORD: u64 = 500 + record::RECORD_HEAD as u64;

fn append(log: &mut Log, seq: u64) {
    let data = Bytes::from(vec![seq as u8; 500]);
    log.append((seq, 0, 1), Purpose::Claimed, &[data]).unwrap();
    log.flush().unwrap();
}

/// Appends and settles, one after the other.
fn pass(log: &mut Log, records: u64) {
    for seq in log.next_seq()..log.next_seq() + records {
        append(log, seq);
        log.release(seq);
    }
}

/// A log with two records that are not settled in its newest segment, which is written over another.
fn written_over(directory: &Path) -> (Log, PathBuf) {
    let (mut log, _) = open(directory, SEGMENT);
    while !files(directory)
        .iter()
        .any(|file| std::fs::read(file).unwrap()[7] == 2)
    {
        pass(&mut log, 1);
        assert!(log.next_seq() < 30, "no file was written over");
    }
    for _ in 0..2 {
        let next = log.next_seq();
        append(&mut log, next);
    }
    (log, files(directory).pop().unwrap())
}

fn recycled(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    let paths = entries.map(|entry| entry.unwrap().path());
    paths
        .filter(|path| path.extension().is_some_and(|name| name == "spare"))
        .collect()
}

#[test]
fn files_go_round_while_all_is_settled_in_time() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), SEGMENT);
    let inodes = || -> BTreeSet<u64> {
        let all = files(directory.path())
            .into_iter()
            .chain(recycled(directory.path()));
        all.map(|file| std::fs::metadata(file).unwrap().ino()).collect()
    };
    pass(&mut log, 30);
    let known = inodes();
    assert!(known.len() <= 4, "{known:?}");
    for _ in 0..50 {
        pass(&mut log, 1);
        assert!(inodes().is_subset(&known), "a file was made");
        let on_disk = files(directory.path())
            .into_iter()
            .chain(recycled(directory.path()));
        let on_disk: u64 = on_disk.map(|file| std::fs::metadata(file).unwrap().len()).sum();
        assert_eq!(log.bytes(), on_disk, "the quota knows of all");
    }
    drop(log);
    assert!(recycled(directory.path()).is_empty());
}

#[test]
fn what_a_killed_run_left_of_the_former_use_is_neither_data_nor_damage() {
    let directory = tempfile::tempdir().unwrap();
    let (log, newest) = written_over(directory.path());
    let length = std::fs::metadata(newest).unwrap().len();
    assert!(length > SEGMENT, "there is something left in it");
    let killed = copy(directory.path());
    let spare = killed.path().join("00000000000000000001.spare");
    std::fs::write(&spare, b"what was to be written over").unwrap();
    let (last, recovered) = open(killed.path(), SEGMENT);
    let wanted = Recovered {
        items: [2, 0, 0],
        records: 2,
        ..Recovered::default()
    };
    assert_eq!((last.next_seq(), recovered), (log.next_seq(), wanted.clone()));
    assert!(!spare.exists());
    // A stop leaves nothing of it.
    drop(log);
    let left = files(directory.path()).pop().unwrap();
    assert!(std::fs::metadata(left).unwrap().len() < SEGMENT);
    assert_eq!(open(directory.path(), SEGMENT).1, wanted);
}

#[test]
fn a_torn_end_before_what_is_left_is_cut_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let (log, newest) = written_over(directory.path());
    let killed = copy(directory.path());
    let file = killed.path().join(newest.file_name().unwrap());
    let mut bytes = std::fs::read(&file).unwrap();
    // Its last page, say, was not written. One byte of its data may stand in a mark as well, a hundred do not.
    let of_last = |bytes: &[u8]| bytes.iter().all(|byte| *byte == (log.next_seq() - 1) as u8);
    let last = bytes.windows(100).rposition(of_last).unwrap();
    bytes[last..last + 100].fill(0);
    std::fs::write(&file, &bytes).unwrap();
    let (_, recovered) = open(killed.path(), SEGMENT);
    assert_eq!((recovered.records, recovered.torn_bytes), (1, RECORD));
    assert_eq!((recovered.lost_records, recovered.damaged_bytes), (0, 0));
}

#[test]
fn a_quota_that_could_be_short_of_room_has_no_spare_files() {
    let directory = tempfile::tempdir().unwrap();
    let quota = Quota::new(6 * SEGMENT);
    let (mut log, _) = Log::open(directory.path(), &rules(SEGMENT), quota.clone(), None).unwrap();
    pass(&mut log, 30);
    assert!(!recycled(directory.path()).is_empty());
    let before = log.next_seq();
    // Another log of the storage fills it.
    let share = quota.reserve(3 * SEGMENT).unwrap();
    append(&mut log, before);
    assert!(recycled(directory.path()).is_empty());
    drop(share);
    drop(log);
    assert_eq!(quota.used(), 0);
}

#[test]
fn what_is_settled_is_not_synced_any_more() {
    let directory = tempfile::tempdir().unwrap();
    let rules = Rules {
        fsync: Fsync::Always,
        segment_bytes: SEGMENT,
    };
    let (mut log, _) = Log::open(directory.path(), &rules, Quota::new(u64::MAX), None).unwrap();
    pass(&mut log, 30);
    assert_eq!(
        log.pending_fsync().unwrap().len(),
        2,
        "the directory and what is written to"
    );
    assert_eq!(log.pending_fsync().unwrap().len(), 1);
    let first = log.next_seq();
    (first..first + 12).for_each(|seq| append(&mut log, seq));
    let files = log.segments();
    assert!(files >= 3);
    assert_eq!(log.pending_fsync().unwrap().len(), files + 1);
}

#[test]
fn pieces_are_written_in_their_order_whatever_their_sizes() {
    let sizes = [0, 1, 4095, 4096, 9000, 28];
    let mut pieces = WriteBatch::default();
    let mut wanted = b"before".to_vec();
    for n in 0..4000 {
        let piece = Bytes::from(vec![n as u8; sizes[n % sizes.len()]]);
        wanted.extend(&piece);
        pieces.push(&piece);
        pieces.copy(b"head");
        wanted.extend(b"head");
    }
    assert_eq!(pieces.bytes(), wanted.len() - 6);
    let mut file = tempfile::tempfile().unwrap();
    pieces.write(&file, 6).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, b"before", 0).unwrap();
    let mut written = Vec::new();
    file.seek(SeekFrom::Start(0)).unwrap();
    file.read_to_end(&mut written).unwrap();
    assert!(written == wanted);
}
