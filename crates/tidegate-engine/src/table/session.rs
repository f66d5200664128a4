// SPDX-License-Identifier: Apache-2.0

//! Sessions: a table takes in points one after the other, and keeps its locks from point to point.
//!
//! A point is a look-up of its stream, a step of the stream, and a change of the cells that the stream feeds.
//!
//! - `step` is the fast path: the stream is known. It takes no lock where points come in the order of the
//!   last time.
//! - `connect` is the slow path: the stream is new or has left. It decodes the identity, and finds or makes
//!   the cells.
//!
//! Lock order: register of streams, shard, chunk of streams, register of cells, chunk of cells, registry of
//! sources. A session holds at most one chunk of streams and one of cells between points. So:
//! - `step` releases the cells before it locks another chunk of streams.
//! - `connect`, a rejection and every [`IN_A_ROW`]th point release all.
//! - The registry of sources is locked last and for one call.
//!
//! Ownership: the table owns all state. The session has its cursors, and whether readers need to learn of a
//! change; it reports that when it releases its locks.

use std::sync::Arc;

use super::Table;
use super::cell;
use super::points::{InputStream, Outcome, Phase, SampleResult};
use super::source_registry::SourceNumber;
use crate::key::Key;
use crate::stream_tracker::{PointSample, Rejection};
use crate::streams::{self, lock};
use crate::{FutureAction, Point, Series, UnixNanos, clock};

/// A sequence of points that a table takes in; see [`Table::session`].
///
/// It keeps the locks of one chunk of streams and one of cells from point to point while the next point
/// needs them. A caller that has a session must not call the table in another way. Points in the order of
/// the last time need no look-up.
#[derive(Debug)]
pub struct Session<'a> {
    table: &'a Table,
    now: UnixNanos,
    /// The latest time that a point may have.
    latest: UnixNanos,
    streams: streams::StreamCursor<'a, InputStream>,
    cells: cell::CellCursor<'a>,
    /// Points since the last release of the locks.
    in_a_row: u32,
    has_changed: bool,
    /// Whether the points are contents of a table, see [`Self::of_snapshot`].
    is_snapshot: bool,
    /// The source of the last points, whose report the registry has noted.
    heard: Option<SourceNumber>,
}

/// Points after which a session releases its locks for other threads.
const IN_A_ROW: u32 = 64;

impl Table {
    /// Takes in points one after the other, as of `now`.
    pub fn session(&self, now: UnixNanos) -> Session<'_> {
        Session {
            table: self,
            now,
            latest: self.limits.future.latest(now),
            streams: self.streams.cursor(),
            cells: self.cells.cursor(),
            in_a_row: 0,
            has_changed: false,
            is_snapshot: false,
            heard: None,
        }
    }

    /// Takes in a decoded point.
    pub fn observe(&self, point: &Point, now: UnixNanos) -> Outcome {
        self.session(now).observe(point)
    }
}

impl Session<'_> {
    /// The points are contents of a table. A total of a table has one writer: if its start moves back, the table has come
    /// to know an earlier process, and the total contains all processes.
    #[must_use]
    pub fn of_snapshot(mut self, is_snapshot: bool) -> Self {
        self.is_snapshot = is_snapshot;
        self
    }

    /// Takes in a decoded point.
    pub fn observe(&mut self, point: &Point) -> Outcome {
        let sample = PointSample {
            start: point.start,
            time: point.time,
            value: &point.value,
            exemplars: &point.exemplars,
        };
        self.observe_as(Key::of(&point.series), sample, &mut || Some(point.series.clone()))
    }

    /// Takes in a point of the series with this `key`, for example the key of its encoded bytes (resource, scope,
    /// metric, attributes). `identify` decodes them. It is called for a new key, and gives `None` if they can't be
    /// decoded.
    pub fn observe_as(
        &mut self,
        key: Key,
        mut sample: PointSample<'_>,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Outcome {
        if sample.time == 0 {
            sample.time = clock::wall(self.now);
        }
        let refused = if sample.time > self.latest {
            self.refuse_future(key, &mut sample, identify)
        } else {
            None
        };
        let outcome = refused.unwrap_or_else(|| match self.step(key, &sample) {
            Some(SampleResult::Done(outcome)) => outcome,
            Some(SampleResult::Left) | None => self.connect(key, &sample, identify),
        });
        match outcome {
            Outcome::Absorbed => self.has_changed = true,
            Outcome::Rejected(rejection) => {
                self.table.reject(rejection, 1);
                // The caller may work on the rejection for long.
                self.pause();
            }
            Outcome::Unmatched => {}
        }
        outcome
    }

    /// The outcome of a point whose time is too far ahead; `None`: the table takes it in, with the time of its arrival.
    #[cold]
    fn refuse_future(
        &mut self,
        key: Key,
        sample: &mut PointSample<'_>,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Option<Outcome> {
        if self.table.limits.future.action == FutureAction::Arrival {
            sample.time = clock::wall(self.now);
            return None;
        }
        self.pause();
        if !self.table.takes_as(key, self.now, identify) {
            return Some(Outcome::Unmatched);
        }
        if let Some(stream) = self.streams.get(key, self.now) {
            self.table.note_anomaly(stream, sample, self.now, &mut self.cells);
        }
        Some(Outcome::Rejected(Rejection::Future))
    }

    /// Shows a sample to a known stream.
    #[inline]
    fn step(&mut self, key: Key, sample: &PointSample<'_>) -> Option<SampleResult> {
        self.in_a_row += 1;
        if self.in_a_row >= IN_A_ROW {
            self.pause();
        }
        let stream = match self.streams.next_if_locked(key, self.now) {
            Some(stream) => stream,
            None => {
                // Streams before cells.
                self.cells.release();
                self.streams.get(key, self.now)?
            }
        };
        let unheard = Some(stream.source).filter(|source| Some(*source) != self.heard);
        let later;
        let sample = if self.is_snapshot {
            later = stream.tracker.continued(sample);
            &later
        } else {
            sample
        };
        let step = self.table.step(stream, sample, self.now, &mut self.cells);
        if let Some(source) = unheard {
            self.note_report(source, &step);
        }
        Some(step)
    }

    /// Notes once that a source reports.
    #[cold]
    fn note_report(&mut self, source: SourceNumber, step: &SampleResult) {
        let is_taken = !matches!(step, SampleResult::Left | SampleResult::Done(Outcome::Unmatched));
        if is_taken {
            self.heard = Some(source);
            lock(&self.table.registry).note_report(source, self.now);
        }
    }

    /// Adds a stream, or reconnects one that has left to its cells, and shows it the sample.
    fn connect(
        &mut self,
        key: Key,
        sample: &PointSample<'_>,
        identify: &mut dyn FnMut() -> Option<Arc<Series>>,
    ) -> Outcome {
        self.pause();
        let (table, now) = (self.table, self.now);
        let Some(series) = identify() else {
            return Outcome::Rejected(Rejection::Invalid);
        };
        let home = table.streams.try_register(key, Key::of(&series), now, || {
            table.new_stream(&series, sample.start, sample.value, now)
        });
        let Some(home) = home else {
            return if table.takes(&series) {
                Outcome::Rejected(Rejection::Limit)
            } else {
                Outcome::Unmatched
            };
        };
        let step = self.streams.get(home, now).map(|stream| {
            if stream.phase == Phase::Left {
                let bounds = table.bounds_that_matter(sample.value);
                (stream.targets, stream.phase) =
                    table.targets(&series, bounds, false, 0, now, &stream.targets);
                if let Some(about) = &mut stream.about {
                    about.bounds = bounds.cloned();
                }
            }
            let later = stream.tracker.continued(sample);
            let sample = if self.is_snapshot { &later } else { sample };
            (stream.source, table.step(stream, sample, now, &mut self.cells))
        });
        if let Some((source, step)) = &step
            && self.heard != Some(*source)
        {
            self.note_report(*source, step);
        }
        match step {
            Some((_, SampleResult::Done(outcome))) => outcome,
            // A sweep removed the stream between the two look-ups. It was idle for long, so this is rare.
            Some((_, SampleResult::Left)) | None => Outcome::Rejected(Rejection::Limit),
        }
    }

    /// Releases all locks until the next point, and raises the version of the table after a change. For a
    /// caller that does other work first.
    pub fn pause(&mut self) {
        self.cells.release();
        self.streams.release();
        self.in_a_row = 0;
        if std::mem::take(&mut self.has_changed) {
            self.table.changed();
        }
    }
}

impl Drop for Session<'_> {
    fn drop(&mut self) {
        self.pause();
    }
}
