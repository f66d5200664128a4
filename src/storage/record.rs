//! How bytes lie in a segment. All numbers are little-endian.
//!
//! | segment head | bytes | | record | bytes |
//! | --- | --- | --- | --- | --- |
//! | magic `tidelog`, version 1 | 8 | | mark | 4 |
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

use bytes::Bytes;

/// First bytes of a segment; the last is the version of the layout.
const SEGMENT_MAGIC: [u8; 8] = *b"tidelog\x01";
/// Bytes before the first record.
pub const SEGMENT_HEAD: usize = 24;
/// First bytes of a record: where to look for the next sound one behind damage.
const MARK: [u8; 4] = [0xF1, 0x7D, 0x9E, 0xC3];
/// Bytes before the payload.
pub const RECORD_HEAD: usize = 28;
/// A longer payload is damage: no destination takes a batch of this size.
pub const MAX_PAYLOAD: usize = 1 << 30;

/// No log counts so far: larger numbers are not ours.
const MAX_SEQ: u64 = 1 << 62;

const CRC_FROM: usize = 8;

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

/// The head of a segment.
pub fn segment_head(first_seq: u64, salt: u32) -> [u8; SEGMENT_HEAD] {
    let mut head = [0; SEGMENT_HEAD];
    head[..8].copy_from_slice(&SEGMENT_MAGIC);
    head[8..16].copy_from_slice(&first_seq.to_le_bytes());
    head[16..20].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32fast::hash(&head[..20]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// First number and salt of a segment, if this is the head of one.
pub fn read_segment_head(bytes: &[u8]) -> Option<(u64, u32)> {
    let head = bytes.get(..SEGMENT_HEAD)?;
    let sound = head.starts_with(&SEGMENT_MAGIC) && crc32fast::hash(&head[..20]) == u32_at(head, 20)?;
    let first = u64_at(head, 8)?;
    Some((first, u32_at(head, 16)?)).filter(|_| sound && first <= MAX_SEQ)
}

/// Appends a record whose payload comes in pieces.
pub fn write<'a>(to: &mut Vec<u8>, salt: u32, head: Head, payload: impl Iterator<Item = &'a [u8]> + Clone) {
    let start = to.len();
    let length: usize = payload.clone().map(<[u8]>::len).sum();
    to.reserve(RECORD_HEAD + length);
    to.extend(MARK);
    to.extend([0; 4]);
    to.extend((length as u32).to_le_bytes());
    let kind = match head.kind {
        Kind::Data => 1,
        Kind::Settled => 2,
        Kind::State => 3,
    };
    to.extend([kind, head.tag, 0, 0]);
    to.extend(head.seq.to_le_bytes());
    to.extend(head.items.to_le_bytes());
    payload.for_each(|piece| to.extend(piece));
    let crc = checksum(salt, &to[start + CRC_FROM..]);
    to[start + 4..start + CRC_FROM].copy_from_slice(&crc.to_le_bytes());
}

fn checksum(salt: u32, bytes: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new_with_initial(salt);
    hasher.update(bytes);
    hasher.finalize()
}

/// The length of the payload that a record's head promises, if it is a head at all.
pub fn promised_length(head: &[u8]) -> Option<usize> {
    let length = u32_at(head, 8)? as usize;
    (head.starts_with(&MARK) && length <= MAX_PAYLOAD).then_some(length)
}

/// The record at the beginning of `bytes` and its length, if it is whole and sound.
pub fn read(bytes: &[u8], salt: u32) -> Option<(Head, &[u8], usize)> {
    let end = RECORD_HEAD + promised_length(bytes)?;
    let record = bytes.get(..end)?;
    if checksum(salt, &record[CRC_FROM..]) != u32_at(record, 4)? {
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

/// Where the next sound record begins, at or after `from`.
pub fn find(bytes: &[u8], from: usize, salt: u32) -> Option<usize> {
    let mut at = from;
    loop {
        let rest = bytes.get(at..)?;
        at += rest.windows(MARK.len()).position(|window| window == MARK)?;
        if read(&bytes[at..], salt).is_some() {
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
