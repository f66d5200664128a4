//! How bytes lie in a segment. All numbers are little-endian.
//!
//! | segment head | bytes | | record | bytes |
//! | --- | --- | --- | --- | --- |
//! | magic `tidelog`, version 1 or 2 | 8 | | mark | 4 |
//! | number of its first record | 8 | | CRC-32 of all that follows, begun with the salt | 4 |
//! | salt | 4 | | length of the payload | 4 |
//! | CRC-32 of the 20 bytes before | 4 | | kind: 1 data, 2 settled, 3 data of a state | 1 |
//! | | | | tag of the owner's (the signal) | 1 |
//! | | | | zero | 2 |
//! | | | | number | 8 |
//! | | | | items | 4 |
//! | | | | payload | |
//!
//! The salt is random for each segment: nobody who sends telemetry can make a payload that reads as a record when
//! what stands before it is damaged. The payload of `settled` is a list of ranges, first and last number of each.
//!
//! Version 1 is a file that was empty. Version 2 is one that was written over: what stands behind its last record may be
//! of its former use. Its marks are salted too, so that nothing there looks like the beginning of a record.

use bytes::Bytes;

/// First bytes of a segment, without the version of the layout.
const SEGMENT_MAGIC: [u8; 7] = *b"tidelog";
/// Bytes before the first record.
pub const SEGMENT_HEAD: usize = 24;
/// First bytes of a record, before they are salted: where to look for the next sound one behind damage.
const MARK: [u8; MARK_LENGTH] = [0xF1, 0x7D, 0x9E, 0xC3];
/// Bytes of a mark.
pub const MARK_LENGTH: usize = 4;
/// Bytes before the payload.
pub const RECORD_HEAD: usize = 28;
/// A longer payload is damage: no destination takes a batch of this size.
pub const MAX_PAYLOAD: usize = 1 << 30;

/// No log counts so far: larger numbers are not ours.
const MAX_SEQ: u64 = 1 << 62;

const CRC_FROM: usize = 8;

/// Where the salt stands in the head of a segment.
const SALT_AT: usize = 16;

/// What a record is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Somebody's data.
    Data,
    /// Numbers of data that nobody needs any more.
    Settled,
    /// Data that the owner's state is made of.
    State,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Settled),
            3 => Some(Self::State),
            _ => None,
        }
    }
}

/// What stands before a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// What the record is.
    pub kind: Kind,
    /// Whose; 0 to 2.
    pub tag: u8,
    /// Number of the data, counting from 1; 0 for other kinds.
    pub seq: u64,
    /// Items in it.
    pub items: u32,
}

/// Data as it was read back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// Its number.
    pub seq: u64,
    /// Whose.
    pub tag: u8,
    /// Items in it.
    pub items: u32,
    /// What was appended.
    pub payload: Bytes,
}

/// What tells the records of one segment from those of any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seal {
    salt: u32,
    is_reused: bool,
}

impl Seal {
    /// Of a file that is new.
    pub const fn fresh(salt: u32) -> Self {
        let is_reused = false;
        Self { salt, is_reused }
    }

    /// Of a file that holds records of another segment still.
    pub const fn reused(salt: u32) -> Self {
        let is_reused = true;
        Self { salt, is_reused }
    }

    /// Whether what stands behind the last record may be of another segment.
    pub fn is_reused(self) -> bool {
        self.is_reused
    }

    fn version(self) -> u8 {
        1 + u8::from(self.is_reused)
    }

    fn mark(self) -> [u8; 4] {
        match self.is_reused {
            true => (u32::from_le_bytes(MARK) ^ self.salt).to_le_bytes(),
            false => MARK,
        }
    }

    fn hasher(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(self.salt)
    }
}

/// The head of a segment.
pub fn segment_head(first_seq: u64, seal: Seal) -> [u8; SEGMENT_HEAD] {
    let mut head = [0; SEGMENT_HEAD];
    head[..7].copy_from_slice(&SEGMENT_MAGIC);
    head[7] = seal.version();
    head[8..16].copy_from_slice(&first_seq.to_le_bytes());
    head[16..20].copy_from_slice(&seal.salt.to_le_bytes());
    let crc = crc32fast::hash(&head[..20]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// First number and seal of a segment, if this is the head of one.
pub fn read_segment_head(bytes: &[u8]) -> Option<(u64, Seal)> {
    let head = bytes.get(..SEGMENT_HEAD)?;
    let sound = head.starts_with(&SEGMENT_MAGIC) && crc32fast::hash(&head[..20]) == u32_at(head, 20)?;
    let (first, salt) = (u64_at(head, 8)?, u32_at(head, SALT_AT)?);
    let seal = match head[7] {
        1 => Seal::fresh(salt),
        2 => Seal::reused(salt),
        _ => return None,
    };
    Some((first, seal)).filter(|_| sound && first <= MAX_SEQ)
}

/// The seal of a segment whose head is damaged, by what is left of the head and by its records. Nobody who sends
/// telemetry chooses what is looked at: the salt that stands in the head, and the first record.
pub fn seal_without_head(bytes: &[u8]) -> Option<Seal> {
    let written = u32_at(bytes, SALT_AT).into_iter();
    let written = written.flat_map(|salt| [Seal::fresh(salt), Seal::reused(salt)]);
    let mut is_it = written.filter(|seal| find(bytes, SEGMENT_HEAD, *seal).is_some());
    let first = bytes.get(SEGMENT_HEAD..)?;
    is_it
        .next()
        .or_else(|| seal_of_reused(first))
        .or_else(|| seal_of_fresh(first))
}

/// A file that was written over has the salt in its marks.
fn seal_of_reused(first: &[u8]) -> Option<Seal> {
    let seal = Seal::reused(u32_at(first, 0)? ^ u32::from_le_bytes(MARK));
    read(first, seal).map(|_| seal)
}

/// The salt that a record's checksum was begun with, which the record behind it confirms.
fn seal_of_fresh(first: &[u8]) -> Option<Seal> {
    let end = RECORD_HEAD + promised_length(first, Seal::fresh(0))?;
    let salt = salt_of(first.get(CRC_FROM..end)?, u32_at(first, 4)?);
    let seal = Seal::fresh(salt);
    read(first.get(end..)?, seal).map(|_| seal)
}

/// With which initial value these bytes have this CRC-32: its steps are undone from the last byte to the first.
fn salt_of(bytes: &[u8], crc: u32) -> u32 {
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
    let before = |state: u32, byte: &u8| {
        let (index, step) = by_top[(state >> 24) as usize];
        (state ^ step) << 8 | u32::from(index ^ byte)
    };
    !bytes.iter().rev().fold(!crc, before)
}

/// What stands before a payload that comes in pieces.
pub fn head<'a>(
    seal: Seal,
    head: Head,
    payload: impl Iterator<Item = &'a [u8]> + Clone,
) -> [u8; RECORD_HEAD] {
    let length: usize = payload.clone().map(<[u8]>::len).sum();
    let kind = match head.kind {
        Kind::Data => 1,
        Kind::Settled => 2,
        Kind::State => 3,
    };
    let mut bytes = [0; RECORD_HEAD];
    bytes[..4].copy_from_slice(&seal.mark());
    bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    (bytes[12], bytes[13]) = (kind, head.tag);
    bytes[16..24].copy_from_slice(&head.seq.to_le_bytes());
    bytes[24..].copy_from_slice(&head.items.to_le_bytes());
    let mut hasher = seal.hasher();
    hasher.update(&bytes[CRC_FROM..]);
    payload.for_each(|piece| hasher.update(piece));
    bytes[4..CRC_FROM].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes
}

/// Appends a whole record.
pub fn write(to: &mut Vec<u8>, seal: Seal, head: Head, payload: &[u8]) {
    to.extend(self::head(seal, head, std::iter::once(payload)));
    to.extend(payload);
}

/// The length of the payload that a record's head promises, if it is a head at all.
pub fn promised_length(head: &[u8], seal: Seal) -> Option<usize> {
    let length = u32_at(head, 8)? as usize;
    (head.starts_with(&seal.mark()) && length <= MAX_PAYLOAD).then_some(length)
}

/// How many of the `rest` bytes behind the last sound record were to be a record of this segment; `head` is the beginning
/// of them.
pub fn torn(head: &[u8], rest: u64, seal: Seal) -> u64 {
    let promised = || promised_length(head, seal).map_or(0, |length| (RECORD_HEAD + length) as u64);
    match seal.is_reused {
        true => promised().min(rest),
        false => rest,
    }
}

/// The record at the beginning of `bytes` and its length, if it is whole and sound.
pub fn read(bytes: &[u8], seal: Seal) -> Option<(Head, &[u8], usize)> {
    let end = RECORD_HEAD + promised_length(bytes, seal)?;
    let record = bytes.get(..end)?;
    let mut hasher = seal.hasher();
    hasher.update(&record[CRC_FROM..]);
    if hasher.finalize() != u32_at(record, 4)? {
        return None;
    }
    let head = Head {
        kind: Kind::of(record[12])?,
        tag: record[13],
        seq: u64_at(record, 16)?,
        items: u32_at(record, 24)?,
    };
    Some((head, &record[RECORD_HEAD..], end))
}

/// Where the next mark begins.
pub fn find_mark(bytes: &[u8], seal: Seal) -> Option<usize> {
    let mark = seal.mark();
    bytes.windows(MARK_LENGTH).position(|window| window == mark)
}

/// Where the next sound record begins, at or after `from`.
pub fn find(bytes: &[u8], from: usize, seal: Seal) -> Option<usize> {
    let mut at = from;
    loop {
        at += find_mark(bytes.get(at..)?, seal)?;
        if read(&bytes[at..], seal).is_some() {
            return Some(at);
        }
        at += 1;
    }
}

/// What `settled` says, as it is written.
pub fn ranges_to_bytes(ranges: &[(u64, u64)]) -> Vec<u8> {
    let numbers = ranges.iter().flat_map(|(first, last)| [*first, *last]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// What `settled` says.
pub fn ranges(payload: &[u8]) -> impl Iterator<Item = (u64, u64)> + '_ {
    let pairs = payload.chunks_exact(16);
    pairs.filter_map(|pair| Some((u64_at(pair, 0)?, u64_at(pair, 8)?)))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_salt_of_a_segment_follows_from_its_records(
            salt: u32,
            is_reused: bool,
            payloads in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 2..5),
            damage: [u8; SEGMENT_HEAD],
        ) {
            let seal = if is_reused { Seal::reused(salt) } else { Seal::fresh(salt) };
            let mut bytes = damage.to_vec();
            for (number, payload) in payloads.iter().enumerate() {
                let head = Head { kind: Kind::Data, tag: 0, seq: number as u64 + 1, items: 1 };
                write(&mut bytes, seal, head, payload);
            }
            prop_assert_eq!(seal_without_head(&bytes), Some(seal));
        }
    }
}
