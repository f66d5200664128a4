// SPDX-License-Identifier: Apache-2.0

//! The Huffman code of HPACK strings (RFC 7541, appendix B).
//!
//! The code is canonical: codes of one length are consecutive numbers, so the symbols in order and a count for each
//! length describe it in full.

/// The number of symbols for each code length, from 0 to 30 bits.
const COUNTS: [u32; 31] = [
    0, 0, 0, 0, 0, 10, 26, 32, 6, 0, 5, 3, 2, 6, 2, 3, 0, 0, 0, 3, 8, 13, 26, 29, 12, 4, 15, 19, 29, 0, 3,
];

/// The symbols in the order of their code lengths, then of their codes.
const SYMBOLS: [u8; 256] = [
    48, 49, 50, 97, 99, 101, 105, 111, 115, 116, 32, 37, 45, 46, 47, 51, 52, 53, 54, 55, 56, 57, 61, 65, 95,
    98, 100, 102, 103, 104, 108, 109, 110, 112, 114, 117, 58, 66, 67, 68, 69, 70, 71, 72, 73, 74, 75, 76, 77,
    78, 79, 80, 81, 82, 83, 84, 85, 86, 87, 89, 106, 107, 113, 118, 119, 120, 121, 122, 38, 42, 44, 59, 88,
    90, 33, 34, 40, 41, 63, 39, 43, 124, 35, 62, 0, 36, 64, 91, 93, 126, 94, 125, 60, 96, 123, 92, 195, 208,
    128, 130, 131, 162, 184, 194, 224, 226, 153, 161, 167, 172, 176, 177, 179, 209, 216, 217, 227, 229, 230,
    129, 132, 133, 134, 136, 146, 154, 156, 160, 163, 164, 169, 170, 173, 178, 181, 185, 186, 187, 189, 190,
    196, 198, 228, 232, 233, 1, 135, 137, 138, 139, 140, 141, 143, 147, 149, 150, 151, 152, 155, 157, 158,
    165, 166, 168, 174, 175, 180, 182, 183, 188, 191, 197, 231, 239, 9, 142, 144, 145, 148, 159, 171, 206,
    215, 225, 236, 237, 199, 207, 234, 235, 192, 193, 200, 201, 202, 205, 210, 213, 218, 219, 238, 240, 242,
    243, 255, 203, 204, 211, 212, 214, 221, 222, 223, 241, 244, 245, 246, 247, 248, 250, 251, 252, 253, 254,
    2, 3, 4, 5, 6, 7, 8, 11, 12, 14, 15, 16, 17, 18, 19, 20, 21, 23, 24, 25, 26, 27, 28, 29, 30, 31, 127,
    220, 249, 10, 13, 22,
];

/// The decoded text of a string; `None` if it is malformed.
pub(super) fn decode(coded: &[u8]) -> Option<Vec<u8>> {
    let mut bits = Bits { coded, at: 0 };
    let mut text = Vec::with_capacity(coded.len() * 2);
    loop {
        match bits.symbol() {
            Symbol::Is(symbol) => text.push(symbol),
            Symbol::End => return Some(text),
            Symbol::Malformed => return None,
        }
    }
}

enum Symbol {
    Is(u8),
    End,
    Malformed,
}

struct Bits<'a> {
    coded: &'a [u8],
    /// The position, in bits.
    at: usize,
}

impl Bits<'_> {
    fn next(&mut self) -> Option<u32> {
        let byte = self.coded.get(self.at / 8)?;
        let bit = byte >> (7 - self.at % 8) & 1;
        self.at += 1;
        Some(bit.into())
    }

    fn symbol(&mut self) -> Symbol {
        let (mut code, mut first, mut before) = (0, 0, 0);
        for (bits, count) in COUNTS.iter().enumerate().skip(1) {
            let Some(bit) = self.next() else {
                return if is_padding(code, bits - 1) {
                    Symbol::End
                } else {
                    Symbol::Malformed
                };
            };
            code = code << 1 | bit;
            if code < first + count {
                let symbol = SYMBOLS.get((before + code - first) as usize);
                return symbol.map_or(Symbol::Malformed, |symbol| Symbol::Is(*symbol));
            }
            before += count;
            first = (first + count) << 1;
        }
        // The end-of-string symbol, which is forbidden in strings.
        Symbol::Malformed
    }
}

/// Whether the rest is padding: fewer than 8 bits, all of them ones.
fn is_padding(code: u32, bits: usize) -> bool {
    bits < 8 && code + 1 == 1 << bits
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Codes by counting up, as the code is defined.
    fn code_of(symbol: u8) -> (u32, usize) {
        let (mut code, mut at) = (0, 0);
        for (bits, count) in COUNTS.iter().enumerate() {
            code <<= 1;
            for _ in 0..*count {
                if SYMBOLS[at] == symbol {
                    return (code, bits);
                }
                code += 1;
                at += 1;
            }
        }
        unreachable!("every byte has a code")
    }

    pub(in super::super) fn encode(text: &[u8]) -> Vec<u8> {
        let (mut coded, mut pending, mut bits) = (Vec::new(), 0_u64, 0);
        for symbol in text {
            let (code, length) = code_of(*symbol);
            pending = pending << length | u64::from(code);
            bits += length;
            while bits >= 8 {
                bits -= 8;
                coded.push((pending >> bits) as u8);
            }
        }
        if bits > 0 {
            coded.push(((pending << (8 - bits)) | (0xff >> bits)) as u8);
        }
        coded
    }

    #[test]
    fn the_examples_of_the_rfc_are_understood() {
        let examples: [(&[u8], &str); 4] = [
            (
                b"\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
                "www.example.com",
            ),
            (b"\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf", "custom-value"),
            (
                b"\xd0\x7a\xbe\x94\x10\x54\xd4\x44\xa8\x20\x05\x95\x04\x0b\x81\x66\xe0\x82\xa6\x2d\x1b\xff",
                "Mon, 21 Oct 2013 20:13:21 GMT",
            ),
            (b"", ""),
        ];
        for (coded, text) in examples {
            assert_eq!(decode(coded).as_deref(), Some(text.as_bytes()), "{text}");
            assert_eq!(encode(text.as_bytes()), coded, "{text}");
        }
    }

    #[test]
    fn bytes_that_are_not_a_string_are_refused() {
        let malformed: [&[u8]; 4] = [b"\xff", b"\xff\xff\xff\xff", b"\xff\xff\xff\xfc", b"\x00"];
        // 0x00 is "0" and three zero bits, which are not padding.
        for coded in malformed {
            assert_eq!(decode(coded), None, "{coded:x?}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(text in prop::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decode(&encode(&text)), Some(text));
        }

        #[test]
        fn no_bytes_are_too_odd(coded in prop::collection::vec(any::<u8>(), 0..80)) {
            if let Some(text) = decode(&coded) {
                prop_assert_eq!(encode(&text), coded);
            }
        }
    }
}
