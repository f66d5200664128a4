// SPDX-License-Identifier: Apache-2.0

//! One file of a log and the state of its records.

mod recover;

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;
use tidegate_runtime::files;

use super::record::{self, Epoch, Head, Promise, RECORD_HEAD, RecordKind, SEGMENT_HEAD, Stored, TAGS};
use super::window::{FileWindow, PIECE, Search, read_at};

/// A larger file is not a segment: a segment has at most 1 GiB, one record more, and notes of settled data.
pub(super) const MAX_FILE_BYTES: u64 = 16 << 30;

/// A set of small numbers.
#[derive(Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    fn has(&self, at: u64) -> bool {
        let word = usize::try_from(at / 64).ok().and_then(|word| self.0.get(word));
        word.is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    fn add(&mut self, at: u64) {
        let word = (at / 64) as usize;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (at % 64);
    }
}

/// A file and its books.
#[derive(Debug)]
pub(super) struct Segment {
    pub(super) path: PathBuf,
    pub(super) first: u64,
    pub(super) epoch: Epoch,
    /// Bytes that are whole records.
    pub(super) len: u64,
    /// Bytes of the file, if more than `len`: of its earlier use, or torn.
    on_disk: u64,
    /// Records that it has (or had, before damage): numbers `first` to `first + count - 1`.
    pub(super) count: u64,
    settled: Bits,
    /// Records that an owner has in memory: they are not read again.
    claimed: Bits,
    /// Records that are not settled.
    pub(super) open: u64,
    /// Items of records that are neither settled nor claimed, by tag.
    pub(super) unread: [u64; TAGS],
    /// While it is recovered: number, tag and items of its data.
    items: Vec<(u64, u8, u32)>,
    reader: Option<File>,
    /// The reader has come past all data before this number.
    passed: u64,
    /// The offset of a long record that the reader found sound, but that had no room yet.
    sound_at: Option<u64>,
    /// Bytes whose checksum was wrong when the reader looked for records.
    wasted: u64,
}

/// The reader's result at an offset.
pub(super) enum RecordRead {
    /// A record that is wanted, and where the next one begins.
    Record(Stored, u64),
    /// No wanted record; the next read starts there.
    Skip(u64),
    /// A wanted record, but memory has no room for it.
    NoRoom,
    /// The file ends.
    End,
}

impl Segment {
    /// The file whose first data is this.
    pub(super) fn path(directory: &Path, first: u64) -> PathBuf {
        directory.join(format!("{first:020}.seg"))
    }

    /// The number of its first data, by its name.
    pub(super) fn named(path: &Path) -> Option<u64> {
        path.file_stem()?.to_str()?.parse().ok()
    }

    /// Creates a file that no other user can read.
    pub(super) fn create(directory: &Path, first: u64, salt: u32) -> io::Result<(Self, File)> {
        let (path, epoch) = (Self::path(directory, first), Epoch::fresh(salt));
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        if let Err(error) = file.write_all_at(&record::segment_head(first, epoch), 0) {
            // Best effort: an empty file is skipped by a recovery.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok((Self::known(path, first, epoch), file))
    }

    /// A file of `former` bytes that will be overwritten.
    pub(super) fn over(path: PathBuf, first: u64, epoch: Epoch, former: u64) -> Self {
        Self {
            on_disk: former,
            ..Self::known(path, first, epoch)
        }
    }

    fn known(path: PathBuf, first: u64, epoch: Epoch) -> Self {
        Self {
            path,
            first,
            epoch,
            len: SEGMENT_HEAD as u64,
            on_disk: 0,
            count: 0,
            settled: Bits::default(),
            claimed: Bits::default(),
            open: 0,
            unread: [0; TAGS],
            items: Vec::new(),
            reader: None,
            passed: first,
            sound_at: None,
            wasted: 0,
        }
    }

    /// Notes a record that stands in the file now.
    pub(super) fn add(&mut self, head: Head, claimed: bool) {
        self.count = head.seq - self.first + 1;
        let at = head.seq - self.first;
        if head.kind == RecordKind::State {
            return self.settled.add(at);
        }
        self.open += 1;
        if claimed {
            self.claimed.add(at);
        } else {
            self.count_unread(head.tag, |unread| *unread += u64::from(head.items));
        }
    }

    /// The last number that it has, or would have.
    pub(super) fn last(&self) -> u64 {
        self.first + self.count.max(1) - 1
    }

    /// The bytes that it takes on the disk.
    pub(super) fn weight(&self) -> u64 {
        self.len.max(self.on_disk)
    }

    /// Ends the file where its last record ends.
    pub(super) fn cut(&mut self, file: &File) -> io::Result<()> {
        file.set_len(self.len)?;
        self.on_disk = 0;
        Ok(())
    }

    /// Cuts the rest of an earlier use: after the records of a full file it would look like damage.
    pub(super) fn cut_rest(&mut self, file: &File) {
        if self.on_disk > self.len {
            // Best effort: the rest follows all records.
            let _ = self.cut(file);
        }
    }

    pub(super) fn holds(&self, seq: u64) -> bool {
        (self.first..self.first + self.count).contains(&seq)
    }

    pub(super) fn release(&mut self, seq: u64) {
        if self.holds(seq) && !self.settled.has(seq - self.first) {
            self.settled.add(seq - self.first);
            self.open -= 1;
        }
    }

    fn is_wanted(&self, seq: u64) -> bool {
        let at = seq.wrapping_sub(self.first);
        self.holds(seq) && !self.settled.has(at) && !self.claimed.has(at)
    }

    fn count_unread(&mut self, tag: u8, change: impl FnOnce(&mut u64)) {
        if let Some(unread) = self.unread.get_mut(usize::from(tag)) {
            change(unread);
        }
    }

    /// Reads on at `offset`. It claims each record that it gives. `has_room` says whether memory has room for a record
    /// of that many bytes.
    pub(super) fn read(
        &mut self,
        offset: u64,
        has_room: &mut dyn FnMut(usize) -> bool,
    ) -> io::Result<RecordRead> {
        if offset >= self.len {
            return Ok(RecordRead::End);
        }
        if self.reader.is_none() {
            self.reader = Some(files::open(&self.path)?);
        }
        let Some(file) = &self.reader else {
            return Ok(RecordRead::End);
        };
        let mut head = [0; RECORD_HEAD];
        let promise = if read_at(file, &mut head, offset)? {
            Promise::read(&head, self.epoch)
        } else {
            None
        };
        // A record is no longer than the file was when it was written or looked through.
        let promise = promise.filter(|promise| promise.bytes() as u64 <= self.len - offset);
        let Some(promise) = promise else {
            return self.skip_damage(offset);
        };
        let end = offset + promise.bytes() as u64;
        // Memory for a long one is asked for when the record is known to be sound.
        if promise.bytes() > PIECE && self.sound_at != Some(offset) {
            if FileWindow::new(file, self.len)
                .record(offset, self.epoch)?
                .is_none()
            {
                self.wasted = self.wasted.saturating_add(promise.bytes() as u64);
                return self.skip_damage(offset);
            }
            self.sound_at = Some(offset);
        }
        let is_wanted = promise.head.kind == RecordKind::Data && self.is_wanted(promise.head.seq);
        if promise.bytes() > PIECE && !is_wanted {
            self.pass(promise.head);
            return Ok(RecordRead::Skip(end));
        }
        if is_wanted && !has_room(promise.bytes()) {
            return Ok(RecordRead::NoRoom);
        }
        let mut bytes = vec![0; promise.bytes()];
        let sound = if read_at(file, &mut bytes, offset)? {
            record::read(&bytes, self.epoch).map(|(head, ..)| head)
        } else {
            None
        };
        let Some(head) = sound else {
            self.wasted = self.wasted.saturating_add(promise.bytes() as u64);
            return self.skip_damage(offset);
        };
        self.pass(head);
        if head.kind != RecordKind::Data || !self.is_wanted(head.seq) {
            return Ok(RecordRead::Skip(end));
        }
        self.claimed.add(head.seq - self.first);
        self.count_unread(head.tag, |unread| {
            *unread = unread.saturating_sub(u64::from(head.items));
        });
        let stored = Stored {
            seq: head.seq,
            tag: head.tag,
            items: head.items,
            payload: Bytes::from(bytes).slice(RECORD_HEAD..),
        };
        Ok(RecordRead::Record(stored, end))
    }

    /// The reader has come past a sound record.
    fn pass(&mut self, head: Head) {
        if head.kind != RecordKind::Settled && self.holds(head.seq) {
            self.passed = self.passed.max(head.seq + 1);
        }
    }

    /// Skips damage since the file was written or recovered. The unread end of the file was part of it.
    fn skip_damage(&mut self, offset: u64) -> io::Result<RecordRead> {
        let Some(file) = &self.reader else {
            return Ok(RecordRead::Skip(self.len));
        };
        let end = self.len.min(file.metadata()?.len());
        let mut window = FileWindow::new(file, end).go_on(self.wasted, self.weight());
        let numbers = self.passed..=self.last();
        let found = window.find(offset + 1..end, self.epoch, &numbers)?;
        self.wasted = window.wasted();
        let next = match found {
            Search::Found(next) => next,
            Search::Missing => self.len,
            Search::GivenUp => {
                log_abandoned_search(&self.path, self.len.saturating_sub(offset));
                self.len
            }
        };
        Ok(RecordRead::Skip(next))
    }

    /// Gives up the unreadable records: they are lost. Gives their number, and their items by tag.
    pub(super) fn give_up_unread(&mut self) -> (u64, [u64; TAGS]) {
        let lost = (self.first..self.first + self.count).filter(|seq| self.is_wanted(*seq));
        let lost: Vec<_> = lost.collect();
        lost.iter().for_each(|seq| self.release(*seq));
        (lost.len() as u64, std::mem::take(&mut self.unread))
    }
}

/// The most records that fit into `bytes`.
pub(super) fn most_records(bytes: u64) -> u64 {
    bytes / RECORD_HEAD as u64
}

fn log_abandoned_search(path: &Path, bytes: u64) {
    tracing::warn!(
        path = %path.display(),
        bytes,
        "a stored segment is damaged. The search for intact records after the damage took too long: the rest of the file is lost. Keep a copy of the file if you need its data"
    );
}
