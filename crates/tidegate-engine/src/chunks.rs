//! Slots that never move, in chunks behind a lock each: writers and readers of many things share short locks.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

/// Slots behind one lock: a reader that renders 50 ns a series holds it for 3 us.
pub(crate) const CHUNK: u32 = 32;

/// Chunks of the first segment; each further segment doubles, so growing never moves a slot.
const FIRST_CHUNKS: u32 = 16;
const SEGMENTS: usize = 24;

type Chunk<T> = Mutex<Vec<T>>;

/// Slots by number.
#[derive(Debug)]
pub(crate) struct Chunks<T> {
    segments: [OnceLock<Box<[Chunk<T>]>>; SEGMENTS],
    used: AtomicU32,
}

impl<T> Default for Chunks<T> {
    fn default() -> Self {
        Self {
            segments: std::array::from_fn(|_| OnceLock::new()),
            used: AtomicU32::new(0),
        }
    }
}

impl<T> Chunks<T> {
    /// How many slots there are.
    pub(crate) fn used(&self) -> u32 {
        self.used.load(Relaxed)
    }

    /// One slot more; gives its number. The caller sees to it that nobody else does the same at that time.
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

    /// A chunk, by number; the first of its slots has the number of the chunk times `CHUNK`.
    pub(crate) fn lock(&self, chunk: u32) -> MutexGuard<'_, Vec<T>> {
        let number = chunk + FIRST_CHUNKS;
        let bit = 31 - number.leading_zeros();
        let size = 1 << bit;
        let segment = &self.segments[(bit - FIRST_CHUNKS.trailing_zeros()) as usize];
        let chunks = segment.get_or_init(|| (0..size).map(|_| Chunk::default()).collect());
        lock(&chunks[(number - size) as usize])
    }

    /// Shows every slot to `each`, a chunk at a time.
    pub(crate) fn each(&self, mut each: impl FnMut(u32, &mut T)) {
        for chunk in 0..self.used().div_ceil(CHUNK) {
            let mut slots = self.lock(chunk);
            for (at, slot) in slots.iter_mut().enumerate() {
                each(chunk * CHUNK + at as u32, slot);
            }
        }
    }

    /// Access to single slots, that keeps the lock of the last one's chunk.
    pub(crate) fn cursor(&self) -> Cursor<'_, T> {
        Cursor {
            chunks: self,
            held: None,
        }
    }
}

/// See [`Chunks::cursor`].
#[derive(Debug)]
pub(crate) struct Cursor<'a, T> {
    chunks: &'a Chunks<T>,
    held: Option<(u32, MutexGuard<'a, Vec<T>>)>,
}

impl<T> Cursor<'_, T> {
    /// The slot of this number.
    #[inline]
    pub(crate) fn get(&mut self, at: u32) -> Option<&mut T> {
        let chunk = at / CHUNK;
        if self.held.as_ref().is_none_or(|(held, _)| *held != chunk) {
            // Never two at a time: whoever holds the other one may wait for this one.
            self.held = None;
            self.held = Some((chunk, self.chunks.lock(chunk)));
        }
        self.held(at)
    }

    /// The slot of this number, if the lock that it needs is held.
    #[inline]
    pub(crate) fn held(&mut self, at: u32) -> Option<&mut T> {
        let (held, slots) = self.held.as_mut()?;
        match *held == at / CHUNK {
            true => slots.get_mut((at % CHUNK) as usize),
            false => None,
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
