// SPDX-License-Identifier: Apache-2.0

//! The layout: all offsets, and the check of a header and file size before a page is read.
//!
//! The documentation of the crate has the table. Fields in one cache line change together: the constants, the
//! heartbeat, the directory.

use crate::error::Reject;

/// The first eight bytes, `TIDEPAGE`.
pub const MAGIC: u64 = u64::from_le_bytes(*b"TIDEPAGE");

/// The only version there is. Sizes may grow within a version, offsets stay.
pub const VERSION: u32 = 1;

/// Bytes of the header as written here.
pub const HEADER_SIZE: usize = 256;

/// Bytes of a slot as written here.
pub const SLOT_SIZE: usize = 704;

/// Most bytes of name and labels together.
pub const TEXT_SIZE: usize = 512;

/// Most quantiles of an entry.
pub const MAX_QUANTILES: usize = 4;

/// The most slots of a page: 44 MiB. The limit also bounds the damage by a hostile header.
pub const MAX_CAPACITY: u32 = 1 << 16;

/// The largest header and slot that a reader accepts from a later writer of this version.
pub const MAX_PART_SIZE: u32 = 4096;

/// Sizes are multiples of a cache line.
pub const LINE: u32 = 64;

/// Offsets in the header.
pub mod header {
    /// `TIDEPAGE`.
    pub const MAGIC: usize = 0;
    /// [`VERSION`](super::VERSION), u32.
    pub const VERSION: usize = 8;
    /// Offset of the first slot, u32.
    pub const HEADER_SIZE: usize = 12;
    /// Number of slots, u32.
    pub const CAPACITY: usize = 16;
    /// Distance of slots, u32.
    pub const SLOT_SIZE: usize = 20;
    /// Random, not 0, drawn when the file was made.
    pub const BOOT: usize = 24;
    /// When the writer last said that it lives; 0 before its first publication and when it has closed.
    pub const HEARTBEAT_NS: usize = 64;
    /// Changes whenever an entry gets or loses a slot.
    pub const LAYOUT_SEQ: usize = 128;
    /// Slots in use, u32.
    pub const USED: usize = 136;
    /// No slot from this one on was ever in use, u32.
    pub const HIGH: usize = 140;
}

/// Offsets in a slot.
pub mod slot {
    /// Odd while the slot is being written.
    pub const LOCK: usize = 0;
    /// Changes when the slot is given to an entry.
    pub const GENERATION: usize = 8;
    /// 0 (empty) or a [`State`](crate::State), u8.
    pub const STATE: usize = 16;
    /// Number of quantiles, u8.
    pub const QUANTILES: usize = 17;
    /// The numbers that are present ([`flag`](super::flag)), u16.
    pub const FLAGS: usize = 18;
    /// Bytes of the name, u16.
    pub const NAME_LEN: usize = 20;
    /// Bytes of the labels, u16.
    pub const LABELS_LEN: usize = 22;
    /// The writer's count of changes.
    pub const SEQ: usize = 24;
    /// f64.
    pub const VALUE: usize = 32;
    /// f64.
    pub const MIN: usize = 40;
    /// f64.
    pub const AVG: usize = 48;
    /// f64.
    pub const MAX: usize = 56;
    /// f64.
    pub const SUM: usize = 64;
    /// f64.
    pub const COUNT: usize = 72;
    /// f64.
    pub const LAST: usize = 80;
    /// Length of the window.
    pub const WINDOW_NS: usize = 88;
    /// When the entry was computed.
    pub const AS_OF_NS: usize = 96;
    /// When the newest value arrived.
    pub const NEWEST_NS: usize = 104;
    /// u32.
    pub const SOURCES_EXPECTED: usize = 112;
    /// u32.
    pub const SOURCES_REPORTING: usize = 116;
    /// Four f64: which quantiles.
    pub const QUANTILE_Q: usize = 128;
    /// Four f64: their values.
    pub const QUANTILE_VALUE: usize = 160;
    /// The name, then the labels.
    pub const TEXT: usize = 192;
}

/// Bits of [`slot::FLAGS`]: the number is present.
pub mod flag {
    /// `value`.
    pub const VALUE: u16 = 1;
    /// `min`.
    pub const MIN: u16 = 2;
    /// `avg`.
    pub const AVG: u16 = 4;
    /// `max`.
    pub const MAX: u16 = 8;
    /// `sum`.
    pub const SUM: u16 = 16;
    /// `count`.
    pub const COUNT: u16 = 32;
    /// `last`.
    pub const LAST: u16 = 64;
    /// `newest_ns`.
    pub const NEWEST: u16 = 128;
}

pub(crate) const HEADER_WORDS: usize = HEADER_SIZE / 8;
pub(crate) const SLOT_WORDS: usize = SLOT_SIZE / 8;
pub(crate) const TEXT_WORDS: usize = TEXT_SIZE / 8;
/// The word of state, flags and lengths.
pub(crate) const DESCRIPTION_WORD: usize = slot::STATE / 8;
/// The words of `used` and `high`.
pub(crate) const DIRECTORY_WORD: usize = header::USED / 8;
/// The words that an update may change: everything from the description to the text.
pub(crate) const VALUE_WORDS: usize = slot::TEXT / 8 - DESCRIPTION_WORD;
pub(crate) const TEXT_WORD: usize = slot::TEXT / 8;

const _: () = {
    assert!(HEADER_SIZE.is_multiple_of(LINE as usize) && SLOT_SIZE.is_multiple_of(LINE as usize));
    assert!((SLOT_SIZE / LINE as usize) % 2 == 1);
    assert!(slot::TEXT + TEXT_SIZE == SLOT_SIZE);
};

/// The shape of a page, checked.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Geometry {
    pub(crate) header_size: u32,
    pub(crate) slot_size: u32,
    pub(crate) capacity: u32,
}

impl Geometry {
    /// The geometry that this version writes.
    pub(crate) const fn of_capacity(capacity: u32) -> Self {
        Geometry {
            header_size: HEADER_SIZE as u32,
            slot_size: SLOT_SIZE as u32,
            capacity,
        }
    }

    pub(crate) const fn file_size(self) -> u64 {
        // At most 2^12 + 2^12 * 2^32.
        self.header_size as u64 + self.slot_size as u64 * self.capacity as u64
    }

    /// Index of the first word of a slot.
    pub(crate) const fn slot_word(self, slot: u32) -> usize {
        (self.header_size as usize + self.slot_size as usize * slot as usize) / 8
    }
}

/// The first bytes of a new page.
pub(crate) fn header_bytes(geometry: Geometry, boot: u64) -> [u8; HEADER_SIZE] {
    let mut bytes = [0; HEADER_SIZE];
    let mut put = |offset: usize, field: &[u8]| bytes[offset..offset + field.len()].copy_from_slice(field);
    put(header::MAGIC, &MAGIC.to_le_bytes());
    put(header::VERSION, &VERSION.to_le_bytes());
    put(header::HEADER_SIZE, &geometry.header_size.to_le_bytes());
    put(header::CAPACITY, &geometry.capacity.to_le_bytes());
    put(header::SLOT_SIZE, &geometry.slot_size.to_le_bytes());
    put(header::BOOT, &boot.to_le_bytes());
    bytes
}

/// The one gate between bytes found and a page: `bytes` are the first of a file of `file_size`.
///
/// # Errors
/// The first thing that does not hold.
pub(crate) fn check(bytes: &[u8; HEADER_SIZE], file_size: u64) -> Result<(Geometry, u64), Reject> {
    if file_size < HEADER_SIZE as u64 {
        return Err(Reject::TooSmall { file_size });
    }
    let u64_at = |offset| u64::from_le_bytes(field(bytes, offset));
    let u32_at = |offset| u32::from_le_bytes(field(bytes, offset));
    if u64_at(header::MAGIC) != MAGIC {
        return Err(Reject::BadMagic);
    }
    let version = u32_at(header::VERSION);
    if version != VERSION {
        return Err(Reject::UnknownVersion { version });
    }
    let (header_size, slot_size) = (u32_at(header::HEADER_SIZE), u32_at(header::SLOT_SIZE));
    let fits =
        |size: u32, least: usize| (least as u32..=MAX_PART_SIZE).contains(&size) && size.is_multiple_of(LINE);
    if !fits(header_size, HEADER_SIZE) || !fits(slot_size, SLOT_SIZE) {
        return Err(Reject::BadSizes {
            header_size,
            slot_size,
        });
    }
    let capacity = u32_at(header::CAPACITY);
    if !(1..=MAX_CAPACITY).contains(&capacity) {
        return Err(Reject::BadCapacity { capacity });
    }
    let geometry = Geometry {
        header_size,
        slot_size,
        capacity,
    };
    if file_size != geometry.file_size() {
        return Err(Reject::SizeMismatch { file_size, capacity });
    }
    Ok((geometry, u64_at(header::BOOT)))
}

fn field<const N: usize>(bytes: &[u8; HEADER_SIZE], offset: usize) -> [u8; N] {
    let found = bytes.get(offset..).and_then(|tail| tail.first_chunk::<N>());
    found.copied().unwrap_or([0; N])
}

#[cfg(test)]
mod tests;
