// SPDX-License-Identifier: Apache-2.0

//! The log against damage, crashes and a full disk; the store against many who wait.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;
use smallvec::smallvec;
use tempfile::TempDir;
use tidegate_runtime::{Account, Held, Limit};
use tokio::sync::{Notify, oneshot};

use super::*;

mod damage;
mod foreign;
mod reuse;
mod snapshots;
mod state;
mod store_thread;

/// Of segments that are made by hand.
const EPOCH: record::Epoch = record::Epoch::fresh(7);

fn rules(segment_bytes: u64) -> Rules {
    Rules {
        fsync: Fsync::Never,
        segment_bytes,
    }
}

fn open(directory: &Path, segment_bytes: u64) -> (Log, Recovered) {
    Log::open(directory, &rules(segment_bytes), Quota::new(u64::MAX), None).unwrap()
}

/// Data of a number: as many bytes as that, and as many items.
fn payload(seq: u64) -> Vec<u8> {
    vec![seq as u8; seq as usize % 300 + 1]
}

fn append(log: &mut Log, seq: u64, claimed: bool) {
    let data = payload(seq);
    let head = (seq, (seq % 3) as u8, seq as u32);
    log.append(head, purpose(claimed), &[data.into()]).unwrap();
}

fn purpose(claimed: bool) -> Purpose {
    if claimed {
        Purpose::Claimed
    } else {
        Purpose::Unread
    }
}

fn read_all(log: &mut Log) -> Vec<u64> {
    let mut seqs = Vec::new();
    loop {
        let back = log.read(1000).unwrap();
        if back.stored.is_empty() {
            return seqs;
        }
        for stored in back.stored {
            assert_eq!(stored.payload, payload(stored.seq), "{}", stored.seq);
            assert_eq!(u64::from(stored.items), stored.seq);
            seqs.push(stored.seq);
        }
    }
}

/// The files as they are, the snapshot last: data of segments that go meanwhile is in it.
fn copy(from: &Path) -> TempDir {
    let to = tempfile::tempdir().unwrap();
    for file in files(from) {
        let _ = std::fs::copy(&file, to.path().join(file.file_name().unwrap()));
    }
    let _ = std::fs::copy(from.join("state"), to.path().join("state"));
    to
}

fn files(directory: &Path) -> Vec<PathBuf> {
    let mut files: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "seg"))
        .collect();
    files.sort();
    files
}

#[derive(Clone, Debug)]
enum Step {
    Append { claimed: bool },
    Settle(usize),
    Flush,
    Read,
    Restart { killed: bool },
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => any::<bool>().prop_map(|claimed| Step::Append { claimed }),
        4 => any::<usize>().prop_map(Step::Settle),
        3 => Just(Step::Flush),
        2 => Just(Step::Read),
        1 => any::<bool>().prop_map(|killed| Step::Restart { killed }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn every_run_reads_flushed_records_without_acknowledgement_once_in_order(
        steps in prop::collection::vec(step(), 1..120),
        segment_bytes in 200u64..2000,
    ) {
        let mut directory = tempfile::tempdir().unwrap();
        let (mut log, _) = open(directory.path(), segment_bytes);
        let (mut seq, mut open_seqs, mut claimed_seqs) = (1, BTreeSet::new(), BTreeSet::new());
        let mut buffered: Vec<(u64, bool)> = Vec::new();
        for step in steps {
            match step {
                Step::Append { claimed } => {
                    append(&mut log, seq, claimed);
                    buffered.push((seq, claimed));
                    seq += 1;
                }
                Step::Settle(at) => {
                    // Noted, and written with whatever is written next.
                    if let Some(settled) = open_seqs.iter().nth(at % open_seqs.len().max(1)).copied() {
                        log.release(settled);
                        open_seqs.remove(&settled);
                    }
                }
                Step::Flush | Step::Read => {
                    log.flush().unwrap();
                    for (seq, claimed) in buffered.drain(..) {
                        open_seqs.insert(seq);
                        if claimed { claimed_seqs.insert(seq); }
                    }
                    if matches!(step, Step::Read) {
                        let wanted: Vec<_> = open_seqs.difference(&claimed_seqs).copied().collect();
                        prop_assert_eq!(read_all(&mut log), wanted.clone());
                        claimed_seqs.extend(wanted);
                    }
                }
                Step::Restart { killed } => {
                    log.flush().unwrap();
                    open_seqs.extend(buffered.drain(..).map(|(seq, _)| seq));
                    claimed_seqs.clear();
                    let left = killed.then(|| copy(directory.path()));
                    drop(log);
                    directory = left.unwrap_or(directory);
                    let recovered;
                    (log, recovered) = open(directory.path(), segment_bytes);
                    prop_assert_eq!(recovered.records, open_seqs.len() as u64);
                    prop_assert_eq!(recovered.items.iter().sum::<u64>(), open_seqs.iter().sum::<u64>());
                    prop_assert_eq!((recovered.lost_records, recovered.torn_bytes), (0, 0));
                    seq = log.next_seq();
                }
            }
        }
        // All settled: nothing but the file that is appended to is left.
        log.flush().unwrap();
        (1..seq).for_each(|seq| log.release(seq));
        log.flush().unwrap();
        prop_assert!(log.segments() <= 1);
        prop_assert_eq!(files(directory.path()).len(), log.segments());
    }

    #[test]
    fn no_damage_costs_more_than_the_records_that_it_touches(
        flip in any::<prop::sample::Index>(),
        length in 1usize..64,
        cut in any::<bool>(),
    ) {
        let directory = tempfile::tempdir().unwrap();
        let (mut log, _) = open(directory.path(), 1 << 20);
        (1..=40).for_each(|seq| append(&mut log, seq, false));
        log.flush().unwrap();
        drop(log);
        let file = files(directory.path()).remove(0);
        let mut bytes = std::fs::read(&file).unwrap();
        let at = record::SEGMENT_HEAD + flip.index(bytes.len() - record::SEGMENT_HEAD);
        // The end of each record in the undamaged file.
        let ends: Vec<usize> = (1..=40u64)
            .scan(record::SEGMENT_HEAD, |end, seq| {
                *end += record::RECORD_HEAD + payload(seq).len();
                Some(*end)
            })
            .collect();
        let first_hit = ends.partition_point(|end| *end <= at) as u64 + 1;
        let wanted: Vec<u64> = if cut {
            bytes.truncate(at);
            (1..first_hit).collect()
        } else {
            let to = (at + length).min(bytes.len());
            bytes[at..to].iter_mut().for_each(|byte| *byte ^= 0xA5);
            let behind = ends.partition_point(|end| *end < to) as u64 + 1;
            (1..first_hit).chain(behind + 1..=40).collect()
        };
        std::fs::write(&file, &bytes).unwrap();
        let (mut log, recovered) = open(directory.path(), 1 << 20);
        prop_assert_eq!(read_all(&mut log), wanted.clone());
        let last = wanted.last().copied().unwrap_or(0);
        prop_assert_eq!(recovered.lost_records, last - wanted.len() as u64);
        // Lost records at the end of the file look like records that were being written.
let sound_end = last.checked_sub(1).map_or(record::SEGMENT_HEAD, |last| ends[last as usize]);
        prop_assert_eq!(recovered.torn_bytes, (bytes.len() - sound_end) as u64);
    }
}

#[test]
fn what_is_settled_before_it_is_appended_is_settled_when_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), 40);
    (1..=3).for_each(|seq| log.release(seq));
    for seq in 1..=3 {
        // Each begins a segment, and writes what is before it.
        append(&mut log, seq, true);
    }
    log.flush().unwrap();
    assert_eq!((log.segments(), files(directory.path()).len()), (1, 1));
    drop(log);
    let (log, recovered) = open(directory.path(), 40);
    assert_eq!((recovered.records, log.segments()), (0, 0));
}

#[test]
fn damage_during_a_run_costs_its_records_and_the_read_counts_their_items() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), 1 << 20);
    (1..=10).for_each(|seq| append(&mut log, seq, false));
    log.flush().unwrap();
    let file = files(directory.path()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    let third = record::SEGMENT_HEAD + 2 * record::RECORD_HEAD + payload(1).len() + payload(2).len();
    bytes[third + record::RECORD_HEAD] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let back = log.read(usize::MAX).unwrap();
    let seqs: Vec<_> = back.stored.iter().map(|stored| stored.seq).collect();
    assert_eq!(seqs, [1, 2, 4, 5, 6, 7, 8, 9, 10]);
    assert_eq!((back.lost_records, back.lost_items), (1, [3, 0, 0]));
}

/// Found by fuzzing: to fill such a gap took minutes.
#[test]
fn numbers_that_no_file_could_hold_are_not_believed() {
    let directory = tempfile::tempdir().unwrap();
    let mut bytes = record::segment_head(1, EPOCH).to_vec();
    for seq in [1, 1 << 40, 2] {
        let head = record::Head {
            kind: record::RecordKind::Data,
            tag: 0,
            seq,
            items: seq as u32,
        };
        record::write(&mut bytes, EPOCH, head, &payload(seq));
    }
    std::fs::write(directory.path().join("00000000000000000001.seg"), bytes).unwrap();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!((recovered.records, recovered.lost_records), (2, 0));
    assert_eq!(read_all(&mut log), [1, 2]);
}

#[test]
fn a_payload_that_looks_like_a_record_is_not_taken_for_one() {
    let directory = tempfile::tempdir().unwrap();
    let mut forged = Vec::new();
    let head = record::Head {
        kind: record::RecordKind::Data,
        tag: 0,
        seq: 7,
        items: 7,
    };
    // The sender can't know the salt.
    record::write(&mut forged, EPOCH, head, b"made up");
    let (mut log, _) = open(directory.path(), 1 << 20);
    log.append((1, 0, 1), Purpose::Unread, &[forged.into()]).unwrap();
    log.flush().unwrap();
    drop(log);
    let file = files(directory.path()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[record::SEGMENT_HEAD] ^= 1;
    std::fs::write(&file, &bytes).unwrap();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert!(log.read(usize::MAX).unwrap().stored.is_empty());
    assert_eq!(recovered.records, 0);
}

#[test]
fn a_damaged_head_costs_no_record_and_a_damaged_start_the_touched_ones() {
    // Ten files of several records each.
    let fill = |directory: &Path| {
        let (mut log, _) = open(directory, 600);
        (1..=40).for_each(|seq| append(&mut log, seq, false));
        log.flush().unwrap();
        files(directory)
    };
    let damage = |path: &Path, length: usize| {
        let mut bytes = std::fs::read(path).unwrap();
        bytes[..length].fill(0xEE);
        std::fs::write(path, bytes).unwrap();
    };
    for length in [1, 16, record::SEGMENT_HEAD] {
        let directory = tempfile::tempdir().unwrap();
        let all = fill(directory.path());
        assert!(all.len() > 3);
        damage(&all[0], length);
        let (mut log, recovered) = open(directory.path(), 600);
        assert_eq!((recovered.records, recovered.lost_records), (40, 0), "{length}");
        assert_eq!(read_all(&mut log), Vec::from_iter(1..=40), "{length}");
    }
    // The salt is damaged, and so is the record that would tell it: nothing can be read, and every record is counted.
    let directory = tempfile::tempdir().unwrap();
    let all = fill(directory.path());
    let second = segment::Segment::named(&all[1]).unwrap();
    damage(&all[0], record::SEGMENT_HEAD + 8);
    let (mut log, recovered) = open(directory.path(), 600);
    assert_eq!(recovered.lost_records, second - 1);
    assert_eq!(read_all(&mut log), Vec::from_iter(second..=40));
    assert!(all[0].with_extension("damaged").exists());
}

#[test]
fn a_file_with_a_damaged_head_is_put_aside_and_never_written_over() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), 1 << 20);
    append(&mut log, 1, false);
    log.flush().unwrap();
    drop(log);
    let file = files(directory.path()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    bytes[..record::SEGMENT_HEAD + 8].fill(0xEE);
    std::fs::write(&file, &bytes).unwrap();
    let (mut log, recovered) = open(directory.path(), 1 << 20);
    assert_eq!(recovered.damaged_bytes, bytes.len() as u64);
    let next = log.next_seq();
    append(&mut log, next, false);
    log.flush().unwrap();
    assert_eq!(std::fs::read(file.with_extension("damaged")).unwrap(), bytes);
}

#[test]
fn a_copy_of_a_segment_is_put_aside() {
    let directory = tempfile::tempdir().unwrap();
    let (mut log, _) = open(directory.path(), 300);
    (1..=6).for_each(|seq| append(&mut log, seq, false));
    log.flush().unwrap();
    drop(log);
    let first = files(directory.path()).remove(0);
    std::fs::copy(&first, directory.path().join("00000000000000000000.seg")).unwrap();
    let (mut log, recovered) = open(directory.path(), 300);
    assert_eq!(recovered.records, 6);
    assert_eq!(read_all(&mut log), [1, 2, 3, 4, 5, 6]);
    assert!(recovered.damaged_bytes > 0);
}

#[test]
fn a_directory_has_one_gateway() {
    let directory = tempfile::tempdir().unwrap();
    let _first = open(directory.path(), 1 << 20);
    let second = Log::open(directory.path(), &rules(1 << 20), Quota::new(1), None);
    assert!(second.unwrap_err().to_string().contains("another process"));
}

#[test]
fn a_long_record_is_on_the_account_and_only_the_first_may_exceed_it() {
    let account = Arc::new(Account::default());
    account.add_limit(Limit::of(1));
    account.note(2);
    let mut waits = ReadRoom::new(Held::ours(account.clone()), false);
    assert!(!waits.grow(0, 100));
    let mut goes_on = ReadRoom::new(Held::ours(account.clone()), true);
    assert!(!goes_on.grow(1, 100), "another was read");
    assert!(goes_on.grow(0, 100));
    assert_eq!(account.reserved_bytes(), 100);
    drop(goes_on);
    assert_eq!(account.reserved_bytes(), 0);
}
