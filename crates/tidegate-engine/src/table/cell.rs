//! Cells: the state of one output series each, found by its identity, read and written by its place.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use parking_lot::{Mutex, MutexGuard};

use super::Overflow;
use super::lookup::Arrivals;
use super::sets::Sets;
use super::state::State;
use crate::chunks::{self, CHUNK, Chunks};
use crate::index::Index;
use crate::key::Key;
use crate::wheel::Wheel;
use crate::{Metric, Series, UnixNanos};

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
    pub(crate) state: State,
    /// When something that feeds it was last alive.
    pub(crate) seen: UnixNanos,
}

/// What a metric takes beside its series, here and in what pages and queries keep of it, estimated.
const METRIC_BYTES: usize = 1 << 10;
/// What resource and scope have beyond that counts for each of their series: there may be only one.
const SHARED_BYTES: usize = 4 << 10;
/// Names and labels of a series beyond that count for what pages and queries keep of them, too.
const COPIED_BYTES: usize = 1 << 10;
const COPIES: usize = 3;

impl Cell {
    fn weigh(&self) -> u32 {
        /// Slot, index entry, and the allocation of the series.
        const FIXED: usize = size_of::<Slot>() + 16 + size_of::<Series>() + 16;
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

/// A place for a cell: one cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Slot {
    cell: Option<Cell>,
    generation: u32,
    /// Bytes the cell was taken to be when it was last looked at.
    weight: u32,
}

const _: () = assert!(size_of::<Slot>() == 64);

/// All cells of a table. Lock order: register before chunks.
#[derive(Debug)]
pub(crate) struct Cells {
    chunks: Chunks<Slot>,
    /// Fair: who lets go of much gives others their turn in between.
    register: Mutex<Register>,
    term_ns: u64,
    live: AtomicUsize,
    bytes: AtomicUsize,
}

/// What only those need to know who add and remove cells.
#[derive(Debug)]
struct Register {
    index: Index<64>,
    free: Vec<u32>,
    /// Chunks whose slots do not exist for now, and the generation that they begin with again.
    vacated: HashMap<u32, u32>,
    by_metric: HashMap<Arc<str>, OfMetric>,
    /// The series that was made last, which comes from where the next one does.
    last: Option<Arc<Series>>,
    sets: Sets,
    arrivals: Arrivals,
    /// When to look whether the series of a chunk are still wanted.
    wheel: Wheel<u32>,
}

/// The series of one metric name.
#[derive(Debug)]
struct OfMetric {
    series: usize,
    metric: Arc<Metric>,
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
        make: impl FnOnce(&Series) -> State,
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
        let index = self.chunks.push(Slot {
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

    /// Gives the memory of a chunk back that has no cell any more: after a burst that is over, it is for others.
    fn vacate(&self, register: &mut Register, chunk: u32) {
        let mut slots = self.chunks.lock(chunk);
        // Places that are made here again later go on with the generations of these.
        let generation = slots.iter().map(|slot| slot.generation).max();
        if let Some(generation) = generation
            && slots.iter().all(|slot| slot.cell.is_none())
            && slots.vacate()
        {
            register.vacated.insert(chunk, generation);
        }
    }

    fn refill(&self, register: &mut Register, chunk: u32) {
        let Some(generation) = register.vacated.remove(&chunk) else {
            return;
        };
        self.chunks.refill(chunk, || Slot {
            generation,
            ..Slot::default()
        });
    }

    /// How many were made in all.
    pub(super) fn made(&self) -> u64 {
        self.register.lock().arrivals.made()
    }

    /// See [`Arrivals::since`].
    pub(super) fn arrivals(&self, seen: u64) -> (u64, Option<Vec<CellRef>>) {
        self.register.lock().arrivals.since(seen)
    }

    /// How many series there are.
    pub(crate) fn len(&self) -> usize {
        self.live.load(Relaxed)
    }

    /// What they take, estimated.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Where the cell of this series is.
    pub(crate) fn find(&self, series: &Series) -> Option<CellRef> {
        self.look_up(&self.register.lock(), Key::of(series))
    }

    /// Access to single cells that keeps the lock of the last one's chunk.
    pub(crate) fn cursor(&self) -> Cursor<'_> {
        Cursor(self.chunks.cursor())
    }

    /// Removes a cell at once. Call it with no cursor that holds a lock.
    pub(crate) fn remove(&self, at: CellRef) {
        let gone = self.cursor().slot(at).and_then(|slot| slot.clear(at.index));
        self.unlink(&mut self.register.lock(), gone.as_slice());
    }

    /// Shows every cell to `each`, a chunk at a time.
    pub(crate) fn each(&self, mut each: impl FnMut(&mut Cell)) {
        self.chunks
            .each(|_, slot| slot.cell.iter_mut().for_each(&mut each));
    }

    /// Shows every cell to `each` with its place, a chunk at a time.
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

    /// Removes the cells of which nothing was seen for the term. Gives how many. A chunk at a time: a thread that adds series
    /// does not wait for all that have gone.
    pub(crate) fn expire(&self, now: UnixNanos) -> usize {
        let due = self.register.lock().wheel.take(now);
        let mut removed = 0;
        for chunk in due {
            let mut next = now.saturating_add(self.term_ns);
            let mut gone = Vec::new();
            for (at, slot) in self.chunks.lock(chunk).iter_mut().enumerate() {
                let Some(cell) = &slot.cell else { continue };
                let end = cell.seen.saturating_add(self.term_ns);
                if end < now {
                    gone.extend(slot.clear(chunk * CHUNK + at as u32));
                    continue;
                }
                next = next.min(end);
                // Buckets and exemplars come after a series was made.
                let weight = cell.weigh();
                self.bytes.fetch_add(weight as usize, Relaxed);
                self.bytes.fetch_sub(slot.weight as usize, Relaxed);
                slot.weight = weight;
            }
            removed += gone.len();
            let mut register = self.register.lock();
            register.wheel.add(next, chunk);
            self.unlink(&mut register, &gone);
            if !gone.is_empty() {
                self.vacate(&mut register, chunk);
            }
            MutexGuard::unlock_fair(register);
        }
        self.register.lock().sets.sweep_some();
        removed
    }

    fn unlink(&self, register: &mut Register, gone: &[Gone]) {
        for Gone { index, cell, weight } in gone {
            register.index.remove(Key::of(&cell.series), *index);
            register.free.push(*index);
            self.live.fetch_sub(1, Relaxed);
            self.bytes.fetch_sub(*weight as usize, Relaxed);
            let name = &cell.series.metric.name;
            match register.by_metric.get_mut(name) {
                Some(of_metric) if of_metric.series > 1 => of_metric.series -= 1,
                _ => drop(register.by_metric.remove(name)),
            }
        }
    }
}

impl Register {
    /// A series that shares what it can with others: with the others of its metric, with the one made before it, with
    /// all that have its attributes.
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

/// A cell that was taken out.
struct Gone {
    index: u32,
    cell: Cell,
    weight: u32,
}

impl Slot {
    fn clear(&mut self, index: u32) -> Option<Gone> {
        self.generation = self.generation.wrapping_add(1);
        let weight = self.weight;
        self.cell.take().map(|cell| Gone { index, cell, weight })
    }
}

/// See `Cells::cursor`.
#[derive(Debug)]
pub(crate) struct Cursor<'a>(chunks::Cursor<'a, Slot>);

impl Cursor<'_> {
    /// The cell, if its place has not gone to another series.
    pub(crate) fn get(&mut self, at: CellRef) -> Option<&mut Cell> {
        self.slot(at)?.cell.as_mut()
    }

    /// Gives the lock back.
    pub(crate) fn release(&mut self) {
        self.0.release();
    }

    fn slot(&mut self, at: CellRef) -> Option<&mut Slot> {
        let slot = self.0.get(at.index)?;
        (slot.generation == at.generation).then_some(slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Attributes, Data, Pattern, Rule};

    const CAPS: Caps = Caps {
        series: usize::MAX,
        per_metric: usize::MAX,
        bytes: usize::MAX,
    };

    fn series(number: i64) -> Series {
        Series {
            resource: Arc::default(),
            scope: Arc::default(),
            metric: Arc::new(Metric {
                name: "m".into(),
                description: "".into(),
                unit: "".into(),
                data: Data::Gauge,
                metadata: Attributes::default(),
            }),
            attributes: [("number", number)].into_iter().collect(),
        }
    }

    #[test]
    fn a_burst_that_is_over_leaves_no_memory_and_no_old_place_leads_to_a_new_cell() {
        let cells = Cells::new(10);
        let rule = Rule::new(Pattern::Glob("*".into()));
        let add = |from: i64, now: u64| -> Vec<CellRef> {
            let numbers = from..from + 1000;
            numbers
                .map(|number| {
                    cells
                        .resolve(
                            series(number),
                            CAPS,
                            |_| State::new(Data::Gauge, &rule, 0, now),
                            now,
                        )
                        .unwrap()
                })
                .collect()
        };
        let slots = || -> usize {
            (0..cells.chunks.chunks())
                .map(|chunk| cells.chunks.lock(chunk).capacity())
                .sum()
        };
        let mut old = Vec::new();
        for burst in 0..5 {
            let now = 1 + 100 * burst;
            let new = add(1000 * burst as i64, now);
            for at in &new {
                assert!(cells.cursor().get(*at).is_some() && !old.contains(at));
            }
            assert!(old.iter().all(|at| cells.cursor().get(*at).is_none()));
            old.extend(new);
            assert_eq!((cells.expire(now + 50), cells.len()), (1000, 0));
            assert!(slots() <= CHUNK as usize, "{}", slots());
        }
        assert_eq!(cells.chunks.used(), 1000, "places are used again");
    }
}
