// SPDX-License-Identifier: Apache-2.0

//! The share of a table that one source of points may take if no number of streams is set: half of its bytes.
//!
//! The bytes of a source are estimated from its streams and the mean size of all streams.

use super::{STREAM_BYTES, Table};
use crate::Resource;
use crate::streams::lock;

/// One in this many output series is kept for sources other than the largest.
const SERIES_FOR_OTHERS: usize = 10;

/// The same of bytes and of streams, which also count those that went to an overflow series.
const ROOM_FOR_OTHERS: usize = 4;

impl Table {
    /// Lets no source of points take more than half of the table, where [`Limits::streams_per_source`] sets no number.
    ///
    /// [`Limits::streams_per_source`]: super::Limits::streams_per_source
    #[must_use]
    pub fn shared_by_sources(self) -> Self {
        Self {
            is_shared: self.limits.streams_per_source == usize::MAX,
            ..self
        }
    }

    /// Whether the next stream of a source with this many streams goes to an overflow series.
    pub(super) fn is_crowded(&self, streams: usize) -> bool {
        if !self.is_shared {
            return streams > self.limits.streams_per_source;
        }
        let most = self.limits.series;
        let are_series_scarce = self.cells.len() >= most - most / SERIES_FOR_OTHERS;
        (are_series_scarce && streams > most / 2) || self.takes_half(streams)
    }

    /// Whether no further stream of this source is remembered: the room that is left is for others.
    pub(super) fn has_no_room_for(&self, resource: &Resource) -> bool {
        if !self.is_shared {
            return false;
        }
        let (bytes, streams) = (self.max_bytes(), self.limits.streams);
        let are_bytes_scarce = self.bytes() > bytes - bytes / ROOM_FOR_OTHERS;
        let are_streams_scarce = self.streams.len() >= streams - streams / ROOM_FOR_OTHERS;
        if !are_bytes_scarce && !are_streams_scarce {
            return false;
        }
        let own = lock(&self.registry).streams(resource);
        (are_bytes_scarce && self.takes_half(own)) || (are_streams_scarce && own > streams / 2)
    }

    fn takes_half(&self, streams: usize) -> bool {
        let mean = self.bytes() / self.streams.len().max(1);
        streams.saturating_mul(mean) > self.max_bytes() / 2
    }

    /// Whether the kind at this place of a source of events goes to an overflow series.
    pub(super) fn is_crowded_kind(&self, index: usize) -> bool {
        if !self.is_shared {
            return index >= self.limits.streams_per_source;
        }
        let mean = STREAM_BYTES + self.cells.bytes() / self.cells.len().max(1);
        index.saturating_mul(mean) > self.max_bytes() / 2
    }
}
