// SPDX-License-Identifier: Apache-2.0

//! One header block (RFC 7541): the position of its `:authority`, and a replacement that h2 can read.
//!
//! Only the value of a literal `:authority` is replaced, by one of the same length. An entry of HPACK's dynamic
//! table costs the length of its name and value. So the table that h2 builds from the edited block evicts the same
//! entries as the client's table. No state is kept between blocks, and no other byte changes.

use std::ops::Range;

use http::uri::Authority;

use super::huffman;

/// The name as text.
const NAME: &[u8] = b":authority";
/// The name in Huffman code.
const CODED_NAME: &[u8] = b"\xb8\x3b\x53\x39\xec\x32\x7d\x7f";
/// Its first index in HPACK's static table.
const STATIC_INDEX: usize = 1;
/// The most bytes of a continued integer. Lengths of more than 2^21 don't fit a frame that we accept.
const MAX_INTEGER_BYTES: usize = 4;

/// The block with an authority that h2 accepts. `None` if nothing needs replacement or the block is malformed: h2
/// then judges the client's bytes.
pub(super) fn edited(block: &[u8]) -> Option<Vec<u8>> {
    let mut edited = Vec::new();
    let mut copied = 0;
    let mut cursor = BlockCursor { block, at: 0 };
    while cursor.at < block.len() {
        let Some(value) = cursor.field()?.authority else {
            continue;
        };
        let Some(usable) = usable(value.text()?) else {
            continue;
        };
        edited.extend_from_slice(&block[copied..value.encoded.start]);
        push_integer(&mut edited, usable.len());
        edited.extend_from_slice(&usable);
        copied = value.encoded.end;
    }
    if copied == 0 {
        return None;
    }
    edited.extend_from_slice(&block[copied..]);
    Some(edited)
}

/// A replacement for an authority that h2 refuses: `-` stands for every byte that is invalid in a host name.
/// `None` if h2 accepts the authority, or if it is empty, because no text of its length can replace it.
fn usable(mut authority: Vec<u8>) -> Option<Vec<u8>> {
    if authority.is_empty() || Authority::try_from(authority.as_slice()).is_ok() {
        return None;
    }
    for byte in &mut authority {
        if !(byte.is_ascii_alphanumeric() || b"-._~".contains(byte)) {
            *byte = b'-';
        }
    }
    Some(authority)
}

/// One representation of a header field.
struct HeaderField<'a> {
    /// Its value, if it is a literal `:authority`.
    authority: Option<HeaderString<'a>>,
}

/// A string in a block.
struct HeaderString<'a> {
    /// The string with its length prefix.
    encoded: Range<usize>,
    bytes: &'a [u8],
    coded: bool,
}

impl HeaderString<'_> {
    fn text(&self) -> Option<Vec<u8>> {
        if self.coded {
            huffman::decode(self.bytes)
        } else {
            Some(self.bytes.to_vec())
        }
    }

    fn is_name(&self) -> bool {
        self.bytes == if self.coded { CODED_NAME } else { NAME }
    }
}

struct BlockCursor<'a> {
    block: &'a [u8],
    at: usize,
}

impl<'a> BlockCursor<'a> {
    /// The next representation; `None` if it is malformed.
    fn field(&mut self) -> Option<HeaderField<'a>> {
        let first = *self.block.get(self.at)?;
        let index = match first {
            // An indexed field.
            0x80.. => {
                self.integer(7)?;
                return Some(HeaderField { authority: None });
            }
            // A literal that enters the table.
            0x40.. => self.integer(6)?,
            // A size update of the table.
            0x20.. => {
                self.integer(5)?;
                return Some(HeaderField { authority: None });
            }
            // A literal without indexing, or never indexed.
            _ => self.integer(4)?,
        };
        let named = match index {
            0 => self.string()?.is_name(),
            index => index == STATIC_INDEX,
        };
        let value = self.string()?;
        Some(HeaderField {
            authority: named.then_some(value),
        })
    }

    fn string(&mut self) -> Option<HeaderString<'a>> {
        let start = self.at;
        let coded = self.block.get(start)? & 0x80 != 0;
        let length = self.integer(7)?;
        let end = self.at.checked_add(length)?;
        let bytes = self.block.get(self.at..end)?;
        self.at = end;
        Some(HeaderString {
            encoded: start..end,
            bytes,
            coded,
        })
    }

    /// An integer with a prefix of `bits` bits (RFC 7541, 5.1).
    fn integer(&mut self, bits: u32) -> Option<usize> {
        let full = (1 << bits) - 1;
        let mut value = usize::from(self.byte()?) & full;
        if value < full {
            return Some(value);
        }
        for part in 0..MAX_INTEGER_BYTES {
            let byte = self.byte()?;
            value += usize::from(byte & 0x7f) << (7 * part);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = self.block.get(self.at)?;
        self.at += 1;
        Some(*byte)
    }
}

/// Writes the length of a string without Huffman code.
fn push_integer(block: &mut Vec<u8>, value: usize) {
    const FULL: usize = 0x7f;
    if value < FULL {
        return block.push(value as u8);
    }
    block.push(FULL as u8);
    let mut rest = value - FULL;
    while rest > 0x7f {
        block.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    block.push(rest as u8);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::huffman::tests::encode;
    use super::*;

    #[test]
    fn the_name_s_code_is_right() {
        assert_eq!(encode(NAME), CODED_NAME);
    }

    fn literal(first: &[u8], value: &[u8]) -> Vec<u8> {
        let mut block = first.to_vec();
        push_integer(&mut block, value.len());
        block.extend_from_slice(value);
        block
    }

    #[test]
    fn an_authority_is_found_however_it_is_written() {
        let plain_name = literal(b"\x40", NAME);
        let mut coded_name = vec![0x10, 0x80 | CODED_NAME.len() as u8];
        coded_name.extend_from_slice(CODED_NAME);
        for name in [b"\x41".as_slice(), b"\x01", b"\x11", &plain_name, &coded_name] {
            let block = literal(name, b"%2Ftmp%2Fa.sock");
            assert_eq!(
                edited(&block),
                Some(literal(name, b"-2Ftmp-2Fa.sock")),
                "{name:x?}"
            );
            let coded = encode(b"/tmp/a b");
            let mut block = name.to_vec();
            block.push(0x80 | coded.len() as u8);
            block.extend_from_slice(&coded);
            assert_eq!(edited(&block), Some(literal(name, b"-tmp-a-b")), "{name:x?}");
        }
    }

    #[test]
    fn what_h2_takes_or_is_something_else_stays() {
        let blocks = [
            literal(b"\x41", b"localhost:4317"),
            literal(b"\x41", b"[::1]:4317"),
            literal(b"\x41", b""),
            literal(b"\x44", b"%2Fa"),
            literal(&literal(b"\x40", b":authorita"), b"%2Fa"),
            b"\x81\x3f\xe1\x1f\x83\x86".to_vec(),
            Vec::new(),
        ];
        for block in blocks {
            assert_eq!(edited(&block), None, "{block:x?}");
        }
    }

    #[test]
    fn a_block_that_is_cut_or_malformed_stays() {
        let block = [literal(b"\x83\x41", b"%2Fa"), literal(b"\x44", b"/b")].concat();
        assert!(edited(&block).is_some());
        // Where a representation ends is a block too.
        for end in (1..block.len()).filter(|end| ![1, 7].contains(end)) {
            assert_eq!(edited(&block[..end]), None, "{end}");
        }
        assert_eq!(edited(b"\x41\x81\x00"), None, "no Huffman code");
        assert_eq!(
            edited(b"\x41\x7f\xff\xff\xff\xff\xff\x0f"),
            None,
            "too long an integer"
        );
    }

    proptest! {
        #[test]
        fn no_block_is_too_odd(block in prop::collection::vec(any::<u8>(), 0..120)) {
            if let Some(edited) = edited(&block) {
                prop_assert!(super::edited(&edited).is_none(), "once is enough");
            }
        }

        #[test]
        fn lengths_are_read_as_they_are_written(length in 0_usize..1 << 21) {
            let mut block = Vec::new();
            push_integer(&mut block, length);
            prop_assert_eq!(BlockCursor { block: &block, at: 0 }.integer(7), Some(length));
        }
    }
}
