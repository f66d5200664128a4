// SPDX-License-Identifier: Apache-2.0

//! Reads state from bytes; `None` at their end.

/// The next bytes.
pub(crate) fn take<'a, const N: usize>(from: &mut &'a [u8]) -> Option<&'a [u8; N]> {
    let (taken, rest) = from.split_first_chunk()?;
    *from = rest;
    Some(taken)
}

/// The next eight bytes.
pub(crate) fn number(from: &mut &[u8]) -> Option<u64> {
    take(from).copied().map(u64::from_le_bytes)
}
