// SPDX-License-Identifier: Apache-2.0

//! Bodies in pieces: events of a watch, line by line, and objects of a page of a list, one by one. A piece over the limit,
//! or without memory, is skipped, and the rest goes on.

use std::sync::Arc;

use tidegate_runtime::{Account, Held};

/// The bytes of a piece that a buffer keeps for the next one.
const KEPT_BYTES: usize = 64 << 10;

/// The bytes of a skipped piece that stay: the name of its object is among them.
const BEGINNING_BYTES: usize = 4 << 10;

/// The most bytes of a page without its objects.
const MAX_HEAD_BYTES: usize = 64 << 10;

/// Why a piece is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Skipped {
    /// It is larger than the limit.
    TooLarge,
    /// Memory for it is short.
    NoMemory,
}

/// A piece of a body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Piece<'a> {
    /// All of it.
    Whole(&'a [u8]),
    /// Its beginning.
    Skipped(Skipped, &'a [u8]),
}

/// A piece that arrives.
struct PieceBuffer {
    bytes: Vec<u8>,
    /// The reservation of `bytes`.
    held: Held,
    most_bytes: usize,
    skipped: Option<Skipped>,
}

impl PieceBuffer {
    fn new(account: Arc<Account>, most_bytes: usize) -> Self {
        Self {
            bytes: Vec::new(),
            held: Held::new(account),
            most_bytes,
            skipped: None,
        }
    }

    fn push(&mut self, bytes: &[u8]) {
        if self.skipped.is_some() {
            return;
        }
        let length = self.bytes.len() + bytes.len();
        self.skipped = if length > self.most_bytes {
            Some(Skipped::TooLarge)
        } else if self.reserve(length).is_err() {
            Some(Skipped::NoMemory)
        } else {
            None
        };
        if self.skipped.is_none() {
            self.bytes.extend_from_slice(bytes);
            self.held.fill_to(self.bytes.capacity());
        } else {
            let missing = BEGINNING_BYTES.saturating_sub(self.bytes.len()).min(bytes.len());
            self.bytes.extend_from_slice(&bytes[..missing]);
            self.bytes.truncate(BEGINNING_BYTES);
            self.shrink();
        }
    }

    /// Reserves the bytes of a buffer that grows by doubling.
    fn reserve(&mut self, length: usize) -> Result<(), tidegate_runtime::NoRoom> {
        if length <= self.bytes.capacity() {
            return Ok(());
        }
        self.held.try_grow_to(length.saturating_mul(2))
    }

    fn is_empty(&self) -> bool {
        self.bytes.is_empty() && self.skipped.is_none()
    }

    /// Gives the piece to `each`, and begins the next one.
    fn end(&mut self, each: &mut impl FnMut(Piece<'_>)) {
        match self.skipped.take() {
            None => each(Piece::Whole(&self.bytes)),
            Some(why) => each(Piece::Skipped(why, &self.bytes)),
        }
        self.bytes.clear();
        self.shrink();
    }

    fn shrink(&mut self) {
        if self.bytes.capacity() > KEPT_BYTES {
            self.bytes.shrink_to(self.bytes.len().max(KEPT_BYTES));
        }
        self.held.keep(self.bytes.capacity());
    }
}

/// The lines of a watch.
pub(crate) struct Lines(PieceBuffer);

impl Lines {
    /// Lines of at most `most_bytes`.
    pub(crate) fn new(account: Arc<Account>, most_bytes: usize) -> Self {
        Self(PieceBuffer::new(account, most_bytes))
    }

    /// Gives the lines that end in `chunk` to `each`.
    pub(crate) fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Piece<'_>)) {
        for part in chunk.split_inclusive(|byte| *byte == b'\n') {
            let line = part.strip_suffix(b"\n");
            self.0.push(line.unwrap_or(part));
            if line.is_some() && !self.0.is_empty() {
                self.0.end(&mut each);
            }
        }
    }
}

/// Why a page is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum PageError {
    /// The bytes are not a page of a list.
    #[error("the answer is not a list of objects")]
    Malformed,
    /// Its head is too large.
    #[error("a list has more than 64 KiB beside its objects")]
    Head,
}

/// The part of a page that a byte belongs to.
#[derive(Clone, Copy, PartialEq)]
enum PagePart {
    /// Neither the list of objects nor within it.
    Head,
    /// The list of objects, between two of them.
    Between,
    /// An object.
    Object,
}

/// The objects of a page of a list, while it arrives.
pub(crate) struct PageReader {
    part: PagePart,
    depth: usize,
    is_in_text: bool,
    is_escaped: bool,
    /// The last text at depth 1, which is a key before a colon.
    key: Vec<u8>,
    head: Vec<u8>,
    object: PieceBuffer,
}

/// The key of the list of objects.
const ITEMS: &[u8] = b"items";

impl PageReader {
    /// A page whose objects have at most `most_bytes`.
    pub(crate) fn new(account: Arc<Account>, most_bytes: usize) -> Self {
        Self {
            part: PagePart::Head,
            depth: 0,
            is_in_text: false,
            is_escaped: false,
            key: Vec::new(),
            head: Vec::new(),
            object: PieceBuffer::new(account, most_bytes),
        }
    }

    /// Gives the objects that end in `chunk` to `each`.
    ///
    /// # Errors
    /// The bytes are not a page.
    pub(crate) fn feed(&mut self, chunk: &[u8], mut each: impl FnMut(Piece<'_>)) -> Result<(), PageError> {
        let mut from = 0;
        for (at, &byte) in chunk.iter().enumerate() {
            let before = self.part;
            self.step(byte)?;
            if before == self.part {
                continue;
            }
            // The brackets of the list belong to the head, and those of an object to it.
            let end = if before == PagePart::Between { at } else { at + 1 };
            self.keep(before, &chunk[from..end])?;
            from = end;
            if before == PagePart::Object {
                self.object.end(&mut each);
            }
        }
        self.keep(self.part, &chunk[from..])
    }

    fn keep(&mut self, part: PagePart, bytes: &[u8]) -> Result<(), PageError> {
        match part {
            PagePart::Head if self.head.len() + bytes.len() > MAX_HEAD_BYTES => Err(PageError::Head),
            PagePart::Head => {
                self.head.extend_from_slice(bytes);
                Ok(())
            }
            PagePart::Between => Ok(()),
            PagePart::Object => {
                self.object.push(bytes);
                Ok(())
            }
        }
    }

    fn step(&mut self, byte: u8) -> Result<(), PageError> {
        if self.is_in_text {
            self.step_in_text(byte);
            return Ok(());
        }
        match byte {
            b'"' => {
                self.is_in_text = true;
                self.key.clear();
            }
            b'{' | b'[' => self.open(byte),
            b'}' | b']' => self.close()?,
            _ => {}
        }
        let is_misplaced = !matches!(byte, b',' | b'[' | b'}') && !byte.is_ascii_whitespace();
        if self.part == PagePart::Between && is_misplaced {
            return Err(PageError::Malformed);
        }
        Ok(())
    }

    fn step_in_text(&mut self, byte: u8) {
        if self.is_escaped {
            self.is_escaped = false;
        } else if byte == b'\\' {
            self.is_escaped = true;
        } else if byte == b'"' {
            self.is_in_text = false;
            return;
        }
        if self.depth == 1 && self.key.len() <= ITEMS.len() {
            self.key.push(byte);
        }
    }

    fn open(&mut self, byte: u8) {
        self.part = match self.part {
            PagePart::Head if self.depth == 1 && byte == b'[' && self.key == ITEMS => PagePart::Between,
            PagePart::Between if byte == b'{' => PagePart::Object,
            part => part,
        };
        self.depth += 1;
    }

    fn close(&mut self) -> Result<(), PageError> {
        self.depth = self.depth.checked_sub(1).ok_or(PageError::Malformed)?;
        self.part = match self.part {
            PagePart::Object if self.depth == 2 => PagePart::Between,
            PagePart::Between if self.depth == 1 => PagePart::Head,
            part => part,
        };
        Ok(())
    }

    /// The page without its objects, at its end.
    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }
}

#[cfg(test)]
mod tests;
