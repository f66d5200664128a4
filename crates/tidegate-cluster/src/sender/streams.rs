// SPDX-License-Identifier: Apache-2.0

//! The totals of streams in a run: one slot for each stream and start.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::sync::Arc;

use tidegate_engine::{Key, Point, Series, StreamTotal, UnixNanos};

use super::pages::PageTable;
use super::slot::{ItemOutcome, PageSlot, SlotContent};

/// From this number of starts on, a stream is looked at for ended ones. A replica takes 64 of all gateways.
const MANY_STARTS: usize = 32;

/// A new run begins if at least so many starts of a stream have ended.
const MANY_ENDED: usize = MANY_STARTS / 2;

/// The slots of streams.
#[derive(Debug, Default)]
pub(super) struct StreamIndex {
    slots: HashMap<(Key, UnixNanos), usize>,
    /// The number of starts of each stream.
    starts: HashMap<Key, usize>,
    /// Whether a stream has many starts that have ended. A new run leaves them behind, and replicas then fold them.
    pub(super) has_many_ended: bool,
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
            let (page, is_later) = (*page, new.time > total.time);
            return match total.join(new) {
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
        if self.add_stream(key, || point.series, start, content, now) {
            ItemOutcome::Taken
        } else {
            ItemOutcome::Full
        }
    }

    /// Adds the slot of a stream and start. `false`: no room.
    pub(super) fn add_stream(
        &mut self,
        key: Key,
        series: impl FnOnce() -> Arc<Series>,
        start: UnixNanos,
        content: SlotContent,
        now: UnixNanos,
    ) -> bool {
        let Some(slot) = self.add_slot(key, series, content, now) else {
            return false;
        };
        self.streams.slots.insert((key, start), slot);
        let starts = self.streams.starts.entry(key).or_default();
        *starts += 1;
        if *starts > MANY_STARTS {
            let ended = self
                .slots
                .iter()
                .filter(|slot| slot.key == key && slot.is_ended_stream(now));
            self.streams.has_many_ended |= ended.count() >= MANY_ENDED;
        }
        true
    }
}
