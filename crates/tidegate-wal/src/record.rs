// SPDX-License-Identifier: Apache-2.0

//! The layout of bytes in a segment. All numbers are little-endian.
//!
//! | segment head | bytes | | record | bytes |
//! | --- | --- | --- | --- | --- |
//! | magic `tidelog`, version 1, 2 or 3 | 8 | | mark | 4 |
//! | number of its first record | 8 | | CRC-32 of all that follows, begun with the salt | 4 |
//! | salt | 4 | | length of the payload | 4 |
//! | CRC-32 of the 20 bytes before | 4 | | kind: 1 data, 2 settled, 3 data of a state | 1 |
//! | | | | tag of the owner's (the signal) | 1 |
//! | | | | zero | 2 |
//! | | | | number | 8 |
//! | | | | items | 4 |
//! | | | | payload | |
//!
//! The salt is random for each segment. So no sender of telemetry can make a payload that reads as a record after
//! damage. The payload of `settled` is a list of ranges, first and last number of each.
//!
//! A file of version 3 was empty before. A file of version 2 replaced an older one in place: bytes after its last
//! record may be of its earlier use. Marks are salted too, so that neither such bytes nor a payload looks like the
//! start of a record. A file of version 1 comes from an earlier version of the gateway: its marks are the same in all
//! such files.

use std::ops::RangeInclusive;

use bytes::Bytes;

/// First bytes of a segment, without the version of the layout.
const SEGMENT_MAGIC: [u8; 7] = *b"tidelog";
/// Bytes before the first record.
pub const SEGMENT_HEAD: usize = 24;
/// First bytes of a record, before they are salted. The search for the next sound record after damage looks for them.
const MARK: [u8; MARK_LENGTH] = [0xF1, 0x7D, 0x9E, 0xC3];
/// Bytes of a mark.
pub const MARK_LENGTH: usize = 4;
/// Bytes before the payload.
pub const RECORD_HEAD: usize = 28;
/// A longer payload is damage: no destination takes a batch of this size.
pub const MAX_PAYLOAD: usize = 1 << 30;

/// No log reaches this number: larger ones are not ours.
pub const MAX_SEQ: u64 = 1 << 62;

/// The number of owners' tags: one for each signal.
pub const TAGS: usize = 3;

/// The offset in a record at which the bytes under the checksum begin.
pub const CRC_FROM: usize = 8;

/// The offsets of the version and the salt in the head of a segment.
const VERSION_AT: usize = 7;
const SALT_AT: usize = 16;

/// The kind of a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordKind {
    /// Data of the owner.
    Data,
    /// Numbers of data that is no longer needed.
    Settled,
    /// Data that the owner's state is made of.
    State,
}

impl RecordKind {
    fn of(byte: u8) -> Option<Self> {
        match byte {
            1 => Some(Self::Data),
            2 => Some(Self::Settled),
            3 => Some(Self::State),
            _ => None,
        }
    }
}

/// The head of a record, before its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// The kind of the record.
    pub kind: RecordKind,
    /// The owner's tag; 0 to 2.
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
    /// The owner's tag; 0 to 2.
    pub tag: u8,
    /// Items in it.
    pub items: u32,
    /// The appended bytes.
    pub payload: Bytes,
}

/// The salt and layout that distinguish the records of one segment from those of any other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Epoch {
    salt: u32,
    layout: Layout,
}

/// Versions of segments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Layout {
    Plain = 1,
    Reused = 2,
    Fresh = 3,
}

impl Epoch {
    /// The epoch of a new file.
    pub const fn fresh(salt: u32) -> Self {
        let layout = Layout::Fresh;
        Self { salt, layout }
    }

    /// The epoch of a file that still holds records of another segment.
    pub const fn reused(salt: u32) -> Self {
        let layout = Layout::Reused;
        Self { salt, layout }
    }

    /// The epoch of a file from an earlier version of the gateway, whose marks are not salted.
    pub const fn plain(salt: u32) -> Self {
        let layout = Layout::Plain;
        Self { salt, layout }
    }

    fn mark(self) -> [u8; MARK_LENGTH] {
        match self.layout {
            Layout::Plain => MARK,
            Layout::Reused | Layout::Fresh => (u32::from_le_bytes(MARK) ^ self.salt).to_le_bytes(),
        }
    }

    /// The checksum of a record, before its first byte.
    pub fn checksum(self) -> crc32fast::Hasher {
        crc32fast::Hasher::new_with_initial(self.salt)
    }
}

/// The head of a segment.
pub fn segment_head(first_seq: u64, epoch: Epoch) -> [u8; SEGMENT_HEAD] {
    let mut head = [0; SEGMENT_HEAD];
    head[..7].copy_from_slice(&SEGMENT_MAGIC);
    head[VERSION_AT] = epoch.layout as u8;
    head[8..16].copy_from_slice(&first_seq.to_le_bytes());
    head[16..20].copy_from_slice(&epoch.salt.to_le_bytes());
    let crc = crc32fast::hash(&head[..20]);
    head[20..].copy_from_slice(&crc.to_le_bytes());
    head
}

/// First number and epoch of a segment, if this is the head of one.
pub fn read_segment_head(bytes: &[u8]) -> Option<(u64, Epoch)> {
    let head = bytes.get(..SEGMENT_HEAD)?;
    let sound = head.starts_with(&SEGMENT_MAGIC) && crc32fast::hash(&head[..20]) == u32_at(head, 20)?;
    let (first, salt) = (u64_at(head, 8)?, u32_at(head, SALT_AT)?);
    let epoch = match head[VERSION_AT] {
        1 => Epoch::plain(salt),
        2 => Epoch::reused(salt),
        3 => Epoch::fresh(salt),
        _ => return None,
    };
    Some((first, epoch)).filter(|_| sound && first <= MAX_SEQ)
}

/// The salt that stands in a head, be it sound or damaged.
pub fn written_salt(head: &[u8]) -> Option<u32> {
    u32_at(head, SALT_AT)
}

/// The salt of a mark, if it is that of a record in a file whose marks are salted.
pub fn salt_of_mark(record: &[u8]) -> Option<u32> {
    Some(u32_at(record, 0)? ^ u32::from_le_bytes(MARK))
}

/// The epoch of a file whose marks have this salt. Where its damaged head does not say that it was new, it may have been
/// written over.
pub fn salted(salt: u32, head: &[u8]) -> Epoch {
    match head.get(VERSION_AT) {
        Some(3) => Epoch::fresh(salt),
        _ => Epoch::reused(salt),
    }
}

/// The encoded head of a record whose payload comes in pieces.
pub fn head<'a>(
    epoch: Epoch,
    head: Head,
    payload: impl Iterator<Item = &'a [u8]> + Clone,
) -> [u8; RECORD_HEAD] {
    let length: usize = payload.clone().map(<[u8]>::len).sum();
    let kind = match head.kind {
        RecordKind::Data => 1,
        RecordKind::Settled => 2,
        RecordKind::State => 3,
    };
    let mut bytes = [0; RECORD_HEAD];
    bytes[..4].copy_from_slice(&epoch.mark());
    bytes[8..12].copy_from_slice(&(length as u32).to_le_bytes());
    (bytes[12], bytes[13]) = (kind, head.tag);
    bytes[16..24].copy_from_slice(&head.seq.to_le_bytes());
    bytes[24..].copy_from_slice(&head.items.to_le_bytes());
    let mut hasher = epoch.checksum();
    hasher.update(&bytes[CRC_FROM..]);
    payload.for_each(|piece| hasher.update(piece));
    bytes[4..CRC_FROM].copy_from_slice(&hasher.finalize().to_le_bytes());
    bytes
}

/// Appends a whole record.
pub fn write(to: &mut Vec<u8>, epoch: Epoch, head: Head, payload: &[u8]) {
    to.extend(self::head(epoch, head, std::iter::once(payload)));
    to.extend(payload);
}

/// The unverified claims of a record's head, before its checksum is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Promise {
    /// The head that the record claims.
    pub head: Head,
    /// The checksum that the record claims.
    pub crc: u32,
    length: usize,
}

impl Promise {
    /// Reads the claims of these bytes, if they can be the head of a record.
    pub fn read(bytes: &[u8], epoch: Epoch) -> Option<Self> {
        let bytes = bytes.get(..RECORD_HEAD)?;
        let length = promised_length(bytes, epoch)?;
        let head = Head {
            kind: RecordKind::of(bytes[12])?,
            tag: bytes[13],
            seq: u64_at(bytes, 16)?,
            items: u32_at(bytes, 24)?,
        };
        let promise = Self {
            head,
            crc: u32_at(bytes, 4)?,
            length,
        };
        (bytes[14..16] == [0, 0]).then_some(promise)
    }

    /// Bytes of the whole record.
    pub fn bytes(&self) -> usize {
        RECORD_HEAD + self.length
    }

    /// Whether a record of a log can have this head where data with one of these `numbers` comes next.
    pub fn is_plausible(&self, numbers: &RangeInclusive<u64>) -> bool {
        let Head {
            kind,
            tag,
            seq,
            items,
        } = self.head;
        match kind {
            RecordKind::Settled => (tag, seq, items) == (0, 0, 0),
            RecordKind::Data | RecordKind::State => usize::from(tag) < TAGS && numbers.contains(&seq),
        }
    }
}

/// The length of the payload that a record's head promises, if it has a mark.
fn promised_length(head: &[u8], epoch: Epoch) -> Option<usize> {
    let length = u32_at(head, 8)? as usize;
    (head.starts_with(&epoch.mark()) && length <= MAX_PAYLOAD).then_some(length)
}

/// The number of the `rest` bytes after the last sound record that belong to a torn record of this segment. `head` is
/// their beginning.
pub fn torn(head: &[u8], rest: u64, epoch: Epoch) -> u64 {
    let promised = || promised_length(head, epoch).map_or(0, |length| (RECORD_HEAD + length) as u64);
    match epoch.layout {
        Layout::Reused => promised().min(rest),
        Layout::Plain | Layout::Fresh => rest,
    }
}

/// The record at the beginning of `bytes` and its length, if it is whole and sound.
pub fn read(bytes: &[u8], epoch: Epoch) -> Option<(Head, &[u8], usize)> {
    let promise = Promise::read(bytes, epoch)?;
    let record = bytes.get(..promise.bytes())?;
    let mut checksum = epoch.checksum();
    checksum.update(&record[CRC_FROM..]);
    let is_sound = checksum.finalize() == promise.crc;
    is_sound.then(|| (promise.head, &record[RECORD_HEAD..], promise.bytes()))
}

/// The offset of the next mark.
pub fn find_mark(bytes: &[u8], epoch: Epoch) -> Option<usize> {
    let mark = epoch.mark();
    bytes.windows(MARK_LENGTH).position(|window| window == mark)
}

/// The payload of a `settled` record for these ranges.
pub fn ranges_to_bytes(ranges: &[(u64, u64)]) -> Vec<u8> {
    let numbers = ranges.iter().flat_map(|(first, last)| [*first, *last]);
    numbers.flat_map(u64::to_le_bytes).collect()
}

/// The ranges in the payload of a `settled` record.
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
