// SPDX-License-Identifier: Apache-2.0

//! The series of a run, and the page of each.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use tidegate_engine::{Key, MergeMode, Point, Series, UnixNanos, Value, partition_id};

use super::carry::{CarriedTotal, CarryOutcome};
use super::slot::{ItemOutcome, PageSlot, SentItem, SlotContent, same_value};
use super::streams::StreamIndex;
use crate::page::window_series;
use crate::{MAX_PAGE_SERIES, PageWriter, ProducerName};

/// The number of a page minus 1: page 0 is the heartbeat.
pub(super) type PageIndex = usize;

#[derive(Debug)]
struct SentPage {
    partition: u16,
    /// Whether it has streams. An older replica can't read these, and reads the other pages.
    has_streams: bool,
    slots: Vec<usize>,
    /// Since when its newest content waits.
    waits_since: Option<UnixNanos>,
    is_in_flight: bool,
    /// The page that took half of its series. It must be stored first: no reader may miss these series.
    after: Option<PageIndex>,
}

/// All pages of a run. Series stay in their pages until the run ends, and so do the totals of series that have expired.
#[derive(Debug)]
pub(super) struct PageTable {
    partitions: u16,
    max_series: usize,
    pub(super) slots: Vec<PageSlot>,
    by_key: HashMap<Key, usize>,
    pub(super) streams: StreamIndex,
    pages: Vec<SentPage>,
    /// The pages that wait, in the order in which they began to.
    queue: VecDeque<PageIndex>,
    round: u64,
}

impl PageTable {
    pub(super) fn new(partitions: u16, max_series: usize) -> Self {
        Self {
            partitions: partitions.max(1),
            max_series,
            slots: Vec::new(),
            by_key: HashMap::new(),
            streams: StreamIndex::new(usize::MAX),
            pages: Vec::new(),
            queue: VecDeque::new(),
            round: 0,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// The number of totals that contain an earlier life of their series.
    pub(super) fn carried(&self) -> usize {
        let totals = self.slots.iter();
        totals
            .filter(|slot| matches!(&slot.content, SlotContent::Total(total) if total.is_carried()))
            .count()
    }

    /// Whether some series have expired. A new run frees their places.
    pub(super) fn has_expired(&self, now: UnixNanos) -> bool {
        self.slots.iter().any(|slot| slot.has_expired(self.round, now))
    }

    /// Begins an update, which has all series that there are.
    pub(super) fn begin_round(&mut self) {
        self.round += 1;
    }

    /// Takes an item of the update. `epoch` is the start of totals without one.
    pub(super) fn take(&mut self, item: SentItem, epoch: UnixNanos, now: UnixNanos) -> ItemOutcome {
        match item {
            SentItem::Value(_, point) if matches!(point.value, Value::NoRecordedValue) => ItemOutcome::Taken,
            SentItem::Value(mode, point) if mode.is_retained() => self.take_total(point, epoch, now),
            SentItem::Stream(point) => self.take_stream(point, now),
            SentItem::Value(mode, point) => {
                let (key, time, value) = (Key::of(&point.series), point.time, point.value);
                let is_same = |content: &SlotContent| match content {
                    SlotContent::Level {
                        value: known,
                        mode: known_mode,
                        ..
                    } => *known_mode == mode && same_value(known, &value),
                    _ => false,
                };
                let known = self.by_key.get(&key).and_then(|at| self.slots.get(*at));
                let is_same = known.is_some_and(|slot| is_same(&slot.content));
                let content = SlotContent::Level { mode, time, value };
                self.put(key, || point.series, content, is_same, now)
            }
            SentItem::Window {
                composite,
                group,
                window,
            } => {
                let series = Arc::new(window_series(&composite, &group));
                let key = Key::of(&series);
                self.put(key, || series, SlotContent::Window(window), false, now)
            }
        }
    }

    fn take_total(&mut self, point: Point, epoch: UnixNanos, now: UnixNanos) -> ItemOutcome {
        let key = Key::of(&point.series);
        let mut start = if point.start == 0 { epoch } else { point.start };
        let round = self.round;
        let known = self.by_key.get(&key).and_then(|at| self.slots.get_mut(*at));
        if let Some(PageSlot {
            content: SlotContent::Total(total),
            round: seen,
            page,
            ..
        }) = known
        {
            match total.take(point.start, point.time, &point.value) {
                CarryOutcome::Refused => {
                    // The old total stays in its page, and the series goes on under another start.
                    start = start.max(total.start + 1);
                    self.by_key.remove(&key);
                }
                outcome => {
                    *seen = round;
                    let page = *page;
                    if outcome == CarryOutcome::Grown {
                        self.mark(page, now);
                    }
                    return ItemOutcome::Taken;
                }
            }
        }
        let total = CarriedTotal::new(start, point.time, point.value);
        self.put(key, || point.series, SlotContent::Total(total), false, now)
    }

    /// Puts content into the slot of a series, which may be new.
    fn put(
        &mut self,
        key: Key,
        series: impl FnOnce() -> Arc<Series>,
        content: SlotContent,
        is_same: bool,
        now: UnixNanos,
    ) -> ItemOutcome {
        let known = self.by_key.get(&key).copied();
        if let Some(slot) = known.and_then(|at| self.slots.get_mut(at)) {
            if matches!(slot.content, SlotContent::Total(_)) {
                // A total can't become a level: the total would fall.
                return ItemOutcome::Invalid;
            }
            let returns = slot.round + 1 < self.round;
            (slot.content, slot.round) = (content, self.round);
            let page = slot.page;
            if !is_same || returns {
                self.mark(page, now);
            }
            return ItemOutcome::Taken;
        }
        let added = self.add_slot(key, series, content, now);
        added.map_or(ItemOutcome::Full, |slot| {
            self.by_key.insert(key, slot);
            ItemOutcome::Taken
        })
    }

    /// Adds a slot in a page with room; `None`: there are as many as there may be.
    pub(super) fn add_slot(
        &mut self,
        key: Key,
        series: impl FnOnce() -> Arc<Series>,
        content: SlotContent,
        now: UnixNanos,
    ) -> Option<usize> {
        if self.slots.len() >= self.max_series {
            return None;
        }
        let series = series();
        let partition = (partition_id(&series) % u64::from(self.partitions)) as u16;
        let page = self.page_with_room(partition, matches!(content, SlotContent::Stream { .. }));
        let slot = self.slots.len();
        self.slots.push(PageSlot {
            key,
            series,
            content,
            page,
            round: self.round,
        });
        if let Some(page) = self.pages.get_mut(page) {
            page.slots.push(slot);
        }
        self.mark(page, now);
        Some(slot)
    }

    fn page_with_room(&mut self, partition: u16, has_streams: bool) -> PageIndex {
        let mut pages = self.pages.iter().enumerate();
        let is_alike = |page: &SentPage| page.partition == partition && page.has_streams == has_streams;
        let newest = pages.rfind(|(_, page)| is_alike(page));
        match newest {
            Some((at, page)) if (1..MAX_PAGE_SERIES).contains(&page.slots.len()) => at,
            _ => self.add_page(partition, has_streams),
        }
    }

    fn add_page(&mut self, partition: u16, has_streams: bool) -> PageIndex {
        self.pages.push(SentPage {
            partition,
            has_streams,
            slots: Vec::new(),
            waits_since: None,
            is_in_flight: false,
            after: None,
        });
        self.pages.len() - 1
    }

    /// Ends an update: levels and windows that it did not have are gone.
    pub(super) fn end_round(&mut self, now: UnixNanos) {
        let round = self.round;
        let has_level =
            |slot: &PageSlot| matches!(slot.content, SlotContent::Level { .. } | SlotContent::Window(_));
        let gone = |slot: &&PageSlot| slot.round + 1 == round && has_level(slot);
        let pages: Vec<_> = self.slots.iter().filter(gone).map(|slot| slot.page).collect();
        pages.into_iter().for_each(|page| self.mark(page, now));
    }

    /// Notes that a page has new content. A page without series never goes: the store may have an older one with series.
    pub(super) fn mark(&mut self, page: PageIndex, now: UnixNanos) {
        if let Some(marked) = self.pages.get_mut(page)
            && marked.waits_since.is_none()
            && !marked.slots.is_empty()
        {
            marked.waits_since = Some(now);
            self.queue.push_back(page);
        }
    }

    /// Notes that all pages have to be sent.
    pub(super) fn mark_all(&mut self, now: UnixNanos) {
        (0..self.pages.len()).for_each(|page| self.mark(page, now));
    }

    /// The number of pages that wait, and since when the oldest does.
    pub(super) fn waiting(&self) -> (usize, Option<UnixNanos>) {
        let since = self.pages.iter().filter_map(|page| page.waits_since).min();
        (self.queue.len(), since)
    }

    /// Whether all pages are stored as they are.
    pub(super) fn is_settled(&self) -> bool {
        self.queue.is_empty() && !self.pages.iter().any(|page| page.is_in_flight)
    }

    /// The next page that may be sent.
    pub(super) fn next_page(&mut self) -> Option<PageIndex> {
        let may_go = |at: &PageIndex| {
            let is_settled = |at: PageIndex| {
                let page = self.pages.get(at);
                page.is_none_or(|page| page.waits_since.is_none() && !page.is_in_flight)
            };
            let page = self.pages.get(*at);
            page.is_some_and(|page| !page.is_in_flight && page.after.is_none_or(is_settled))
        };
        let place = self.queue.iter().position(may_go)?;
        self.queue.remove(place)
    }

    /// The partition and the body of a page. `None`: the page is not there.
    pub(super) fn write(&self, page: PageIndex, producer: &ProducerName) -> Option<(u16, Bytes)> {
        let page = self.pages.get(page)?;
        let mut writer = PageWriter::new(producer);
        for slot in page.slots.iter().filter_map(|slot| self.slots.get(*slot)) {
            let has_expired = slot.round < self.round;
            match &slot.content {
                SlotContent::Total(total) => {
                    let times = (total.start, total.time);
                    writer.value(&slot.series, MergeMode::Add, times, total.value.clone());
                }
                SlotContent::Level { mode, time, value } => {
                    let value = if has_expired {
                        Value::NoRecordedValue
                    } else {
                        value.clone()
                    };
                    writer.value(&slot.series, *mode, (0, *time), value);
                }
                SlotContent::Stream { start, total, .. } => writer.stream(&slot.series, *start, total),
                SlotContent::Window(_) if has_expired => {}
                SlotContent::Window(window) => {
                    writer.window(&slot.series.metric.name, &slot.series.attributes, window);
                }
            }
        }
        Some((page.partition, writer.finish()))
    }

    /// Notes that a page is on its way. Gives the time since when it had waited.
    pub(super) fn note_sent(&mut self, page: PageIndex) -> Option<UnixNanos> {
        let page = self.pages.get_mut(page)?;
        page.is_in_flight = true;
        page.waits_since.take()
    }

    /// Notes the end of a transfer. A page that was not stored waits again.
    pub(super) fn note_result(&mut self, page: PageIndex, is_stored: bool, now: UnixNanos) {
        if let Some(sent) = self.pages.get_mut(page) {
            sent.is_in_flight = false;
        }
        if is_stored {
            let held = self.pages.iter_mut().filter(|held| held.after == Some(page));
            held.for_each(|held| held.after = None);
        } else {
            self.mark(page, now);
        }
    }

    /// Moves half of the series of a page that is too large to a new one. `false`: it has only one series, which goes.
    pub(super) fn split(&mut self, page: PageIndex, now: UnixNanos) -> bool {
        self.queue.retain(|waiting| *waiting != page);
        let Some(large) = self.pages.get_mut(page) else {
            return false;
        };
        // The page is not stored: pages that wait for it wait for its halves.
        (large.waits_since, large.is_in_flight) = (None, false);
        let half = large.slots.len() / 2;
        if half == 0 {
            // The series keeps its slot, so that it is refused once and not in each update.
            large.slots.clear();
            return false;
        }
        let moved = large.slots.split_off(half);
        let (partition, has_streams) = (large.partition, large.has_streams);
        let new = self.add_page(partition, has_streams);
        for slot in &moved {
            if let Some(slot) = self.slots.get_mut(*slot) {
                slot.page = new;
            }
        }
        if let Some(added) = self.pages.get_mut(new) {
            added.slots = moved;
        }
        if let Some(large) = self.pages.get_mut(page) {
            large.after = Some(new);
        }
        self.mark(new, now);
        self.mark(page, now);
        true
    }

    /// Begins a new run: series that have expired stay behind, in the pages of the old run. All others go on.
    pub(super) fn begin_run(&mut self, now: UnixNanos) {
        let round = self.round;
        let mut next = Self::new(self.partitions, self.max_series);
        next.round = round;
        next.streams = StreamIndex::new(self.streams.max_bytes);
        for slot in self.slots.drain(..).filter(|slot| !slot.has_expired(round, now)) {
            match slot.content {
                SlotContent::Stream { start, .. } => {
                    next.add_stream(slot.key, slot.series, start, slot.content, now);
                }
                content => {
                    next.put(slot.key, || slot.series, content, false, now);
                }
            }
        }
        *self = next;
    }
}
