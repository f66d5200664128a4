// SPDX-License-Identifier: Apache-2.0

//! Lengths and marks that damage or a sender made up: what they cost.

use std::fs::File;
use std::io::Write;

use super::super::window::{PIECE, counts};
use super::*;

const PLAIN: record::Epoch = record::Epoch::plain(7);

fn data(seq: u64) -> record::Head {
    record::Head {
        kind: record::RecordKind::Data,
        tag: 0,
        seq,
        items: 1,
    }
}

/// A segment that is made by hand.
fn segment(directory: &Path, epoch: record::Epoch, payloads: &[(u64, &[u8])]) -> Vec<u8> {
    let first = payloads[0].0;
    let mut bytes = record::segment_head(first, epoch).to_vec();
    for (seq, payload) in payloads {
        record::write(&mut bytes, epoch, data(*seq), payload);
    }
    std::fs::write(segment::Segment::path(directory, first), &bytes).unwrap();
    bytes
}

/// 1 MiB of heads of records, each with a number and a length, as an earlier version would have written them.
fn planted(seq: u64, length: u32) -> Vec<u8> {
    let mut head = record::head(PLAIN, data(seq), std::iter::empty::<&[u8]>());
    head[8..12].copy_from_slice(&length.to_le_bytes());
    head.repeat((1 << 20) / head.len())
}

fn seqs(back: &log::ReadBack) -> Vec<u64> {
    back.stored.iter().map(|stored| stored.seq).collect()
}

#[test]
fn a_sparse_file_with_a_damaged_head_is_not_read_as_a_whole() {
    const GIB: u64 = 1 << 30;
    let directory = tempfile::tempdir().unwrap();
    let path = segment::Segment::path(directory.path(), 1);
    let mut file = File::create(&path).unwrap();
    file.write_all(&[0xEE; record::SEGMENT_HEAD]).unwrap();
    file.set_len(GIB).unwrap();
    counts::reset();
    let (_, recovered) = open(directory.path(), 1 << 20);
    assert!(counts::read() < 16 << 20, "{}", counts::read());
    assert!(counts::longest_read() <= PIECE);
    assert_eq!(recovered.damaged_bytes, GIB);
    assert!(path.with_extension("damaged").exists());
}

#[test]
fn a_length_beyond_the_end_of_the_file_is_refused_unread() {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = segment(directory.path(), EPOCH, &[(1, b"a"), (2, b"b"), (3, b"c")]);
    let length_at = record::SEGMENT_HEAD + record::RECORD_HEAD + 1 + 8;
    bytes[length_at..length_at + 4].copy_from_slice(&(512_u32 << 20).to_le_bytes());
    std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
    counts::reset();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!((recovered.records, recovered.lost_records), (2, 1));
    assert_eq!(seqs(&log.read(usize::MAX).unwrap()), [1, 3]);
    assert!(counts::read() < 1000, "{}", counts::read());
}

#[test]
fn a_long_record_is_checked_piece_by_piece_before_it_is_believed() {
    let directory = tempfile::tempdir().unwrap();
    let long = vec![5_u8; 9 << 20];
    let payloads: [(u64, &[u8]); 4] = [(1, b"a"), (2, b"b"), (3, b"c"), (4, &long)];
    let mut bytes = segment(directory.path(), EPOCH, &payloads);
    let length_at = record::SEGMENT_HEAD + record::RECORD_HEAD + 1 + 8;
    bytes[length_at..length_at + 4].copy_from_slice(&(8_u32 << 20).to_le_bytes());
    std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
    counts::reset();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!((recovered.records, recovered.lost_records), (3, 1));
    assert!(counts::longest_read() <= PIECE);
    assert_eq!(seqs(&log.read(1).unwrap()), [1]);
    assert_eq!(seqs(&log.read(1).unwrap()), [3]);
    assert!(counts::longest_read() <= PIECE, "of what was 8 MiB");
    assert_eq!(seqs(&log.read(1).unwrap()), [4]);
}

#[test]
fn a_long_record_that_is_damaged_while_it_runs_takes_no_memory() {
    let directory = tempfile::tempdir().unwrap();
    let long = vec![5_u8; 3 << 20];
    let mut bytes = segment(directory.path(), EPOCH, &[(1, b"a"), (2, &long), (3, b"c")]);
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!(recovered.records, 3);
    bytes[2 << 20] ^= 1;
    std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
    counts::reset();
    let back = log.read(usize::MAX).unwrap();
    assert_eq!((seqs(&back), back.lost_records), (vec![1, 3], 1));
    assert!(counts::longest_read() <= PIECE);
}

#[test]
fn a_long_record_waits_until_memory_has_room_for_it() {
    let directory = tempfile::tempdir().unwrap();
    let long = vec![5_u8; 3 << 20];
    segment(directory.path(), EPOCH, &[(1, b"a"), (2, &long), (3, b"c")]);
    let (mut log, _) = open(directory.path(), 1 << 20);
    counts::reset();
    let mut asked = Vec::new();
    for wanted in [vec![1], vec![]] {
        let back = log.read_within(1 << 20, &mut |before, more| {
            asked.push((before, more));
            before + more <= 1 << 20
        });
        let back = back.unwrap();
        assert_eq!((seqs(&back), back.is_short), (wanted, true));
    }
    let bytes = record::RECORD_HEAD + long.len();
    assert_eq!(asked, [(0, record::RECORD_HEAD + 1), (1, bytes), (0, bytes)]);
    assert!(counts::longest_read() <= PIECE);
    assert_eq!(counts::checked(), bytes as u64, "it is checked once");
    let back = log.read_within(1 << 20, &mut |_, _| true).unwrap();
    assert_eq!((seqs(&back), back.is_short), (vec![2], false));
    assert_eq!(seqs(&log.read(1 << 20).unwrap()), [3]);
}

#[test]
fn planted_marks_cost_a_few_times_the_file_and_what_is_given_up_counts() {
    let directory = tempfile::tempdir().unwrap();
    let planted = planted(2, 500_000);
    let mut bytes = segment(directory.path(), PLAIN, &[(1, &planted), (2, b"behind")]);
    bytes[record::SEGMENT_HEAD + 4] ^= 1;
    std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
    segment(directory.path(), EPOCH, &[(3, b"next")]);
    counts::reset();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    let length = bytes.len() as u64;
    assert!(counts::checked() < 6 * length, "{}", counts::checked());
    assert!(counts::read() < 16 * length, "{}", counts::read());
    assert_eq!((recovered.records, recovered.lost_records), (1, 2));
    assert_eq!(recovered.damaged_bytes, length - record::SEGMENT_HEAD as u64);
    assert_eq!(seqs(&log.read(usize::MAX).unwrap()), [3]);
}

#[test]
fn planted_marks_cost_a_few_times_the_file_also_while_it_runs() {
    let directory = tempfile::tempdir().unwrap();
    let planted = planted(2, 500_000);
    let mut bytes = segment(directory.path(), PLAIN, &[(1, &planted), (2, b"behind")]);
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!(recovered.records, 2);
    bytes[record::SEGMENT_HEAD + 4] ^= 1;
    std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
    counts::reset();
    let back = log.read(usize::MAX).unwrap();
    assert_eq!((seqs(&back), back.lost_records), (vec![], 2));
    let length = bytes.len() as u64;
    assert!(counts::checked() < 6 * length, "{}", counts::checked());
}

#[test]
fn marks_with_numbers_that_cannot_be_there_cost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    // Record 1 is the damaged one, and the file has no room for that number.
    for seq in [0, 1 << 50] {
        let planted = planted(seq, 500_000);
        let mut bytes = segment(directory.path(), PLAIN, &[(1, &planted), (2, b"behind")]);
        bytes[record::SEGMENT_HEAD + 4] ^= 1;
        std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
        counts::reset();
        let (log, recovered) = open(directory.path(), 1 << 20);
        assert_eq!((recovered.records, recovered.lost_records), (1, 1));
        assert!(counts::checked() < 2 * bytes.len() as u64);
        drop(log);
    }
}

#[test]
fn the_marks_of_new_segments_cannot_be_planted() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), 4 << 20);
    for payload in [planted(2, 500_000), b"behind".to_vec()] {
        let head = (log.next_seq(), 0, 1);
        log.append(head, Purpose::Unread, &[payload.into()]).unwrap();
    }
    log.flush().unwrap();
    drop(log);
    let file = files(directory.path()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[record::SEGMENT_HEAD + 4] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    counts::reset();
    let (mut log, recovered) = open(directory.path(), 4 << 20);
    assert_eq!((recovered.records, recovered.lost_records), (1, 1));
    assert!(counts::checked() < 2 * bytes.len() as u64);
    assert_eq!(seqs(&log.read(usize::MAX).unwrap()), [2]);
}

#[test]
fn records_at_the_damaged_end_of_an_older_segment_are_counted() {
    for epoch in [EPOCH, record::Epoch::reused(7), PLAIN] {
        for keeps_length in [true, false] {
            let directory = tempfile::tempdir().unwrap();
            let mut bytes = segment(
                directory.path(),
                epoch,
                &[(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")],
            );
            let third = record::SEGMENT_HEAD + 2 * (record::RECORD_HEAD + 1);
            bytes[third..].fill(0);
            bytes.truncate(if keeps_length { bytes.len() } else { third + 5 });
            std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
            segment(directory.path(), EPOCH, &[(5, b"next")]);
            let (mut log, recovered) = open(directory.path(), 1 << 20);
            assert_eq!((recovered.records, recovered.lost_records), (3, 2));
            assert_eq!(recovered.torn_bytes, 0);
            assert_eq!(seqs(&log.read(usize::MAX).unwrap()), [1, 2, 5]);
        }
    }
}

#[test]
fn an_unreadable_file_does_not_take_the_numbers_of_the_file_before_it() {
    // A directory gives no information. A file of zeros has had a record for each number up to the next file.
    for (is_file, lost) in [(false, 2), (true, 6)] {
        let directory = tempfile::tempdir().unwrap();
        let mut bytes = segment(
            directory.path(),
            EPOCH,
            &[(1, b"a"), (2, b"b"), (3, b"c"), (4, b"d")],
        );
        let third = record::SEGMENT_HEAD + 2 * (record::RECORD_HEAD + 1);
        bytes[third..].fill(0);
        std::fs::write(segment::Segment::path(directory.path(), 1), &bytes).unwrap();
        let second = segment::Segment::path(directory.path(), 5);
        if is_file {
            std::fs::write(second, [0; 200]).unwrap();
        } else {
            std::fs::create_dir(second).unwrap();
        }
        segment(directory.path(), EPOCH, &[(9, b"next")]);
        let (_, recovered) = open(directory.path(), 1 << 20);
        assert_eq!((recovered.records, recovered.lost_records), (3, lost));
        assert_eq!(recovered.unreadable, u64::from(!is_file));
    }
}

#[test]
fn a_file_that_was_just_begun_has_lost_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = record::segment_head(2, record::Epoch::reused(7)).to_vec();
    bytes.extend(b"what is left of the former use");
    std::fs::write(segment::Segment::path(directory.path(), 2), &bytes).unwrap();
    segment(directory.path(), EPOCH, &[(1, b"a")]);
    segment(directory.path(), EPOCH, &[(3, b"next")]);
    let (_, recovered) = open(directory.path(), 1 << 20);
    assert_eq!((recovered.records, recovered.lost_records), (2, 0));
}
