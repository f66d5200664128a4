// SPDX-License-Identifier: Apache-2.0

//! Succession: a table takes over the state of the one that it replaces in the same process.
//!
//! A series moves if the rules that could make it are equal in both tables. Their descriptions may differ: the series gets the
//! new one. Its input streams, its sources of events and its members of a group move with it. So its next points add what is
//! new in them, and nothing else. All other series begin at 0 in the new table.
//!
//! A return to the rules of an earlier table takes over the state of the present table first. The earlier table has the
//! series that the present one lacks because of its rules. They go on as they were.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use super::cell::{Caps, CellRef};
use super::points::{InputStream, Phase};
use super::saved::Restored;
use super::source_registry::SourceNumber;
use super::targets::{CellTarget, Targets};
use super::{Counters, Table};
use crate::rule::Op;
use crate::saved::StreamId;
use crate::streams::lock;
use crate::{Metric, Number, Rule, Series, UnixNanos};

/// The cells of the series that a table has taken over, by the references to the old ones.
pub(super) type TakenCells = HashMap<u64, CellRef>;

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
        for old in tables {
            old.flush();
            let (cells, outdated) = self.take_cells(old);
            restored.series += cells.len();
            restored.outdated += outdated;
            taken.push((*old, cells));
        }
        for (old, cells) in &taken {
            restored.streams += self.take_streams(old, cells);
            self.take_sources(old, cells);
            *lock(&old.successor) = Some(self.clone());
        }
        // It continued those of the others.
        if let Some(newest) = tables.first() {
            let folded = lock(&newest.folded).clone();
            *lock(&self.folded) = folded.bounded_by(self.limits.streams);
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

    /// The cells of the series that move, and the number of series that begin at 0. Series that are here already are neither.
    fn take_cells(&self, old: &Self) -> (TakenCells, usize) {
        let caps = Caps {
            series: self.limits.series_with_overflow(),
            per_metric: usize::MAX,
            bytes: usize::MAX,
        };
        let (mut cells, mut outdated) = (TakenCells::new(), 0);
        // Series of one metric share it.
        let mut moved_metrics: HashMap<usize, Option<Arc<Metric>>> = HashMap::new();
        old.cells.each_at(|at, cell| {
            let metric = Arc::as_ptr(&cell.series.metric).addr();
            let moved = moved_metrics
                .entry(metric)
                .or_insert_with(|| self.moved_metric(old, &cell.series));
            let series = moved.clone().map(|metric| Series {
                metric,
                ..(*cell.series).clone()
            });
            let (state, seen) = (&cell.state, cell.seen);
            let mut is_new = false;
            let make = |_: &Series| {
                is_new = true;
                state.clone()
            };
            let taken = series.and_then(|series| self.cells.resolve(series, caps, make, seen).ok());
            match taken {
                Some(new) if is_new => {
                    cells.insert(at.to_bits(), new);
                }
                Some(_) => {}
                None => outdated += 1,
            }
        });
        (cells, outdated)
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
            if let Some(copy) = stream.moved_to(cells) {
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
    fn moved_to(&self, cells: &TakenCells) -> Option<Self> {
        let mut targets = Targets::default();
        for target in self.targets.iter() {
            if let Some(cell) = cells.get(&target.cell.to_bits()).copied() {
                targets.push(CellTarget { cell, ..*target });
            }
        }
        // Its counts may be in any of the cells.
        let remembers = self.phase == Phase::Left && self.tracker.holds_total();
        (remembers || !targets.is_empty()).then(|| Self {
            data: self.data,
            tracker: self.tracker.clone(),
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
