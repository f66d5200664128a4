// SPDX-License-Identifier: Apache-2.0

//! Byte layouts of NIXL ring files: where the header fields are, how large a slot is, and which
//! header and file size together make a ring that may be read.
//!
//! Versions 1 to 4 share a 40-byte header; the proposed version 5 spreads it over 512 bytes.
//! `version` stays at byte 16 in all of them. Version 2 shipped with two slot sizes (wheels 1.1.0
//! and 1.2.0), which only the file size tells apart.

use std::fmt;
use std::str::FromStr;

/// Most slots a ring may have before we refuse it: 4,096 times NIXL's default, and a bound on what
/// a hostile header can make us believe (about 900 MiB of version-1 slots).
pub const MAX_CAPACITY: u64 = 1 << 24;

/// Size of the header of versions 1 to 4, and the least a file must have to be looked at.
pub const HEADER_SIZE: usize = 40;

/// Size of the header of the proposed version 5.
pub const HEADER_SIZE_V5: usize = 512;

/// Length of an event name in the layouts that carry one, NUL-padded.
pub const NAME_SIZE: usize = 32;

/// `version` is promised to stay here across layouts.
pub(crate) const VERSION_OFFSET: usize = 16;

/// `expected_version`, likewise; the writer sets it equal to `version`, and no reader checks it.
pub(crate) const EXPECTED_VERSION_OFFSET: usize = 20;

/// One of the known byte layouts.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Layout {
    /// 56-byte slots: timestamp, category, name, value (wheels 0.5.1 to 1.0.1).
    V1,
    /// Version 2 with 48-byte slots: category, name, value (wheel 1.1.0).
    V2a,
    /// Version 2 with 16-byte slots: category, type, value (wheel 1.2.0).
    V2b,
    /// 16-byte slots: type, four bytes of garbage, value (wheels 1.3.x).
    V3,
    /// As version 3, with type 20 (wheels 1.4.0 and later).
    V4,
    /// Slots as version 4 behind a 512-byte header (proposed).
    V5,
}

impl Layout {
    /// Every layout, oldest first.
    pub const ALL: [Layout; 6] = [
        Layout::V1,
        Layout::V2a,
        Layout::V2b,
        Layout::V3,
        Layout::V4,
        Layout::V5,
    ];

    /// The value of the header's `version` field.
    pub const fn version(self) -> i32 {
        match self {
            Layout::V1 => 1,
            Layout::V2a | Layout::V2b => 2,
            Layout::V3 => 3,
            Layout::V4 => 4,
            Layout::V5 => 5,
        }
    }

    /// The layout's short name: `1`, `2a`, `2b`, `3`, `4`, `5`.
    pub const fn label(self) -> &'static str {
        match self {
            Layout::V1 => "1",
            Layout::V2a => "2a",
            Layout::V2b => "2b",
            Layout::V3 => "3",
            Layout::V4 => "4",
            Layout::V5 => "5",
        }
    }

    /// Bytes of a slot.
    pub const fn event_size(self) -> usize {
        match self {
            Layout::V1 => 56,
            Layout::V2a => 48,
            Layout::V2b | Layout::V3 | Layout::V4 | Layout::V5 => 16,
        }
    }

    /// Offset of the first slot.
    pub const fn header_size(self) -> usize {
        match self {
            Layout::V5 => HEADER_SIZE_V5,
            _ => HEADER_SIZE,
        }
    }

    /// Exact size of the file of a ring with `capacity` slots; `u64::MAX` where no file is so large.
    pub const fn file_size(self, capacity: u64) -> u64 {
        let slots = capacity.saturating_mul(self.event_size() as u64);
        slots.saturating_add(self.header_size() as u64)
    }

    /// Whether events carry a timestamp.
    pub const fn has_timestamps(self) -> bool {
        matches!(self, Layout::V1)
    }

    /// Whether events carry their name as a string.
    pub const fn has_names(self) -> bool {
        matches!(self, Layout::V1 | Layout::V2a)
    }

    pub(crate) const fn fields(self) -> HeaderFields {
        HeaderFields::of_version(self.version())
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.label())
    }
}

impl FromStr for Layout {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Layout::ALL.into_iter().find(|l| l.label() == text);
        found.ok_or_else(|| format!("unknown ring version `{text}`: expected 1, 2a, 2b, 3, 4 or 5"))
    }
}

/// Where the header fields that moved in version 5 are.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HeaderFields {
    pub(crate) write_pos: usize,
    pub(crate) read_pos: usize,
    pub(crate) capacity: usize,
    pub(crate) mask: usize,
}

impl HeaderFields {
    pub(crate) const fn of_version(version: i32) -> Self {
        if version == 5 {
            HeaderFields {
                write_pos: 0,
                read_pos: 256,
                capacity: 8,
                mask: 24,
            }
        } else {
            HeaderFields {
                write_pos: 0,
                read_pos: 8,
                capacity: 24,
                mask: 32,
            }
        }
    }
}

/// The fields of a header as found, unchecked.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct RawHeader {
    /// Slot index of the next write.
    pub write_pos: u64,
    /// Slot index of the next read.
    pub read_pos: u64,
    /// `TELEMETRY_VERSION` of the writer; 0 while the ring is being made.
    pub version: i32,
    /// A second copy of the version, which is not checked.
    pub expected_version: i32,
    /// Number of slots.
    pub capacity: u64,
    /// `capacity - 1`.
    pub mask: u64,
}

impl RawHeader {
    /// Reads the fields out of the beginning of a file; bytes beyond its end count as zero.
    pub fn parse(bytes: &[u8]) -> Self {
        let version = i32::from_le_bytes(field(bytes, VERSION_OFFSET));
        let at = HeaderFields::of_version(version);
        let u64_at = |offset| u64::from_le_bytes(field(bytes, offset));
        RawHeader {
            write_pos: u64_at(at.write_pos),
            read_pos: u64_at(at.read_pos),
            version,
            expected_version: i32::from_le_bytes(field(bytes, EXPECTED_VERSION_OFFSET)),
            capacity: u64_at(at.capacity),
            mask: u64_at(at.mask),
        }
    }

    /// Checks the header against the size of its file: the one gate between bytes found and a ring.
    ///
    /// # Errors
    /// The first thing that does not hold.
    pub fn validate(&self, file_size: u64) -> Result<Geometry, Reject> {
        if file_size == 0 {
            return Err(Reject::BeingCreated);
        }
        if file_size < HEADER_SIZE as u64 {
            return Err(Reject::TooSmall { file_size });
        }
        let layout = self.layout(file_size)?;
        let capacity = self.capacity;
        if !capacity.is_power_of_two() || self.mask != capacity - 1 {
            return Err(Reject::BadCapacity { capacity });
        }
        if capacity > MAX_CAPACITY {
            return Err(Reject::TooLarge { capacity });
        }
        if file_size != layout.file_size(capacity) {
            return Err(Reject::SizeMismatch { file_size, capacity });
        }
        let (write_pos, read_pos) = (self.write_pos, self.read_pos);
        if write_pos >= capacity || read_pos >= capacity {
            return Err(Reject::BadPositions { write_pos, read_pos });
        }
        Ok(Geometry { layout, capacity })
    }

    fn layout(&self, file_size: u64) -> Result<Layout, Reject> {
        match self.version {
            // A capacity that is not a power of two makes NIXL throw after it wrote the header: that file stays at
            // version 0 forever.
            0 if self.capacity != 0 && !self.capacity.is_power_of_two() => Err(Reject::BadCapacity {
                capacity: self.capacity,
            }),
            0 => Err(Reject::BeingCreated),
            1 => Ok(Layout::V1),
            2 if file_size == Layout::V2a.file_size(self.capacity) => Ok(Layout::V2a),
            2 => Ok(Layout::V2b),
            3 => Ok(Layout::V3),
            4 => Ok(Layout::V4),
            5 => Ok(Layout::V5),
            version => Err(Reject::UnknownVersion { version }),
        }
    }

    /// Whether every field is zero, as after `truncate` to nothing and back.
    pub fn is_zero(&self) -> bool {
        *self == RawHeader::default()
    }
}

/// The bytes of a field; zero where the file ends before it.
fn field<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    let found = bytes.get(offset..).and_then(|tail| tail.first_chunk::<N>());
    found.copied().unwrap_or([0; N])
}

/// The shape of a ring, from its checked header.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Geometry {
    /// The byte layout.
    pub layout: Layout,
    /// Number of slots, a power of two of at most [`MAX_CAPACITY`]; one of them is always unused.
    pub capacity: u64,
}

impl Geometry {
    /// How many slots lie from `from` up to `to`, around the end if need be.
    pub fn distance(self, from: u64, to: u64) -> u64 {
        to.wrapping_sub(from) & (self.capacity - 1)
    }

    /// The slot `count` after `position`.
    pub(crate) fn advance(self, position: u64, count: u64) -> u64 {
        position.wrapping_add(count) & (self.capacity - 1)
    }

    /// Byte offset of a slot in the file.
    pub(crate) fn offset(self, slot: u64) -> u64 {
        self.layout.header_size() as u64 + slot * self.layout.event_size() as u64
    }
}

/// Why a file is not a ring (or a store) that can be read. Nothing is ever written to or removed from it.
#[derive(Clone, Copy, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Reject {
    /// Empty or version 0: a writer is just making it; try again later.
    #[error("the file is being created (no version yet)")]
    BeingCreated,
    /// Shorter than any header.
    #[error("{file_size} bytes are too few for a header")]
    TooSmall {
        /// Size found.
        file_size: u64,
    },
    /// A version that is not 1 to 5.
    #[error("unknown version {version}: versions 1 to 5 are known")]
    UnknownVersion {
        /// Version found.
        version: i32,
    },
    /// Not a power of two, or contradicted by the mask.
    #[error("capacity {capacity} is not a power of two or does not fit the mask")]
    BadCapacity {
        /// Capacity found.
        capacity: u64,
    },
    /// More slots than [`MAX_CAPACITY`].
    #[error("capacity {capacity} exceeds the limit of {MAX_CAPACITY}")]
    TooLarge {
        /// Capacity found.
        capacity: u64,
    },
    /// Header and file size do not belong together.
    #[error("{file_size} bytes do not fit capacity {capacity}")]
    SizeMismatch {
        /// Size found.
        file_size: u64,
        /// Capacity found.
        capacity: u64,
    },
    /// A position lies outside the ring.
    #[error("positions write {write_pos}, read {read_pos} lie outside the ring")]
    BadPositions {
        /// Write position found.
        write_pos: u64,
        /// Read position found.
        read_pos: u64,
    },
    /// A directory, device, socket, pipe or symbolic link.
    #[error("not a regular file")]
    NotRegular,
    /// The mapping lost its file while being read.
    #[error("the file was truncated while it was read")]
    Truncated,
    /// A store without the magic bytes `NIXLMPS1`.
    #[error("not a store: the magic bytes are missing")]
    BadMagic,
    /// A store that is not exactly 6,800 bytes long.
    #[error("not a store: {file_size} bytes instead of 6800")]
    WrongStoreSize {
        /// Size found.
        file_size: u64,
    },
    /// A store of a schema other than 1.
    #[error("unknown store schema {schema}: only schema 1 is known")]
    UnknownSchema {
        /// Schema found.
        schema: u32,
    },
    /// A store with another number of slots than its schema has.
    #[error("store has {slots} slots instead of 21")]
    BadSlotCount {
        /// Count found.
        slots: u32,
    },
    /// A store whose histogram has more than 32 buckets, or bounds that do not rise.
    #[error("store has impossible histogram bounds ({buckets} buckets)")]
    BadBuckets {
        /// Count found.
        buckets: u64,
    },
}

impl Reject {
    /// A stable snake_case word for counters.
    pub const fn reason(self) -> &'static str {
        match self {
            Reject::BeingCreated => "being_created",
            Reject::TooSmall { .. } => "too_small",
            Reject::UnknownVersion { .. } => "unknown_version",
            Reject::BadCapacity { .. } => "bad_capacity",
            Reject::TooLarge { .. } => "too_large",
            Reject::SizeMismatch { .. } => "size_mismatch",
            Reject::BadPositions { .. } => "bad_positions",
            Reject::NotRegular => "not_regular",
            Reject::Truncated => "truncated",
            Reject::BadMagic => "bad_magic",
            Reject::WrongStoreSize { .. } => "wrong_store_size",
            Reject::UnknownSchema { .. } => "unknown_schema",
            Reject::BadSlotCount { .. } => "bad_slot_count",
            Reject::BadBuckets { .. } => "bad_buckets",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_capacity_beyond_any_file_has_no_size_that_a_file_could_have() {
        for layout in Layout::ALL {
            assert_eq!(layout.file_size(u64::MAX), u64::MAX, "{layout}");
            assert_eq!(
                layout.file_size(256),
                (layout.header_size() + 256 * layout.event_size()) as u64
            );
        }
    }
}
