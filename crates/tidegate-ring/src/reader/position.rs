// SPDX-License-Identifier: Apache-2.0

//! Where a reader stands in its ring, and what a new header says about that. No I/O.

use crate::layout::{Geometry, RawHeader};
use crate::reader::Reset;

/// A place in a ring.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Position {
    pub(crate) ring: Geometry,
    /// The next event to read; everything before it was accepted.
    pub(crate) cursor: u64,
    /// The `read_pos` of the header, as far as we know; equals `cursor` while we are the consumer.
    pub(crate) header_read_pos: u64,
    /// Events seen readable from `cursor` on.
    pub(crate) unaccepted: u64,
}

impl Position {
    pub(crate) fn at(ring: Geometry, read_pos: u64) -> Self {
        Position {
            ring,
            cursor: read_pos,
            header_read_pos: read_pos,
            unaccepted: 0,
        }
    }

    /// Events from the cursor up to `write_pos`.
    pub(crate) fn readable(&self, write_pos: u64) -> u64 {
        self.ring.distance(self.cursor, write_pos)
    }

    /// Moves past `events`.
    pub(crate) fn accept(&mut self, events: u64) {
        self.cursor = self.ring.advance(self.cursor, events);
        self.unaccepted = self.unaccepted.saturating_sub(events);
    }

    /// Compares a valid header of the same geometry with what is known and follows it. `Some` with the
    /// reason and the number of events lost if it is not simply further along.
    ///
    /// While we consume, no other process moves `read_pos`, so any other value is a restart (which sets it
    /// to 0) or a consumer that ignores the lock. Peeking, it may move, but never past `write_pos`
    /// and our cursor must lie between the two: a restart that happens to restore that order goes
    /// unseen.
    pub(crate) fn reconcile(&mut self, header: &RawHeader, consuming: bool) -> Option<(Reset, u64)> {
        let (read_pos, write_pos) = (header.read_pos, header.write_pos);
        let known_read_pos = std::mem::replace(&mut self.header_read_pos, read_pos);
        let ring = self.ring;
        let span = ring.distance(read_pos, write_pos);
        let cursor_inside = ring.distance(read_pos, self.cursor) <= span;
        let unaccepted_there = self.readable(write_pos) >= self.unaccepted;
        let moved = consuming && read_pos != known_read_pos;
        if cursor_inside && unaccepted_there && !moved {
            return None;
        }
        let skipped = ring.distance(self.cursor, read_pos);
        let (reason, lost) = if read_pos == 0 {
            (Reset::Restarted, self.unaccepted)
        } else if read_pos == known_read_pos {
            (Reset::BadPositions, self.unaccepted)
        } else {
            (Reset::Overtaken, skipped)
        };
        // A consumer that lags behind what we accepted must not make us read that again.
        let lagging = reason == Reset::Overtaken && cursor_inside;
        if lagging {
            return Some((reason, 0));
        }
        *self = Position::at(ring, read_pos);
        Some((reason, lost))
    }
}
