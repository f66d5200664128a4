// SPDX-License-Identifier: Apache-2.0

//! The items of pages, and the slots that keep their newest content.

use std::sync::Arc;

use tidegate_engine::{Attributes, Key, MergeMode, Point, Series, StreamTotal, SubWindow, UnixNanos, Value};

use super::carry::CarriedTotal;
use super::pages::PageIndex;

/// A stream that is silent for this long stays behind when a new run begins: 2 min. SDKs report once a minute.
const STREAM_MEMORY_NS: u64 = 120_000_000_000;

/// An item of a page: the statement of a producer about a series.
#[derive(Clone, Debug, PartialEq)]
pub enum SentItem {
    /// Its value, and how it merges.
    Value(MergeMode, Point),
    /// The total of a stream, which other producers may report too. It needs a start.
    Stream(Point),
    /// The window of a group of a composite.
    Window {
        /// The name of the composite.
        composite: Arc<str>,
        /// The group.
        group: Attributes,
        /// The window.
        window: Vec<SubWindow>,
    },
}

/// The effect of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemOutcome {
    Taken,
    /// The total of a stream is smaller than an older one with the same start.
    Fallen,
    /// The value is a level or a window, and its series has a total.
    Invalid,
    /// There are as many series as there may be.
    Full,
}

/// The newest content of a slot.
#[derive(Debug)]
pub(super) enum SlotContent {
    Total(CarriedTotal),
    Level {
        mode: MergeMode,
        time: UnixNanos,
        value: Value,
    },
    Window(Vec<SubWindow>),
    Stream {
        start: UnixNanos,
        total: StreamTotal,
        /// When it was last reported, by our clock.
        seen: UnixNanos,
    },
}

/// A series in a page; a stream has a slot for each start.
#[derive(Debug)]
pub(super) struct PageSlot {
    pub(super) key: Key,
    pub(super) series: Arc<Series>,
    pub(super) content: SlotContent,
    pub(super) page: PageIndex,
    /// The last update that had it.
    pub(super) round: u64,
}

impl SlotContent {
    /// The bytes of the value of a stream.
    pub(super) fn stream_bytes(&self) -> usize {
        match self {
            Self::Stream { total, .. } => total.value.bytes(),
            _ => 0,
        }
    }
}

impl PageSlot {
    /// Whether a new run leaves it behind, in the pages of the old one.
    pub(super) fn has_expired(&self, round: u64, now: UnixNanos) -> bool {
        match self.content {
            SlotContent::Stream { .. } => self.is_ended_stream(now),
            _ => self.round < round,
        }
    }

    /// Whether it has a stream that is silent for long.
    pub(super) fn is_ended_stream(&self, now: UnixNanos) -> bool {
        match self.content {
            SlotContent::Stream { seen, .. } => now.saturating_sub(seen) > STREAM_MEMORY_NS,
            _ => false,
        }
    }
}

/// Whether two values are the same to the bit.
pub(super) fn same_value(one: &Value, other: &Value) -> bool {
    match (one.number(), other.number()) {
        (Some(one), Some(other)) => one.same(other),
        _ => one == other,
    }
}
