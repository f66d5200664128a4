// SPDX-License-Identifier: Apache-2.0

//! Slots that never move, in chunks with a lock each: writers and readers of many items share short locks.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// The number of slots under one lock: a reader that renders 50 ns a series holds it for less than 3 µs.
pub(crate) const CHUNK: u32 = 32;

/// Chunks of the first segment; each further segment doubles, so growing never moves a slot.
const FIRST_CHUNKS: u32 = 16;
const SEGMENTS: usize = 24;

/// The slots under one lock, and the number of the last snapshot that has them.
#[derive(Debug)]
pub(crate) struct Chunk<T> {
    slots: Vec<T>,
    snapshot: u32,
}

impl<T> Default for Chunk<T> {
    fn default() -> Self {
        Self {
            slots: Vec::new(),
            snapshot: 0,
        }
    }
}

impl<T> Chunk<T> {
    /// Frees the memory of its slots, which are no longer used; `false`: it is the last chunk, and not full yet. Its
    /// slots do not exist until [`Chunks::refill`].
    pub(crate) fn vacate(&mut self) -> bool {
        let is_full = self.slots.len() == CHUNK as usize;
        if is_full {
            self.slots = Vec::new();
        }
        is_full
    }
}

impl<T> Deref for Chunk<T> {
    type Target = Vec<T>;

    fn deref(&self) -> &Vec<T> {
        &self.slots
    }
}

impl<T> DerefMut for Chunk<T> {
    fn deref_mut(&mut self) -> &mut Vec<T> {
        &mut self.slots
    }
}

/// Copies the slots of a chunk for a snapshot. It gets the number of the chunk.
type SnapshotReader<T> = Arc<dyn Fn(u32, &mut [T]) + Send + Sync>;

/// Chunks with a lock each; empty until the first is needed.
type Segment<T> = OnceLock<Box<[Mutex<Chunk<T>>]>>;

/// Slots by number.
///
/// A snapshot is copy-on-write: [`Self::begin_snapshot`] raises the number of snapshots, and `lock` shows a
/// chunk with an older number to the reader before it returns the guard. So the reader sees each chunk as it
/// was, once.
///
/// Lock order: one chunk at a time, and `reader` inside it for as long as it takes to clone the `Arc`.
pub(crate) struct Chunks<T> {
    segments: [Segment<T>; SEGMENTS],
    used: AtomicU32,
    reader: Mutex<Option<SnapshotReader<T>>>,
    /// The number of snapshots begun so far.
    snapshots: AtomicU32,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            segments: std::array::from_fn(|_| OnceLock::new()),
            used: AtomicU32::new(0),
            reader: Mutex::default(),
            snapshots: AtomicU32::new(0),
        }
    }
}

impl<T> fmt::Debug for Chunks<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks")
            .field("used", &self.used)
            .finish_non_exhaustive()
    }
}

impl<T> Chunks<T> {
    /// The number of slots.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// The number of chunks with slots.
    pub(crate) fn chunks(&self) -> u32 {
        self.used().div_ceil(CHUNK)
    }

    /// Adds a slot and gives its number. The caller ensures that no other thread does so at the same time.
    pub(crate) fn push(&self, slot: T) -> u32 {
        let at = self.used();
        let mut slots = self.lock(at / CHUNK);
        if slots.is_empty() {
            slots.reserve_exact(CHUNK as usize);
        }
        slots.push(slot);
        self.used.store(at + 1, Relaxed);
        at
    }

    /// Puts slots into a chunk that was vacated; see [`Chunk::vacate`].
    pub(crate) fn refill(&self, chunk: u32, make: impl FnMut() -> T) {
        let mut slots = self.lock(chunk);
        if slots.is_empty() {
            slots.slots = std::iter::repeat_with(make).take(CHUNK as usize).collect();
        }
    }

    /// A chunk, by number; the first of its slots has the number of the chunk times `CHUNK`.
    pub(crate) fn lock(&self, chunk: u32) -> MutexGuard<'_, Chunk<T>> {
        let number = chunk + FIRST_CHUNKS;
        let bit = number.ilog2();
        let size = 1 << bit;
        let segment = &self.segments[(bit - FIRST_CHUNKS.trailing_zeros()) as usize];
        let chunks = segment.get_or_init(|| (0..size).map(|_| Mutex::default()).collect());
        let mut slots = lock(&chunks[(number - size) as usize]);
        let snapshots = self.snapshots.load(Relaxed);
        if slots.snapshot != snapshots {
            self.show_to_reader(chunk, &mut slots, snapshots);
        }
        slots
    }

    #[cold]
    fn show_to_reader(&self, number: u32, chunk: &mut Chunk<T>, snapshot: u32) {
        chunk.snapshot = snapshot;
        let reader = lock(&self.reader).clone();
        if let Some(reader) = reader {
            reader(number, &mut chunk.slots);
        }
    }

    /// Begins a snapshot of this moment. `reader` sees each chunk before its first change, and the other
    /// chunks in [`Self::snapshot_rest`]. The chunk is locked during the call. One snapshot at a time, until
    /// [`Self::end_snapshot`].
    pub(crate) fn begin_snapshot(&self, reader: impl Fn(u32, &mut [T]) + Send + Sync + 'static) {
        *lock(&self.reader) = Some(Arc::new(reader));
        self.snapshots.fetch_add(1, Relaxed);
    }

    /// Shows its reader the chunks that no thread has locked since the snapshot began. It calls `between` every few
    /// thousand slots and at the end, without a lock.
    ///
    /// # Errors
    /// The first of `between`; the remaining chunks are not shown then.
    pub(crate) fn snapshot_rest<E>(&self, between: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        for chunk in 0..self.chunks() {
            drop(self.lock(chunk));
            if chunk.is_multiple_of(128) {
                between()?;
            }
        }
        between()
    }

    /// Drops the reader. Chunks that it has not seen are not part of the snapshot.
    pub(crate) fn end_snapshot(&self) {
        *lock(&self.reader) = None;
    }

    /// Shows every slot to `each`, a chunk at a time.
    pub(crate) fn each(&self, mut each: impl FnMut(u32, &mut T)) {
        for chunk in 0..self.chunks() {
            let mut slots = self.lock(chunk);
            for (at, slot) in slots.iter_mut().enumerate() {
                each(chunk * CHUNK + at as u32, slot);
            }
        }
    }

    /// Access to single slots, that keeps the lock of the last one's chunk.
    pub(crate) fn cursor(&self) -> ChunkCursor<'_, T> {
        ChunkCursor {
            chunks: self,
            held: None,
        }
    }
}

/// See [`Chunks::cursor`].
#[derive(Debug)]
pub(crate) struct ChunkCursor<'a, T> {
    chunks: &'a Chunks<T>,
    held: Option<(u32, MutexGuard<'a, Chunk<T>>)>,
}

impl<T> ChunkCursor<'_, T> {
    /// The slot of this number.
    #[inline]
    pub(crate) fn get(&mut self, at: u32) -> Option<&mut T> {
        let chunk = at / CHUNK;
        if self.held.as_ref().is_none_or(|(held, _)| *held != chunk) {
            // Never two at a time: the thread that holds the other one may wait for this one.
            self.held = None;
            self.held = Some((chunk, self.chunks.lock(chunk)));
        }
        self.held(at)
    }

    /// The slot of this number, if the lock that it needs is held.
    #[inline]
    pub(crate) fn held(&mut self, at: u32) -> Option<&mut T> {
        let (held, slots) = self.held.as_mut()?;
        if *held == at / CHUNK {
            slots.get_mut((at % CHUNK) as usize)
        } else {
            None
        }
    }

    /// Gives the lock back.
    pub(crate) fn release(&mut self) {
        self.held = None;
    }
}

/// A poisoned lock means that a caller's closure panicked between two whole updates: the state is usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
