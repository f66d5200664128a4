// SPDX-License-Identifier: Apache-2.0

//! Succession: a table takes over the state of the one that it replaces in the same process.
//!
//! A series moves if the rules that could make it are equal in both tables. Their descriptions may differ: the series gets the
//! new one. Its input streams, its sources of events and its members of a group move with it. So its next points add what is
//! new in them, and nothing else. All other series begin at 0 in the new table.
//!
//! A table that shows points as they came keeps its limits. It adds series without room to overflow series, as it would
//! have added their points. Other tables take all series, and keep the limits for those that come later.
//!
//! A return to the rules of an earlier table takes over the state of the present table first. The earlier table has the
//! series that the present one lacks because of its rules. They go on as they were.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::cell::{Caps, Cell, CellRef, Cells};
use super::points::{InputStream, Phase};
use super::saved::Restored;
use super::source_registry::SourceNumber;
use super::state::SeriesState;
use super::targets::{CellTarget, Targets};
use super::{Counters, Overflow, Table};
use crate::grouping::is_overflow;
use crate::rule::{Op, Output};
use crate::saved::StreamId;
use crate::stream_tracker::{PointSample, StreamTracker};
use crate::streams::lock;
use crate::{Metric, Number, Rule, Series, UnixNanos, clock};

/// The cells of the series that a table has taken over, by the references to the old ones.
pub(super) type TakenCells = HashMap<u64, TakenCell>;

/// The cell that has the state of a series now.
#[derive(Clone, Copy, Debug)]
pub(super) struct TakenCell {
    pub(super) cell: CellRef,
    /// It is the overflow cell of the metric: the operation of a stream that showed its points in the old cell.
    overflow: Option<Op>,
}

impl Table {
    /// Whether another table can take over its state: not if a log saves it.
    pub fn can_be_succeeded(&self) -> bool {
        self.identify.is_none()
    }

    /// Takes over the state of these tables, as far as equal rules make their series here too. The newest is first: each took
    /// over a part of the state of the next one. A series moves from the first table that has it.
    ///
    /// This table must be empty and have no way to identify streams. The caller ensures that no table takes anything in
    /// meanwhile. The old tables keep their state, and name this one as their [`Self::successor`].
    pub fn succeed(self: &Arc<Self>, tables: &[&Self]) -> Restored {
        let mut restored = Restored::default();
        let mut taken = Vec::new();
        // Sources of events make the series that they feed: all series that move have to be here before.
        for (at, old) in tables.iter().enumerate() {
            old.flush();
            // What that table lacks has ended, or is in an overflow series.
            let is_elsewhere = self.is_verbatim()
                && tables
                    .iter()
                    .take(at)
                    .any(|newer| newer.rules == old.rules && newer.has_taken_over(old));
            let cells = if is_elsewhere {
                TakenCells::new()
            } else {
                self.take_cells(old, &mut restored)
            };
            taken.push((*old, cells));
        }
        for (old, cells) in &taken {
            restored.streams += self.take_streams(old, cells);
            self.take_sources(old, cells);
            *lock(&old.successor) = Some(self.clone());
        }
        // It continued those of the others.
        if let Some((newest, cells)) = taken.first() {
            let folded = lock(&newest.folded).clone();
            *lock(&self.folded) = folded.moved_to(cells, self.limits.streams);
            self.counters.continue_from(&newest.counters);
        }
        self.has_predecessor.store(true, Relaxed);
        self.changed();
        restored
    }

    /// The table that has the state now, if another one took it over: the last of these.
    pub fn successor(&self) -> Option<Arc<Self>> {
        let mut last = lock(&self.successor).clone()?;
        loop {
            let next = lock(&last.successor).clone();
            match next {
                Some(next) => last = next,
                None => return Some(last),
            }
        }
    }

    /// Takes data in again, although another table took over its state.
    pub fn resume(&self) {
        *lock(&self.successor) = None;
    }

    /// Whether it shows the points of each series as they came.
    pub(super) fn is_verbatim(&self) -> bool {
        self.rules.iter().all(|rule| rule.verbatim)
    }

    /// Whether it was the last that took over the state of `old`.
    fn has_taken_over(&self, old: &Self) -> bool {
        let successor = lock(&old.successor);
        successor
            .as_deref()
            .is_some_and(|successor| std::ptr::eq(successor, self))
    }

    /// The cells of the series that move. `restored` counts them, and those that begin at 0. Series that are here already
    /// are neither.
    fn take_cells(&self, old: &Self, restored: &mut Restored) -> TakenCells {
        let with_overflow = Caps {
            series: self.limits.series_with_overflow(),
            per_metric: usize::MAX,
            bytes: usize::MAX,
        };
        let is_verbatim = self.is_verbatim();
        let caps = if is_verbatim {
            Caps {
                series: self.limits.series,
                per_metric: self.limits.series_per_metric,
                ..with_overflow
            }
        } else {
            with_overflow
        };
        let mut cells = TakenCells::new();
        // Overflow series come on top of the others, so they come later. The last are the series without room.
        let (mut overflow, mut surplus) = (Vec::new(), Vec::new());
        // Series of one metric share it.
        let mut moved_metrics: HashMap<usize, Option<Arc<Metric>>> = HashMap::new();
        old.cells.each_at(|at, cell| {
            let metric = Arc::as_ptr(&cell.series.metric).addr();
            let moved = moved_metrics
                .entry(metric)
                .or_insert_with(|| self.moved_metric(old, &cell.series));
            let Some(metric) = moved.clone() else {
                restored.outdated += 1;
                return;
            };
            if is_verbatim && is_overflow(&cell.series) {
                overflow.push((at, metric));
                return;
            }
            match self.take_cell(cell, metric.clone(), caps) {
                Ok(taken) => cells.extend(taken.map(|taken| (at.to_bits(), taken))),
                Err(why) if is_verbatim => surplus.push((at, metric, why)),
                Err(_) => restored.outdated += 1,
            }
        });
        let mut cursor = old.cells.cursor();
        for (at, metric) in overflow {
            let Some(cell) = cursor.get(at) else { continue };
            match self.take_cell(cell, metric, with_overflow) {
                Ok(taken) => cells.extend(taken.map(|taken| (at.to_bits(), taken))),
                Err(_) => restored.outdated += 1,
            }
        }
        restored.series += cells.len();
        for (at, metric, why) in surplus {
            let Some(cell) = cursor.get(at) else { continue };
            if let Some(taken) = self.add_surplus(cell, metric, with_overflow) {
                cells.insert(at.to_bits(), taken);
                restored.overflowed += 1;
                self.counters.overflowed[why as usize].fetch_add(1, Relaxed);
            } else {
                restored.outdated += 1;
            }
        }
        cells
    }

    /// The cell of a series that moves. `None`: the series is here already.
    fn take_cell(&self, cell: &Cell, metric: Arc<Metric>, caps: Caps) -> Result<Option<TakenCell>, Overflow> {
        let series = Series {
            metric,
            ..(*cell.series).clone()
        };
        let mut is_new = false;
        let make = |_: &Series| {
            is_new = true;
            cell.state.clone()
        };
        let new = self.cells.resolve(series, caps, make, cell.seen)?;
        Ok(is_new.then_some(TakenCell {
            cell: new,
            overflow: None,
        }))
    }

    /// Adds the value of a series without room to the overflow series of its metric, as a point would. `None`: that has no
    /// room either.
    fn add_surplus(&self, cell: &Cell, metric: Arc<Metric>, caps: Caps) -> Option<TakenCell> {
        let output = Output {
            op: Op::Keep,
            series: Series {
                metric,
                ..(*cell.series).clone()
            },
        };
        let Output { op, series } = output.overflow();
        let rule = self.rules.iter().find(|rule| rule.could_make(&series))?;
        let (state, data) = (&cell.state, series.metric.data);
        let make = |_: &Series| SeriesState::new(data, rule, 0, clock::wall(cell.seen));
        let at = self.cells.resolve(series, caps, make, cell.seen).ok()?;
        let taken = TakenCell {
            cell: at,
            overflow: Some(op),
        };
        if !state.is_shown() {
            return Some(taken);
        }
        let sample = PointSample {
            start: state.start,
            time: state.time,
            value: &state.value,
            exemplars: state.exemplars(),
        };
        let change = StreamTracker::default().advance(data, &sample, 0).ok()?;
        let mut cursor = self.cells.cursor();
        let is_added = cursor.get(at)?.state.apply(op, 0, &change, &sample);
        is_added.then_some(taken)
    }

    /// The metric of a series in this table. `None`: the rules that could make the series are not equal in both tables.
    fn moved_metric(&self, old: &Self, series: &Series) -> Option<Arc<Metric>> {
        let [mine, theirs] = [self, old].map(|table| {
            let rules = table.rules.iter().filter(|rule| rule.could_make(series));
            rules.collect::<Vec<&Rule>>()
        });
        let pairs = || mine.iter().zip(&theirs);
        let is_equal = mine.len() == theirs.len() && pairs().all(|(new, old)| new.equals_except_text(old));
        if mine.is_empty() || !is_equal {
            return None;
        }
        let mut metric = series.metric.clone();
        let has_text = |rule: &Rule| rule.description.as_ref() == Some(&metric.description);
        let maker = pairs().find(|(_, old)| has_text(old));
        // A rule without a description took that of an input.
        let maker = maker
            .or_else(|| pairs().find(|(new, old)| old.description.is_none() && new.description.is_some()));
        if let Some(text) = maker.and_then(|(new, _)| new.description.clone()) {
            Arc::make_mut(&mut metric).description = text;
        }
        Some(metric)
    }

    /// Takes the streams that feed these cells. Returns the number of those that are new here.
    fn take_streams(&self, old: &Self, cells: &TakenCells) -> usize {
        let mut count = 0;
        let mut take = |id: StreamId, stream: &InputStream, seen: UnixNanos| {
            if let Some(copy) = stream.moved_to(cells, &old.cells) {
                let mut is_new = true;
                let join = |(newer, _): &mut (InputStream, UnixNanos), (older, _)| {
                    is_new = false;
                    self.join(newer, older);
                };
                let most = self.limits.streams;
                let is_kept = self.restored.insert_or_join(id, (copy, seen), most, join);
                count += usize::from(is_kept && is_new);
            }
        };
        old.streams
            .each_identified(|stream, seen, identity| take(identity.stream_id(), stream, seen));
        // Those that have not reported since an earlier succession.
        old.restored.each(|id, (stream, seen)| take(id, stream, *seen));
        count
    }

    /// Lets a stream of a newer table also feed what only the older one knew. The position stays: counts that came in
    /// between are not part of these series. Amounts that may fall are those of the newer position.
    fn join(&self, newer: &mut InputStream, mut older: InputStream) {
        if older.phase == Phase::Left {
            return;
        }
        let mut cursor = self.cells.cursor();
        if newer.phase == Phase::Left {
            self.leave(&mut older, &mut cursor);
            return;
        }
        let falls = older.targets.iter().any(|target| target.op == Op::UpDown);
        let then = falls.then(|| older.tracker.withdraw()).flatten();
        let now = falls.then(|| newer.tracker.clone().withdraw()).flatten();
        let increase = now.unwrap_or(Number::ZERO).minus(then.unwrap_or(Number::ZERO));
        for target in older.targets.iter() {
            let sum = cursor.get(target.cell).filter(|_| target.op == Op::UpDown);
            if let Some(cell) = sum {
                cell.state.add(increase, cell.state.time);
            }
            newer.targets.push(*target);
        }
    }
}

impl InputStream {
    /// A copy that feeds the new cells. `None`: it has no state there.
    fn moved_to(&self, cells: &TakenCells, old: &Cells) -> Option<Self> {
        let mut targets = Targets::default();
        let mut tracker = self.tracker.clone();
        for target in self.targets.iter() {
            let Some(taken) = cells.get(&target.cell.to_bits()) else {
                continue;
            };
            let overflow = taken.overflow.filter(|_| target.op == Op::Keep);
            if overflow.is_some()
                && let Some(shown) = old.cursor().get(target.cell)
            {
                // The overflow cell has this value: only what is new adds to it.
                tracker.note_added(&shown.state.value);
            }
            targets.push(CellTarget {
                cell: taken.cell,
                op: overflow.unwrap_or(target.op),
                ..*target
            });
        }
        // Its counts may be in any of the cells.
        let remembers = self.phase == Phase::Left && self.tracker.holds_total();
        (remembers || !targets.is_empty()).then(|| Self {
            data: self.data,
            tracker,
            targets,
            about: None,
            // It has no source until it reports again.
            source: SourceNumber::MAX,
            phase: self.phase,
        })
    }
}

impl Counters {
    /// Adds the counts of a replaced table, so that none falls.
    fn continue_from(&self, old: &Self) {
        let lists = [
            (&self.overflowed[..], &old.overflowed[..]),
            (&self.rejected[..], &old.rejected[..]),
            (&self.colliding[..], &old.colliding[..]),
        ];
        let counts = lists
            .into_iter()
            .flat_map(|(mine, theirs)| mine.iter().zip(theirs));
        let single = [
            (&self.refused_quantiles, &old.refused_quantiles),
            (&self.expired, &old.expired),
        ];
        for (mine, theirs) in counts.chain(single) {
            mine.fetch_add(theirs.load(Relaxed), Relaxed);
        }
        self.adds_streams
            .fetch_or(old.adds_streams.load(Relaxed), Relaxed);
    }
}
