// SPDX-License-Identifier: Apache-2.0

//! The order of segments: the log appends, settles and reads data. It blocks, and runs on one thread.
//!
//! Data has numbers that count up from 1. The oldest segment is deleted once all its data is settled. Notes of settled
//! data concern the same or older segments, so deleting from the front never brings settled data back. The log never
//! appends to a file of an earlier run, so a torn tail needs no repair.
//!
//! Invariants:
//!
//! - `segments` is in the order of the first numbers. `file` is the newest segment's. Without `file`, the next record
//!   begins a segment.
//! - Buffered records are for the newest segment. `begin` flushes them before it begins another one. A flush writes all
//!   of them or none, and leaves no data in the buffer.
//! - No number is used twice, even if its append fails: the owner may know the number already.
//! - A note of settled data follows the data. A number that comes before its data stays in the buffer.
//! - A segment with records goes only from the front. All its data is settled, and a snapshot covers its part of the
//!   owner's state.
//! - `bytes` is the part of the quota's use that this log has reported. `weigh` changes both, and the drop gives it
//!   back.
//!
//! Ownership and locks: the log has no lock. Its worker owns it, and others reach it through the store. The lock on the
//! directory keeps other processes out as long as the log lives. Logs share only the quota, which is one atomic counter.

mod reading;

use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_shm::LockHolder;

use super::pending_fsync::PendingFsync;
use super::record::{self, Epoch, Head, RecordKind};
use super::recovery::{Recovered, Replay, lock, recover};
use super::segment::Segment;
use super::segment_pool::SegmentPool;
use super::write_batch::WriteBatch;
use super::{Fsync, Purpose, Quota, Rules, Saving, State, segment_pool, snapshot};
use reading::LogCursor;
pub use reading::ReadBack;

/// A log and its files.
#[derive(Debug)]
pub struct Log {
    directory: PathBuf,
    segment_bytes: u64,
    segments: VecDeque<Segment>,
    /// The newest segment's, while it is appended to.
    file: Option<File>,
    pool: SegmentPool,
    pending_fsync: PendingFsync,
    next_seq: u64,
    cursor: LogCursor,
    buffer: Buffer,
    quota: Arc<Quota>,
    bytes: u64,
    /// For an owner whose state must survive: a snapshot covers the data up to this number.
    snapshot: Option<NewestSnapshot>,
    /// Held as long as the log: one gateway a directory. It is the last field, so a drop writes all files before it releases
    /// the lock.
    _lock: LockHolder,
}

/// The newest snapshot.
#[derive(Clone, Copy, Debug, Default)]
struct NewestSnapshot {
    /// The last number that it covers.
    seq: u64,
    /// Its size in bytes.
    bytes: u64,
    /// Bytes written since.
    since: u64,
}

/// Records that are not written yet.
#[derive(Debug, Default)]
struct Buffer {
    pieces: WriteBatch,
    data: Vec<(Head, bool)>,
    settled: Vec<u64>,
}

impl Log {
    /// Opens the log of a directory. It makes the directory if necessary.
    ///
    /// # Errors
    /// The directory can't be made, read or locked (another process has it).
    pub fn open(
        directory: &Path,
        rules: &Rules,
        quota: Arc<Quota>,
        state: Option<&dyn State>,
    ) -> io::Result<(Self, Recovered)> {
        std::fs::DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(directory)?;
        let lock = lock(directory)?;
        let covered = state.map(|state| snapshot::read(directory, state));
        let mut replay = Replay::after(covered);
        let (segments, recovered) = recover(directory, &mut replay)?;
        if let Some(state) = state {
            replay.give_to(state);
        }
        let newest = segments.back();
        // All segments may be gone while a snapshot remembers their numbers: new data must not look as if it had it.
        let next_seq = newest.map_or(1, |newest| newest.first + newest.count.max(1));
        let next_seq = next_seq.max(covered.map_or(1, |covered| covered + 1));
        let next_seq = unused(directory, next_seq);
        let oldest = segments.front().map_or(next_seq, |oldest| oldest.first);
        let mut log = Self {
            directory: directory.to_owned(),
            segment_bytes: rules.segment_bytes,
            segments,
            file: None,
            pool: SegmentPool::default(),
            pending_fsync: PendingFsync::new(rules.fsync != Fsync::Never),
            next_seq,
            cursor: LogCursor {
                first: oldest,
                offset: record::SEGMENT_HEAD as u64,
            },
            buffer: Buffer::default(),
            quota,
            bytes: 0,
            snapshot: covered.map(|seq| NewestSnapshot {
                seq,
                ..NewestSnapshot::default()
            }),
            _lock: lock,
        };
        log.reclaim();
        log.weigh();
        // Data that an earlier run left without a snapshot may fill the quota. Then no new data could trigger one.
        let bytes = log.bytes;
        log.snapshot
            .iter_mut()
            .for_each(|snapshot| snapshot.since = bytes);
        Ok((log, recovered))
    }

    /// The number that comes next.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// Bytes of its files.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Files of the log.
    pub fn segments(&self) -> usize {
        self.segments.len()
    }

    /// Bytes that wait to be written.
    pub fn buffered(&self) -> usize {
        self.buffer.pieces.bytes()
    }

    /// Buffers data. Numbers go up. After an error nothing that was buffered is in the log.
    ///
    /// # Errors
    /// The full segment can't be written, or a new one can't be created.
    pub fn append(&mut self, head: (u64, u8, u32), purpose: Purpose, payload: &[Bytes]) -> io::Result<()> {
        let (seq, tag, items) = head;
        let begun = self.begin(seq);
        // Whatever becomes of it: no other data gets the number.
        self.next_seq = seq + 1;
        if let Err(error) = begun {
            self.buffer.pieces.clear();
            self.buffer.data.clear();
            return Err(error);
        }
        let kind = match purpose {
            Purpose::Unread | Purpose::Claimed => RecordKind::Data,
            Purpose::State => RecordKind::State,
        };
        let head = Head {
            kind,
            tag,
            seq,
            items,
        };
        let pieces = payload.iter().map(|piece| &**piece);
        self.buffer.pieces.copy(&record::head(self.epoch(), head, pieces));
        payload.iter().for_each(|piece| self.buffer.pieces.push(piece));
        self.buffer.data.push((head, purpose != Purpose::Unread));
        Ok(())
    }

    /// Notes that data is no longer needed, or will not be needed once it is appended.
    pub fn release(&mut self, seq: u64) {
        self.buffer.settled.push(seq);
    }

    /// Writes the buffered records. After an error none of it is in the log; settled numbers stay noted.
    ///
    /// # Errors
    /// A segment can't be created or written, for example because the disk is full.
    pub fn flush(&mut self) -> io::Result<()> {
        // Data can be settled before it is appended: a note of it must not precede it.
        let appended = |seq: &mut u64| *seq < self.next_seq;
        let settled: Vec<_> = self.buffer.settled.extract_if(.., appended).collect();
        let written = self.write(&settled);
        if written.is_err() {
            self.buffer.pieces.clear();
            self.buffer.data.clear();
            self.close();
            // A full disk needs their space.
            self.pool.clear();
        }
        for seq in settled {
            self.release_now(seq);
        }
        self.reclaim();
        self.weigh();
        written
    }

    /// Makes what is written survive a loss of power.
    ///
    /// # Errors
    /// The directory can't be opened, or a file can't be synced.
    pub fn sync(&mut self) -> io::Result<()> {
        self.pending_fsync()?.iter().try_for_each(File::sync_data)
    }

    /// The files that a sync must force to the disk, in this order: the directory if it has new names, files closed
    /// since the last call with unsettled data, and the current file. The caller syncs them.
    ///
    /// # Errors
    /// The directory can't be opened, or the system gives no further file descriptor.
    pub fn pending_fsync(&mut self) -> io::Result<Vec<File>> {
        self.pending_fsync.take(&self.directory, self.file.as_ref())
    }

    /// Whether enough was written since the last snapshot for a new one.
    pub fn wants_snapshot(&self) -> bool {
        // A log that its own quota would stop must not wait for a whole segment.
        let most = self.quota.limit() / 4;
        let due =
            |snapshot: NewestSnapshot| snapshot.since >= self.segment_bytes.max(snapshot.bytes).min(most);
        self.snapshot.is_some_and(due)
    }

    /// Writes a snapshot of the owner's state as of `seq`, which is written. Data that it covers need not be kept.
    ///
    /// # Errors
    /// `saving` fails, or the file can't be written, renamed or synced.
    pub fn keep_snapshot(&mut self, seq: u64, saving: Saving) -> io::Result<()> {
        let bytes = snapshot::write(&self.directory, seq, saving)?;
        self.kept_snapshot(seq, bytes, self.since_snapshot());
        Ok(())
    }

    /// Bytes written since the last snapshot.
    pub fn since_snapshot(&self) -> u64 {
        self.snapshot.map_or(0, |snapshot| snapshot.since)
    }

    /// Notes a snapshot as of `seq` that has `bytes`. The log had written `covered` bytes since the snapshot before it.
    pub fn kept_snapshot(&mut self, seq: u64, bytes: u64, covered: u64) {
        let since = self.since_snapshot().saturating_sub(covered);
        self.snapshot = Some(NewestSnapshot { seq, bytes, since });
        self.reclaim();
        self.weigh();
    }

    /// The directory of its files.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Sees to it that there is a file with room to append data to.
    fn begin(&mut self, seq: u64) -> io::Result<()> {
        let buffered = self.buffer.pieces.bytes() as u64;
        let newest = self.segments.back();
        let full = newest.is_some_and(|newest| newest.len + buffered >= self.segment_bytes);
        if self.file.is_some() && full {
            self.flush()?;
            if let (Some(file), Some(newest)) = (self.file.take(), self.segments.back_mut()) {
                newest.cut_rest(&file);
                self.pending_fsync.close(newest.first, file);
            }
        }
        self.open_file(seq)
    }

    /// Opens a file, unless one is open; its first data is to be `seq`.
    fn open_file(&mut self, seq: u64) -> io::Result<()> {
        if self.file.is_some() {
            return Ok(());
        }
        let (segment, file) = match self.pool.take(&self.directory, seq, rand::random()) {
            Some(spare) => spare,
            None => Segment::create(&self.directory, seq, rand::random())?,
        };
        self.pending_fsync.name();
        self.segments.push_back(segment);
        self.file = Some(file);
        Ok(())
    }

    fn write(&mut self, settled: &[u64]) -> io::Result<()> {
        if !settled.is_empty() {
            // Notes go where the data goes that they follow: only data begins another segment.
            self.open_file(self.next_seq)?;
            let head = Head {
                kind: RecordKind::Settled,
                tag: 0,
                seq: 0,
                items: 0,
            };
            let ranges = record::ranges_to_bytes(&ranges_of(settled));
            let head = record::head(self.epoch(), head, std::iter::once(&*ranges));
            self.buffer.pieces.copy(&head);
            self.buffer.pieces.copy(&ranges);
        }
        let (Some(file), Some(newest)) = (&self.file, self.segments.back_mut()) else {
            return Ok(());
        };
        if let Err(error) = self.buffer.pieces.write(file, newest.len) {
            // Best effort: the rest is torn, and a recovery skips it.
            let _ = newest.cut(file);
            return Err(error);
        }
        let all_read = self.cursor.first == newest.first && self.cursor.offset >= newest.len;
        newest.len += self.buffer.pieces.bytes() as u64;
        if let Some(snapshot) = &mut self.snapshot {
            snapshot.since += self.buffer.pieces.bytes() as u64;
        }
        self.buffer.pieces.clear();
        let mut all_claimed = true;
        for (head, claimed) in self.buffer.data.drain(..) {
            all_claimed &= claimed;
            newest.add(head, claimed);
        }
        // It has no unread data: the reader can skip it.
        if all_read && all_claimed {
            self.cursor.offset = newest.len;
        }
        Ok(())
    }

    /// That of the newest segment.
    fn epoch(&self) -> Epoch {
        self.segments
            .back()
            .map_or(Epoch::fresh(0), |newest| newest.epoch)
    }

    /// Ends the newest segment.
    fn close(&mut self) {
        self.file = None;
        if let Some(empty) = self
            .segments
            .pop_back_if(|newest| newest.count == 0 && newest.len <= EMPTY)
        {
            let _ = std::fs::remove_file(empty.path);
        }
    }

    fn release_now(&mut self, seq: u64) {
        let at = self.segments.partition_point(|segment| segment.first <= seq);
        let segment = at.checked_sub(1).and_then(|at| self.segments.get_mut(at));
        if let Some(segment) = segment {
            segment.release(seq);
        }
    }

    /// Deletes the oldest segments that are no longer needed; the one that is appended to stays.
    fn reclaim(&mut self) {
        let snapshot = self.snapshot;
        // The log writes about as much between the next two snapshots. All files of that time come free at once.
        let ahead = snapshot.map_or(0, |snapshot| snapshot.bytes);
        let covers = |segment: &Segment| {
            snapshot.is_none_or(|snapshot| segment.first + segment.count <= snapshot.seq + 1)
        };
        while self.segments.len() > usize::from(self.file.is_some())
            && let Some(done) = self
                .segments
                .pop_front_if(|oldest| oldest.open == 0 && covers(oldest))
        {
            self.pending_fsync.forget(done.first);
            // One that was never full saves little when it is written over.
            if done.weight() >= self.segment_bytes {
                self.pool.keep(&done, ahead);
            } else {
                segment_pool::delete(&done.path);
            }
        }
    }

    /// Reports the size of the files to the quota. If the quota could be short of room, the pool has no files.
    fn weigh(&mut self) {
        let segments: u64 = self.segments.iter().map(Segment::weight).sum();
        let others = self.quota.used().saturating_sub(self.bytes);
        if others.saturating_add(segments + self.pool.bytes()) > self.quota.limit() / 2 {
            self.pool.clear();
        }
        let bytes = segments + self.pool.bytes();
        self.quota.resize(self.bytes, bytes);
        self.bytes = bytes;
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        self.pool.clear();
        if let (Some(file), Some(newest)) = (&self.file, self.segments.back_mut()) {
            // Bytes after the last record are of no use to the next run.
            let _ = newest.cut(file);
        }
        self.quota.resize(self.bytes, 0);
    }
}

/// The first number from `seq` on without a file: an unreadable file stays.
fn unused(directory: &Path, mut seq: u64) -> u64 {
    while std::fs::symlink_metadata(Segment::path(directory, seq)).is_ok() {
        seq += 1;
    }
    seq
}

/// The length of a segment without records.
const EMPTY: u64 = record::SEGMENT_HEAD as u64;

/// Numbers as ranges; they need not be in order.
fn ranges_of(seqs: &[u64]) -> Vec<(u64, u64)> {
    let mut sorted = seqs.to_vec();
    sorted.sort_unstable();
    let mut ranges: Vec<(u64, u64)> = Vec::new();
    for seq in sorted {
        match ranges.last_mut() {
            Some((_, last)) if *last + 1 >= seq => *last = seq,
            _ => ranges.push((seq, seq)),
        }
    }
    ranges
}
