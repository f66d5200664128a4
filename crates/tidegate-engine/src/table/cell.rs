//! Cells: the state of one output series each, in chunks, so that a reader and the writers share short locks.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use super::state::State;
use crate::key::{Key, KeyMap};
use crate::streams::lock;
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
    used: AtomicU32,
    live: AtomicUsize,
}

#[derive(Debug, Default)]
struct Registry {
    index: KeyMap<CellRef>,
    free: Vec<u32>,
    by_metric: HashMap<Arc<str>, usize>,
}

/// How many series there may be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caps {
    pub(crate) series: usize,
    pub(crate) per_metric: usize,
}

impl Cells {
    pub(crate) fn new() -> Self {
        Self {
            segments: std::array::from_fn(|_| OnceLock::new()),
            registry: Mutex::default(),
            used: AtomicU32::new(0),
            live: AtomicUsize::new(0),
        }
    }

    /// The cell of `series`, made by `make` if there is none; `None`: a cap was reached.
    pub(crate) fn resolve(
        &self,
        key: Key,
        series: Arc<Series>,
        caps: Caps,
        make: impl FnOnce(&Series) -> State,
        now: UnixNanos,
    ) -> Option<CellRef> {
        let mut registry = lock(&self.registry);
        if let Some(found) = registry.index.get(&key).copied() {
            let mut cursor = self.cursor();
            if let Some(cell) = cursor.get(found) {
                cell.seen = cell.seen.max(now);
                return Some(found);
            }
        }
        let of_metric = registry.by_metric.get(&series.metric.name).copied().unwrap_or(0);
        if self.len() >= caps.series || of_metric >= caps.per_metric {
            return None;
        }
        let index = match registry.free.pop() {
            Some(index) => index,
            None => self.used.load(Relaxed),
        };
        let state = make(&series);
        *registry.by_metric.entry(series.metric.name.clone()).or_default() += 1;
        let cell = Cell {
            series,
            key,
            state,
            seen: now,
        };
        let made = self.put(index, cell);
        registry.index.insert(key, made);
        Some(made)
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

    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.live.load(Relaxed)
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

    /// Removes the cells that `keep` does not want. Gives how many.
    pub(crate) fn retain(&self, keep: impl Fn(&Cell) -> bool) -> usize {
        let mut gone = Vec::new();
        self.each_chunk(|first, slots| {
            for (at, slot) in slots.iter_mut().enumerate() {
                if slot.cell.as_ref().is_some_and(|cell| !keep(cell)) {
                    gone.extend(slot.clear().map(|cell| (first + at as u32, cell)));
                }
            }
        });
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
