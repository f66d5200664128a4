// SPDX-License-Identifier: Apache-2.0

//! Targets that read files: rings, stores, cells and segments of the log.

use std::cell::RefCell;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use bytes::Bytes;
use tempfile::TempDir;
use tidegate_ring::{Batch, MpStore, Options, Reader};
use tidegate_wal::record::{self, Epoch, Head, RecordKind};
use tidegate_wal::{Fsync, Log, Purpose, Quota, Rules};

thread_local! {
    /// A file that is rewritten for each input.
    static FILE: RefCell<(TempDir, PathBuf)> = RefCell::new({
        let directory = TempDir::new_in("/dev/shm").expect("a directory in memory");
        let path = directory.path().join("nixl.1.1.0.mmap");
        (directory, path)
    });
}

fn with_file(bytes: &[u8], look: impl FnOnce(&PathBuf)) {
    FILE.with_borrow(|(_, path)| {
        // A new file each time: a reader of the last one may not be surprised by this one.
        let _ = std::fs::remove_file(path);
        File::create(path)
            .and_then(|mut file| file.write_all(bytes))
            .expect("a file in memory");
        look(path);
    });
}

/// The first bytes say how: events to take, whether to consume, and where the rest is cut in two: the file as it is
/// opened, and what is written over it (from which offset), or cut off, while it is mapped.
pub(super) fn ring(data: &[u8]) {
    let Some((how, rest)) = data.split_at_checked(6) else {
        return;
    };
    let cut = usize::from(u16::from_le_bytes([how[0], how[1]])) % (rest.len() + 1);
    let offset = u64::from(u16::from_le_bytes([how[2], how[3]]));
    let (before, after) = rest.split_at(cut);
    with_file(before, |path| {
        let options = Options {
            consume: how[4] & 1 == 0,
            max_events: usize::from(how[5]) + 1,
        };
        let Ok(mut reader) = Reader::open(path, options) else {
            return;
        };
        let mut batch = Batch::default();
        for round in 0..4 {
            let _ = reader.read(&mut batch);
            reader.commit();
            if round == 1 {
                let file = OpenOptions::new().write(true).open(path).expect("our own file");
                match how[4] & 2 {
                    0 => file.write_all_at(after, offset),
                    _ => file.set_len(offset),
                }
                .expect("our own file");
            }
        }
    });
}

pub(super) fn store(data: &[u8]) {
    let Some((how, rest)) = data.split_at_checked(2) else {
        return;
    };
    with_file(rest, |path| {
        let Ok(store) = MpStore::open(path) else { return };
        let _ = store.snapshot();
        let file = OpenOptions::new().write(true).open(path).expect("our own file");
        file.set_len(u64::from(u16::from_le_bytes([how[0], how[1]])))
            .expect("our own file");
        let _ = (store.snapshot(), store.alive());
    });
}

/// A file of cells is read, merged, folded and read again, as it is and with its checksums put right.
pub(super) fn cells(data: &[u8]) {
    let plain = ("1-1-0000000000000001.cells".to_owned(), data.to_vec());
    for (name, bytes) in [plain, tidegate_cells::fuzz::file(data)] {
        let directory = TempDir::new().expect("a temporary directory");
        std::fs::write(directory.path().join(name), bytes).expect("our own directory");
        let limits = tidegate_cells::Limits::default();
        let mut reader = tidegate_cells::Directory::open(directory.path(), limits).expect("a directory");
        let _ = reader.scan();
        if reader
            .fold(std::time::Duration::ZERO)
            .is_ok_and(|folded| !folded.processes.is_empty())
        {
            let problems = reader.scan().problems;
            assert!(problems.is_empty(), "what was folded can't be read: {problems:?}");
        }
    }
}

/// Segments made of records as the bytes say, with damage between and over them: each record that is read back was
/// written once.
pub(super) fn log(data: &[u8]) {
    /// More would measure how fast files are made.
    const MAX_SEGMENTS: usize = 16;
    const MAX_STEPS: usize = 1024;
    let directory = LOG.with(|directory| directory.path().to_owned());
    for file in std::fs::read_dir(&directory).expect("our own directory") {
        std::fs::remove_file(file.expect("our own file").path()).expect("our own file");
    }
    let epoch = match data.len() % 3 {
        0 => Epoch::fresh(7),
        1 => Epoch::reused(7),
        _ => Epoch::plain(7),
    };
    let (mut segment, mut number, mut written) = (Vec::new(), 1, Vec::new());
    let flush = |segment: &mut Vec<u8>, number: u64| {
        std::fs::write(directory.join(format!("{number:020}.seg")), &*segment).expect("a file in memory");
        segment.clear();
    };
    segment.extend(record::segment_head(number, epoch));
    let mut first = number;
    let mut segments = 0;
    for step in data.chunks(4).take(MAX_STEPS) {
        let &[how, a, b, c] = step else { break };
        match how % 8 {
            0..=3 => {
                let gap = if how & 8 != 0 { u64::from(a) << (b % 40) } else { 0 };
                number += gap;
                let head = Head {
                    kind: RecordKind::Data,
                    tag: b,
                    seq: number,
                    items: u32::from(c),
                };
                let payload = vec![a; usize::from(c)];
                record::write(&mut segment, epoch, head, &payload);
                written.push((number, payload));
                number += 1;
            }
            4 => {
                let range = [(u64::from(a), u64::from(b) << (c % 60))];
                let ranges = record::ranges_to_bytes(&range);
                let head = Head {
                    kind: RecordKind::Settled,
                    tag: 0,
                    seq: 0,
                    items: 0,
                };
                record::write(&mut segment, epoch, head, &ranges);
            }
            5 => segment.extend([a, b, c]),
            6 => {
                let at = usize::from(u16::from_le_bytes([a, b])) % segment.len();
                segment[at] ^= c;
            }
            _ if segments == MAX_SEGMENTS => {}
            _ => {
                segments += 1;
                flush(&mut segment, first);
                first = number;
                segment.extend(record::segment_head(number, epoch));
            }
        }
    }
    flush(&mut segment, first);
    let rules = Rules {
        fsync: Fsync::Never,
        segment_bytes: 1 << 20,
    };
    let (mut log, recovered) = Log::open(&directory, &rules, Quota::new(1 << 30), None).expect("a directory");
    let mut last = 0;
    let mut items = 0;
    loop {
        let back = log.read(1 << 16).expect("our own files");
        if back.stored.is_empty() {
            break;
        }
        for stored in back.stored {
            assert!(stored.seq > last, "in order, and once");
            last = stored.seq;
            let known = written
                .iter()
                .any(|(seq, payload)| *seq == stored.seq && *payload == stored.payload);
            assert!(known, "no write has {}", stored.seq);
            items += u64::from(stored.items) * u64::from(stored.tag < 3);
        }
    }
    assert_eq!(
        items,
        recovered.items.iter().sum::<u64>(),
        "what was promised is read"
    );
    log.append(
        (log.next_seq(), 0, 1),
        Purpose::Unread,
        &[Bytes::from_static(b"more")],
    )
    .expect("a file in memory");
    log.flush().expect("a file in memory");
    assert_eq!(log.read(1 << 16).expect("our own file").stored.len(), 1);
}

thread_local! {
    /// The log's directory, emptied for each input.
    static LOG: TempDir = TempDir::new_in("/dev/shm").expect("a directory in memory");
}
