//! One file of a log, and what is known of its records.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use bytes::Bytes;

use super::record::{self, Head, Kind, RECORD_HEAD, SEGMENT_HEAD, Seal, Stored};

/// How many owners' tags are told apart: one a signal.
pub(super) const TAGS: usize = 3;

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
    pub(super) seal: Seal,
    /// Bytes that are whole records.
    pub(super) len: u64,
    /// Bytes that the file has, where that is more: of its former use, or torn.
    on_disk: u64,
    /// Records that it has (or had, before damage): numbers `first` to `first + count - 1`.
    pub(super) count: u64,
    settled: Bits,
    /// In somebody's memory: not to be read again.
    claimed: Bits,
    /// Records that are not settled.
    pub(super) open: u64,
    /// Items of records that are neither settled nor claimed, by tag.
    pub(super) unread: [u64; TAGS],
    /// While it is recovered: number, tag and items of its data.
    items: Vec<(u64, u8, u32)>,
    reader: Option<File>,
    /// The whole file, once damage was found in it.
    image: Option<Vec<u8>>,
}

/// What the reader finds at an offset.
pub(super) enum Found {
    /// A record that is wanted, and where the next one begins.
    Record(Stored, u64),
    /// Nothing that is wanted; go on there.
    Skip(u64),
    /// The file ends.
    End,
}

/// What a file turned out to hold.
#[derive(Debug, Default)]
pub(super) struct Scan {
    /// Data that must have stood where damage is.
    pub(super) lost_records: u64,
    /// Bytes of damage between sound records.
    pub(super) damaged_bytes: u64,
    /// Bytes behind the last sound record.
    pub(super) torn_bytes: u64,
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

    /// A new file, readable by nobody else.
    pub(super) fn create(directory: &Path, first: u64, salt: u32) -> io::Result<(Self, File)> {
        let (path, seal) = (Self::path(directory, first), Seal::fresh(salt));
        let file = OpenOptions::new()
            .create_new(true)
            .write(true)
            .mode(0o600)
            .open(&path)?;
        if let Err(error) = file.write_all_at(&record::segment_head(first, seal), 0) {
            // Best effort: an empty file is skipped by a recovery.
            let _ = std::fs::remove_file(&path);
            return Err(error);
        }
        Ok((Self::known(path, first, seal), file))
    }

    /// A file of so many bytes that is to be written over.
    pub(super) fn over(path: PathBuf, first: u64, seal: Seal, former: u64) -> Self {
        Self {
            on_disk: former,
            ..Self::known(path, first, seal)
        }
    }

    fn known(path: PathBuf, first: u64, seal: Seal) -> Self {
        Self {
            path,
            first,
            seal,
            len: SEGMENT_HEAD as u64,
            on_disk: 0,
            count: 0,
            settled: Bits::default(),
            claimed: Bits::default(),
            open: 0,
            unread: [0; TAGS],
            items: Vec::new(),
            reader: None,
            image: None,
        }
    }

    /// Looks through a file of a former run. `settled` has the ranges that newer files call settled; what is left in
    /// it concerns older ones. `each` is shown all data, settled or not. `None`: it is no segment.
    pub(super) fn recover(
        path: PathBuf,
        settled: &mut Vec<(u64, u64)>,
        each: &mut dyn FnMut(u64, Bytes),
    ) -> io::Result<Option<(Self, Scan)>> {
        let bytes = Bytes::from(std::fs::read(&path)?);
        let head = record::read_segment_head(&bytes);
        let rescued = || Some((Self::named(&path)?, record::seal_without_head(&bytes)?));
        let Some((first, seal)) = head.or_else(rescued) else {
            return Ok(None);
        };
        let (mut segment, mut scan) = (Self::known(path, first, seal), Scan::default());
        if head.is_none() {
            scan.damaged_bytes += SEGMENT_HEAD as u64;
        }
        let mut data = Vec::new();
        let mut at = SEGMENT_HEAD;
        while at < bytes.len() {
            if let Some((head, payload, length)) = record::read(&bytes[at..], seal) {
                at += length;
                segment.len = at as u64;
                match head.kind {
                    Kind::Settled => settled.extend(record::ranges(payload)),
                    Kind::Data | Kind::State => {
                        each(head.seq, bytes.slice_ref(payload));
                        data.push(head);
                    }
                }
                continue;
            }
            match record::find(&bytes, at + 1, seal) {
                Some(next) => {
                    scan.damaged_bytes += (next - at) as u64;
                    at = next;
                }
                None => {
                    scan.torn_bytes = record::torn(&bytes[at..], seal) as u64;
                    break;
                }
            }
        }
        segment.on_disk = bytes.len() as u64;
        for head in data {
            scan.lost_records += segment.recall(head);
        }
        segment.settle_all(settled);
        Ok(Some((segment, scan)))
    }

    /// Notes a record of a former run; gives how many must have stood before it and are gone.
    fn recall(&mut self, head: Head) -> u64 {
        let expected = self.first + self.count;
        // More than fit into the file are not lost but made up.
        let fits = |seq: &u64| seq - self.first <= self.len / RECORD_HEAD as u64;
        let seq = Some(head.seq).filter(|seq| *seq >= expected).filter(fits);
        let Some(lost) = seq.map(|seq| seq - expected) else {
            return 0;
        };
        (expected..head.seq).for_each(|seq| self.settled.add(seq - self.first));
        self.add(head, false);
        self.items.push((head.seq, head.tag, head.items));
        lost
    }

    /// Applies what is known to be settled, and forgets what can concern no older file.
    fn settle_all(&mut self, settled: &mut Vec<(u64, u64)>) {
        let end = self.first + self.count;
        for (first, last) in settled.iter().copied() {
            (first.max(self.first)..last.saturating_add(1).min(end)).for_each(|seq| self.settle(seq));
        }
        settled.retain(|(first, _)| *first < self.first);
        self.unread = [0; TAGS];
        for (seq, tag, items) in std::mem::take(&mut self.items) {
            if self.is_wanted(seq) {
                self.count_unread(tag, |unread| *unread += u64::from(items));
            }
        }
    }

    /// Notes a record that stands in the file now.
    pub(super) fn add(&mut self, head: Head, claimed: bool) {
        self.count = head.seq - self.first + 1;
        let at = head.seq - self.first;
        if head.kind == Kind::State {
            return self.settled.add(at);
        }
        self.open += 1;
        match claimed {
            true => self.claimed.add(at),
            false => self.count_unread(head.tag, |unread| *unread += u64::from(head.items)),
        }
    }

    /// The last number that it has, or would have.
    pub(super) fn last(&self) -> u64 {
        self.first + self.count.max(1) - 1
    }

    /// What it takes on the disk.
    pub(super) fn weight(&self) -> u64 {
        self.len.max(self.on_disk)
    }

    /// Ends the file where its last record ends.
    pub(super) fn cut(&mut self, file: &File) -> io::Result<()> {
        file.set_len(self.len)?;
        self.on_disk = 0;
        Ok(())
    }

    pub(super) fn holds(&self, seq: u64) -> bool {
        (self.first..self.first + self.count).contains(&seq)
    }

    pub(super) fn settle(&mut self, seq: u64) {
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

    /// Reads on at `offset`. A record that is given is claimed.
    pub(super) fn read(&mut self, offset: u64) -> io::Result<Found> {
        if offset >= self.len {
            self.image = None;
            return Ok(Found::End);
        }
        if self.reader.is_none() {
            self.reader = Some(File::open(&self.path)?);
        }
        let Some(file) = &self.reader else {
            return Ok(Found::End);
        };
        let mut head = [0; RECORD_HEAD];
        let sound = match read_at(file, &mut head, offset)? {
            true => record::promised_length(&head, self.seal),
            false => None,
        };
        let end = sound.map(|length| offset + (RECORD_HEAD + length) as u64);
        let Some(end) = end.filter(|end| *end <= self.len) else {
            return self.skip_damage(offset);
        };
        let mut bytes = vec![0; (end - offset) as usize];
        if !read_at(file, &mut bytes, offset)? {
            return self.skip_damage(offset);
        }
        let Some((head, _, _)) = record::read(&bytes, self.seal) else {
            return self.skip_damage(offset);
        };
        if head.kind != Kind::Data || !self.is_wanted(head.seq) {
            return Ok(Found::Skip(end));
        }
        self.claimed.add(head.seq - self.first);
        self.count_unread(head.tag, |unread| {
            *unread = unread.saturating_sub(u64::from(head.items))
        });
        let stored = Stored {
            seq: head.seq,
            tag: head.tag,
            items: head.items,
            payload: Bytes::from(bytes).slice(RECORD_HEAD..),
        };
        Ok(Found::Record(stored, end))
    }

    /// Damage that came since the file was written or recovered. What is unread at the end of the file was in it.
    fn skip_damage(&mut self, offset: u64) -> io::Result<Found> {
        // Where one record is damaged there may be many: the file is read once for all of them.
        let bytes = match self.image.take() {
            Some(image) if image.len() as u64 >= self.len => image,
            _ => std::fs::read(&self.path)?,
        };
        let next = record::find(&bytes, offset as usize + 1, self.seal);
        self.image = Some(bytes);
        Ok(Found::Skip(next.map_or(self.len, |next| next as u64)))
    }

    /// Gives up what could not be read: records that nobody has and nobody will. Gives their number and items by tag.
    pub(super) fn give_up_unread(&mut self) -> (u64, [u64; TAGS]) {
        let lost = (self.first..self.first + self.count).filter(|seq| self.is_wanted(*seq));
        let lost: Vec<_> = lost.collect();
        lost.iter().for_each(|seq| self.settle(*seq));
        (lost.len() as u64, std::mem::take(&mut self.unread))
    }
}

/// Whether there was as much to read.
fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<bool> {
    match file.read_exact_at(to, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}
