// SPDX-License-Identifier: Apache-2.0

//! The window of one group, from many runs.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::ops::RangeInclusive;
use std::sync::Arc;

use super::super::sketch::Sketch;
use super::super::sub_window::SubWindow;
use super::super::window::Moments;
use super::{ProducerRun, SubWindowOutcome, SubWindowRefused};
use crate::budget::{Budget, Reservation};
use crate::{ProducerId, UnixNanos};

/// The bytes of a place in a map beside its key and value.
const PLACE_BYTES: usize = 64;

/// The sub-windows of a group.
#[derive(Debug)]
pub(super) struct MergedWindow {
    runs: BTreeMap<ProducerRun, RunWindow>,
    /// The distribution of all runs, by start of the sub-window. `None`: one of them has changed. Their bytes count with
    /// the parts, before a reader computes them.
    distributions: BTreeMap<UnixNanos, Option<Sketch>>,
    /// The last value there was.
    pub(super) held: Option<f64>,
    _reservation: Reservation,
}

/// The sub-windows of a run.
#[derive(Debug)]
struct RunWindow {
    parts: BTreeMap<UnixNanos, ReceivedPart>,
    /// The time until which it has reported.
    end: UnixNanos,
    bytes: usize,
    reservation: Reservation,
}

#[derive(Debug)]
struct ReceivedPart {
    sequence: u64,
    end: UnixNanos,
    moments: Moments,
    sketch: Option<Sketch>,
}

impl ReceivedPart {
    /// Its bytes, and those that it adds to the distribution of all runs.
    fn bytes(&self) -> usize {
        let merged = PLACE_BYTES + size_of::<Option<Sketch>>();
        let sketch = self.sketch.as_ref();
        size_of::<Self>() + PLACE_BYTES + sketch.map_or(0, |sketch| merged + 2 * sketch.bytes())
    }

    /// The order of two states of a sub-window: the later one wins, and of two that differ always the same one.
    fn order(&self, other: &Self) -> Ordering {
        self.sequence
            .cmp(&other.sequence)
            .then_with(|| self.bits().cmp(other.bits()))
    }

    fn bits(&self) -> impl Iterator<Item = u64> {
        let Moments {
            count,
            sum,
            min,
            max,
            last,
        } = self.moments;
        let numbers = [count, sum, min, max, last].map(f64::to_bits);
        let sketch = self.sketch.iter().flat_map(Sketch::bits);
        [self.end].into_iter().chain(numbers).chain(sketch)
    }
}

impl MergedWindow {
    /// The bytes of an empty one.
    pub(super) const BYTES: usize = size_of::<Self>() + PLACE_BYTES;

    pub(super) fn new(reservation: Reservation) -> Self {
        Self {
            runs: BTreeMap::new(),
            distributions: BTreeMap::new(),
            held: None,
            _reservation: reservation,
        }
    }

    /// Whether no run has anything in it.
    pub(super) fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Takes a sub-window.
    pub(super) fn take(
        &mut self,
        run: ProducerRun,
        sequence: u64,
        sub_window: &SubWindow,
        is_sketched: bool,
        budget: &Arc<Budget>,
    ) -> Result<SubWindowOutcome, SubWindowRefused> {
        let start = sub_window.start;
        let known = self.runs.get(&run).and_then(|known| known.parts.get(&start));
        if known.is_some_and(|known| known.sequence > sequence) {
            return Ok(SubWindowOutcome::Known);
        }
        let part = ReceivedPart {
            sequence,
            end: sub_window.end,
            moments: sub_window.moments(),
            sketch: if is_sketched { sub_window.sketch() } else { None },
        };
        if known.is_some_and(|known| part.order(known).is_le()) {
            return Ok(SubWindowOutcome::Known);
        }
        let has_changed = known.and_then(|known| known.sketch.as_ref()) != part.sketch.as_ref();
        match self.runs.entry(run) {
            Entry::Occupied(mut known) => known.get_mut().take(start, part)?,
            Entry::Vacant(new) => {
                let mut window = RunWindow::new(budget)?;
                window.take(start, part)?;
                new.insert(window);
            }
        }
        if has_changed {
            self.distributions.insert(start, None);
        }
        Ok(SubWindowOutcome::New)
    }

    /// The statistics of the sub-windows that begin in `range`. The order of addition is that of the runs, so every
    /// reader gets the same bits.
    pub(super) fn read(&self, range: &RangeInclusive<UnixNanos>) -> Moments {
        let mut all = Moments::NONE;
        self.parts(range).for_each(|part| all.add(&part.moments));
        all
    }

    /// The newest value that is known, and the end of the newest sub-window with values.
    pub(super) fn last(&self, range: &RangeInclusive<UnixNanos>) -> (Option<f64>, Option<UnixNanos>) {
        let filled = self.parts(range).filter(|part| part.moments.count > 0.0);
        let newest = filled.max_by_key(|part| part.end);
        let last = newest.map(|part| part.moments.last).filter(|last| !last.is_nan());
        (last, newest.map(|part| part.end))
    }

    fn parts(&self, range: &RangeInclusive<UnixNanos>) -> impl Iterator<Item = &ReceivedPart> {
        let parts = self.runs.values().flat_map(|run| run.parts.range(range.clone()));
        parts.map(|(_, part)| part)
    }

    /// The distribution of the same values.
    pub(super) fn distribution(&mut self, range: &RangeInclusive<UnixNanos>) -> Sketch {
        let mut all = Sketch::default();
        for (start, merged) in self.distributions.range_mut(range.clone()) {
            let merged = merged.get_or_insert_with(|| {
                let mut merged = Sketch::default();
                let parts = self.runs.values().filter_map(|run| run.parts.get(start));
                let sketches = parts.filter_map(|part| part.sketch.as_ref());
                sketches.for_each(|sketch| merged.merge(sketch));
                merged.fit();
                merged
            });
            all.merge(merged);
        }
        all
    }

    /// For each producer, the sum of its values and the time until which it has reported.
    pub(super) fn sums(&self, range: &RangeInclusive<UnixNanos>) -> Vec<(ProducerId, f64, UnixNanos)> {
        let mut producers: Vec<(ProducerId, f64, UnixNanos)> = Vec::new();
        for (run, window) in &self.runs {
            let parts = window.parts.range(range.clone());
            let sum = parts.fold(0.0, |sum, (_, part)| sum + part.moments.sum);
            match producers.last_mut() {
                Some((id, total, end)) if *id == run.producer => {
                    (*total, *end) = (*total + sum, window.end.max(*end));
                }
                _ => producers.push((run.producer, sum, window.end)),
            }
        }
        producers
    }

    /// Removes the sub-windows that do not begin in `range`, and runs without any. Returns whether a run is left; those
    /// without sub-windows stay while `is_missing`.
    pub(super) fn expire(
        &mut self,
        range: &RangeInclusive<UnixNanos>,
        is_missing: impl Fn(&ProducerRun) -> bool,
    ) -> bool {
        self.runs.retain(|run, window| {
            window.expire(range);
            !window.parts.is_empty() || is_missing(run)
        });
        self.distributions.retain(|start, _| range.contains(start));
        !self.runs.is_empty()
    }
}

impl RunWindow {
    fn new(budget: &Arc<Budget>) -> Result<Self, SubWindowRefused> {
        let bytes = size_of::<ProducerRun>() + size_of::<Self>() + PLACE_BYTES;
        let reservation = Reservation::new(budget, bytes, 0).ok_or(SubWindowRefused::Full)?;
        Ok(Self {
            parts: BTreeMap::new(),
            end: 0,
            bytes: 0,
            reservation,
        })
    }

    fn take(&mut self, start: UnixNanos, part: ReceivedPart) -> Result<(), SubWindowRefused> {
        let (more, less) = (
            part.bytes(),
            self.parts.get(&start).map_or(0, ReceivedPart::bytes),
        );
        if !self.reservation.may_grow(more.saturating_sub(less)) {
            return Err(SubWindowRefused::Full);
        }
        self.end = self.end.max(part.end);
        self.parts.insert(start, part);
        self.hold(self.bytes + more - less);
        Ok(())
    }

    /// After a clock was set back, sub-windows of the future would count again, and `end` would be of the future.
    fn expire(&mut self, range: &RangeInclusive<UnixNanos>) {
        self.parts.retain(|start, _| range.contains(start));
        let newest = self.parts.values().map(|part| part.end).max();
        self.end = newest.unwrap_or(self.end.min(*range.start()));
        let bytes = self.parts.values().map(ReceivedPart::bytes).sum();
        self.hold(bytes);
    }

    fn hold(&mut self, bytes: usize) {
        self.bytes = bytes;
        self.reservation.hold(bytes);
    }
}
