// SPDX-License-Identifier: Apache-2.0

//! Reads segments whose head is damaged: the rest of the head and the first records give the salt. It reads little for
//! that, and keeps only a piece of the file in memory.

use std::io;
use std::ops::RangeInclusive;

use super::record::{self, CRC_FROM, Epoch, SEGMENT_HEAD};
use super::window::{FileWindow, PIECE, Search};

/// If the salt in the head seems sound, a record with it must begin within this many bytes.
const SEARCHED: u64 = 4 << 20;

/// The offset of the first record.
const FIRST: u64 = SEGMENT_HEAD as u64;

/// The epoch of a file whose head is damaged, and whose data may have these numbers. It uses the salt in the head and
/// the first record: no sender of telemetry can choose these.
pub(super) fn epoch_without_head(
    window: &mut FileWindow<'_>,
    numbers: &RangeInclusive<u64>,
) -> io::Result<Option<Epoch>> {
    let Some(head) = window.get(0, SEGMENT_HEAD)?.map(<[u8]>::to_vec) else {
        return Ok(None);
    };
    if let Some(salt) = record::written_salt(&head) {
        for epoch in [record::salted(salt, &head), Epoch::plain(salt)] {
            let found = window.find(FIRST..FIRST + SEARCHED, epoch, numbers)?;
            if matches!(found, Search::Found(_)) {
                return Ok(Some(epoch));
            }
        }
    }
    match epoch_of_salted(window, &head)? {
        Some(epoch) => Ok(Some(epoch)),
        None => epoch_of_plain(window),
    }
}

/// The first mark has the salt.
fn epoch_of_salted(window: &mut FileWindow<'_>, head: &[u8]) -> io::Result<Option<Epoch>> {
    let mark = window.get(FIRST, record::MARK_LENGTH)?;
    let Some(salt) = mark.and_then(record::salt_of_mark) else {
        return Ok(None);
    };
    let epoch = record::salted(salt, head);
    Ok(window.record(FIRST, epoch)?.map(|_| epoch))
}

/// The salt of the first record's checksum, which the next record confirms.
fn epoch_of_plain(window: &mut FileWindow<'_>) -> io::Result<Option<Epoch>> {
    let unknown = Epoch::plain(0);
    let Some(promise) = window.promise(FIRST, unknown)? else {
        return Ok(None);
    };
    let end = FIRST + promise.bytes() as u64;
    // This check is cheap. Without a record there, the next steps cannot succeed.
    if window.promise(end, unknown)?.is_none() {
        return Ok(None);
    }
    let (mut unwound, from, mut to) = (Unwound::new(promise.crc), FIRST + CRC_FROM as u64, end);
    while to > from {
        let length = usize::try_from(to - from).map_or(PIECE, |length| length.min(PIECE));
        to -= length as u64;
        let Some(piece) = window.get(to, length)? else {
            return Ok(None);
        };
        unwound.take(piece);
    }
    let epoch = Epoch::plain(unwound.initial());
    Ok(window.record(end, epoch)?.map(|_| epoch))
}

/// Finds the initial value with which bytes have a CRC-32: its steps are undone from the last byte to the first.
struct Unwound {
    /// For each top byte, the index in the table of CRC-32 whose value has it, and the value.
    by_top: [(u8, u32); 256],
    state: u32,
}

impl Unwound {
    fn new(crc: u32) -> Self {
        /// The polynomial of CRC-32, reflected.
        const POLYNOMIAL: u32 = 0xEDB8_8320;
        let step_of = |byte: u32| {
            (0..8).fold(byte, |value, _| match value & 1 {
                1 => POLYNOMIAL ^ (value >> 1),
                _ => value >> 1,
            })
        };
        // No two bytes have the same top byte in the table.
        let mut by_top = [(0, 0); 256];
        for byte in 0..=u8::MAX {
            let step = step_of(u32::from(byte));
            by_top[(step >> 24) as usize] = (byte, step);
        }
        Self { by_top, state: !crc }
    }

    /// Goes back over a piece. The last piece comes first.
    fn take(&mut self, piece: &[u8]) {
        for byte in piece.iter().rev() {
            let (index, step) = self.by_top[(self.state >> 24) as usize];
            self.state = (self.state ^ step) << 8 | u32::from(index ^ byte);
        }
    }

    fn initial(&self) -> u32 {
        !self.state
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use proptest::prelude::*;

    use super::super::record::{Head, RecordKind};
    use super::super::window::counts;
    use super::*;

    fn epoch_of(bytes: &[u8]) -> Option<Epoch> {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(bytes).unwrap();
        let mut window = FileWindow::new(&file, bytes.len() as u64);
        epoch_without_head(&mut window, &(1..=100)).unwrap()
    }

    fn segment(epoch: Epoch, head: &[u8; SEGMENT_HEAD], payloads: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = head.to_vec();
        for (seq, payload) in (1..).zip(payloads) {
            let head = Head {
                kind: RecordKind::Data,
                tag: 0,
                seq,
                items: 1,
            };
            record::write(&mut bytes, epoch, head, payload);
        }
        bytes
    }

    proptest! {
        #[test]
        fn the_salt_of_a_segment_follows_from_its_records(
            salt: u32,
            is_plain: bool,
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 2..5),
            damage: [u8; SEGMENT_HEAD],
        ) {
            let epoch = if is_plain { Epoch::plain(salt) } else { record::salted(salt, &damage) };
            prop_assert_eq!(epoch_of(&segment(epoch, &damage, &payloads)), Some(epoch));
        }
    }

    #[test]
    fn the_salt_follows_from_records_that_are_longer_than_a_piece() {
        let payloads = [vec![7_u8; 2 * PIECE + 100], vec![8_u8; 100]];
        for epoch in [Epoch::plain(3_456_789), Epoch::reused(3_456_789)] {
            let bytes = segment(epoch, &[0xEE; SEGMENT_HEAD], &payloads);
            counts::reset();
            assert_eq!(epoch_of(&bytes), Some(epoch));
            assert!(counts::longest_read() <= PIECE);
        }
    }

    #[test]
    fn a_sparse_file_costs_a_few_mebibytes() {
        const GIB: u64 = 1 << 30;
        for head in [[0; SEGMENT_HEAD], [0xEE; SEGMENT_HEAD]] {
            let mut file = tempfile::tempfile().unwrap();
            file.write_all(&head).unwrap();
            file.set_len(GIB).unwrap();
            counts::reset();
            let mut window = FileWindow::new(&file, GIB);
            assert_eq!(epoch_without_head(&mut window, &(1..=100)).unwrap(), None);
            assert!(counts::read() <= 3 * SEARCHED, "{}", counts::read());
            assert!(counts::longest_read() <= PIECE);
        }
    }
}
