// SPDX-License-Identifier: Apache-2.0

//! Reads records back, from the oldest segment on.

use std::io;

use super::super::record::{self, Stored, TAGS};
use super::super::segment::RecordRead;
use super::Log;

/// The position of the next read: an offset in the segment with this first number.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LogCursor {
    pub(super) first: u64,
    pub(super) offset: u64,
}

/// The result of a read.
#[derive(Debug, Default)]
pub struct ReadBack {
    /// Data in its order.
    pub stored: Vec<Stored>,
    /// Records that turned out to be damaged.
    pub lost_records: u64,
    /// Their items, by tag.
    pub lost_items: [u64; TAGS],
    /// Whether memory had no room for the next record.
    pub is_short: bool,
}

impl Log {
    /// Reads on, about as much as `max_bytes`; an empty answer means that there is no more.
    ///
    /// # Errors
    /// A segment can't be opened or read.
    pub fn read(&mut self, max_bytes: usize) -> io::Result<ReadBack> {
        self.read_within(max_bytes, &mut |_, _| true)
    }

    /// The same within a memory limit. Before each record, `has_room` gets the bytes read so far and those of the
    /// record.
    ///
    /// # Errors
    /// A segment can't be opened or read.
    pub fn read_within(
        &mut self,
        max_bytes: usize,
        has_room: &mut dyn FnMut(usize, usize) -> bool,
    ) -> io::Result<ReadBack> {
        let (mut back, mut bytes) = (ReadBack::default(), 0_usize);
        while bytes < max_bytes {
            let Some(at) = self.segment_of_cursor() else { break };
            let is_newest = at + 1 == self.segments.len();
            let before = bytes;
            let mut fits = |more: usize| has_room(before, more);
            let found = self.segments[at].read(self.cursor.offset, &mut fits)?;
            match found {
                RecordRead::Record(stored, next) => {
                    bytes += stored.payload.len();
                    back.stored.push(stored);
                    self.cursor.offset = next;
                }
                RecordRead::Skip(next) => self.cursor.offset = next,
                RecordRead::NoRoom => {
                    back.is_short = true;
                    break;
                }
                RecordRead::End => {
                    let (records, items) = self.segments[at].give_up_unread();
                    back.lost_records += records;
                    (back.lost_items.iter_mut().zip(items)).for_each(|(sum, lost)| *sum += lost);
                    if is_newest {
                        break;
                    }
                    self.cursor = LogCursor {
                        first: self.segments[at + 1].first,
                        offset: record::SEGMENT_HEAD as u64,
                    };
                }
            }
        }
        Ok(back)
    }

    /// The segment that the cursor is in, or the next one if that is gone.
    fn segment_of_cursor(&mut self) -> Option<usize> {
        let at = self
            .segments
            .partition_point(|segment| segment.first < self.cursor.first);
        let segment = self.segments.get(at)?;
        if segment.first != self.cursor.first {
            self.cursor = LogCursor {
                first: segment.first,
                offset: record::SEGMENT_HEAD as u64,
            };
        }
        Some(at)
    }
}
