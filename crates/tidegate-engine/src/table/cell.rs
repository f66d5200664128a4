// SPDX-License-Identifier: Apache-2.0

//! Cells: the state of one output series each, found by its identity, read and written by its slot.
//!
//! A slot is used again when its cell leaves. A [`CellRef`] has the generation of the slot, which each
//! removal raises: an old reference finds nothing, and never another series.
//!
//! Invariants:
//! - A live cell is in exactly one slot and once in `index`; `free` has all other slots.
//! - `live` and `bytes` are the number and the weights of the live cells. `weight` of a slot is its part of
//!   `bytes`.
//! - `by_metric` has an entry for each metric name with live cells, and only for these.
//! - Only a thread with the register locked adds cells, or takes one out of `index` and `free`.
//! - A vacated chunk has no slots. `vacated` has the generation with which they begin again.
//!
//! Lock order: register, then one chunk. `expire` and `remove` empty a slot under the chunk alone and update
//! the register afterwards; until then `index` may lead to an empty slot, which `look_up` skips.
//!
//! Ownership: the cell owns its state; streams and sources have references and may outlive it.

mod expiry;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::Mutex;

use super::Overflow;
use super::lookup::Arrivals;
use super::sets::Sets;
use super::state::SeriesState;
use crate::chunks::{self, CHUNK, Chunks};
use crate::index::Index;
use crate::key::Key;
use crate::wheel::Wheel;
use crate::{Metric, Series, UnixNanos};

/// A reference to a cell, good until the cell leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellRef {
    index: u32,
    generation: u32,
}

impl CellRef {
    /// A number that distinguishes living cells.
    pub(crate) fn number(self) -> u32 {
        self.index
    }

    pub(crate) fn to_bits(self) -> u64 {
        u64::from(self.generation) << 32 | u64::from(self.index)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self {
            index: bits as u32,
            generation: (bits >> 32) as u32,
        }
    }
}

/// One output series.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) series: Arc<Series>,
    pub(crate) state: SeriesState,
    /// The last time a source of it was alive.
    pub(crate) seen: UnixNanos,
}

/// Bytes of a metric without its series, here and in pages and queries, estimated.
const METRIC_BYTES: usize = 1 << 10;
/// Bytes of a resource and scope above this count for each of their series: there may be only one.
const SHARED_BYTES: usize = 4 << 10;
/// Bytes of names and labels above this count once for each copy in pages and queries, too.
const COPIED_BYTES: usize = 1 << 10;
const COPIES: usize = 3;

impl Cell {
    fn weigh(&self) -> u32 {
        /// Slot, index entry, and the allocation of the series.
        const FIXED: usize = size_of::<CellSlot>() + 16 + size_of::<Series>() + 16;
        let Series {
            resource,
            scope,
            metric,
            attributes,
        } = &*self.series;
        let text = attributes.bytes() + metric.name.len() + metric.description.len();
        let copied = text.saturating_sub(COPIED_BYTES) * COPIES;
        let shared = resource.attributes.bytes() + scope.attributes.bytes();
        let shared = shared.saturating_sub(SHARED_BYTES);
        let bytes = FIXED + attributes.bytes() + self.state.bytes() + copied + shared;
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

/// A slot for a cell: one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct CellSlot {
    cell: Option<Cell>,
    generation: u32,
    /// Bytes of the cell as of its last check.
    weight: u32,
}

const _: () = assert!(size_of::<CellSlot>() == 64);

/// All cells of a table.
#[derive(Debug)]
pub(crate) struct Cells {
    chunks: Chunks<CellSlot>,
    /// Fair: a sweep that removes many cells hands the lock to waiting threads between chunks.
    register: Mutex<Register>,
    term_ns: u64,
    live: AtomicUsize,
    bytes: AtomicUsize,
}

/// The state for adding and removing cells. Readers and writers of known cells do without it.
#[derive(Debug)]
struct Register {
    index: Index<64>,
    free: Vec<u32>,
    /// Chunks without slots, and the generation with which their slots begin again.
    vacated: HashMap<u32, u32>,
    by_metric: HashMap<Arc<str>, OfMetric>,
    /// The newest series. The next one often has the same resource and scope.
    last: Option<Arc<Series>>,
    sets: Sets,
    arrivals: Arrivals,
    /// The times at which the terms of the cells of a chunk are checked.
    wheel: Wheel<u32>,
}

/// The series of one metric name.
#[derive(Debug)]
struct OfMetric {
    series: usize,
    metric: Arc<Metric>,
}

/// The limits on the number of series.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) series: usize,
    pub(crate) per_metric: usize,
    pub(crate) bytes: usize,
}

impl Cells {
    /// A series goes when nothing was seen of it for `term_ns`.
    pub(crate) fn new(term_ns: u64) -> Self {
        Self {
            chunks: Chunks::default(),
            register: Mutex::new(Register {
                index: Index::default(),
                free: Vec::new(),
                vacated: HashMap::new(),
                by_metric: HashMap::new(),
                last: None,
                sets: Sets::default(),
                arrivals: Arrivals::default(),
                wheel: Wheel::new(term_ns),
            }),
            term_ns,
            live: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
        }
    }

    /// The cell of `series`, made by `make` if there is none.
    ///
    /// # Errors
    /// The cap that was reached.
    pub(crate) fn resolve(
        &self,
        series: Series,
        caps: Caps,
        make: impl FnOnce(&Series) -> SeriesState,
        now: UnixNanos,
    ) -> Result<CellRef, Overflow> {
        let key = Key::of(&series);
        let mut register = self.register.lock();
        if let Some(found) = self.look_up(&register, key) {
            let mut cursor = self.cursor();
            if let Some(cell) = cursor.get(found) {
                cell.seen = cell.seen.max(now);
                return Ok(found);
            }
        }
        let of_metric = register.by_metric.get(&series.metric.name);
        let full = [
            (self.len() >= caps.series, Overflow::Series),
            (
                of_metric.is_some_and(|of_metric| of_metric.series >= caps.per_metric),
                Overflow::Metric,
            ),
            (
                self.bytes() + register.by_metric.len() * METRIC_BYTES >= caps.bytes,
                Overflow::Bytes,
            ),
        ];
        if let Some((_, why)) = full.into_iter().find(|(is_full, _)| *is_full) {
            return Err(why);
        }
        let series = register.share(series);
        let cell = Cell {
            state: make(&series),
            series,
            seen: now,
        };
        let made = self.put(&mut register, cell, now);
        register.index.insert(key, made.index);
        register.arrivals.note(made);
        Ok(made)
    }

    fn look_up(&self, register: &Register, key: Key) -> Option<CellRef> {
        let mut generation = 0;
        let mut chunk = self.chunks.cursor();
        let index = register.index.find(key, |at| {
            let slot = chunk.get(at);
            generation = slot.as_ref().map_or(0, |slot| slot.generation);
            let cell = slot.and_then(|slot| slot.cell.as_ref());
            cell.is_some_and(|cell| Key::of(&cell.series) == key)
        })?;
        Some(CellRef { index, generation })
    }

    fn put(&self, register: &mut Register, cell: Cell, now: UnixNanos) -> CellRef {
        let weight = cell.weigh();
        self.live.fetch_add(1, Relaxed);
        self.bytes.fetch_add(weight as usize, Relaxed);
        register.wheel.start(now);
        if let Some(index) = register.free.pop() {
            self.refill(register, index / CHUNK);
            let mut generation = 0;
            if let Some(slot) = self.chunks.cursor().get(index) {
                (slot.cell, slot.weight) = (Some(cell), weight);
                generation = slot.generation;
            }
            return CellRef { index, generation };
        }
        let index = self.chunks.push(CellSlot {
            cell: Some(cell),
            generation: 0,
            weight,
        });
        if index.is_multiple_of(CHUNK) {
            // The first check comes soon: a previous process may have seen a restored cell long ago.
            register.wheel.add(now, index / CHUNK);
        }
        CellRef { index, generation: 0 }
    }

    fn refill(&self, register: &mut Register, chunk: u32) {
        let Some(generation) = register.vacated.remove(&chunk) else {
            return;
        };
        self.chunks.refill(chunk, || CellSlot {
            generation,
            ..CellSlot::default()
        });
    }

    /// The number of cells ever made.
    pub(super) fn allocated(&self) -> u64 {
        self.register.lock().arrivals.allocated()
    }

    /// See [`Arrivals::since`].
    pub(super) fn arrivals(&self, seen: u64) -> (u64, Option<Vec<CellRef>>) {
        self.register.lock().arrivals.since(seen)
    }

    /// The number of series.
    pub(crate) fn len(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// The bytes that the series take, estimated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// The reference to the cell of this series.
    pub(crate) fn find(&self, series: &Series) -> Option<CellRef> {
        self.look_up(&self.register.lock(), Key::of(series))
    }

    /// Access to single cells that keeps the lock of the last one's chunk.
    pub(crate) fn cursor(&self) -> CellCursor<'_> {
        CellCursor(self.chunks.cursor())
    }

    /// Shows every cell to `each`, a chunk at a time.
    pub(crate) fn each(&self, mut each: impl FnMut(&mut Cell)) {
        self.chunks
            .each(|_, slot| slot.cell.iter_mut().for_each(&mut each));
    }

    /// Shows every cell to `each` with its reference, a chunk at a time.
    pub(crate) fn each_at(&self, mut each: impl FnMut(CellRef, &mut Cell)) {
        self.chunks.each(|index, slot| {
            let generation = slot.generation;
            if let Some(cell) = &mut slot.cell {
                each(CellRef { index, generation }, cell);
            }
        });
    }

    /// Begins a snapshot: shows the cells of this moment to `some`, a chunk at a time, with their numbers;
    /// see [`Chunks::begin_snapshot`].
    pub(crate) fn begin_snapshot(
        &self,
        some: impl Fn(&mut dyn Iterator<Item = (u32, &Cell)>) + Send + Sync + 'static,
    ) {
        self.chunks.begin_snapshot(move |chunk, slots| {
            let slots = (chunk * CHUNK..).zip(slots.iter());
            some(&mut slots.filter_map(|(index, slot)| Some((index, slot.cell.as_ref()?))));
        });
    }

    /// See [`Chunks::snapshot_rest`].
    pub(crate) fn snapshot_rest<E>(&self, between: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        self.chunks.snapshot_rest(between)
    }

    /// See [`Chunks::end_snapshot`].
    pub(crate) fn end_snapshot(&self) {
        self.chunks.end_snapshot();
    }
}

impl Register {
    /// A series that shares its parts with others: with those of its metric, with the one made before it, and with
    /// those of equal attributes.
    fn share(&mut self, mut series: Series) -> Arc<Series> {
        let name = series.metric.name.clone();
        let of_metric = self.by_metric.entry(name).or_insert_with(|| OfMetric {
            series: 0,
            metric: series.metric.clone(),
        });
        of_metric.series += 1;
        share(&mut series.metric, &of_metric.metric);
        if let Some(last) = &self.last {
            share(&mut series.resource, &last.resource);
            share(&mut series.scope, &last.scope);
        }
        self.sets.share(&mut series.attributes);
        let series = Arc::new(series);
        self.last = Some(series.clone());
        series
    }
}

fn share<T: Clone + PartialEq>(mine: &mut T, other: &T) {
    if *mine == *other {
        mine.clone_from(other);
    }
}

/// See `Cells::cursor`.
#[derive(Debug)]
pub(crate) struct CellCursor<'a>(chunks::ChunkCursor<'a, CellSlot>);

impl CellCursor<'_> {
    /// The cell, if it has not left.
    pub(crate) fn get(&mut self, at: CellRef) -> Option<&mut Cell> {
        self.slot(at)?.cell.as_mut()
    }

    /// Gives the lock back.
    pub(crate) fn release(&mut self) {
        self.0.release();
    }

    fn slot(&mut self, at: CellRef) -> Option<&mut CellSlot> {
        let slot = self.0.get(at.index)?;
        (slot.generation == at.generation).then_some(slot)
    }
}

#[cfg(test)]
mod tests;
