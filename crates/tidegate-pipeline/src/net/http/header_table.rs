// SPDX-License-Identifier: Apache-2.0

//! Follows the header blocks of HTTP/2 to find the memory that the dynamic table of HPACK keeps in use.
//!
//! h2 copies the value of an ordinary field. The value of a pseudo-header field such as `:path` stays a slice of the
//! buffer that it was read or decoded into, and an entry of the table keeps the whole buffer.
//!
//! Nothing is decoded: h2 does that, and ends a connection whose block is wrong. This follows RFC 7541, section 6.

use std::collections::VecDeque;

/// The table's size unless it is negotiated; no listener offers a larger one.
const TABLE_BYTES: usize = 4096;

/// RFC 7541, section 4.1: the overhead of an entry, beside its name and value.
const ENTRY_BYTES: usize = 32;

/// The size of a read buffer, except where a frame is larger.
const BUFFER_BYTES: usize = 8 << 10;

/// The largest ratio of Huffman code to text: the longest code has 30 bits.
const SHORTEST_TEXT: usize = 4;

/// h2 decodes Huffman code into a buffer of at most this many times its size.
const HUFFMAN_FACTOR: usize = 2;

/// The entries of the static table end here: RFC 7541, appendix A.
const STATIC_ENTRIES: usize = 61;

/// The next part of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first byte of a field.
    Field,
    /// The first byte of a name or value: its length.
    Length,
    /// Further bytes of an index, with its known bits.
    MoreIndex { value: usize, shift: u32 },
    /// Further bytes of a length, with its known bits.
    MoreLength { value: usize, shift: u32 },
    /// Bytes of a name or a value.
    Text(usize),
}

/// An entry of the table.
#[derive(Clone, Copy, Debug)]
struct HeaderEntry {
    /// Its least size, in bytes.
    size: usize,
    /// The bytes of the buffer that it keeps.
    buffer: usize,
    /// Whether its name begins with a colon.
    is_pseudo: bool,
}

/// The dynamic table of a connection, as its peer fills it.
#[derive(Debug)]
pub(super) struct HeaderTable {
    next: Next,
    /// Names and values of the field that are still to come.
    texts: u8,
    /// Whether the field becomes an entry.
    is_entry: bool,
    /// Whether the text is Huffman code.
    is_huffman: bool,
    /// Whether the field's name begins with a colon.
    is_pseudo: bool,
    /// Whether the next text is a name, of which no byte was seen.
    is_name: bool,
    /// The least size of the field's entry, in bytes.
    size: usize,
    /// Bytes read since the last entry that keeps a buffer.
    unused: usize,
    /// Bytes of the frames of this block, if they are larger than a buffer and no entry keeps theirs.
    block: usize,
    /// The oldest first.
    entries: VecDeque<HeaderEntry>,
    table_bytes: usize,
    buffer_bytes: usize,
}

impl Default for HeaderTable {
    fn default() -> Self {
        Self {
            next: Next::Field,
            texts: 0,
            is_entry: false,
            is_huffman: false,
            is_pseudo: false,
            is_name: false,
            size: 0,
            unused: 0,
            block: 0,
            entries: VecDeque::new(),
            table_bytes: 0,
            buffer_bytes: 0,
        }
    }
}

impl HeaderTable {
    /// Counts read bytes of any kind.
    pub(super) fn note_read(&mut self, bytes: usize) {
        self.unused = self.unused.saturating_add(bytes);
    }

    /// A header block begins.
    pub(super) fn begin(&mut self) {
        self.next = Next::Field;
        self.block = 0;
    }

    /// Counts a frame of the block. All of its bytes are read into one buffer.
    pub(super) fn note_frame(&mut self, bytes: usize) {
        if bytes > BUFFER_BYTES || self.block > 0 {
            self.block = self.block.saturating_add(bytes);
        }
    }

    /// Bytes of buffers that entries keep in use, at most.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Follows a part of a header block.
    pub(super) fn follow(&mut self, mut block: &[u8]) {
        while let Some((&first, rest)) = block.split_first() {
            if let Next::Text(left) = self.next {
                if std::mem::take(&mut self.is_name) {
                    self.is_pseudo = is_colon(first, self.is_huffman);
                }
                let there = left.min(block.len());
                block = &block[there..];
                self.next = Next::Text(left - there);
                if left == there {
                    self.end_text();
                }
                continue;
            }
            block = rest;
            self.follow_byte(first);
        }
    }

    fn follow_byte(&mut self, byte: u8) {
        match self.next {
            Next::Field => self.begin_field(byte),
            Next::Length => {
                self.is_huffman = byte >= 0x80;
                match usize::from(byte & 0x7f) {
                    0x7f => {
                        self.next = Next::MoreLength {
                            value: 0x7f,
                            shift: 0,
                        }
                    }
                    length => self.begin_text(length),
                }
            }
            Next::MoreIndex { value, shift } => match more(value, shift, byte) {
                (value, true) => self.end_index(value),
                (value, false) => {
                    self.next = Next::MoreIndex {
                        value,
                        shift: shift + 7,
                    }
                }
            },
            Next::MoreLength { value, shift } => match more(value, shift, byte) {
                (value, true) => self.begin_text(value),
                (value, false) => {
                    self.next = Next::MoreLength {
                        value,
                        shift: shift + 7,
                    }
                }
            },
            // Nothing is left of a text that has ended.
            Next::Text(_) => {}
        }
    }

    fn begin_field(&mut self, byte: u8) {
        let (mask, has_value) = match byte {
            0x80.. => (0x7f, false),
            0x40.. => (0x3f, true),
            // The table changes its size: it only becomes smaller.
            0x20.. => (0x1f, false),
            _ => (0x0f, true),
        };
        self.is_entry = (0x40..0x80).contains(&byte);
        self.size = ENTRY_BYTES;
        self.texts = u8::from(has_value);
        if byte & mask == mask {
            let value = usize::from(mask);
            self.next = Next::MoreIndex { value, shift: 0 };
        } else {
            self.end_index(usize::from(byte & mask));
        }
    }

    fn end_index(&mut self, index: usize) {
        if self.texts == 0 {
            self.next = Next::Field;
            return;
        }
        // Index 0: the name follows.
        self.is_name = index == 0;
        self.texts += u8::from(self.is_name);
        self.is_pseudo = self.is_pseudo_at(index);
        self.next = Next::Length;
    }

    /// Whether the name at an index of both tables begins with a colon.
    fn is_pseudo_at(&self, index: usize) -> bool {
        match index.checked_sub(STATIC_ENTRIES + 1) {
            // `:authority`, `:method`, `:path`, `:scheme` and `:status` come first.
            None => (1..=14).contains(&index),
            // The newest entry comes first.
            Some(back) => {
                let entry = self.entries.iter().rev().nth(back);
                entry.is_none_or(|entry| entry.is_pseudo)
            }
        }
    }

    fn begin_text(&mut self, length: usize) {
        let shortest = if self.is_huffman {
            length / SHORTEST_TEXT
        } else {
            length
        };
        self.size = self.size.saturating_add(shortest);
        if length == 0 {
            self.is_name = false;
            self.end_text();
        } else {
            self.next = Next::Text(length);
        }
    }

    fn end_text(&mut self) {
        self.texts -= 1;
        if self.texts > 0 {
            self.next = Next::Length;
            return;
        }
        self.next = Next::Field;
        if self.is_entry {
            self.insert();
        }
    }

    fn insert(&mut self) {
        let entry = HeaderEntry {
            size: self.size,
            buffer: if self.is_pseudo { self.take_buffer() } else { 0 },
            is_pseudo: self.is_pseudo,
        };
        self.table_bytes = self.table_bytes.saturating_add(entry.size);
        self.buffer_bytes += entry.buffer;
        self.entries.push_back(entry);
        while self.table_bytes > TABLE_BYTES {
            let Some(oldest) = self.entries.pop_front() else {
                break;
            };
            self.table_bytes -= oldest.size;
            self.buffer_bytes -= oldest.buffer;
        }
    }

    /// The bytes of the buffer that a new entry keeps, unless the entry before it keeps the same one.
    fn take_buffer(&mut self) -> usize {
        let read = std::mem::take(&mut self.unused).min(BUFFER_BYTES);
        let bytes = read.max(std::mem::take(&mut self.block));
        if self.is_huffman {
            bytes.saturating_mul(HUFFMAN_FACTOR)
        } else {
            bytes
        }
    }
}

/// Takes a further byte of a number, and says whether it is the last. A number of more than four bytes is an error for h2.
fn more(value: usize, shift: u32, byte: u8) -> (usize, bool) {
    let bits = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
    (value.saturating_add(bits), byte < 0x80)
}

/// Whether the first byte of a name stands for a colon, whose Huffman code is 1011100.
fn is_colon(first: u8, is_huffman: bool) -> bool {
    if is_huffman {
        first >> 1 == 0b101_1100
    } else {
        first == b':'
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `:path: /`, as an entry.
    const PATH: &[u8] = &[0x44, 1, b'/'];

    fn followed(block: &[u8], part: usize) -> HeaderTable {
        let mut table = HeaderTable::default();
        table.begin();
        for part in block.chunks(part) {
            table.note_read(part.len());
            table.follow(part);
        }
        table
    }

    fn sizes(table: &HeaderTable) -> Vec<usize> {
        table.entries.iter().map(|entry| entry.size).collect()
    }

    #[test]
    fn only_fields_with_incremental_indexing_become_entries_at_any_cut() {
        let long = [b'v'; 300];
        let block = [
            // Two indexed fields, one of them with a long index.
            &[0x82, 0xff, 0x80, 0x01][..],
            // The table becomes smaller.
            &[0x3f, 0x10],
            PATH,
            // A name and a value of 300 bytes.
            &[0x40, 4, b'n', b'a', b'm', b'e', 0x7f, 0xad, 0x01],
            &long,
            // A long index of a name, and a value in Huffman code.
            &[0x7f, 0x01, 0x88, 1, 2, 3, 4, 5, 6, 7, 8],
            // An empty value.
            &[0x41, 0],
            // Without indexing, and never indexed.
            &[0x04, 1, b'/', 0x10, 1, b'n', 1, b'v'],
            PATH,
        ]
        .concat();
        for part in [block.len(), 7, 2, 1] {
            let table = followed(&block, part);
            assert_eq!(sizes(&table), [33, 336, 34, 32, 33], "{part}");
            assert_eq!((table.next, table.texts), (Next::Field, 0));
        }
    }

    #[test]
    fn entries_keep_the_buffers_that_were_read_since_the_one_before() {
        let mut table = HeaderTable::default();
        let mut insert = |read: usize| {
            table.note_read(read);
            table.follow(PATH);
            table.buffer_bytes()
        };
        assert_eq!(insert(100), 100);
        assert_eq!(insert(1 << 20), 100 + BUFFER_BYTES);
        // 124 entries of 33 bytes fill the table, so the earlier ones are evicted.
        for _ in 0..123 {
            insert(50);
        }
        assert_eq!(insert(50), 124 * 50);
    }

    #[test]
    fn an_entry_larger_than_the_table_empties_it() {
        let mut table = followed(PATH, 1);
        table.follow(&[0x44, 0x7f, 0x81, 0x20]);
        table.follow(&[b'v'; 4096 + 128]);
        assert_eq!((sizes(&table), table.buffer_bytes()), (Vec::new(), 0));
    }

    #[test]
    fn lengths_beyond_all_bounds_are_followed_without_overflow() {
        let table = followed(
            &[
                0x44, 0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f,
            ],
            3,
        );
        assert!(matches!(table.next, Next::Text(_)));
    }

    #[test]
    fn values_of_ordinary_fields_keep_no_buffer() {
        let follow = |block: &[u8]| {
            let mut table = HeaderTable::default();
            table.note_read(1000);
            table.follow(block);
            (table.entries.len(), table.buffer_bytes())
        };
        // `content-type` by its index, `te` and its name, a name in Huffman code.
        assert_eq!(follow(&[0x5f, 1, b'x']), (1, 0));
        assert_eq!(follow(&[0x40, 2, b't', b'e', 1, b'x']), (1, 0));
        assert_eq!(follow(&[0x40, 0x81, 0x4f, 1, b'x']), (1, 0));
        // `:authority` by its index, `:path` by its name, in Huffman code as well.
        assert_eq!(follow(&[0x41, 1, b'x']), (1, 1000));
        assert_eq!(
            follow(&[0x40, 5, b':', b'p', b'a', b't', b'h', 1, b'/']),
            (1, 1000)
        );
        assert_eq!(follow(&[0x40, 0x84, 0xb9, 0x58, 0xd3, 0x3f, 1, b'/']), (1, 1000));
        // A value in Huffman code is decoded into a buffer of its own.
        assert_eq!(follow(&[0x44, 0x81, 0x63]), (1, 2000));
    }

    #[test]
    fn names_by_an_index_of_the_dynamic_table_are_those_of_its_entries() {
        let mut table = followed(&[0x40, 1, b'x', 1, b'v', 0x44, 1, b'/'], 3);
        let before = table.buffer_bytes();
        table.note_read(500);
        // The newest entry is `:path`.
        table.follow(&[0x7e, 1, b'w']);
        assert_eq!(table.buffer_bytes(), before + 500);
        table.note_read(500);
        // The third newest is `x`.
        table.follow(&[0x7f, 0x01, 1, b'w']);
        assert_eq!((table.entries.len(), table.buffer_bytes()), (4, before + 500));
    }

    #[test]
    fn one_entry_keeps_the_buffer_of_a_large_frame() {
        let mut table = HeaderTable::default();
        table.begin();
        table.note_frame(300_000);
        table.note_read(100);
        table.follow(PATH);
        assert_eq!(table.buffer_bytes(), 300_000);
        table.follow(PATH);
        assert_eq!(table.buffer_bytes(), 300_000);
        table.begin();
        table.note_frame(100);
        table.note_read(100);
        table.follow(PATH);
        assert_eq!(table.buffer_bytes(), 300_100);
    }
}
