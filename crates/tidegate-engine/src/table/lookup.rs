// SPDX-License-Identifier: Apache-2.0

//! Reads of a table without a walk: the series that arrived since an earlier read, and single series by their slot.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Table;
use super::cell::{Cell, CellCursor, CellRef};
use crate::streams::lock;
use crate::{Composite, GaugePolicy, Key, Lease, Reading, Resource, Series, UnixNanos};

/// Arrivals that a table remembers. A reader that misses more of them walks the table.
const REMEMBERED: usize = if cfg!(test) { 8 } else { 16 << 10 };

/// The slot of a series in a table. It finds the series until the series leaves, and nothing afterwards: its
/// generation changes with each series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotId(CellRef);

impl SlotId {
    /// A small number that no other live series of the table has.
    pub fn number(self) -> u32 {
        self.0.number()
    }

    /// The id as a number, for readers that store many.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The id that [`SlotId::to_bits`] returned.
    pub fn from_bits(bits: u64) -> Self {
        Self(CellRef::from_bits(bits))
    }
}

/// The result of a look-up by slot.
#[derive(Clone, Copy, Debug)]
pub enum LookupResult<'a> {
    /// The series and its value.
    Shown(Reading<'a>),
    /// The series; it has no value now.
    Hidden(&'a Arc<Series>),
    /// The series has left. The slot is empty or has another series.
    Gone,
}

/// Reads single series by their slots.
///
/// It holds the lock of the chunk that it read last, so reads in the order of slots are fast. Writers of
/// that chunk wait until the reader moves on: release or drop it soon.
pub struct SeriesReader<'a>(CellCursor<'a>);

impl SeriesReader<'_> {
    /// Releases the lock until the next read, for a caller that does other work first.
    pub fn release(&mut self) {
        self.0.release();
    }

    /// Reads the series of this slot.
    pub fn at(&mut self, slot: SlotId) -> LookupResult<'_> {
        let Some(cell) = self.0.get(slot.0) else {
            return LookupResult::Gone;
        };
        cell.state.refresh();
        if cell.state.is_shown() {
            reading(cell).map_or(LookupResult::Gone, LookupResult::Shown)
        } else {
            LookupResult::Hidden(&cell.series)
        }
    }
}

/// The reading of a cell; `None`: it has no value now.
#[inline]
pub(super) fn reading(cell: &mut Cell) -> Option<Reading<'_>> {
    cell.state.refresh();
    cell.state.is_shown().then(|| Reading {
        series: &cell.series,
        start: cell.state.start,
        time: cell.state.time,
        seen: cell.seen,
        value: &cell.state.value,
        exemplars: cell.state.exemplars(),
    })
}

impl Table {
    /// Adds absorbed events to the values, then gives `each` the series that came since `seen`, some of them again.
    ///
    /// `seen` is the result of an earlier call; 0 gives all series. Returns the `seen` of the next call. `each` must not
    /// call this table.
    pub fn flush_and_list_arrivals(&self, seen: u64, each: &mut dyn FnMut(SlotId, &Arc<Series>)) -> u64 {
        self.flush();
        let (made, latest) = self.cells.arrivals(seen);
        match latest {
            Some(latest) => {
                let mut cursor = self.cells.cursor();
                for at in latest {
                    if let Some(cell) = cursor.get(at) {
                        each(SlotId(at), &cell.series);
                    }
                }
            }
            None => self.cells.each_at(|at, cell| each(SlotId(at), &cell.series)),
        }
        made
    }

    /// The number that [`Table::flush_and_list_arrivals`] returns now. While it stays the same, no series has come.
    pub fn arrived(&self) -> u64 {
        self.cells.allocated()
    }

    /// Shows every slot with a series to `each`, in the order of their numbers; `None`: it has no value now.
    /// The readings have all that the table absorbed before the last call of [`Table::flush_and_list_arrivals`]. `each`
    /// must not call this table.
    pub fn each_slot(&self, mut each: impl FnMut(SlotId, Option<Reading<'_>>)) {
        self.cells.each_at(|at, cell| each(SlotId(at), reading(cell)));
    }

    /// A reader of single series by their slots. Its readings have all that the table absorbed before the
    /// last call of [`Table::flush_and_list_arrivals`].
    pub fn series_reader(&self) -> SeriesReader<'_> {
        SeriesReader(self.cells.cursor())
    }

    /// How the gauges of a group make the value of this output series.
    pub fn gauge_policy(&self, output: &Series) -> GaugePolicy {
        let rule = self.rules.iter().find(|rule| rule.could_make(output));
        rule.map_or(GaugePolicy::Last, |rule| rule.gauge)
    }

    /// Whether it holds this series.
    pub fn has(&self, series: &Series) -> bool {
        self.cells.find(series).is_some()
    }

    /// The earliest known start of the streams of `resource`: its process counts since then. 0: not known.
    pub fn began(&self, resource: &Resource) -> UnixNanos {
        lock(&self.registry).earliest_start(resource)
    }

    /// The lease that the receiver of `resource` keeps. `None`: the resource lives by its cadence.
    pub fn lease_of(&self, resource: &Resource) -> Option<Arc<Lease>> {
        self.lease_of_key(Key::of_value(resource))
    }

    /// The same for the resource with this key.
    pub fn lease_of_key(&self, resource: Key) -> Option<Arc<Lease>> {
        lock(&self.registry).lease_of_key(resource).cloned()
    }

    /// The composites that readers of this table are shown.
    pub fn attached(&self) -> Vec<Arc<Composite>> {
        self.composites()
    }
}

/// The newest cells of a table, in the order of their creation.
///
/// Invariant: `latest` has the last of the `made` cells, and [`REMEMBERED`] of them at most.
#[derive(Debug, Default)]
pub(super) struct Arrivals {
    made: u64,
    latest: VecDeque<CellRef>,
}

impl Arrivals {
    pub(super) fn note(&mut self, cell: CellRef) {
        self.made += 1;
        if self.latest.len() == REMEMBERED {
            self.latest.pop_front();
        }
        self.latest.push_back(cell);
    }

    pub(super) fn allocated(&self) -> u64 {
        self.made
    }

    /// The number of cells so far, and the cells that came after the first `seen`; `None`: too many came.
    pub(super) fn since(&self, seen: u64) -> (u64, Option<Vec<CellRef>>) {
        let new = usize::try_from(self.made.saturating_sub(seen)).unwrap_or(usize::MAX);
        let from = self.latest.len().checked_sub(new);
        let latest = from.map(|from| self.latest.range(from..).copied().collect());
        (self.made, latest)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{Attributes, Data, Limits, Metric, Point, Rule, Value};

    fn point(name: u64, now: u64) -> Point {
        Point {
            series: Arc::new(Series {
                resource: Arc::default(),
                scope: Arc::default(),
                metric: Arc::new(Metric {
                    name: format!("m{name}").into(),
                    description: "".into(),
                    unit: "".into(),
                    data: Data::Gauge,
                    metadata: Attributes::default(),
                }),
                attributes: Attributes::default(),
            }),
            start: 0,
            time: now,
            value: Value::Int(now as i64),
            exemplars: Vec::new(),
        }
    }

    proptest! {
        /// A reader that adds arrivals and drops removed series sees the same as a walk over the table.
        #[test]
        fn arrivals_and_slots_match_a_walk(steps in prop::collection::vec((0u64..40, 0u8..8), 1..200)) {
            const SECOND: u64 = 1_000_000_000;
            let table = Table::new("test", vec![Rule::newest()], Limits::default());
            let (mut known, mut seen, mut now) = (std::collections::HashMap::new(), 0, SECOND);
            for (name, then) in steps {
                now += 20 * SECOND;
                table.observe(&point(name, now), now);
                match then {
                    0..3 => table.expire(now),
                    3..6 => {}
                    _ => {
                        let arrived = table.arrived();
                        seen = table.flush_and_list_arrivals(seen, &mut |slot, series| {
                            known.insert(slot.number(), (SlotId::from_bits(slot.to_bits()), series.metric.name.clone()));
                        });
                        prop_assert_eq!(seen, arrived);
                        let mut reader = table.series_reader();
                        let mut mine = Vec::new();
                        known.retain(|_, (slot, name)| match reader.at(*slot) {
                            LookupResult::Shown(reading) => {
                                assert_eq!(&reading.series.metric.name, name);
                                mine.push((name.clone(), reading.value.clone()));
                                true
                            }
                            LookupResult::Hidden(_) => true,
                            LookupResult::Gone => false,
                        });
                        drop(reader);
                        let mut all = Vec::new();
                        table.read(now, &mut |reading| all.push((reading.series.metric.name.clone(), reading.value.clone())));
                        mine.sort_by(|a, b| a.0.cmp(&b.0));
                        all.sort_by(|a, b| a.0.cmp(&b.0));
                        prop_assert_eq!(&mine, &all);
                        let mut by_slot = Vec::new();
                        table.each_slot(|slot, reading| {
                            assert_eq!(known[&slot.number()].0, slot);
                            by_slot.extend(reading.map(|reading| (reading.series.metric.name.clone(), reading.value.clone())));
                        });
                        by_slot.sort_by(|a, b| a.0.cmp(&b.0));
                        prop_assert_eq!(by_slot, all);
                    }
                }
            }
        }
    }
}
