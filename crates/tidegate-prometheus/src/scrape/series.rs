// SPDX-License-Identifier: Apache-2.0

//! The series of a target: the values from the lines of this page, and the points that they become.

mod slot;

use std::collections::HashMap;

use tidegate_engine::{Data, Exemplar, Point, Series, UnixNanos, Value};

use self::slot::{SeriesSlot, SeriesValue};
use super::resource::Resources;
use super::settings::Counts;
use crate::model;

/// The role that a line plays in its series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineRole {
    Number,
    Bucket(u32),
    Quantile(u32),
    Sum,
    Count,
    Created,
    Native,
}

/// The times of a sample.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) time: UnixNanos,
    pub(super) page: u32,
    /// The start of counting, in milliseconds.
    pub(super) created: Option<i64>,
    /// Whether the series ends when it is not on the page any more.
    pub(super) is_tracked: bool,
}

/// The form of a series: lines with one number each, or a native histogram. A name may have both.
#[derive(Clone, Copy, Debug)]
pub(super) enum SeriesShape {
    Lines(Data),
    Native(Data),
}

impl SeriesShape {
    pub(super) fn data(self) -> Data {
        match self {
            Self::Lines(data) | Self::Native(data) => data,
        }
    }

    /// A byte that identifies the shape.
    pub(super) fn byte(self) -> u8 {
        match self {
            Self::Lines(Data::Gauge) => 0,
            Self::Lines(Data::Sum { .. }) => 1,
            Self::Lines(Data::Summary) => 2,
            Self::Lines(_) => 3,
            Self::Native(Data::Histogram { .. }) => 4,
            Self::Native(_) => 5,
        }
    }
}

/// The series of a target.
#[derive(Debug, Default)]
pub(super) struct Slots {
    slots: Vec<Option<SeriesSlot>>,
    free: Vec<u32>,
    keys: HashMap<Box<[u8]>, u32, foldhash::fast::RandomState>,
    /// The series of this page, in its order.
    written: Vec<u32>,
    /// The series of the last valid page.
    last: Vec<u32>,
    /// Values that were followed by others of a later time on the same page.
    earlier: Vec<(u32, Point)>,
}

impl Slots {
    /// The number of series.
    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// The approximate memory in bytes; `text` is the size of names and labels on the page.
    pub(super) fn bytes(&self, text: usize) -> usize {
        /// The series and its lists.
        const SERIES: usize = 256;
        self.keys.len() * (size_of::<Option<SeriesSlot>>() + SERIES) + 2 * text
    }

    /// A page begins.
    pub(super) fn begin(&mut self) {
        self.written.clear();
        self.earlier.clear();
    }

    /// The place of a series, made when it is new.
    pub(super) fn of(
        &mut self,
        key: &[u8],
        resource: u32,
        shape: SeriesShape,
        make: impl FnOnce() -> Series,
    ) -> u32 {
        if let Some(at) = self.keys.get(key) {
            return *at;
        }
        let slot = SeriesSlot::new(make(), resource, shape);
        let at = match self.free.pop() {
            Some(at) => {
                self.slots[at as usize] = Some(slot);
                at
            }
            None => {
                self.slots.push(Some(slot));
                // A page is far shorter than 4 GiB.
                (self.slots.len() - 1) as u32
            }
        };
        self.keys.insert(key.into(), at);
        at
    }

    /// The role of the bucket with this bound, or of the quantile; nothing for one that can't be.
    pub(super) fn role_of(&mut self, at: u32, number: f64) -> Option<LineRole> {
        let slot = self.slots.get_mut(at as usize)?.as_mut()?;
        match &mut slot.state {
            SeriesValue::Classic(classic) => Some(LineRole::Bucket(classic.index_of(number)? as u32)),
            SeriesValue::Summary(quantiles) => Some(LineRole::Quantile(quantiles.index_of(number)? as u32)),
            SeriesValue::Number(_) | SeriesValue::Native(_) => None,
        }
    }

    /// Records a sample; false if it is dropped.
    #[inline]
    pub(super) fn write(
        &mut self,
        at: u32,
        role: LineRole,
        value: f64,
        stamp: Stamp,
        counts: &mut Counts,
    ) -> bool {
        if role == LineRole::Created {
            self.created(at, value, stamp.page);
            return true;
        }
        let Some((slot, is_first)) = self.ready(at, stamp, counts) else {
            return false;
        };
        let is_noted = match (&mut slot.state, role) {
            (SeriesValue::Number(number), LineRole::Number) => {
                let is_new = is_first || number.to_bits() == value.to_bits();
                if is_first {
                    *number = value;
                }
                is_new
            }
            (SeriesValue::Classic(classic), LineRole::Bucket(place)) => classic.bucket(place as usize, value),
            (SeriesValue::Classic(classic), LineRole::Sum) => classic.sum(value),
            (SeriesValue::Classic(classic), LineRole::Count) => classic.count(value),
            (SeriesValue::Summary(summary), LineRole::Quantile(place)) => {
                summary.quantile(place as usize, value)
            }
            (SeriesValue::Summary(summary), LineRole::Sum) => summary.sum(value),
            (SeriesValue::Summary(summary), LineRole::Count) => summary.count(value),
            _ => false,
        };
        counts.duplicates += usize::from(!is_noted);
        is_noted
    }

    /// Records a native histogram; false if it is dropped.
    pub(super) fn write_native(&mut self, at: u32, value: Value, stamp: Stamp, counts: &mut Counts) -> bool {
        let Some((slot, is_first)) = self.ready(at, stamp, counts) else {
            return false;
        };
        if is_first {
            slot.state = SeriesValue::Native(Some(value));
        } else {
            counts.duplicates += 1;
        }
        is_first
    }

    /// Sets the start of counting, in seconds.
    fn created(&mut self, at: u32, seconds: f64, page: u32) {
        self.touch(at, page);
        let start = model::nanos((seconds * 1000.0) as i64);
        if let (Some(Some(slot)), Some(start)) = (self.slots.get_mut(at as usize), start) {
            slot.start = start;
        }
    }

    /// A series that this page has not written to yet holds nothing.
    #[inline]
    fn touch(&mut self, at: u32, page: u32) -> Option<&mut SeriesSlot> {
        let slot = self.slots.get_mut(at as usize)?.as_mut()?;
        if slot.page != page {
            slot.page = page;
            (slot.has_sample, slot.is_pending, slot.start) = (false, false, 0);
            slot.exemplars.clear();
            slot.state.clear();
            self.written.push(at);
        }
        Some(slot)
    }

    /// The series for a sample of this time, and whether it is the first one. `None`: the sample is too late.
    #[inline]
    fn ready(&mut self, at: u32, stamp: Stamp, counts: &mut Counts) -> Option<(&mut SeriesSlot, bool)> {
        self.touch(at, stamp.page)?;
        let slot = self.slots.get_mut(at as usize)?.as_mut()?;
        slot.has_sample = true;
        if slot.is_pending && slot.time == stamp.time {
            return Some((slot, false));
        }
        let before = if slot.is_pending { slot.time } else { slot.last };
        if stamp.time <= before {
            // A page may repeat a time, which is not a new sample.
            counts.out_of_order += usize::from(stamp.time < before);
            return None;
        }
        if slot.is_pending {
            match slot.take() {
                Some(point) => self.earlier.push((at, point)),
                None => counts.unusable += 1,
            }
        }
        slot.time = stamp.time;
        slot.is_pending = true;
        slot.is_tracked = stamp.is_tracked;
        if let Some(created) = stamp.created {
            slot.start = model::nanos(created).unwrap_or(0);
        }
        Some((slot, true))
    }

    pub(super) fn exemplar(&mut self, at: u32, exemplar: Exemplar) {
        if let Some(Some(slot)) = self.slots.get_mut(at as usize) {
            slot.exemplars.push(exemplar);
        }
    }

    /// Ends what the last sound page had and this one has not.
    pub(super) fn end_missing(&mut self, page: u32, time: UnixNanos, points: &mut Vec<Point>) {
        for at in self.last.drain(..) {
            let slot = self.slots.get_mut(at as usize).and_then(Option::as_mut);
            if let Some(slot) = slot.filter(|slot| slot.page != page) {
                slot.end(time, points);
            }
        }
    }

    /// Ends all that the last sound page had.
    pub(super) fn end_all(&mut self, time: UnixNanos, points: &mut Vec<Point>) {
        for at in self.last.drain(..) {
            if let Some(Some(slot)) = self.slots.get_mut(at as usize) {
                slot.end(time, points);
            }
        }
    }

    /// Appends the points of this page. A series of which there are only parts that make no value ends.
    pub(super) fn emit(
        &mut self,
        resources: &Resources,
        time: UnixNanos,
        points: &mut Vec<Point>,
        counts: &mut Counts,
    ) {
        points.reserve(self.written.len() + self.earlier.len());
        for (at, mut point) in self.earlier.drain(..) {
            if let Some(Some(slot)) = self.slots.get_mut(at as usize) {
                slot.update_resource(resources, time, points);
                point.series = slot.series.clone();
                points.push(point);
            }
        }
        for at in &self.written {
            let slot = self.slots.get_mut(*at as usize).and_then(Option::as_mut);
            let Some(slot) = slot else { continue };
            slot.update_resource(resources, time, points);
            let point = if std::mem::take(&mut slot.is_pending) {
                slot.take()
            } else if slot.has_sample {
                // A series whose time was repeated is still present.
                continue;
            } else {
                None
            };
            match point {
                Some(point) => {
                    slot.is_alive = point.value != Value::NoRecordedValue;
                    slot.last = point.time;
                    points.push(point);
                }
                None => {
                    counts.unusable += usize::from(slot.has_sample);
                    slot.end(time, points);
                }
            }
        }
        std::mem::swap(&mut self.last, &mut self.written);
    }

    /// The places of the resources that series have, some more than once.
    pub(super) fn resources(&self) -> impl Iterator<Item = u32> + '_ {
        self.slots.iter().flatten().map(|slot| slot.resource)
    }

    /// Whether most parts of a series are of the past.
    pub(super) fn is_crowded(&self, at: u32) -> bool {
        let slot = self.slots.get(at as usize).and_then(Option::as_ref);
        slot.is_some_and(|slot| slot.state.is_crowded())
    }

    /// Forgets series that no line leads to, unless they have not ended yet.
    pub(super) fn sweep(&mut self, used: impl Iterator<Item = u32>) {
        let mut stays = vec![false; self.slots.len()];
        for at in used.chain(self.last.iter().copied()) {
            if let Some(stays) = stays.get_mut(at as usize) {
                *stays = true;
            }
        }
        let (slots, free) = (&mut self.slots, &mut self.free);
        self.keys.retain(|_, at| {
            let place = *at as usize;
            let stays = stays.get(place).copied().unwrap_or(false);
            if !stays {
                slots[place] = None;
                free.push(*at);
            }
            stays
        });
        for slot in slots.iter_mut().flatten().filter(|slot| slot.state.is_crowded()) {
            slot.state.reset();
        }
    }
}
