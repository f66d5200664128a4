//! Follows the header blocks of HTTP/2 to find the memory that the dynamic table of HPACK keeps in use. An entry
//! of the table is a slice of the read buffer of its frame, and keeps the whole buffer.
//!
//! Nothing is decoded: h2 does that, and ends a connection whose block is wrong. This follows RFC 7541, section 6.

use std::collections::VecDeque;

/// The table's size unless it is negotiated; no listener offers a larger one.
const TABLE_BYTES: usize = 4096;

/// RFC 7541, section 4.1: the overhead of an entry, beside its name and value.
const ENTRY_BYTES: usize = 32;

/// The size of a read buffer. A buffer for a single large frame is larger, but no header block follows in it.
const BUFFER_BYTES: usize = 8 << 10;

/// The largest ratio of Huffman code to text: the longest code has 30 bits.
const SHORTEST_TEXT: usize = 4;

/// The next part of a header block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// The first byte of a field.
    Field,
    /// The first byte of a name or value: its length.
    Length,
    /// Further bytes of an index.
    Index,
    /// Further bytes of a length, with its known bits.
    MoreLength { value: usize, shift: u32 },
    /// Bytes of a name or a value.
    Text(usize),
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
    /// The least size of the field's entry, in bytes.
    size: usize,
    /// Bytes read since the last entry.
    unused: usize,
    /// Size and buffer bytes of each entry, the oldest first.
    entries: VecDeque<(u16, u16)>,
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
            size: 0,
            unused: 0,
            entries: VecDeque::new(),
            table_bytes: 0,
            buffer_bytes: 0,
        }
    }
}

impl HeaderTable {
    /// Counts `bytes` read bytes of any kind.
    pub(super) fn note_read(&mut self, bytes: usize) {
        self.unused = self.unused.saturating_add(bytes);
    }

    /// Begins a header block.
    pub(super) fn begin(&mut self) {
        self.next = Next::Field;
    }

    /// The most bytes of read buffers that entries keep in use.
    pub(super) fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Follows a part of a header block.
    pub(super) fn follow(&mut self, mut block: &[u8]) {
        while let Some((&first, rest)) = block.split_first() {
            if let Next::Text(left) = self.next {
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
            Next::Index if byte < 0x80 => self.end_index(),
            Next::Index => {}
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
            Next::MoreLength { value, shift } => {
                // h2 also refuses a length of more than four bytes.
                let bits = usize::from(byte & 0x7f).checked_shl(shift).unwrap_or(usize::MAX);
                let value = value.saturating_add(bits);
                if byte < 0x80 {
                    self.begin_text(value)
                } else {
                    self.next = Next::MoreLength {
                        value,
                        shift: shift + 7,
                    }
                }
            }
            // The text has ended.
            Next::Text(_) => {}
        }
    }

    fn begin_field(&mut self, byte: u8) {
        let (mask, has_value) = match byte {
            0x80.. => (0x7f, false),
            0x40.. => (0x3f, true),
            // A size update of the table, which can only shrink.
            0x20.. => (0x1f, false),
            _ => (0x0f, true),
        };
        self.is_entry = (0x40..0x80).contains(&byte);
        self.size = ENTRY_BYTES;
        // Index 0: the name follows.
        self.texts = u8::from(has_value) + u8::from(has_value && byte & mask == 0);
        if byte & mask == mask {
            self.next = Next::Index;
        } else {
            self.end_index();
        }
    }

    fn end_index(&mut self) {
        self.next = match self.texts {
            0 => Next::Field,
            _ => Next::Length,
        };
    }

    fn begin_text(&mut self, length: usize) {
        let shortest = if self.is_huffman {
            length / SHORTEST_TEXT
        } else {
            length
        };
        self.size = self.size.saturating_add(shortest);
        match length {
            0 => self.end_text(),
            _ => self.next = Next::Text(length),
        }
    }

    fn end_text(&mut self) {
        self.texts -= 1;
        self.end_index();
        if self.texts == 0 && self.is_entry {
            self.insert();
        }
    }

    fn insert(&mut self) {
        let bytes = self.unused.min(BUFFER_BYTES);
        self.unused = 0;
        self.entries
            .push_back((u16::try_from(self.size).unwrap_or(u16::MAX), bytes as u16));
        self.table_bytes += usize::from(self.entries.back().map_or(0, |(size, _)| *size));
        self.buffer_bytes += bytes;
        while self.table_bytes > TABLE_BYTES {
            let Some((size, bytes)) = self.entries.pop_front() else {
                break;
            };
            self.table_bytes -= usize::from(size);
            self.buffer_bytes -= usize::from(bytes);
        }
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

    fn sizes(table: &HeaderTable) -> Vec<u16> {
        table.entries.iter().map(|(size, _)| *size).collect()
    }

    #[test]
    fn only_fields_with_incremental_indexing_become_entries_however_the_block_is_cut() {
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
}
