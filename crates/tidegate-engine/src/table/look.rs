//! Looking at a table without walking it: what came since the last look, and single series by their place.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Table;
use super::cell::{Cell, CellRef, Cursor};
use crate::streams::lock;
use crate::{Composite, Reading, Resource, Series, UnixNanos};

/// Arrivals that are remembered; who looks more seldom than so many come walks the table.
const REMEMBERED: usize = if cfg!(test) { 8 } else { 16 << 10 };

/// Where a series of a table is, as long as it lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place(CellRef);

impl Place {
    /// A small number that no other living series of the table has.
    pub fn number(self) -> u32 {
        self.0.number()
    }

    /// The place as a number, for those who keep many.
    pub fn to_bits(self) -> u64 {
        self.0.to_bits()
    }

    /// The place that [`Place::to_bits`] gave.
    pub fn from_bits(bits: u64) -> Self {
        Self(CellRef::from_bits(bits))
    }
}

/// What is at a place.
#[derive(Clone, Copy, Debug)]
pub enum Seen<'a> {
    /// The series, with its value.
    Shown(Reading<'a>),
    /// The series, which has no value now.
    Hidden(&'a Arc<Series>),
    /// No series, or another one.
    Gone,
}

/// Reads single series, the quicker the nearer their places are. Holds a lock of the table: drop it soon.
pub struct Looker<'a>(Cursor<'a>);

impl Looker<'_> {
    /// Gives the lock back until the next look, for a caller that has something else to do first.
    pub fn release(&mut self) {
        self.0.release();
    }

    /// What is at this place now.
    pub fn at(&mut self, place: Place) -> Seen<'_> {
        let Some(cell) = self.0.get(place.0) else {
            return Seen::Gone;
        };
        cell.state.settle();
        match cell.state.is_shown() {
            true => reading(cell).map_or(Seen::Gone, Seen::Shown),
            false => Seen::Hidden(&cell.series),
        }
    }
}

/// What a cell shows now.
#[inline]
pub(super) fn reading(cell: &mut Cell) -> Option<Reading<'_>> {
    cell.state.settle();
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
    /// Shows the series that came since an earlier call that gave `seen` (0: all) to `each`, some of them again, and
    /// gives what to say the next time. `each` must not call this table.
    pub fn arrivals(&self, seen: u64, each: &mut dyn FnMut(Place, &Arc<Series>)) -> u64 {
        self.flush();
        let (made, latest) = self.cells.arrivals(seen);
        match latest {
            Some(latest) => {
                let mut cursor = self.cells.cursor();
                for at in latest {
                    if let Some(cell) = cursor.get(at) {
                        each(Place(at), &cell.series);
                    }
                }
            }
            None => self.cells.each_at(|at, cell| each(Place(at), &cell.series)),
        }
        made
    }

    /// What [`Table::arrivals`] would give now. While it stays the same, that would show nothing.
    pub fn arrived(&self) -> u64 {
        self.cells.made()
    }

    /// Shows what is at every place where a series is, in the order of their numbers; `None`: it has no value now. What
    /// was absorbed before the last call of [`Table::arrivals`] is seen. `each` must not call this table.
    pub fn each_place(&self, mut each: impl FnMut(Place, Option<Reading<'_>>)) {
        self.cells.each_at(|at, cell| each(Place(at), reading(cell)));
    }

    /// Access to single series by their place. What was absorbed before the last call of [`Table::arrivals`] is seen.
    pub fn looker(&self) -> Looker<'_> {
        Looker(self.cells.cursor())
    }

    /// Whether it holds this series.
    pub fn has(&self, series: &Series) -> bool {
        self.cells.find(series).is_some()
    }

    /// Since when the process that `resource` stands for counts: the earliest known start of its streams. 0: not known.
    pub fn began(&self, resource: &Resource) -> UnixNanos {
        lock(&self.registry).earliest_start(resource)
    }

    /// The composites that readers of this table are shown.
    pub fn attached(&self) -> Vec<Arc<Composite>> {
        self.composites()
    }
}

/// The cells that were made last, in their order.
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

    pub(super) fn made(&self) -> u64 {
        self.made
    }

    /// How many were made in all, and those that were made after the first `seen`; `None`: they are not remembered.
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
        /// Who takes up arrivals and drops what is gone sees what a walk over the table shows.
        #[test]
        fn arrivals_and_places_say_what_a_walk_says(steps in prop::collection::vec((0u64..40, 0u8..8), 1..200)) {
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
                        seen = table.arrivals(seen, &mut |place, series| {
                            known.insert(place.number(), (Place::from_bits(place.to_bits()), series.metric.name.clone()));
                        });
                        prop_assert_eq!(seen, arrived);
                        let mut looker = table.looker();
                        let mut mine = Vec::new();
                        known.retain(|_, (place, name)| match looker.at(*place) {
                            Seen::Shown(reading) => {
                                assert_eq!(&reading.series.metric.name, name);
                                mine.push((name.clone(), reading.value.clone()));
                                true
                            }
                            Seen::Hidden(_) => true,
                            Seen::Gone => false,
                        });
                        drop(looker);
                        let mut all = Vec::new();
                        table.read(now, &mut |reading| all.push((reading.series.metric.name.clone(), reading.value.clone())));
                        mine.sort_by(|a, b| a.0.cmp(&b.0));
                        all.sort_by(|a, b| a.0.cmp(&b.0));
                        prop_assert_eq!(&mine, &all);
                        let mut by_place = Vec::new();
                        table.each_place(|place, reading| {
                            assert_eq!(known[&place.number()].0, place);
                            by_place.extend(reading.map(|reading| (reading.series.metric.name.clone(), reading.value.clone())));
                        });
                        by_place.sort_by(|a, b| a.0.cmp(&b.0));
                        prop_assert_eq!(by_place, all);
                    }
                }
            }
        }
    }
}
