//! Cells: the state of one output series each, in chunks, so that a reader and the writers share short locks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::Overflow;
use super::look::Arrivals;
use super::state::State;
use crate::key::{Key, KeyMap};
use crate::streams::lock;
use crate::wheel::Wheel;
use crate::{Series, UnixNanos};

/// Cells behind one lock: a reader that renders 50 ns a series holds it for 3 us.
const CHUNK_CELLS: u32 = 64;

/// Chunks of the first segment; each further segment doubles, so growing never moves a cell.
const FIRST_CHUNKS: u32 = 16;
const SEGMENTS: usize = 22;

/// Where a cell is. The generation changes when the place gets another series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CellRef {
    index: u32,
    generation: u32,
}

impl CellRef {
    /// Tells living cells apart.
    pub(crate) fn number(self) -> u32 {
        self.index
    }
}

/// One output series.
#[derive(Debug)]
pub(crate) struct Cell {
    pub(crate) series: Arc<Series>,
    pub(crate) key: Key,
    pub(crate) state: State,
    /// When something that feeds it was last alive.
    pub(crate) seen: UnixNanos,
    /// Bytes it was taken to be when it was last looked at.
    weight: u32,
}

impl Cell {
    fn weigh(&self) -> u32 {
        /// Slot, index entry, wheel entry, and the allocation of the series.
        const FIXED: usize = size_of::<Slot>() + 48 + 16 + size_of::<Series>() + 16;
        let bytes = FIXED + self.series.attributes.bytes() + self.state.bytes();
        u32::try_from(bytes).unwrap_or(u32::MAX)
    }
}

#[derive(Debug, Default)]
pub(crate) struct Slot {
    generation: u32,
    cell: Option<Cell>,
}

type Chunk = Mutex<Vec<Slot>>;

/// All cells of a table. Lock order: registry before chunks.
#[derive(Debug)]
pub(crate) struct Cells {
    segments: [OnceLock<Box<[Chunk]>>; SEGMENTS],
    registry: Mutex<Registry>,
    /// When to look whether a series is still wanted. Locked by itself.
    wheel: Mutex<Wheel<CellRef>>,
    term_ns: u64,
    used: AtomicU32,
    live: AtomicUsize,
    bytes: AtomicUsize,
}

#[derive(Debug, Default)]
struct Registry {
    index: KeyMap<CellRef>,
    free: Vec<u32>,
    by_metric: HashMap<Arc<str>, usize>,
    arrivals: Arrivals,
}

/// How many series there may be.
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
            segments: std::array::from_fn(|_| OnceLock::new()),
            registry: Mutex::default(),
            wheel: Mutex::new(Wheel::new(term_ns)),
            term_ns,
            used: AtomicU32::new(0),
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
        key: Key,
        series: Arc<Series>,
        caps: Caps,
        make: impl FnOnce(&Series) -> State,
        now: UnixNanos,
    ) -> Result<CellRef, Overflow> {
        let mut registry = lock(&self.registry);
        if let Some(found) = registry.index.get(&key).copied() {
            let mut cursor = self.cursor();
            if let Some(cell) = cursor.get(found) {
                cell.seen = cell.seen.max(now);
                return Ok(found);
            }
        }
        let of_metric = registry.by_metric.get(&series.metric.name).copied().unwrap_or(0);
        let full = [
            (self.len() >= caps.series, Overflow::Series),
            (of_metric >= caps.per_metric, Overflow::Metric),
            (self.bytes() >= caps.bytes, Overflow::Bytes),
        ];
        if let Some((_, why)) = full.into_iter().find(|(is_full, _)| *is_full) {
            return Err(why);
        }
        let index = match registry.free.pop() {
            Some(index) => index,
            None => self.used.load(Relaxed),
        };
        let state = make(&series);
        *registry.by_metric.entry(series.metric.name.clone()).or_default() += 1;
        let mut cell = Cell {
            series,
            key,
            state,
            seen: now,
            weight: 0,
        };
        cell.weight = cell.weigh();
        self.bytes.fetch_add(cell.weight as usize, Relaxed);
        let made = self.put(index, cell);
        registry.index.insert(key, made);
        registry.arrivals.note(made);
        let mut wheel = lock(&self.wheel);
        wheel.start(now);
        wheel.add(now.saturating_add(self.term_ns), made);
        Ok(made)
    }

    fn put(&self, index: u32, cell: Cell) -> CellRef {
        let mut slots = lock(self.chunk(index));
        let at = (index % CHUNK_CELLS) as usize;
        if slots.len() <= at {
            slots.resize_with(at + 1, Slot::default);
        }
        slots[at].cell = Some(cell);
        let generation = slots[at].generation;
        drop(slots);
        self.used.fetch_max(index + 1, Relaxed);
        self.live.fetch_add(1, Relaxed);
        CellRef { index, generation }
    }

    /// See [`Arrivals::since`].
    pub(super) fn arrivals(&self, seen: u64) -> (u64, Option<Vec<CellRef>>) {
        lock(&self.registry).arrivals.since(seen)
    }

    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// What they take, estimated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// How many series each metric name has.
    pub(crate) fn each_metric(&self, mut each: impl FnMut(&Arc<str>, usize)) {
        let registry = lock(&self.registry);
        registry
            .by_metric
            .iter()
            .for_each(|(name, series)| each(name, *series));
    }

    /// Where the cell of this key is.
    pub(crate) fn find(&self, key: Key) -> Option<CellRef> {
        lock(&self.registry).index.get(&key).copied()
    }

    /// Access to single cells that keeps the lock of the last one's chunk.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor {
            cells: self,
            held: None,
        }
    }

    /// Removes a cell at once.
    pub(crate) fn remove(&self, at: CellRef) {
        let gone = {
            let mut cursor = self.cursor();
            cursor.slot(at).and_then(Slot::clear)
        };
        if let Some(cell) = gone {
            self.unlink([(at.index, cell)]);
        }
    }

    /// Shows every cell to `each`, a chunk at a time.
    pub(crate) fn each(&self, mut each: impl FnMut(&mut Cell)) {
        self.each_chunk(|_, slots| {
            for cell in slots.iter_mut().filter_map(|slot| slot.cell.as_mut()) {
                each(cell);
            }
        });
    }

    /// Shows every cell to `each` with its place, a chunk at a time.
    pub(crate) fn each_at(&self, mut each: impl FnMut(CellRef, &Cell)) {
        self.each_chunk(|first, slots| {
            for (at, slot) in slots.iter().enumerate() {
                let index = first + at as u32;
                let generation = slot.generation;
                slot.cell
                    .iter()
                    .for_each(|cell| each(CellRef { index, generation }, cell));
            }
        });
    }

    /// Removes the cells of which nothing was seen for the term. Gives how many.
    pub(crate) fn expire(&self, now: UnixNanos) -> usize {
        let due = lock(&self.wheel).take(now);
        let (mut gone, mut later) = (Vec::new(), Vec::new());
        let mut cursor = self.cursor();
        for at in due {
            let Some(slot) = cursor.slot(at) else { continue };
            let Some(cell) = &mut slot.cell else { continue };
            let end = cell.seen.saturating_add(self.term_ns);
            if end < now {
                gone.extend(slot.clear().map(|cell| (at.index, cell)));
                continue;
            }
            later.push((end, at));
            // Buckets and exemplars come after a series was made.
            let weight = cell.weigh();
            self.bytes.fetch_add(weight as usize, Relaxed);
            self.bytes.fetch_sub(cell.weight as usize, Relaxed);
            cell.weight = weight;
        }
        drop(cursor);
        let mut wheel = lock(&self.wheel);
        later.into_iter().for_each(|(end, at)| wheel.add(end, at));
        drop(wheel);
        let removed = gone.len();
        self.unlink(gone);
        removed
    }

    fn each_chunk(&self, mut each: impl FnMut(u32, &mut Vec<Slot>)) {
        let used = self.used.load(Relaxed);
        for first in (0..used).step_by(CHUNK_CELLS as usize) {
            each(first, &mut lock(self.chunk(first)));
        }
    }

    fn unlink(&self, gone: impl IntoIterator<Item = (u32, Cell)>) {
        let mut registry = lock(&self.registry);
        for (index, cell) in gone {
            if registry.index.get(&cell.key).is_some_and(|at| at.index == index) {
                registry.index.remove(&cell.key);
            }
            registry.free.push(index);
            self.live.fetch_sub(1, Relaxed);
            self.bytes.fetch_sub(cell.weight as usize, Relaxed);
            let name = &cell.series.metric.name;
            match registry.by_metric.get_mut(name) {
                Some(count) if *count > 1 => *count -= 1,
                _ => drop(registry.by_metric.remove(name)),
            }
        }
    }

    fn chunk(&self, index: u32) -> &Chunk {
        let number = index / CHUNK_CELLS + FIRST_CHUNKS;
        let bit = 31 - number.leading_zeros();
        let size = 1 << bit;
        let segment = &self.segments[(bit - FIRST_CHUNKS.trailing_zeros()) as usize];
        let chunks = segment.get_or_init(|| (0..size).map(|_| Chunk::default()).collect());
        &chunks[(number - size) as usize]
    }
}

impl Slot {
    fn clear(&mut self) -> Option<Cell> {
        self.generation = self.generation.wrapping_add(1);
        self.cell.take()
    }
}

/// See `Cells::cursor`.
pub(crate) struct Cursor<'a> {
    cells: &'a Cells,
    held: Option<(u32, MutexGuard<'a, Vec<Slot>>)>,
}

impl Cursor<'_> {
    /// The cell, if its place has not gone to another series.
    pub(crate) fn get(&mut self, at: CellRef) -> Option<&mut Cell> {
        self.slot(at)?.cell.as_mut()
    }

    fn slot(&mut self, at: CellRef) -> Option<&mut Slot> {
        let number = at.index / CHUNK_CELLS;
        if self.held.as_ref().is_none_or(|(held, _)| *held != number) {
            self.held = None;
            self.held = Some((number, lock(self.cells.chunk(at.index))));
        }
        let (_, slots) = self.held.as_mut()?;
        let slot = slots.get_mut((at.index % CHUNK_CELLS) as usize)?;
        (slot.generation == at.generation).then_some(slot)
    }
}
