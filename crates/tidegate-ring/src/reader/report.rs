// SPDX-License-Identifier: Apache-2.0

//! The modes and the results of a reader.

use crate::layout::Reject;

/// Events a single read takes at most by default: sixteen of NIXL's default rings; bounds the
/// batch at 3.5 MiB of slots.
pub const DEFAULT_MAX_EVENTS: usize = 65_536;

/// How to open a ring.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Move `read_pos`, which frees the slots for the producer. Otherwise peek with a cursor of our own.
    pub consume: bool,
    /// Most events that one [`Reader::read`](crate::Reader::read) takes; at least 1.
    pub max_events: usize,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            consume: true,
            max_events: DEFAULT_MAX_EVENTS,
        }
    }
}

/// The use that a reader makes of `read_pos`.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Mode {
    /// Moves it: we hold the advisory lock.
    Consume,
    /// Leaves it alone, as asked for.
    Peek,
    /// Leaves it alone because another consumer holds the lock; see [`Reader::try_consume`](crate::Reader::try_consume).
    PeekLocked,
}

/// How full the ring was when it was read.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Fill {
    /// Events waiting when the read began; more than the batch holds if `max_events` cut it.
    pub readable: u64,
    /// Slots of the ring; `capacity - 1` events fit.
    pub capacity: u64,
    /// No slot was free: the producer may have dropped events, which the ring does not count.
    pub full: bool,
}

/// The result of a [`Reader::read`](crate::Reader::read).
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Poll {
    /// Nothing new.
    Idle,
    /// The batch holds events; [`Reader::commit`](crate::Reader::commit) them once they are accepted.
    Events(Fill),
    /// The ring is just being (re)made; read again later.
    Settling,
    /// The ring is not what it was. The reader has already adopted the new state, or waits for one.
    Reset {
        /// The reason of the reset.
        reason: Reset,
        /// Events that had been seen but not committed and are gone now.
        lost: u64,
    },
    /// After a reset: still no ring that can be read.
    Unreadable(Reject),
    /// The path leads to another file or to none, and everything in this one was read: drop the reader.
    /// [`Reset::Replaced`] or [`Reset::Removed`].
    Gone(Reset),
}

/// Why a reader forgot what it knew of a ring.
#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub enum Reset {
    /// The writer started again in place.
    Restarted,
    /// The writer started again in place with another layout.
    VersionChanged,
    /// The writer started again in place with another capacity.
    CapacityChanged,
    /// The file is shorter than its header says.
    Truncated,
    /// The file is longer than its header says.
    Grown,
    /// The header is all zero.
    Zeroed,
    /// The header is noise.
    BadHeader,
    /// The positions contradict each other or what was seen before.
    BadPositions,
    /// Another consumer, heedless of the lock, moved `read_pos` past us.
    Overtaken,
    /// The path leads to another file now.
    Replaced,
    /// The path leads nowhere now.
    Removed,
}

impl Reset {
    /// Every reason.
    pub const ALL: [Reset; 11] = [
        Reset::Restarted,
        Reset::VersionChanged,
        Reset::CapacityChanged,
        Reset::Truncated,
        Reset::Grown,
        Reset::Zeroed,
        Reset::BadHeader,
        Reset::BadPositions,
        Reset::Overtaken,
        Reset::Replaced,
        Reset::Removed,
    ];

    /// A stable snake_case word for counters.
    pub const fn reason(self) -> &'static str {
        match self {
            Reset::Restarted => "restarted",
            Reset::VersionChanged => "version_changed",
            Reset::CapacityChanged => "capacity_changed",
            Reset::Truncated => "truncated",
            Reset::Grown => "grown",
            Reset::Zeroed => "zeroed",
            Reset::BadHeader => "bad_header",
            Reset::BadPositions => "bad_positions",
            Reset::Overtaken => "overtaken",
            Reset::Replaced => "replaced",
            Reset::Removed => "removed",
        }
    }
}

/// Totals since the reader was opened.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Stats {
    /// Events committed.
    pub events: u64,
    /// Reads that found the ring full: each may stand for events that the producer dropped.
    pub suspected_loss: u64,
    /// Resets reported.
    pub resets: u64,
    /// Events seen but gone before they were committed.
    pub lost: u64,
    /// Committed events of a type beyond the table.
    pub unknown: u64,
    /// Committed events whose name found the ring's table of own names full.
    pub overflow: u64,
}
