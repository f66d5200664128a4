// SPDX-License-Identifier: Apache-2.0

//! Edits of a request without re-encoding it: splices, and the lengths of every message around them.
//!
//! A walk opens and closes the messages on its way; edits are noted as ranges of the original bytes with what stands
//! there instead. Closing a message that was edited corrects its length prefix, closing one that was emptied removes
//! it. Rendering copies every byte once; a walk without edits copies nothing.

use std::cell::Cell;
use std::ops::Range;

use bytes::Bytes;
pub use tidegate_model::varint::{push_varint, varint_size, zigzag};

use super::proto::{Field, WireType};

/// Notes edits; see the module.
pub struct Editor<'a> {
    source: &'a [u8],
    notes: Notes,
}

/// The changes that an edit notes of a request. The thread keeps this memory for the next request, because an edit of
/// every item needs as much memory as the request.
#[derive(Default)]
struct Notes {
    /// Ranges never overlap.
    splices: Vec<Splice>,
    /// The bytes that replace ranges.
    new: Vec<u8>,
    frames: Vec<Frame>,
}

struct Splice {
    range: Range<usize>,
    /// Where in the new bytes.
    with: Range<usize>,
}

struct Frame {
    /// From the tag on.
    start: usize,
    payload: Range<usize>,
    /// Where its length splice stands in the list (unchanged until the frame closes).
    slot: usize,
    grown: isize,
}

thread_local! {
    static SPARE: Cell<Option<Notes>> = const { Cell::new(None) };
}

impl Notes {
    /// Larger ones are not kept.
    const MAX_SPARE_BYTES: usize = 1 << 20;

    fn recycled() -> Self {
        SPARE.take().unwrap_or_default()
    }

    fn keep(mut self) {
        let bytes = self.splices.capacity() * size_of::<Splice>() + self.new.capacity();
        if bytes <= Self::MAX_SPARE_BYTES {
            self.splices.clear();
            self.new.clear();
            self.frames.clear();
            SPARE.set(Some(self));
        }
    }
}

impl<'a> Editor<'a> {
    pub(crate) fn new(source: &'a [u8]) -> Self {
        Self {
            source,
            notes: Notes::recycled(),
        }
    }

    /// Where a piece of the source stands in it.
    pub(crate) fn range_of(&self, piece: &[u8]) -> Range<usize> {
        let start = piece.as_ptr() as usize - self.source.as_ptr() as usize;
        start..start + piece.len()
    }

    /// Enters a message whose tag begins at `start`.
    pub(crate) fn open(&mut self, start: usize, payload: &[u8]) {
        let payload = self.range_of(payload);
        let slot = self.notes.splices.len();
        self.notes.splices.push(Splice {
            range: start..start,
            with: 0..0,
        });
        self.notes.frames.push(Frame {
            start,
            payload,
            slot,
            grown: 0,
        });
    }

    /// Leaves the message entered last; `keep` is false when it is to go as a whole.
    pub(crate) fn close(&mut self, keep: bool) {
        let Some(frame) = self.notes.frames.pop() else {
            return;
        };
        if !keep {
            self.notes.splices.truncate(frame.slot);
            self.replace(frame.start..frame.payload.end, &[]);
        } else if self.notes.splices.len() == frame.slot + 1 {
            self.notes.splices.pop();
        } else {
            self.correct_length(&frame);
        }
    }

    fn correct_length(&mut self, frame: &Frame) {
        let length = frame.payload.len().saturating_add_signed(frame.grown);
        let tag_length = tag_length(self.source.get(frame.start..).unwrap_or_default());
        let range = frame.start + tag_length..frame.payload.start;
        let new = &mut self.notes.new;
        let start = new.len();
        push_varint(new, length as u64);
        let with = start..new.len();
        let grown = frame.grown + with.len() as isize - range.len() as isize;
        if let Some(slot) = self.notes.splices.get_mut(frame.slot) {
            *slot = Splice { range, with };
        }
        self.grow(grown);
    }

    fn grow(&mut self, by: isize) {
        if let Some(parent) = self.notes.frames.last_mut() {
            parent.grown += by;
        }
    }

    /// Puts `with` in the place of a range.
    pub(crate) fn replace(&mut self, range: Range<usize>, with: &[u8]) {
        self.replace_by(range, |new| new.extend_from_slice(with));
    }

    /// Puts what is written in the place of a range.
    pub(crate) fn replace_by(&mut self, range: Range<usize>, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.notes.new.len();
        write(&mut self.notes.new);
        let with = start..self.notes.new.len();
        self.grow(with.len() as isize - range.len() as isize);
        self.notes.splices.push(Splice { range, with });
    }

    /// Puts bytes in at a place.
    pub fn insert(&mut self, at: usize, with: &[u8]) {
        self.replace(at..at, with);
    }

    /// The edited bytes; `None` when nothing was edited.
    pub(crate) fn finish(mut self) -> Option<Bytes> {
        let edited = (!self.notes.splices.is_empty()).then(|| self.edited());
        self.notes.keep();
        edited
    }

    fn edited(&mut self) -> Bytes {
        let Notes { splices, new, .. } = &mut self.notes;
        // A header that stands behind its items was edited before them.
        if !splices.is_sorted_by_key(|splice| splice.range.start) {
            splices.sort_by_key(|splice| splice.range.start);
        }
        let mut edited = Vec::with_capacity(self.source.len() + new.len());
        let mut at = 0;
        for splice in splices {
            edited.extend_from_slice(self.source.get(at..splice.range.start).unwrap_or_default());
            edited.extend_from_slice(new.get(splice.with.clone()).unwrap_or_default());
            at = splice.range.end;
        }
        edited.extend_from_slice(self.source.get(at..).unwrap_or_default());
        edited.into()
    }
}

/// Appends a length-delimited field.
#[inline]
pub fn push_message(out: &mut Vec<u8>, number: u32, payload: &[u8]) {
    push_varint(out, u64::from(number) << 3 | 2);
    push_varint(out, payload.len() as u64);
    out.extend_from_slice(payload);
}

/// Appends a field as it was read.
pub(crate) fn push_field(out: &mut Vec<u8>, field: &Field<'_>) {
    let wire = match field.wire {
        WireType::Varint => 0,
        WireType::Fixed64 => 1,
        WireType::Bytes => return push_message(out, field.number, field.payload),
        WireType::Fixed32 => 5,
    };
    push_varint(out, u64::from(field.number) << 3 | wire);
    out.extend_from_slice(field.payload);
}

fn tag_length(bytes: &[u8]) -> usize {
    super::proto::varint(bytes).map_or(0, |(_, used)| used)
}
