// SPDX-License-Identifier: Apache-2.0

//! Input streams of points: their positions, and the cells that they change.

mod expiry;

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use smallvec::SmallVec;

use super::Table;
use super::cell::{self, CellRef};
use super::source_registry::SourceNumber;
use super::targets::{CellTarget, Targets};
use crate::grouping::is_overflow;
use crate::key::Key;
use crate::rule::{Op, Output};
use crate::saved::StreamId;
use crate::stream_tracker::{Change, Followed, LastValue, PointSample, Rejection, StreamTracker};
use crate::streams::lock;
use crate::{Data, Series, StreamTotal, TimestampAnomaly, UnixNanos, Value};

/// The result of a point.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is part of the state.
    Absorbed,
    /// No rule takes it.
    Unmatched,
    /// It can't be taken in.
    Rejected(Rejection),
}

/// An input stream of points.
#[derive(Debug)]
pub(super) struct InputStream {
    pub(super) data: Data,
    pub(super) tracker: StreamTracker,
    /// The cells that it feeds. If it has left: the overflow cells that have its counts, see [`Table::leave`].
    pub(super) targets: Targets,
    /// Fields that only some streams have.
    pub(super) about: Option<Box<About>>,
    pub(super) source: SourceNumber,
    pub(super) phase: Phase,
}

/// A million of them are to take 72 MB.
const _: () = assert!(size_of::<InputStream>() == 72);

/// Fields that only some streams have.
#[derive(Debug)]
pub(super) struct About {
    /// Its identity in other processes, if the state is saved.
    pub(super) id: Option<StreamId>,
    /// The bounds that its targets were chosen by, if the rule keeps unequal bounds apart.
    pub(super) bounds: Option<Arc<[f64]>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// Feeds its targets (or has none because no rule takes it).
    Live,
    /// A rule takes it, but the table has no room.
    NoRoom,
    /// Its lease is overdue or it has ended; only its tracker stays, in case it comes back.
    Left,
}

impl InputStream {
    /// The cells that its points change: none after it has left.
    pub(super) fn fed(&self) -> &[CellTarget] {
        match self.phase {
            Phase::Left => &[],
            Phase::Live | Phase::NoRoom => &self.targets,
        }
    }

    /// Whether it was connected by other bounds.
    fn is_apart_from(&self, bounds: &Arc<[f64]>) -> bool {
        let connected = self.about.as_ref().and_then(|about| about.bounds.as_ref());
        connected.is_some_and(|connected| connected != bounds)
    }
}

/// The result of a sample for a known stream.
pub(super) enum SampleResult {
    Done(Outcome),
    /// It has to be connected to its targets again.
    Left,
}

impl Table {
    /// Whether some rule takes points of this series.
    pub fn takes(&self, series: &Series) -> bool {
        self.rules
            .iter()
            .any(|rule| rule.of_points(series, None).is_some())
    }

    /// Whether some rule takes points of the series with this `key`, as in
    /// [`Session::observe_as`](super::Session::observe_as); it changes no state. A series that can't be decoded counts
    /// as taken: `observe_as` reports its error.
    pub fn takes_as(
        &self,
        key: Key,
        now: UnixNanos,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> bool {
        let is_taken = |stream: &mut InputStream| stream.phase != Phase::Live || !stream.targets.is_empty();
        if let Some(known) = self.streams.known(key, now, is_taken) {
            return known;
        }
        let Some(series) = identify() else { return true };
        let is_taken = self.takes(&series);
        if !is_taken {
            // Remembered, so that it need not be decoded the next time.
            let make = || self.new_stream(&series, 0, &Value::NoRecordedValue, now);
            self.streams.try_register(key, Key::of(&series), now, make);
        }
        is_taken
    }

    /// `None`: the room that is left is for other sources, or memory is short.
    pub(super) fn new_stream(
        &self,
        series: &Arc<Series>,
        start: UnixNanos,
        value: &Value,
        now: UnixNanos,
    ) -> Option<InputStream> {
        let has_room = !self.bounds.is_tight() && !self.has_no_room_for(&series.resource);
        has_room.then(|| self.stream(series, start, value, now))
    }

    fn stream(&self, series: &Arc<Series>, start: UnixNanos, value: &Value, now: UnixNanos) -> InputStream {
        let (source, streams) = lock(&self.registry).add_stream(&series.resource, start);
        let crowded = self.is_crowded(streams);
        let key = Key::of(series);
        let id = self.identify.map(|identify| identify(series));
        let id_of_old = id.or_else(|| self.has_predecessor.load(Relaxed).then(|| key.stream_id()));
        let old = id_of_old.and_then(|id| self.restored.take(id));
        let folded = lock(&self.folded).take(key);
        // Its earlier counts are in its series, or gone with it: another tracker counts from now on.
        let start = if old.is_some() || folded.is_some() {
            0
        } else {
            start
        };
        let bounds = self.bounds_that_matter(value);
        let before: &[CellTarget] = match (&old, &folded) {
            (Some((was, _)), _) => &was.targets[..],
            (None, Some(folded)) => folded.overflow.as_slice(),
            (None, None) => &[],
        };
        let (targets, phase) = self.targets(series, bounds, crowded, start, now, before);
        let is_added = targets.iter().any(|target| target.op != Op::Keep);
        if is_added && StreamTotal::is_known_by(series.metric.data, UnixNanos::MAX) {
            self.counters.adds_streams.store(true, Relaxed);
        }
        let about = (bounds.is_some() || id.is_some()).then(|| {
            Box::new(About {
                id,
                bounds: bounds.cloned(),
            })
        });
        let mut stream = InputStream {
            data: series.metric.data,
            tracker: folded.map_or_else(StreamTracker::default, |folded| {
                StreamTracker::folded(folded.start, folded.time)
            }),
            targets,
            about,
            source,
            phase,
        };
        if let Some((old, _)) = old {
            self.take_up(&mut stream, old);
        }
        stream
    }

    /// The targets of a stream. `before`: those that it had in a previous process, in a replaced table, or before it left.
    pub(super) fn targets(
        &self,
        series: &Arc<Series>,
        bounds: Option<&Arc<[f64]>>,
        crowded: bool,
        start: UnixNanos,
        now: UnixNanos,
        before: &[CellTarget],
    ) -> (Targets, Phase) {
        let mut targets = Targets::default();
        let mut phase = Phase::Live;
        for (rule, tracker) in self.rules.iter().zip(&self.match_trackers) {
            let Some(output) = rule.of_points(series, bounds.map(|bounds| &**bounds)) else {
                continue;
            };
            tracker.note_match(&series.resource, &[&series.attributes]);
            let made = if self.is_counted_in_overflow(&output, before) {
                self.overflow_cell(rule, output, now)
            } else {
                self.cell(rule, output, crowded, start, now)
            };
            match made {
                Some((cell, op)) => targets.push(self.target(cell, op)),
                None => phase = Phase::NoRoom,
            }
        }
        if targets.is_empty() {
            (targets, phase)
        } else {
            (targets, Phase::Live)
        }
    }

    /// Whether an overflow series has the counts of a stream whose points would be shown as they come. A series of its own
    /// would count them again. A rule that shows such points adds them up in overflow series only.
    fn is_counted_in_overflow(&self, output: &Output, before: &[CellTarget]) -> bool {
        if output.op != Op::Keep || before.is_empty() {
            return false;
        }
        let mut cursor = self.cells.cursor();
        before
            .iter()
            .any(|target| matches!(target.op, Op::Add | Op::Merge) && cursor.get(target.cell).is_some())
    }

    /// The bounds of a histogram, if some rule keeps unequal ones apart.
    pub(super) fn bounds_that_matter<'a>(&self, value: &'a Value) -> Option<&'a Arc<[f64]>> {
        match value {
            Value::Histogram(histogram) if self.rules.iter().any(|rule| rule.apart) => {
                Some(&histogram.bounds)
            }
            _ => None,
        }
    }

    pub(super) fn target(&self, cell: CellRef, op: Op) -> CellTarget {
        let mut cursor = self.cells.cursor();
        let group = cursor.get(cell).filter(|_| op == Op::Member);
        let member = group.map_or(0, |group| group.state.join());
        if op == Op::Observe {
            cursor.get(cell).map(|cell| cell.state.bounds());
        }
        CellTarget { cell, op, member }
    }

    /// Shows a sample to a stream. `cells` may hold a lock.
    pub(super) fn step(
        &self,
        stream: &mut InputStream,
        sample: &PointSample<'_>,
        now: UnixNanos,
        cells: &mut cell::CellCursor<'_>,
    ) -> SampleResult {
        match stream.phase {
            Phase::Left => return SampleResult::Left,
            Phase::NoRoom => return SampleResult::Done(Outcome::Rejected(Rejection::Limit)),
            Phase::Live if stream.targets.is_empty() => return SampleResult::Done(Outcome::Unmatched),
            Phase::Live => {}
        }
        if let Value::Histogram(histogram) = sample.value
            && stream.is_apart_from(&histogram.bounds)
        {
            self.leave(stream, cells);
            return SampleResult::Left;
        }
        if let Value::Summary(summary) = sample.value
            && !self.is_verbatim()
        {
            let quantiles = summary.quantiles.len() as u64;
            self.counters.refused_quantiles.fetch_add(quantiles, Relaxed);
        }
        let mut is_again = false;
        // One place that takes, so that it is compiled into this one.
        let taken = loop {
            let taken = if stream.targets.iter().all(|target| target.op == Op::Keep) {
                self.keep(stream, sample, now, cells)
            } else {
                self.add(stream, sample, now, cells)
            };
            let is_late = matches!(taken, Err(Rejection::Late | Rejection::Duplicate));
            if !is_late
                || is_again
                || self.note_anomaly(stream, sample, now, cells) != Some(TimestampAnomaly::Reanchored)
            {
                break taken;
            }
            is_again = true;
        };
        if let Err(rejection) = taken {
            for target in stream.targets.iter() {
                if let Some(cell) = cells.get(target.cell) {
                    cell.seen = cell.seen.max(now);
                }
            }
            // The state has it already: nothing is lost.
            let repeated = rejection == Rejection::Duplicate;
            self.reject(rejection, usize::from(repeated));
            let outcome = if repeated {
                Outcome::Absorbed
            } else {
                Outcome::Rejected(rejection)
            };
            return SampleResult::Done(outcome);
        }
        SampleResult::Done(Outcome::Absorbed)
    }

    /// Notes a point that is refused because of its time. After a sender's clock was set back, its shown values are no
    /// newer than its present ones.
    #[cold]
    pub(super) fn note_anomaly(
        &self,
        stream: &mut InputStream,
        sample: &PointSample<'_>,
        now: UnixNanos,
        cells: &mut cell::CellCursor<'_>,
    ) -> Option<TimestampAnomaly> {
        let first = stream.targets.iter().next()?;
        let (series, shown) = {
            let cell = cells.get(first.cell)?;
            let weight = (first.op == Op::Keep).then(|| LastValue::of(&cell.state.value));
            (
                cell.series.clone(),
                weight.flatten().and_then(|last| last.weight()),
            )
        };
        let anomaly = stream.tracker.note_anomaly(stream.data, sample, now, shown)?;
        self.anomalies.note(anomaly, Some(&series));
        for target in stream
            .targets
            .iter()
            .filter(|_| anomaly == TimestampAnomaly::Reanchored)
        {
            if let Some(cell) = cells.get(target.cell) {
                cell.state.time = cell.state.time.min(sample.time);
            }
        }
        Some(anomaly)
    }

    fn keep(
        &self,
        stream: &mut InputStream,
        sample: &PointSample<'_>,
        now: UnixNanos,
        cells: &mut cell::CellCursor<'_>,
    ) -> Result<(), Rejection> {
        let (tracker, targets) = (&mut stream.tracker, &stream.targets);
        let mut shown = || {
            let target = targets.iter().next()?;
            cells
                .get(target.cell)
                .and_then(|cell| LastValue::of(&cell.state.value))
        };
        let followed = tracker.follow(stream.data, sample, self.lateness_ns, &mut shown)?;
        if matches!(sample.value, Value::NoRecordedValue) {
            self.end(stream, cells);
            return Ok(());
        }
        let mut fits = true;
        for target in stream.targets.iter() {
            if let Some(cell) = cells.get(target.cell) {
                match &followed {
                    Followed::AsItIs => {
                        let is_same_epoch = cell.state.is_shown() && cell.state.start == sample.start;
                        if is_same_epoch {
                            let shown = &cell.state.value;
                            stream.tracker.note_shown(stream.data, shown, sample.value);
                        }
                        cell.state.keep(sample);
                    }
                    Followed::Adds(change) => fits &= cell.state.keep_adding(change, sample),
                }
                cell.seen = cell.seen.max(now);
            }
        }
        self.note_collision(stream, cells);
        if fits { Ok(()) } else { Err(Rejection::Unsupported) }
    }

    fn add(
        &self,
        stream: &mut InputStream,
        sample: &PointSample<'_>,
        now: UnixNanos,
        cells: &mut cell::CellCursor<'_>,
    ) -> Result<(), Rejection> {
        let change = match stream.tracker.next_total(stream.data, sample) {
            Some(increase) => Change::Number(increase),
            None => {
                let change = stream.tracker.advance(stream.data, sample, self.lateness_ns)?;
                self.note_collision(stream, cells);
                change
            }
        };
        if matches!(change, Change::End) {
            self.end(stream, cells);
            return Ok(());
        }
        let mut fits = true;
        for target in stream.targets.iter() {
            if let Some(cell) = cells.get(target.cell) {
                fits &= cell.state.apply(target.op, target.member, &change, sample);
                cell.seen = cell.seen.max(now);
            }
        }
        if fits { Ok(()) } else { Err(Rejection::Unsupported) }
    }

    /// Counts a stream that several processes turn out to report, and remembers one of its output series.
    fn note_collision(&self, stream: &mut InputStream, cells: &mut cell::CellCursor<'_>) {
        let Some(collision) = stream.tracker.take_collision() else {
            return;
        };
        self.counters.colliding[collision as usize].fetch_add(1, Relaxed);
        let target = stream.targets.iter().next();
        let cell = target.and_then(|target| cells.get(target.cell));
        if let Some(cell) = cell {
            *lock(&self.collided) = Some((collision, cell.series.clone()));
        }
    }

    /// The stream has said that it is over: a series that shows it alone goes with it. An overflow series stays: it has the
    /// counts of other streams.
    fn end(&self, stream: &mut InputStream, cells: &mut cell::CellCursor<'_>) {
        let own: SmallVec<[CellRef; 1]> = stream
            .targets
            .iter()
            .filter(|target| target.op != Op::Member && self.is_verbatim())
            .map(|target| target.cell)
            .filter(|cell| cells.get(*cell).is_none_or(|cell| !is_overflow(&cell.series)))
            .collect();
        self.leave(stream, cells);
        // The register comes before chunks.
        cells.release();
        for cell in own {
            self.cells.remove(cell);
        }
    }

    /// Takes back a departed stream's amounts in sums that may fall, and its value in groups of gauges. Its counts
    /// stay. If they are in an overflow series of a table that shows points as they come, the stream remembers that series.
    /// After a return, a series of its own would count them again.
    pub(super) fn leave(&self, stream: &mut InputStream, cells: &mut cell::CellCursor<'_>) {
        stream.phase = Phase::Left;
        let targets = std::mem::take(&mut stream.targets);
        let falls = targets.iter().any(|target| target.op == Op::UpDown);
        if targets.iter().any(|target| target.op == Op::Keep) {
            // The sum over several processes goes with the series.
            stream.tracker.forget_epochs();
        }
        let given = falls.then(|| stream.tracker.withdraw()).flatten();
        for target in targets.iter() {
            let Some(cell) = cells.get(target.cell) else {
                continue;
            };
            match (target.op, given) {
                (Op::UpDown, Some(given)) => {
                    cell.state.add(crate::Number::ZERO.minus(given), cell.state.time);
                }
                (Op::Member, _) => cell.state.leave(target.member),
                (Op::Add | Op::Merge, _) if self.is_verbatim() && is_overflow(&cell.series) => {
                    stream.targets.push(*target);
                }
                _ => {}
            }
        }
    }
}
