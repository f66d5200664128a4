//! A file that is read piece by piece: only a piece of it is in memory, or its longest record.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{self, Head, RECORD_HEAD, Seal};

/// The first piece. Damage is often shorter than that.
const FIRST_PIECE: usize = 16 << 10;

/// Each piece has twice as many bytes as the one before, up to this.
const PIECE: usize = 1 << 20;

/// A file and the piece of it that is in memory.
pub(super) struct Window<'a> {
    file: &'a File,
    /// Nothing is read behind this.
    end: u64,
    /// Where `bytes` begin in the file.
    start: u64,
    bytes: Vec<u8>,
    next_piece: usize,
}

impl<'a> Window<'a> {
    /// The first `end` bytes of a file. Nothing is read yet.
    pub(super) fn new(file: &'a File, end: u64) -> Self {
        Self {
            file,
            end,
            start: 0,
            bytes: Vec::new(),
            next_piece: FIRST_PIECE,
        }
    }

    /// So many bytes at an offset. `None`: there are fewer.
    pub(super) fn get(&mut self, at: u64, length: usize) -> io::Result<Option<&[u8]>> {
        if self.buffered(at).len() < length && !self.fill(at, length)? {
            return Ok(None);
        }
        Ok(self.buffered(at).get(..length))
    }

    /// The record at an offset, if it is whole and sound, and its length.
    pub(super) fn record(&mut self, at: u64, seal: Seal) -> io::Result<Option<(Head, &[u8], usize)>> {
        let head = self.get(at, RECORD_HEAD)?;
        let Some(length) = head.and_then(|head| record::promised_length(head, seal)) else {
            return Ok(None);
        };
        let whole = self.get(at, RECORD_HEAD + length)?;
        Ok(whole.and_then(|whole| record::read(whole, seal)))
    }

    /// Where the next sound record begins, at or after an offset.
    pub(super) fn find(&mut self, from: u64, seal: Seal) -> io::Result<Option<u64>> {
        let mut at = from;
        loop {
            // Shorter than a mark: the rest of a piece, or of the file.
            if self.buffered(at).len() < record::MARK_LENGTH && !self.fill(at, record::MARK_LENGTH)? {
                return Ok(None);
            }
            let piece = self.buffered(at);
            match record::find_mark(piece, seal) {
                Some(place) => {
                    at += place as u64;
                    if self.record(at, seal)?.is_some() {
                        return Ok(Some(at));
                    }
                    at += 1;
                }
                // A mark may go over the end of the piece.
                None => at += (piece.len() - record::MARK_LENGTH + 1) as u64,
            }
        }
    }

    /// How many bytes from an offset on were to be a record of this segment.
    pub(super) fn torn(&mut self, at: u64, seal: Seal) -> io::Result<u64> {
        let rest = self.end.saturating_sub(at);
        let head = usize::try_from(rest).map_or(RECORD_HEAD, |rest| rest.min(RECORD_HEAD));
        let head = self.get(at, head)?.unwrap_or_default();
        Ok(record::torn(head, rest, seal))
    }

    /// What is in memory from an offset on.
    fn buffered(&self, at: u64) -> &[u8] {
        let from = at
            .checked_sub(self.start)
            .and_then(|from| usize::try_from(from).ok());
        from.and_then(|from| self.bytes.get(from..)).unwrap_or_default()
    }

    /// Reads a piece that has so many bytes at least. False: there are fewer.
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
    match file.read_exact_at(to, offset) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Seek, Write};

    use proptest::prelude::*;

    use super::super::record::Kind;
    use super::*;

    const SEAL: Seal = Seal::fresh(7);

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
                match is_record {
                    true => {
                        let head = Head { kind: Kind::Data, tag: 0, seq, items: 1 };
                        record::write(&mut bytes, SEAL, head, &vec![seq as u8; length]);
                    }
                    // Every byte of it could begin a mark.
                    false => bytes.extend(std::iter::repeat_n(0xF1, length)),
                }
            }
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&bytes).unwrap();
            file.rewind().unwrap();
            let mut window = Window::new(&file, bytes.len() as u64);
            let mut at = from.index(bytes.len() + 1);
            while let Some(next) = window.find(at as u64, SEAL).unwrap() {
                prop_assert_eq!(Some(next as usize), record::find(&bytes, at, SEAL));
                let (head, payload, length) = window.record(next, SEAL).unwrap().unwrap();
                let expected = record::read(&bytes[next as usize..], SEAL);
                prop_assert_eq!(Some((head, payload, length)), expected);
                at = next as usize + length;
            }
            prop_assert_eq!(record::find(&bytes, at, SEAL), None);
        }
    }

    #[test]
    fn a_file_that_is_shorter_than_it_was_is_no_error() {
        let file = tempfile::tempfile().unwrap();
        let mut window = Window::new(&file, 1 << 20);
        assert_eq!(window.get(0, 100).unwrap(), None);
        assert_eq!(window.find(0, SEAL).unwrap(), None);
        assert!(window.record(0, SEAL).unwrap().is_none());
    }
}
