//! MD5 (RFC 1321), for `hashmod` alone: shards must come out as Prometheus computes them.

/// Shifts of the four rounds.
const SHIFTS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The last eight bytes of the digest, as a big-endian number.
pub(super) fn last_word(message: &[u8]) -> u64 {
    let [_, _, c, d] = digest(message);
    u64::from(c.swap_bytes()) << 32 | u64::from(d.swap_bytes())
}

/// The four words of the digest, the first byte of each in its lowest bits.
fn digest(message: &[u8]) -> [u32; 4] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let constants = constants();
    let (blocks, rest) = message.as_chunks::<64>();
    for block in blocks {
        compress(&mut state, block, &constants);
    }
    // A one bit, zeros, and the length in bits in the last eight bytes.
    let mut tail = [0; 128];
    tail[..rest.len()].copy_from_slice(rest);
    tail[rest.len()] = 0x80;
    let tail_bytes = if rest.len() < 56 { 64 } else { 128 };
    let bits = (message.len() as u64).wrapping_mul(8);
    tail[tail_bytes - 8..tail_bytes].copy_from_slice(&bits.to_le_bytes());
    let (blocks, _) = tail[..tail_bytes].as_chunks::<64>();
    for block in blocks {
        compress(&mut state, block, &constants);
    }
    state
}

/// The integer parts of 2^32 times |sin(i)|, i in radians (RFC 1321, 3.4).
fn constants() -> [u32; 64] {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "below 2^32 and not negative"
    )]
    std::array::from_fn(|i| ((i as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32)
}

fn compress(state: &mut [u32; 4], block: &[u8; 64], constants: &[u32; 64]) {
    let (words, _) = block.as_chunks::<4>();
    let [mut a, mut b, mut c, mut d] = *state;
    for i in 0..64 {
        let round = i / 16;
        let (mixed, word) = match round {
            0 => ((b & c) | (!b & d), i),
            1 => ((d & b) | (!d & c), 5 * i + 1),
            2 => (b ^ c ^ d, 3 * i + 5),
            _ => (c ^ (b | !d), 7 * i),
        };
        let sum = a
            .wrapping_add(mixed)
            .wrapping_add(constants[i])
            .wrapping_add(u32::from_le_bytes(words[word % 16]));
        let turned = sum.rotate_left(SHIFTS[round][i % 4]);
        (a, d, c, b) = (d, c, b, b.wrapping_add(turned));
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d]) {
        *old = old.wrapping_add(new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(message: &[u8]) -> String {
        let bytes = digest(message).map(u32::to_le_bytes);
        bytes.iter().flatten().map(|byte| format!("{byte:02x}")).collect()
    }

    /// RFC 1321, A.5.
    #[test]
    fn the_test_suite_of_the_rfc() {
        let table = [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("a", "0cc175b9c0f1b6a831c399e269772661"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("message digest", "f96b697d7cb7938d525a2f31aaf161d0"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (
                "12345678901234567890123456789012345678901234567890123456789012345678901234567890",
                "57edf4a22be3c955ac49da2e2107b67a",
            ),
        ];
        for (message, expected) in table {
            assert_eq!(hex(message.as_bytes()), expected, "{message}");
        }
        assert_eq!(last_word(b"abc"), 0xd696_3f7d_28e1_7f72);
    }
}
