// SPDX-License-Identifier: Apache-2.0

//! Variable-length integers of protobuf: seven bits a byte, the lowest first. A byte below 0x80 ends the number.
//!
//! Readers refuse numbers beyond 64 bits. They accept numbers with more bytes than necessary, as protobuf does.

/// The most bytes of a number.
pub const MAX_BYTES: usize = 10;

/// A number and how many bytes it took; `None` where there is none (cut off, or beyond 64 bits).
#[inline]
pub fn varint(bytes: &[u8]) -> Option<(u64, usize)> {
    let first = *bytes.first()?;
    if first < 0x80 {
        return Some((u64::from(first), 1));
    }
    let mut value = 0u64;
    for (at, byte) in bytes.iter().take(MAX_BYTES).enumerate() {
        let bits = u64::from(byte & 0x7f);
        // The last byte has room for one bit.
        if at == MAX_BYTES - 1 && bits > 1 {
            return None;
        }
        value |= bits << (7 * at);
        if byte & 0x80 == 0 {
            return Some((value, at + 1));
        }
    }
    None
}

/// Takes the number at the beginning. If it returns `None`, the bytes stay as they are.
#[inline]
pub fn take_varint(bytes: &mut &[u8]) -> Option<u64> {
    // Most are tags and short lengths.
    if let Some((byte @ ..0x80, behind)) = bytes.split_first() {
        *bytes = behind;
        return Some(u64::from(*byte));
    }
    take_long(bytes)
}

/// The same, of a number of two bytes or more.
fn take_long(bytes: &mut &[u8]) -> Option<u64> {
    let (value, used) = varint(bytes)?;
    *bytes = bytes.get(used..)?;
    Some(value)
}

/// Appends a number.
#[inline]
pub fn push_varint(to: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        to.push(number as u8 | 0x80);
        number >>= 7;
    }
    to.push(number as u8);
}

/// The bytes that [`push_varint`] appends.
#[inline]
pub const fn varint_size(number: u64) -> usize {
    (number | 1).ilog2() as usize / 7 + 1
}

/// A signed number as an unsigned one, small where the distance from zero is small: protobuf's `sint64` and `sint32`.
#[inline]
pub const fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)).cast_unsigned()
}

/// The signed number of [`zigzag`].
#[inline]
pub const fn unzigzag(number: u64) -> i64 {
    (number >> 1).cast_signed() ^ -(number & 1).cast_signed()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn pushed(number: u64) -> Vec<u8> {
        let mut bytes = Vec::new();
        push_varint(&mut bytes, number);
        bytes
    }

    /// Numbers of every length.
    fn any_number() -> impl Strategy<Value = u64> {
        (any::<u64>(), 0u32..64).prop_map(|(number, shift)| number >> shift)
    }

    #[test]
    fn numbers_have_the_bytes_of_protobuf() {
        for (number, bytes) in [
            (0, &[0][..]),
            (127, &[127]),
            (128, &[0x80, 1]),
            (150, &[0x96, 1]),
            (u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]),
        ] {
            assert_eq!(pushed(number), bytes);
            assert_eq!(varint(bytes), Some((number, bytes.len())));
        }
    }

    #[test]
    fn a_number_beyond_64_bits_is_refused_and_stays() {
        for bytes in [
            &[0xff; 11][..],
            &[0x80; 10],
            &[255, 255, 255, 255, 255, 255, 255, 255, 255, 2],
        ] {
            let mut rest = bytes;
            assert_eq!((varint(bytes), take_varint(&mut rest)), (None, None));
            assert_eq!(rest, bytes);
        }
    }

    #[test]
    fn a_number_with_needless_bytes_is_read() {
        assert_eq!(varint(&[0x81, 0x80, 0, 7]), Some((1, 3)));
    }

    #[test]
    fn zigzag_counts_away_from_zero() {
        assert_eq!([0, -1, 1, -2, i64::MIN].map(zigzag), [0, 1, 2, 3, u64::MAX]);
    }

    proptest! {
        #[test]
        fn a_pushed_number_is_read_again(number in any_number(), behind in any::<Vec<u8>>()) {
            let mut bytes = pushed(number);
            let size = bytes.len();
            prop_assert_eq!(varint_size(number), size);
            prop_assert!(size <= MAX_BYTES);
            bytes.extend_from_slice(&behind);
            prop_assert_eq!(varint(&bytes), Some((number, size)));
            let mut rest = &*bytes;
            prop_assert_eq!(take_varint(&mut rest), Some(number));
            prop_assert_eq!(rest, &*behind);
        }

        #[test]
        fn a_number_that_is_cut_off_is_refused(number in any_number()) {
            let bytes = pushed(number);
            prop_assert_eq!(varint(&bytes[..bytes.len() - 1]), None);
        }

        #[test]
        fn both_readers_agree_on_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..12)) {
            let mut rest = &*bytes;
            let taken = take_varint(&mut rest);
            prop_assert_eq!(varint(&bytes), taken.map(|number| (number, bytes.len() - rest.len())));
        }

        #[test]
        fn zigzag_is_undone(number in any::<i64>()) {
            prop_assert_eq!(unzigzag(zigzag(number)), number);
            prop_assert_eq!(zigzag(number), number.unsigned_abs() * 2 - u64::from(number < 0));
        }
    }
}
