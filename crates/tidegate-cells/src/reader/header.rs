// SPDX-License-Identifier: Apache-2.0

//! Reads header pages.

use crate::layout::{
    HEADER_SIZE, Header, Identity, MAGIC, MAX_SEGMENT_SIZE, MAX_SEGMENTS, Reject, Role, SEGMENT_SIZE,
    SegmentKind, VERSION, header,
};

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    u32::from_le_bytes(found.copied().unwrap_or_default())
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    let found = bytes.get(at..).and_then(<[u8]>::first_chunk);
    u64::from_le_bytes(found.copied().unwrap_or_default())
}

/// The words of the header that change, and the table, as read.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Changing {
    /// Kind, offset and length.
    pub(crate) segments: Vec<(SegmentKind, u64, u64)>,
    pub(crate) descriptors: u64,
    pub(crate) shown_ns: u64,
    pub(crate) refused_series: u64,
    pub(crate) refused_room: u64,
    pub(crate) invalid: u64,
}

impl SegmentKind {
    /// Kind and length of an entry, if it is one.
    pub(crate) fn of_entry(entry: u64) -> Option<(Self, u64)> {
        let len = entry & ((1 << Self::SHIFT) - 1);
        let kind = match entry >> Self::SHIFT {
            1 => SegmentKind::Descriptors,
            2 => SegmentKind::Values,
            _ => return None,
        };
        let possible = (SEGMENT_SIZE..=MAX_SEGMENT_SIZE).contains(&len) && len.is_multiple_of(SEGMENT_SIZE);
        possible.then_some((kind, len))
    }
}

impl Header {
    /// The fixed part, checked. `page` is a whole header page.
    pub(crate) fn parse(page: &[u8; HEADER_SIZE]) -> Result<Self, Reject> {
        if page[..8] != MAGIC {
            return Err(Reject::BadMagic);
        }
        let version = u32_at(page, header::VERSION);
        if version != VERSION {
            return Err(Reject::UnknownVersion(version));
        }
        let role = match u32_at(page, header::ROLE) {
            0 => Role::Process,
            1 => Role::Retained,
            _ => return Err(Reject::BadHeader),
        };
        let identity = Identity {
            pid: u32_at(page, header::PID),
            start: u64_at(page, header::START),
            epoch: u64_at(page, header::EPOCH),
        };
        let sound = crc32fast::hash(&page[..header::CRC]) == u32_at(page, header::CRC)
            && u32_at(page, header::SIZE) as usize == HEADER_SIZE
            && identity.epoch != 0;
        if !sound {
            return Err(Reject::BadHeader);
        }
        Ok(Header {
            role,
            identity,
            boot: u64_at(page, header::BOOT),
            created_ns: u64_at(page, header::CREATED_NS),
        })
    }
}

impl Changing {
    /// The changing words of a header page, checked against the size of the file.
    pub(crate) fn parse(page: &[u8; HEADER_SIZE], file_size: u64) -> Result<Self, Reject> {
        let count = u64_at(page, header::SEGMENTS);
        let count = usize::try_from(count).ok().filter(|count| *count <= MAX_SEGMENTS);
        let count = count.ok_or(Reject::BadSegments)?;
        let mut segments = Vec::with_capacity(count);
        let (mut offset, mut room) = (HEADER_SIZE as u64, 0);
        for at in 0..count {
            let entry = u64_at(page, header::TABLE + at * 8);
            let (kind, len) = SegmentKind::of_entry(entry).ok_or(Reject::BadSegments)?;
            segments.push((kind, offset, len));
            offset += len; // at most 448 of 16 MiB
            if kind == SegmentKind::Descriptors {
                room += len;
            }
        }
        let descriptors = u64_at(page, header::DESCRIPTORS);
        if offset > file_size || descriptors > room {
            return Err(Reject::BadSegments);
        }
        Ok(Changing {
            segments,
            descriptors,
            shown_ns: u64_at(page, header::SHOWN_NS),
            refused_series: u64_at(page, header::REFUSED_SERIES),
            refused_room: u64_at(page, header::REFUSED_ROOM),
            invalid: u64_at(page, header::INVALID),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn segments_are_pages_and_those_of_older_builds_are_still_read() {
        let read = |len| SegmentKind::of_entry(SegmentKind::Values.entry(len)).map(|(_, len)| len);
        for len in [4 << 10, 8 << 10, 64 << 10, 128 << 10, MAX_SEGMENT_SIZE] {
            assert_eq!(read(len), Some(len));
        }
        for len in [0, 2 << 10, 5 << 10, MAX_SEGMENT_SIZE + SEGMENT_SIZE] {
            assert_eq!(read(len), None);
        }
    }
}
