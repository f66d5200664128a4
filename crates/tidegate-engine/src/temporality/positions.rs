// SPDX-License-Identifier: Apache-2.0

//! Positions as bytes: frozen, written and restored.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::{ConvertedStream, Converter, RESTORED_BYTES, Restored, Saved};
use crate::budget::Reservation;
use crate::bytes::{number, take};
use crate::restored::RestoredStates;
use crate::saved::StreamId;
use crate::snapshot_buffer::SnapshotBuffer;
use crate::stream_tracker::{LastValue, StreamTracker};
use crate::streams::Streams;

/// A snapshot of the places of one moment, copied on write: a writer that changes a chunk of places copies
/// it first.
#[derive(Debug)]
pub struct FrozenPositions {
    streams: Arc<Streams<ConvertedStream>>,
    restored: Arc<RestoredStates<Restored>>,
    buffer: Arc<SnapshotBuffer<(StreamId, Saved)>>,
}

impl FrozenPositions {
    /// Writes the bytes, for [`Converter::restore`], piece by piece.
    ///
    /// # Errors
    /// Those of `to`: the written part is then useless.
    pub fn write(self, to: &mut dyn Write) -> io::Result<()> {
        let mut bytes = Vec::new();
        let mut drain_to = || {
            self.buffer
                .drain_to(&mut bytes, to, |(id, saved), bytes| saved.save(id, bytes))
        };
        self.restored.snapshot_rest(&mut drain_to)?;
        self.streams.snapshot_rest(&mut drain_to)?;
        to.write_all(&bytes)
    }
}

impl Drop for FrozenPositions {
    fn drop(&mut self) {
        self.restored.end_snapshot();
        self.streams.end_snapshot();
    }
}

impl Converter {
    /// The positions of all streams, for [`Self::restore`]. The caller ensures that nothing is converted meanwhile.
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Memory refuses nothing.
        let _ = self.freeze().write(&mut bytes);
        bytes
    }

    /// Freezes the present positions; later conversions may go on while they are written. During the call, the caller
    /// ensures that nothing is converted, and that only one frozen state exists.
    pub fn freeze(&self) -> FrozenPositions {
        let buffer = Arc::new(SnapshotBuffer::default());
        let (of_streams, of_restored) = (buffer.clone(), buffer.clone());
        self.streams.begin_snapshot(move |some| {
            of_streams.add(some.map(|(stream, _)| (stream.id, stream.saved.clone())));
        });
        // Otherwise a second restart would lose the positions whose streams have not reported since the first.
        self.restored.begin_snapshot(move |some| {
            of_restored.add(some.map(|(id, restored)| (*id, restored.saved.clone())));
        });
        FrozenPositions {
            streams: self.streams.clone(),
            restored: self.restored.clone(),
            buffer,
        }
    }

    /// Takes up places of a previous process; later calls win. Gives how many could be read and had room.
    pub fn restore(&self, mut bytes: &[u8]) -> usize {
        let mut restored = 0;
        while let Some((id, saved)) = Saved::load(&mut bytes) {
            if self.put_restored(id, saved) {
                restored += 1;
            } else {
                self.lost.fetch_add(1, Relaxed);
            }
        }
        restored
    }

    /// Whether the place of a stream has room.
    fn put_restored(&self, id: StreamId, saved: Saved) -> bool {
        let Some(reservation) = Reservation::known(&self.budget, RESTORED_BYTES + saved.bytes()) else {
            // An older position of this stream is no longer true.
            self.restored.take(id);
            return false;
        };
        let place = Restored {
            saved,
            _reservation: reservation,
        };
        self.restored.insert(id, place, self.limits.streams)
    }

    /// The number of positions that found no room in [`Self::restore`] since the last call. Each one counts once per
    /// read.
    pub fn take_lost(&self) -> usize {
        self.lost.swap(0, Relaxed)
    }
}

impl Saved {
    pub(super) fn save(&self, id: StreamId, to: &mut Vec<u8>) {
        to.extend(id);
        to.extend(self.tracker.start.to_le_bytes());
        to.extend(self.tracker.time.to_le_bytes());
        to.extend(self.since.to_le_bytes());
        self.tracker.save(to);
        self.total.save(to);
    }

    fn load(from: &mut &[u8]) -> Option<(StreamId, Self)> {
        let id = *take(from)?;
        let (start, time, since) = (number(from)?, number(from)?, number(from)?);
        let saved = Self {
            tracker: StreamTracker::load(start, time, from)?,
            total: LastValue::load(from)?,
            since,
        };
        Some((id, saved))
    }
}
