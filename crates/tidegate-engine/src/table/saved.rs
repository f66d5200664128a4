// SPDX-License-Identifier: Apache-2.0

//! A table as bytes, and back: the state that must survive a restart.
//!
//! Version (1 byte), then records until the end. A cell: 1, its number, the series, start, time (0: nothing
//! to show), seen, its value. A stream: 2, its id, kind of data, phase, when it was seen, start, time, last
//! value, targets: cell number, how it changes the cell, its value among a group of gauges.
//!
//! Sources of events end with the process that watches them: they are saved as having left. So are exemplars.

use std::collections::HashMap;
use std::io::{self, Write};
use std::sync::Arc;

use smallvec::SmallVec;

use super::Table;
use super::cell::{Caps, Cell, CellRef, Cells};
use super::points::{About, InputStream, Phase};
use super::source_registry::SourceNumber;
use super::state::SeriesState;
use super::targets::{CellTarget, Targets};
use crate::bytes::{number, take};
use crate::restored::RestoredStates;
use crate::rule::{Op, describe};
use crate::saved::{IdentityReader, IdentityWriter, StreamId, data_code, data_of};
use crate::snapshot_buffer::SnapshotBuffer;
use crate::stream_tracker::{LastValue, StreamTracker};
use crate::streams::{Streams, lock};
use crate::{Data, Number, Series, UnixNanos, clock};

const VERSION: u8 = 2;
const CELL: u8 = 1;
const STREAM: u8 = 2;

const OPS: [Op; 7] = [
    Op::Keep,
    Op::Add,
    Op::UpDown,
    Op::Last,
    Op::Member,
    Op::Merge,
    Op::Observe,
];
const PHASES: [Phase; 3] = [Phase::Live, Phase::NoRoom, Phase::Left];

/// The part of a previous process's saved state that a table has restored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Restored {
    /// Output series.
    pub series: usize,
    /// Input streams of points.
    pub streams: usize,
    /// Output series that no rule makes any more, or not in this way, or without room.
    pub outdated: usize,
    /// Output series of a replaced table that are in an overflow series now, for lack of room.
    pub overflowed: usize,
}

/// A snapshot of a table at one moment, copied on write.
///
/// While it lives, a thread that changes a chunk copies the chunk first, so that no thread waits for time
/// proportional to the number of series. The thread that calls [`Self::write`] encodes the copies: the
/// others hold locks.
#[derive(Debug)]
pub struct Frozen {
    cells: Arc<Cells>,
    streams: Arc<Streams<InputStream>>,
    restored: Arc<RestoredStates<(InputStream, UnixNanos)>>,
    saving: Arc<Saving>,
}

impl Frozen {
    /// Writes the bytes, for [`Table::restore`], piece by piece.
    ///
    /// # Errors
    /// Those of `to`: the written part is then useless.
    pub fn write(self, to: &mut dyn Write) -> io::Result<()> {
        let Saving { cells, streams, .. } = &*self.saving;
        let mut writer = IdentityWriter::default();
        writer.bytes.push(VERSION);
        // Streams refer to cells.
        self.cells
            .snapshot_rest(&mut || cells.drain_to(&mut writer, to, |cell, writer| cell.save(writer)))?;
        let mut drain_to = || streams.drain_to(&mut writer.bytes, to, |stream, bytes| stream.save(bytes));
        self.streams.snapshot_rest(&mut drain_to)?;
        self.restored.snapshot_rest(&mut drain_to)?;
        to.write_all(&writer.bytes)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        self.restored.end_snapshot();
        self.streams.end_snapshot();
        self.cells.end_snapshot();
    }
}

/// The copies that are not bytes yet.
#[derive(Debug)]
struct Saving {
    given: HashMap<u32, Number>,
    cells: SnapshotBuffer<CellSnapshot>,
    streams: SnapshotBuffer<StreamSnapshot>,
}

/// A copy of a cell.
#[derive(Debug)]
struct CellSnapshot {
    number: u32,
    series: Arc<Series>,
    /// Start, time, seen.
    times: [UnixNanos; 3],
    value: LastValue,
}

/// A copy of a stream.
#[derive(Debug)]
struct StreamSnapshot {
    id: StreamId,
    data: Data,
    phase: Phase,
    seen: UnixNanos,
    tracker: StreamTracker,
    targets: SmallVec<[TargetSnapshot; 1]>,
}

/// A copy of a target.
#[derive(Debug)]
struct TargetSnapshot {
    cell: u32,
    op: Op,
    /// The amount that the stream has added to a group.
    value: LastValue,
}

impl CellSnapshot {
    fn save(&self, writer: &mut IdentityWriter) {
        writer.bytes.push(CELL);
        writer.bytes.extend(self.number.to_le_bytes());
        writer.series(&self.series);
        for time in self.times {
            writer.bytes.extend(time.to_le_bytes());
        }
        self.value.save(&mut writer.bytes);
    }
}

impl StreamSnapshot {
    fn save(&self, to: &mut Vec<u8>) {
        to.push(STREAM);
        to.extend(self.id);
        to.push(data_code(self.data));
        let phase = PHASES.iter().position(|phase| *phase == self.phase);
        to.push(phase.unwrap_or_default() as u8);
        for time in [clock::wall(self.seen), self.tracker.start, self.tracker.time] {
            to.extend(time.to_le_bytes());
        }
        self.tracker.save(to);
        to.push(self.targets.len() as u8);
        for target in &self.targets {
            let op = OPS.iter().position(|op| *op == target.op);
            to.extend(target.cell.to_le_bytes());
            to.push(op.unwrap_or_default() as u8);
            target.value.save(to);
        }
    }
}

impl Saving {
    fn cell(&self, number: u32, cell: &Cell) -> Option<CellSnapshot> {
        let state = &cell.state;
        let value = match (self.given.get(&number), state.value.number()) {
            (Some(given), Some(number)) => Some(LastValue::Number(number.minus(*given))),
            _ => LastValue::of(&state.value),
        };
        Some(CellSnapshot {
            number,
            series: cell.series.clone(),
            times: [state.start, state.time, clock::wall(cell.seen)],
            value: value?,
        })
    }
}

impl StreamSnapshot {
    fn of(stream: &InputStream, seen: UnixNanos, cells: &Cells) -> Option<Self> {
        let id = stream.about.as_ref().and_then(|about| about.id);
        let says_nothing = stream.targets.is_empty() && !stream.tracker.holds_total();
        let id = id.filter(|_| !says_nothing)?;
        let mut cursor = cells.cursor();
        let targets = stream.targets.iter().take(usize::from(u8::MAX)).map(|target| {
            // Only the stream itself changes its amount in a group.
            let is_member = target.op == Op::Member;
            let group = is_member.then(|| cursor.get(target.cell)).flatten();
            let value = group.and_then(|group| group.state.member(target.member));
            TargetSnapshot {
                cell: target.cell.number(),
                op: target.op,
                value: value.map_or(LastValue::Nothing, LastValue::Number),
            }
        });
        Some(Self {
            id,
            data: stream.data,
            phase: stream.phase,
            seen,
            tracker: stream.tracker.clone(),
            targets: targets.collect(),
        })
    }
}

impl Table {
    /// The state as bytes, for [`Self::restore`]. The caller ensures that the table takes nothing in meanwhile.
    pub fn save(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        // Memory refuses nothing.
        let _ = self.freeze().write(&mut bytes);
        bytes
    }

    /// Freezes the present state; later the table may change while it is written. During the call, the caller ensures
    /// that the table takes nothing in, and that only one frozen state exists. The call takes time for each source of
    /// events, not for each series.
    pub fn freeze(&self) -> Frozen {
        // A departure is visible in the series and in its stream, or in neither.
        self.streams.still(|| {
            self.flush();
            let saving = Arc::new(Saving {
                given: self.given_by_sources(),
                cells: SnapshotBuffer::default(),
                streams: SnapshotBuffer::default(),
            });
            let (of_cells, of_streams, of_restored) = (saving.clone(), saving.clone(), saving.clone());
            let [cells, cells_of_restored] = [self.cells.clone(), self.cells.clone()];
            self.cells.begin_snapshot(move |some| {
                let copies = some.filter_map(|(number, cell)| of_cells.cell(number, cell));
                of_cells.cells.add(copies);
            });
            self.streams.begin_snapshot(move |some| {
                let copies = some.filter_map(|(stream, seen)| StreamSnapshot::of(stream, seen, &cells));
                of_streams.streams.add(copies);
            });
            self.restored.begin_snapshot(move |some| {
                let copies = some
                    .filter_map(|(_, (stream, seen))| StreamSnapshot::of(stream, *seen, &cells_of_restored));
                of_restored.streams.add(copies);
            });
            Frozen {
                cells: self.cells.clone(),
                streams: self.streams.clone(),
                restored: self.restored.clone(),
                saving,
            }
        })
    }

    /// The amounts that the sources of events have added to sums that may fall, by cell.
    fn given_by_sources(&self) -> HashMap<u32, Number> {
        let mut given: HashMap<u32, Number> = HashMap::new();
        let sources: Vec<_> = self.sources().values().cloned().collect();
        for source in sources {
            lock(&source).each_given(|cell, number| {
                let sum = given.entry(cell.number()).or_insert(Number::ZERO);
                *sum = sum.plus(number);
            });
        }
        given
    }

    /// Restores the state that another process saved, as far as the rules still make its series. The table must be
    /// empty and have a way to identify streams. `None`: the bytes are invalid or of another version; the part read
    /// before stays.
    pub fn restore(&self, bytes: &[u8]) -> Option<Restored> {
        let mut restored = Restored::default();
        let mut cells = HashMap::new();
        let mut reader = IdentityReader::new(bytes);
        if *take(&mut reader.bytes)? != [VERSION] {
            return None;
        }
        while !reader.bytes.is_empty() {
            match *take(&mut reader.bytes)? {
                [CELL] => {
                    let (number, cell) = self.load_cell(&mut reader)?;
                    restored.series += usize::from(cell.is_some());
                    restored.outdated += usize::from(cell.is_none());
                    cells.extend(cell.map(|cell| (number, cell)));
                }
                [STREAM] => {
                    let (id, stream, seen) = self.load_stream(&mut reader.bytes, &cells)?;
                    let is_kept = self.restored.insert(id, (stream, seen), self.limits.streams);
                    restored.streams += usize::from(is_kept);
                }
                _ => return None,
            }
        }
        self.changed();
        Some(restored)
    }

    fn load_cell(&self, reader: &mut IdentityReader<'_>) -> Option<(u32, Option<CellRef>)> {
        let at = reader.length()? as u32;
        let mut series = reader.series()?;
        describe(&mut series, &self.rules);
        let bytes = &mut reader.bytes;
        let (start, time, seen) = (number(bytes)?, number(bytes)?, clock::steady(number(bytes)?));
        let value = LastValue::load(bytes)?.value();
        let caps = Caps {
            series: self.limits.series_with_overflow(),
            per_metric: usize::MAX,
            bytes: usize::MAX,
        };
        let cell = self
            .rules
            .iter()
            .find(|rule| rule.could_make(&series))
            .and_then(|rule| {
                let mut state = SeriesState::new(series.metric.data, rule, start, clock::wall(seen));
                if !state.take_up(time, value?) {
                    return None;
                }
                self.cells.resolve(series, caps, |_| state, seen).ok()
            });
        Some((at, cell))
    }

    fn load_stream(
        &self,
        from: &mut &[u8],
        cells: &HashMap<u32, CellRef>,
    ) -> Option<(StreamId, InputStream, UnixNanos)> {
        let id: StreamId = *take(from)?;
        let data = data_of(take::<1>(from)?[0])?;
        let phase = *PHASES.get(usize::from(take::<1>(from)?[0]))?;
        let (seen, start, time) = (clock::steady(number(from)?), number(from)?, number(from)?);
        let tracker = StreamTracker::load(start, time, from)?;
        let [count] = *take(from)?;
        let mut targets = Targets::default();
        for _ in 0..count {
            let cell = u32::from_le_bytes(*take(from)?);
            let op = *OPS.get(usize::from(take::<1>(from)?[0]))?;
            let value = LastValue::load(from)?;
            let Some(cell) = cells.get(&cell).copied() else {
                continue;
            };
            let mut target = CellTarget { cell, op, member: 0 };
            if let (Op::Member, LastValue::Number(number)) = (op, value) {
                let mut cursor = self.cells.cursor();
                if let Some(group) = cursor.get(cell) {
                    target.member = group.state.join();
                    group.state.rejoin(target.member, number);
                }
            }
            targets.push(target);
        }
        let about = About {
            id: Some(id),
            bounds: None,
        };
        let stream = InputStream {
            data,
            tracker,
            targets,
            about: Some(Box::new(about)),
            // It has no source until it reports again.
            source: SourceNumber::MAX,
            phase,
        };
        Some((id, stream, seen))
    }

    /// Continues a new stream at its position in a previous process.
    pub(super) fn take_up(&self, stream: &mut InputStream, mut old: InputStream) {
        let same = |a: &CellTarget, b: &CellTarget| (a.cell, a.op) == (b.cell, b.op);
        let falls = |targets: &[CellTarget]| targets.iter().any(|target| target.op == Op::UpDown);
        let is_as_before = old.targets.len() == stream.targets.len()
            && old
                .targets
                .iter()
                .all(|was| stream.targets.iter().any(|is| same(was, is)));
        if is_as_before || old.phase == Phase::Left {
            let mut cursor = self.cells.cursor();
            for was in old.targets.iter() {
                let group = cursor.get(was.cell).filter(|_| was.op == Op::Member);
                let now = stream.targets.iter_mut().find(|is| same(was, is));
                if let (Some(group), Some(now)) = (group, now) {
                    group.state.leave(now.member);
                    now.member = was.member;
                }
            }
            stream.tracker = old.tracker;
            return;
        }
        // The rules have changed: amounts that may fall move to their present series, counts are not counted again.
        if !falls(&old.targets) && !falls(&stream.targets) {
            stream.tracker = old.tracker.clone();
        }
        self.leave(&mut old, &mut self.cells.cursor());
    }
}
