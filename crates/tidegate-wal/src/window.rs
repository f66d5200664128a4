// SPDX-License-Identifier: Apache-2.0

//! Reads a file piece by piece: only one piece is in memory. No length is trusted before its checksum matches.

use std::fs::File;
use std::io;
use std::ops::{Range, RangeInclusive};
use std::os::unix::fs::FileExt;

use super::record::{self, CRC_FROM, Epoch, Promise, RECORD_HEAD};

/// The first piece. Damage is often shorter than that.
const FIRST_PIECE: usize = 16 << 10;

/// Each piece has twice as many bytes as the one before, up to this.
pub(super) const PIECE: usize = 1 << 20;

/// The search for a sound record ends once wrong checksums cover this many times the length of the file. Otherwise a
/// payload full of marks, each with a length, would cost the square of its size.
const MOST_WASTED: u64 = 4;

/// A file and the piece of it that is in memory.
pub(super) struct FileWindow<'a> {
    file: &'a File,
    /// The offset at which reading ends.
    end: u64,
    /// The offset of `bytes` in the file.
    start: u64,
    bytes: Vec<u8>,
    next_piece: usize,
    /// Bytes whose checksum was wrong.
    wasted: u64,
    most_wasted: u64,
}

/// The result of the search for a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Search {
    /// A sound record begins there.
    Found(u64),
    /// There is none.
    Missing,
    /// Too much looks like a record and is none.
    GivenUp,
}

impl<'a> FileWindow<'a> {
    /// The first `end` bytes of a file. Nothing is read yet.
    pub(super) fn new(file: &'a File, end: u64) -> Self {
        Self {
            file,
            end,
            start: 0,
            bytes: Vec::new(),
            next_piece: FIRST_PIECE,
            wasted: 0,
            most_wasted: end.saturating_mul(MOST_WASTED),
        }
    }

    /// Continues an earlier search: checksums over `wasted` bytes of a file of `length` bytes were wrong before.
    pub(super) fn go_on(mut self, wasted: u64, length: u64) -> Self {
        self.wasted = wasted;
        self.most_wasted = length.saturating_mul(MOST_WASTED);
        self
    }

    /// Bytes whose checksum was wrong so far.
    pub(super) fn wasted(&self) -> u64 {
        self.wasted
    }

    /// The `length` bytes at an offset, at most [`PIECE`]. `None`: the file has fewer.
    pub(super) fn get(&mut self, at: u64, length: usize) -> io::Result<Option<&[u8]>> {
        if self.buffered(at).len() < length && !self.fill(at, length)? {
            return Ok(None);
        }
        Ok(self.buffered(at).get(..length))
    }

    /// The claims of a record's head at an offset, if the file is long enough for the record.
    pub(super) fn promise(&mut self, at: u64, epoch: Epoch) -> io::Result<Option<Promise>> {
        let head = self.get(at, RECORD_HEAD)?;
        let promise = head.and_then(|head| Promise::read(head, epoch));
        let rest = self.end.saturating_sub(at);
        Ok(promise.filter(|promise| promise.bytes() as u64 <= rest))
    }

    /// The record at an offset, if it is whole and sound.
    pub(super) fn record(&mut self, at: u64, epoch: Epoch) -> io::Result<Option<Promise>> {
        match self.promise(at, epoch)? {
            Some(promise) if self.is_sound(at, &promise, epoch)? => Ok(Some(promise)),
            _ => Ok(None),
        }
    }

    /// All bytes of a record that is known to be sound.
    ///
    /// # Errors
    /// The file can't be read, or has changed since.
    pub(super) fn whole(&mut self, at: u64, promise: &Promise, epoch: Epoch) -> io::Result<Vec<u8>> {
        let length = promise.bytes();
        let bytes = match self.buffered(at).get(..length) {
            Some(buffered) => buffered.to_vec(),
            None => {
                let mut bytes = vec![0; length];
                // Too few bytes are not a record.
                read_at(self.file, &mut bytes, at)?;
                bytes
            }
        };
        if record::read(&bytes, epoch).is_some() {
            Ok(bytes)
        } else {
            Err(has_changed())
        }
    }

    /// Shows the payload of a record that is known to be sound, in pieces of [`PIECE`] bytes, the last one shorter.
    ///
    /// # Errors
    /// The file can't be read, or is shorter than it was.
    pub(super) fn payload(
        &mut self,
        at: u64,
        promise: &Promise,
        mut each: impl FnMut(&[u8]),
    ) -> io::Result<()> {
        let end = at + promise.bytes() as u64;
        if self.pieces(at + RECORD_HEAD as u64, end, &mut each)? {
            Ok(())
        } else {
            Err(has_changed())
        }
    }

    /// The offset of the next sound record in a range. Data with one of these `numbers` may come next.
    pub(super) fn find(
        &mut self,
        range: Range<u64>,
        epoch: Epoch,
        numbers: &RangeInclusive<u64>,
    ) -> io::Result<Search> {
        let mut at = range.start;
        while at < range.end {
            if self.wasted > self.most_wasted {
                return Ok(Search::GivenUp);
            }
            // Shorter than a mark: the rest of a piece, or of the file.
            if self.buffered(at).len() < record::MARK_LENGTH && !self.fill(at, record::MARK_LENGTH)? {
                break;
            }
            let piece = self.buffered(at);
            let Some(place) = record::find_mark(piece, epoch) else {
                // A mark may go over the end of the piece.
                at += (piece.len() - record::MARK_LENGTH + 1) as u64;
                continue;
            };
            at += place as u64;
            let promise = self.promise(at, epoch)?;
            let promise = promise.filter(|promise| promise.is_plausible(numbers));
            if let Some(promise) = promise
                && self.is_sound(at, &promise, epoch)?
            {
                return Ok(Search::Found(at));
            }
            at += 1;
        }
        Ok(Search::Missing)
    }

    /// The number of bytes from an offset on that belong to a torn record of this segment.
    pub(super) fn torn(&mut self, at: u64, epoch: Epoch) -> io::Result<u64> {
        let rest = self.end.saturating_sub(at);
        let head = usize::try_from(rest).map_or(RECORD_HEAD, |rest| rest.min(RECORD_HEAD));
        let head = self.get(at, head)?.unwrap_or_default();
        Ok(record::torn(head, rest, epoch))
    }

    /// Whether a record has the checksum that its head says.
    fn is_sound(&mut self, at: u64, promise: &Promise, epoch: Epoch) -> io::Result<bool> {
        let end = at + promise.bytes() as u64;
        // A record that fits is in memory as a whole: a search that continues in it does not read it again.
        if promise.bytes() <= PIECE && self.get(at, promise.bytes())?.is_none() {
            return Ok(false);
        }
        let mut checksum = epoch.checksum();
        let is_whole = self.pieces(at + CRC_FROM as u64, end, &mut |piece| checksum.update(piece))?;
        #[cfg(test)]
        counts::note_checked(promise.bytes());
        let is_sound = is_whole && checksum.finalize() == promise.crc;
        if !is_sound {
            self.wasted = self.wasted.saturating_add(promise.bytes() as u64);
        }
        Ok(is_sound)
    }

    /// Shows the bytes between two offsets, piece by piece. False: the file is shorter.
    fn pieces(&mut self, from: u64, to: u64, each: &mut dyn FnMut(&[u8])) -> io::Result<bool> {
        let mut at = from;
        while at < to {
            let length = usize::try_from(to - at).map_or(PIECE, |length| length.min(PIECE));
            let Some(piece) = self.get(at, length)? else {
                return Ok(false);
            };
            each(piece);
            at += length as u64;
        }
        Ok(true)
    }

    /// The bytes in memory from an offset on.
    fn buffered(&self, at: u64) -> &[u8] {
        let from = at
            .checked_sub(self.start)
            .and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes.get(from..)).unwrap_or_default()
    }

    /// Reads a piece of at least `length` bytes. False: the file has fewer.
    fn fill(&mut self, at: u64, length: usize) -> io::Result<bool> {
        let rest = self.end.saturating_sub(at);
        if (length as u64) > rest {
            return Ok(false);
        }
        let rest = usize::try_from(rest).unwrap_or(usize::MAX);
        let piece = rest.min(self.next_piece.max(length));
        self.next_piece = (2 * self.next_piece).min(PIECE);
        self.start = at;
        self.bytes.resize(piece, 0);
        let is_read = read_at(self.file, &mut self.bytes, at);
        if !matches!(is_read, Ok(true)) {
            self.bytes.clear();
        }
        is_read
    }
}

/// Whether there was as much to read.
pub(super) fn read_at(file: &File, to: &mut [u8], offset: u64) -> io::Result<bool> {
    #[cfg(test)]
    counts::note_read(to.len());
    match file.read_exact_at(to, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

fn has_changed() -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidData,
        "the file has changed while it was read",
    )
}

/// Counters of the reads on a test's thread.
#[cfg(test)]
pub(super) mod counts {
    use std::cell::Cell;

    thread_local! {
        static READ: Cell<u64> = const { Cell::new(0) };
        static LONGEST_READ: Cell<usize> = const { Cell::new(0) };
        static CHECKED: Cell<u64> = const { Cell::new(0) };
    }

    pub(in super::super) fn reset() {
        READ.set(0);
        LONGEST_READ.set(0);
        CHECKED.set(0);
    }

    /// Bytes that were read.
    pub(in super::super) fn read() -> u64 {
        READ.get()
    }

    /// The most bytes that were read at one go.
    pub(in super::super) fn longest_read() -> usize {
        LONGEST_READ.get()
    }

    /// Bytes whose checksum was computed.
    pub(in super::super) fn checked() -> u64 {
        CHECKED.get()
    }

    pub(super) fn note_read(bytes: usize) {
        READ.set(READ.get() + bytes as u64);
        LONGEST_READ.set(LONGEST_READ.get().max(bytes));
    }

    pub(super) fn note_checked(bytes: usize) {
        CHECKED.set(CHECKED.get() + bytes as u64);
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::super::record::{Head, RecordKind};
    use super::*;

    const EPOCH: Epoch = Epoch::plain(7);
    const ANY: RangeInclusive<u64> = 0..=u64::MAX;

    /// The next sound record, searched in one piece.
    fn find(bytes: &[u8], from: usize) -> Search {
        let found = (from..bytes.len()).find(|at| record::read(&bytes[*at..], EPOCH).is_some());
        found.map_or(Search::Missing, |at| Search::Found(at as u64))
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        /// Records and damage of any length, so that both go over the ends of pieces.
        #[test]
        fn piece_by_piece_is_the_same_as_all_at_once(
            parts in prop::collection::vec((any::<bool>(), 0usize..40_000), 1..20),
            from in any::<prop::sample::Index>(),
        ) {
            let mut bytes = Vec::new();
            for (seq, (is_record, length)) in (1..).zip(parts) {
                if is_record {
                    let head = Head { kind: RecordKind::Data, tag: 0, seq, items: 1 };
                    record::write(&mut bytes, EPOCH, head, &vec![seq as u8; length]);
                } else {
                    // Every byte of it could begin a mark.
                    bytes.extend(std::iter::repeat_n(0xF1, length));
                }
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            let end = bytes.len() as u64;
            let mut window = FileWindow::new(&file, end);
            let mut at = from.index(bytes.len() + 1);
            while let Search::Found(next) = window.find(at as u64..end, EPOCH, &ANY).unwrap() {
                prop_assert_eq!(Search::Found(next), find(&bytes, at));
                let promise = window.record(next, EPOCH).unwrap().unwrap();
                let (head, payload, length) = record::read(&bytes[next as usize..], EPOCH).unwrap();
                prop_assert_eq!((promise.head, promise.bytes()), (head, length));
                let whole = window.whole(next, &promise, EPOCH).unwrap();
                prop_assert_eq!(&whole[RECORD_HEAD..], payload);
                at = next as usize + length;
            }
            prop_assert_eq!(find(&bytes, at), Search::Missing);
        }
    }

    #[test]
    fn a_file_that_has_become_shorter_is_not_an_error() {
        let file = tempfile::tempfile().unwrap();
        let mut window = FileWindow::new(&file, 1 << 20);
        assert_eq!(window.get(0, 100).unwrap(), None);
        assert_eq!(window.find(0..1 << 20, EPOCH, &ANY).unwrap(), Search::Missing);
        assert!(window.record(0, EPOCH).unwrap().is_none());
    }
}
