// SPDX-License-Identifier: Apache-2.0

//! The segments of a store: the allocation of values, and the stream of records.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use tidegate_shm::{Backing, Region, Slot};

use crate::layout::{HEADER_SIZE, MAX_SEGMENT_SIZE, MAX_SEGMENTS, SEGMENT_SIZE, SegmentKind, header};

#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) kind: SegmentKind,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    /// Set for segments of values.
    pub(crate) region: Option<Arc<Region>>,
}

/// The size from which a file grows by a smaller share: 256 KiB.
const LARGE: u64 = 256 * 1024;

/// The contents of a store's file, also of a store in memory.
#[derive(Debug)]
pub(crate) struct Arena {
    pub(crate) header: Slot,
    pub(crate) header_region: Arc<Region>,
    pub(crate) segments: Vec<Segment>,
    /// Bytes of records that are whole.
    pub(crate) descriptors: u64,
    /// The next free word of the newest segment of values, and the end of that segment.
    next: (u64, u64),
    /// Places of values that have ended, by their length in words.
    free: HashMap<usize, Vec<u64>>,
    max_bytes: u64,
}

/// A place for a value.
#[derive(Clone, Debug)]
pub(crate) struct CellPosition {
    /// Offset in the file, in words.
    pub(crate) word: u64,
    pub(crate) slot: Slot,
}

impl Arena {
    /// With nothing but a header, which is mapped.
    pub(crate) fn new(header_region: Arc<Region>, max_bytes: u64) -> io::Result<Self> {
        let header = header_region
            .slot(0, HEADER_SIZE / 8)
            .ok_or(io::ErrorKind::InvalidInput)?;
        Ok(Arena {
            header,
            header_region,
            segments: Vec::new(),
            descriptors: 0,
            next: (0, 0),
            free: HashMap::new(),
            max_bytes,
        })
    }

    /// Bytes of the file.
    pub(crate) fn size(&self) -> u64 {
        self.segments
            .last()
            .map_or(HEADER_SIZE as u64, |last| last.offset + last.len)
    }

    /// Room for `words` at a multiple of `align`. All zero.
    pub(crate) fn allocate(
        &mut self,
        file: Option<&File>,
        words: usize,
        align: u64,
    ) -> io::Result<CellPosition> {
        if let Some(word) = self.free.get_mut(&words).and_then(Vec::pop) {
            let place = self.position(word, words)?;
            place
                .slot
                .words()
                .iter()
                .for_each(|word| word.store(0, Ordering::Relaxed));
            return Ok(place);
        }
        let len = words as u64;
        let (mut word, mut end) = (self.next.0.next_multiple_of(align), self.next.1);
        if word + len > end {
            self.grow(file, SegmentKind::Values, len * 8)?;
            (word, end) = self.next;
        }
        self.next = (word + len, end);
        self.position(word, words)
    }

    /// Frees a slot that is no longer used, for another value.
    pub(crate) fn release(&mut self, word: u64, words: usize) {
        self.free.entry(words).or_default().push(word);
    }

    fn position(&self, word: u64, words: usize) -> io::Result<CellPosition> {
        let segment = self
            .segments
            .partition_point(|segment| segment.offset <= word * 8);
        let segment = segment.checked_sub(1).and_then(|at| self.segments.get(at));
        let slot = segment.and_then(|segment| {
            let start = usize::try_from(word - segment.offset / 8).ok()?;
            segment.region.as_ref()?.slot(start, words)
        });
        let slot = slot.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(CellPosition { word, slot })
    }

    /// Appends records and makes them count. Readers see all of them or none.
    pub(crate) fn append(&mut self, file: &File, records: &[u8]) -> io::Result<()> {
        let end = self.descriptors + records.len() as u64;
        if end > self.room() {
            self.grow(Some(file), SegmentKind::Descriptors, end - self.room())?;
        }
        for (offset, part) in self.spread(self.descriptors, records) {
            file.write_all_at(part, offset)?;
        }
        self.descriptors = end;
        self.word(header::DESCRIPTORS, end);
        Ok(())
    }

    /// Bytes of records that there is room for.
    fn room(&self) -> u64 {
        let of_records = self
            .segments
            .iter()
            .filter(|s| s.kind == SegmentKind::Descriptors);
        of_records.map(|segment| segment.len).sum()
    }

    /// Makes room for `records` bytes of records in a file that does not exist yet.
    pub(crate) fn plan(&mut self, records: u64) -> io::Result<()> {
        while records > self.room() {
            self.grow(None, SegmentKind::Descriptors, SEGMENT_SIZE)?;
        }
        Ok(())
    }

    /// The offsets in the file of these bytes of the stream, which begin at `start`.
    pub(crate) fn spread<'b>(&self, start: u64, mut bytes: &'b [u8]) -> Vec<(u64, &'b [u8])> {
        let mut parts = Vec::new();
        let mut segment_start = 0;
        let mut at = start;
        for segment in self
            .segments
            .iter()
            .filter(|s| s.kind == SegmentKind::Descriptors)
        {
            let segment_end = segment_start + segment.len;
            if at < segment_end && !bytes.is_empty() {
                let fits = usize::try_from(segment_end - at).unwrap_or(usize::MAX);
                let (part, rest) = bytes.split_at(fits.min(bytes.len()));
                parts.push((segment.offset + (at - segment_start), part));
                at += part.len() as u64;
                bytes = rest;
            }
            segment_start = segment_end;
        }
        parts
    }

    /// Adds a segment of at least `least` bytes. The segment has half of the present size if that is more, or a quarter
    /// in a large file: the header lists a limited number of segments.
    pub(crate) fn grow(&mut self, file: Option<&File>, kind: SegmentKind, least: u64) -> io::Result<()> {
        let least = least.next_multiple_of(SEGMENT_SIZE).max(SEGMENT_SIZE);
        let share = if self.size() < LARGE { 2 } else { 4 };
        let wanted = (self.size() / share)
            .next_multiple_of(SEGMENT_SIZE)
            .clamp(least, MAX_SEGMENT_SIZE.max(least));
        let grown = self.try_grow(file, kind, wanted);
        if grown.is_err() && wanted > least {
            return self.try_grow(file, kind, least);
        }
        grown
    }

    fn try_grow(&mut self, file: Option<&File>, kind: SegmentKind, len: u64) -> io::Result<()> {
        let offset = self.size();
        if self.segments.len() >= MAX_SEGMENTS || len > MAX_SEGMENT_SIZE || offset + len > self.max_bytes {
            return Err(io::Error::new(
                io::ErrorKind::StorageFull,
                "the file is as large as it may get",
            ));
        }
        let bytes = usize::try_from(len).map_err(io::Error::other)?;
        if let Some(file) = file {
            tidegate_shm::reserve(file, offset, len)?;
        }
        let backing = file.map_or(Backing::Anonymous, |file| Backing::File(file, offset));
        let region = match kind {
            SegmentKind::Values => Some(Region::new(backing, bytes)?),
            SegmentKind::Descriptors => None,
        };
        if kind == SegmentKind::Values {
            self.next = (offset / 8, (offset + len) / 8);
        }
        let at = self.segments.len();
        self.segments.push(Segment {
            kind,
            offset,
            len,
            region,
        });
        // The header of a file that does not exist yet is not ours: a child of fork still sees its parent's.
        if file.is_some() {
            self.word(header::TABLE + at * 8, kind.entry(len));
            self.word(header::SEGMENTS, at as u64 + 1);
        }
        Ok(())
    }

    /// Sets a word of the header. A thread that sees it also sees all earlier writes.
    fn word(&self, offset: usize, value: u64) {
        self.header.words()[offset / 8].store(value, Ordering::Release);
    }

    /// Puts other memory under all addresses: the file's, or private memory.
    pub(crate) fn replace(&self, file: Option<&File>) -> io::Result<()> {
        let backing = |offset| file.map_or(Backing::Anonymous, |file| Backing::File(file, offset));
        self.header_region.replace(backing(0))?;
        for segment in &self.segments {
            if let Some(region) = &segment.region {
                region.replace(backing(segment.offset))?;
            }
        }
        Ok(())
    }

    /// The header's words for a new file of the same segments, as parts of its content.
    pub(crate) fn fill_header(&self, page: &mut [u8; HEADER_SIZE], descriptors: u64) {
        let mut put = |at: usize, word: u64| page[at..at + 8].copy_from_slice(&word.to_le_bytes());
        put(header::SEGMENTS, self.segments.len() as u64);
        put(header::DESCRIPTORS, descriptors);
        for (at, segment) in self.segments.iter().enumerate() {
            put(header::TABLE + at * 8, segment.kind.entry(segment.len));
        }
    }
}
