// SPDX-License-Identifier: Apache-2.0

//! The totals of streams in a run: one slot for each stream and start.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use tidegate_engine::{Key, Point, Series, StreamTotal, UnixNanos, identity_bytes};

use super::pages::PageTable;
use super::slot::{ItemOutcome, PageSlot, SlotContent};

/// A stream has at most so many starts in a run. A replica takes 1024 of all gateways.
const MAX_STARTS: usize = 256;

/// A stream with more starts is looked at for ended ones.
const MANY_STARTS: usize = 32;

/// A new run begins if at least so many starts of a stream have ended.
const MANY_ENDED: usize = MANY_STARTS / 2;

/// Bytes of a slot without its series and value, estimated.
const SLOT_BYTES: usize = 512;

/// The slots of streams.
#[derive(Debug)]
pub(super) struct StreamIndex {
    slots: HashMap<(Key, UnixNanos), usize>,
    /// The number of starts of each stream.
    starts: HashMap<Key, usize>,
    /// Streams with many starts.
    crowded: HashSet<Key>,
    bytes: usize,
    pub(super) max_bytes: usize,
}

impl StreamIndex {
    pub(super) fn new(max_bytes: usize) -> Self {
        Self {
            slots: HashMap::new(),
            starts: HashMap::new(),
            crowded: HashSet::new(),
            bytes: 0,
            max_bytes,
        }
    }

    fn has_room(&self, more: usize) -> bool {
        more == 0 || self.bytes.saturating_add(more) <= self.max_bytes
    }
}

impl PageTable {
    /// Takes the total of a stream. The larger of two totals with one start counts.
    pub(super) fn take_stream(&mut self, point: Point, now: UnixNanos) -> ItemOutcome {
        let (key, start) = (Key::of(&point.series), point.start);
        let new = StreamTotal::new(point.time, point.value).filter(|_| start > 0);
        let Some(new) = new else {
            return ItemOutcome::Invalid;
        };
        let known = self.streams.slots.get(&(key, start)).copied();
        let known = known.and_then(|at| self.slots.get_mut(at));
        if let Some(PageSlot {
            content: SlotContent::Stream { total, seen, .. },
            page,
            ..
        }) = known
        {
            *seen = now;
            let (page, is_later, old) = (*page, new.time > total.time, total.value.bytes());
            if !self.streams.has_room(new.value.bytes().saturating_sub(old)) {
                return ItemOutcome::Full;
            }
            let order = total.join(new);
            self.streams.bytes = (self.streams.bytes + total.value.bytes()).saturating_sub(old);
            return match order {
                Ordering::Greater => {
                    self.mark(page, now);
                    ItemOutcome::Taken
                }
                Ordering::Less if is_later => ItemOutcome::Fallen,
                Ordering::Equal | Ordering::Less => ItemOutcome::Taken,
            };
        }
        let content = SlotContent::Stream {
            start,
            total: new,
            seen: now,
        };
        if self.add_stream(key, point.series, start, content, now) {
            ItemOutcome::Taken
        } else {
            ItemOutcome::Full
        }
    }

    /// Adds the slot of a stream and start. `false`: no room.
    pub(super) fn add_stream(
        &mut self,
        key: Key,
        series: Arc<Series>,
        start: UnixNanos,
        content: SlotContent,
        now: UnixNanos,
    ) -> bool {
        let starts = self.streams.starts.get(&key).copied().unwrap_or(0);
        // All starts of a stream share its series.
        let identity = if starts == 0 { identity_bytes(&series) } else { 0 };
        let bytes = SLOT_BYTES + identity + content.stream_bytes();
        if starts >= MAX_STARTS || !self.streams.has_room(bytes) {
            return false;
        }
        let Some(slot) = self.add_slot(key, || series, content, now) else {
            return false;
        };
        self.streams.slots.insert((key, start), slot);
        self.streams.starts.insert(key, starts + 1);
        self.streams.bytes += bytes;
        if starts >= MANY_STARTS {
            self.streams.crowded.insert(key);
        }
        true
    }

    /// Whether a stream has many starts that have ended. A new run leaves them behind, and replicas then fold them.
    pub(super) fn has_many_ended(&self, now: UnixNanos) -> bool {
        let crowded = &self.streams.crowded;
        if crowded.is_empty() {
            return false;
        }
        let mut ended: HashMap<Key, usize> = HashMap::new();
        let of_crowded = |slot: &&PageSlot| crowded.contains(&slot.key) && slot.is_ended_stream(now);
        for slot in self.slots.iter().filter(of_crowded) {
            *ended.entry(slot.key).or_default() += 1;
        }
        ended.values().any(|ended| *ended >= MANY_ENDED)
    }
}
