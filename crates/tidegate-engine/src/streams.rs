// SPDX-License-Identifier: Apache-2.0

//! The state of each input stream, found by the hash of the bytes that its sender spells it with.
//!
//! Two indexes lead to a slot: `homes` by the key of the bytes, `identities` by the key of the decoded
//! identity. A sender may spell one stream in several ways; the first spelling is its home, and `aliases`
//! lead from the others to the home.
//!
//! Invariants:
//! - A live stream is in exactly one slot, once in `identities`, and once in the `homes` of the shard of
//!   its home.
//! - An alias is in the `aliases` of its own shard and in the `spellings` of its stream, or in neither.
//! - Only a thread with the register locked adds or removes streams. So `used`, `free` and `live` need no
//!   other lock.
//! - A slot that `find` returns may be empty or have another stream when it is locked: callers compare the
//!   home again.
//!
//! Lock order: register, then one shard, then one chunk of slots. Locks of callers (cells, groups, the
//! registry of sources) come after. A cursor keeps the lock of one chunk between calls, so it releases the
//! chunk before it locks a shard, and its owner releases it before a call that locks the register.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard};

use parking_lot::{Mutex as FairMutex, MutexGuard as FairGuard};

use crate::UnixNanos;
pub(crate) use crate::chunks::lock;
use crate::chunks::{self, CHUNK, Chunks};
use crate::index::Index;
use crate::key::{Key, KeyMap};
use crate::wheel::Wheel;

/// Shards of the look-up by spelling: enough that a few receivers seldom meet, few enough that idle tables
/// stay small.
const SHARDS: usize = 16;

/// Aliases that a stream may have. Points with further spellings are decoded each time.
const MAX_ALIASES: usize = 8;

/// No stream has this number.
const NONE: u32 = u32::MAX;

/// State of type `T` by stream.
///
/// Slots are in the order of arrival, and each stream has the number of the stream that followed it the last
/// time. A sender that sends the same streams again in the same order finds them without an index, one after
/// the other in memory.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    shards: Box<[Mutex<Shard>]>,
    /// Fair: a sweep that removes many streams hands the lock to waiting threads between chunks.
    register: FairMutex<Register>,
    chunks: Chunks<StreamSlot<T>>,
    max_streams: usize,
    term_ns: u64,
    live: AtomicUsize,
}

type StreamSlot<T> = Option<StreamEntry<T>>;

#[derive(Debug)]
struct StreamEntry<T> {
    /// The key of its first spelling.
    home: Key,
    /// The key of its decoded identity.
    identity: Key,
    seen: UnixNanos,
    /// The slot of the stream that followed it the last time, or `NONE`.
    next: u32,
    state: T,
}

/// Streams by the bytes they are sent as.
#[derive(Debug, Default)]
struct Shard {
    /// All shards together have as many parts as `identities`.
    homes: Index<4>,
    /// The homes of the streams, by their other spellings.
    aliases: KeyMap<Key>,
}

/// The state for adding and removing streams. Look-ups of known streams do without it.
#[derive(Debug)]
struct Register {
    identities: Index<64>,
    /// The aliases of each slot, for their removal: few streams have any.
    spellings: HashMap<u32, Vec<Key>>,
    free: Vec<u32>,
    /// The times at which the terms of the streams of a chunk are checked.
    wheel: Wheel<u32>,
}

/// The decision about a stream whose term is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sweep {
    Keep,
    Forget,
}

impl Sweep {
    pub(crate) fn forget_if(forget: bool) -> Self {
        if forget { Self::Forget } else { Self::Keep }
    }
}

impl<T> Streams<T> {
    /// A store whose streams may be silent for `term_ns`; see [`Self::expire`].
    pub(crate) fn new(max_streams: usize, term_ns: u64) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            register: FairMutex::new(Register {
                identities: Index::default(),
                spellings: HashMap::new(),
                free: Vec::new(),
                wheel: Wheel::new(term_ns),
            }),
            chunks: Chunks::default(),
            max_streams,
            term_ns,
            live: AtomicUsize::new(0),
        }
    }

    /// Calls `act` with the state of the stream that was seen before under `key`.
    pub(crate) fn known<R>(&self, key: Key, now: UnixNanos, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        self.cursor().get(key, now).map(act)
    }

    /// Access to one stream after the other.
    pub(crate) fn cursor(&self) -> StreamCursor<'_, T> {
        StreamCursor {
            streams: self,
            chunk: self.chunks.cursor(),
            last: NONE,
            next: NONE,
            in_order: true,
        }
    }

    /// [`Self::try_register`] for a state that always finds room.
    #[cfg(test)]
    pub(crate) fn register(
        &self,
        key: Key,
        identity: Key,
        now: UnixNanos,
        make: impl FnOnce() -> T,
    ) -> Option<Key> {
        self.try_register(key, identity, now, || Some(make()))
    }

    /// Registers the stream of `identity` under `key`. For a new stream, `make` makes its state; it gives `None`
    /// without room. Returns the key of the stream's home, under which a look-up always finds it; `None`: no room. The
    /// caller's cursors must hold no lock.
    pub(crate) fn try_register(
        &self,
        key: Key,
        identity: Key,
        now: UnixNanos,
        make: impl FnOnce() -> Option<T>,
    ) -> Option<Key> {
        let mut register = self.register.lock();
        if let Some((at, home)) = self.of_identity(&register, identity) {
            if home != key && register.add_spelling(at, key) {
                self.shard(key).aliases.insert(key, home);
            }
            return Some(home);
        }
        if self.len() >= self.max_streams {
            return None;
        }
        let stream = StreamEntry {
            home: key,
            identity,
            seen: now,
            next: NONE,
            state: make()?,
        };
        let at = self.insert(&mut register, stream, now);
        register.identities.insert(identity, at);
        self.shard(key).homes.insert(key, at);
        self.live.fetch_add(1, Relaxed);
        Some(key)
    }

    /// Shows every stream to `each` with the time it was last seen; a chunk at a time is locked.
    pub(crate) fn each(&self, mut each: impl FnMut(&mut T, UnixNanos)) {
        self.chunks.each(|_, slot| {
            if let Some(stream) = slot {
                each(&mut stream.state, stream.seen);
            }
        });
    }

    /// The same with the identity of each stream, without a change of its state.
    pub(crate) fn each_identified(&self, mut each: impl FnMut(&T, UnixNanos, Key)) {
        self.chunks.each(|_, slot| {
            if let Some(stream) = slot {
                each(&stream.state, stream.seen, stream.identity);
            }
        });
    }

    /// Begins a snapshot: shows the streams of this moment to `some`, a chunk at a time, with the time they
    /// were last seen; see [`Chunks::begin_snapshot`].
    pub(crate) fn begin_snapshot(
        &self,
        some: impl Fn(&mut dyn Iterator<Item = (&T, UnixNanos)>) + Send + Sync + 'static,
    ) {
        self.chunks.begin_snapshot(move |_, slots| {
            let streams = slots.iter().flatten();
            some(&mut streams.map(|stream| (&stream.state, stream.seen)));
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

    /// Shows `each` the streams whose term is over, with the time they were last seen and their identity. Streams that
    /// it keeps are due again after another term at the latest.
    pub(crate) fn expire(&self, now: UnixNanos, mut each: impl FnMut(&mut T, UnixNanos, Key) -> Sweep) {
        let mut register = self.register.lock();
        let due = register.wheel.take(now);
        for chunk in due {
            let mut next = now.saturating_add(self.term_ns);
            let mut gone = Vec::new();
            let mut slots = self.chunks.lock(chunk);
            for (at, slot) in slots.iter_mut().enumerate() {
                let Some(stream) = slot else { continue };
                let due = stream.seen.saturating_add(self.term_ns);
                if due > now {
                    next = next.min(due);
                } else if each(&mut stream.state, stream.seen, stream.identity) == Sweep::Forget {
                    gone.push((chunk * CHUNK + at as u32, stream.home, stream.identity));
                    *slot = None;
                }
            }
            // The memory of a burst that is over goes back.
            if slots.iter().all(Option::is_none) {
                slots.vacate();
            }
            drop(slots);
            register.wheel.add(next, chunk);
            self.live.fetch_sub(gone.len(), Relaxed);
            gone.into_iter()
                .for_each(|(at, home, identity)| self.unlink(&mut register, at, home, identity));
            // Threads that add streams get the lock between two chunks.
            FairGuard::bump(&mut register);
        }
        if self.len() == 0 {
            register.spellings.shrink_to_fit();
            self.shards
                .iter()
                .for_each(|shard| lock(shard).aliases.shrink_to_fit());
        }
    }

    /// Calls `act` with the register locked: no thread adds or expires streams meanwhile.
    pub(crate) fn still<R>(&self, act: impl FnOnce() -> R) -> R {
        let _register = self.register.lock();
        act()
    }

    /// The number of known streams.
    pub(crate) fn len(&self) -> usize {
        self.live.load(Relaxed)
    }

    fn of_identity(&self, register: &Register, identity: Key) -> Option<(u32, Key)> {
        let mut cursor = self.chunks.cursor();
        let mut home = identity;
        let at = register.identities.find(identity, |at| {
            let stream = cursor.get(at).and_then(|slot| slot.as_ref());
            let found = stream.filter(|stream| stream.identity == identity);
            home = found.map_or(home, |stream| stream.home);
            found.is_some()
        });
        at.map(|at| (at, home))
    }

    /// Stores a stream in a free slot or a new one, and returns its number.
    fn insert(&self, register: &mut Register, stream: StreamEntry<T>, now: UnixNanos) -> u32 {
        register.wheel.start(now);
        if let Some(at) = register.free.pop() {
            self.chunks.refill(at / CHUNK, || None);
            if let Some(slot) = self.chunks.cursor().get(at) {
                *slot = Some(stream);
            }
            return at;
        }
        let at = self.chunks.push(Some(stream));
        if at.is_multiple_of(CHUNK) {
            register.wheel.add(now.saturating_add(self.term_ns), at / CHUNK);
        }
        at
    }

    fn unlink(&self, register: &mut Register, at: u32, home: Key, identity: Key) {
        self.shard(home).homes.remove(home, at);
        register.identities.remove(identity, at);
        for alias in register.spellings.remove(&at).unwrap_or_default() {
            self.shard(alias).aliases.remove(&alias);
        }
        register.free.push(at);
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard> {
        lock(&self.shards[key.shard(SHARDS)])
    }
}

impl Register {
    fn add_spelling(&mut self, at: u32, alias: Key) -> bool {
        let spellings = self.spellings.entry(at).or_default();
        let has_room = spellings.len() < MAX_ALIASES;
        if has_room {
            spellings.push(alias);
        }
        has_room
    }
}

/// See [`Streams::cursor`].
#[derive(Debug)]
pub(crate) struct StreamCursor<'a, T> {
    streams: &'a Streams<T>,
    chunk: chunks::ChunkCursor<'a, StreamSlot<T>>,
    last: u32,
    /// The slot that followed the last stream the last time.
    next: u32,
    /// Whether the last stream was the expected one. Guessing costs a lock where the order is new each time.
    in_order: bool,
}

impl<T> StreamCursor<'_, T> {
    /// The stream that was seen before under `key`. Its chunk stays locked until the next call or `release`.
    pub(crate) fn get(&mut self, key: Key, now: UnixNanos) -> Option<&mut T> {
        if self.in_order && self.next != NONE {
            self.chunk.get(self.next);
            if self.is_next_locked(key) {
                return self.next_if_locked(key, now);
            }
        }
        let (at, home) = self.find(key)?;
        self.in_order = at == self.next;
        if !self.in_order {
            self.note_order(at);
        }
        // The stream may have left between the locks of the shard and the chunk: `next_if_locked` checks.
        self.chunk.get(at);
        self.next = at;
        self.next_if_locked(home, now)
    }

    /// The stream of `key`, if it is the expected next one and its chunk is locked already. Takes no lock.
    #[inline]
    pub(crate) fn next_if_locked(&mut self, key: Key, now: UnixNanos) -> Option<&mut T> {
        let stream = self.chunk.held(self.next)?.as_mut();
        let stream = stream.filter(|stream| stream.home == key)?;
        self.last = self.next;
        self.next = stream.next;
        stream.seen = stream.seen.max(now);
        Some(&mut stream.state)
    }

    /// Whether the expected next stream has this home. Its chunk has to be locked.
    fn is_next_locked(&mut self, key: Key) -> bool {
        let next = self.chunk.held(self.next).and_then(|slot| slot.as_ref());
        next.is_some_and(|stream| stream.home == key)
    }

    /// Gives the lock back.
    pub(crate) fn release(&mut self) {
        self.chunk.release();
    }

    /// The slot and the home of the stream of `key`.
    fn find(&mut self, key: Key) -> Option<(u32, Key)> {
        // Shards before chunks.
        self.chunk.release();
        self.find_home(key).or_else(|| {
            let home = self.streams.shard(key).aliases.get(&key).copied()?;
            self.find_home(home)
        })
    }

    fn find_home(&mut self, home: Key) -> Option<(u32, Key)> {
        let (shard, chunk) = (self.streams.shard(home), &mut self.chunk);
        let at = shard.homes.find(home, |at| {
            let stream = chunk.get(at).and_then(|slot| slot.as_ref());
            stream.is_some_and(|stream| stream.home == home)
        });
        at.map(|at| (at, home))
    }

    fn note_order(&mut self, next: u32) {
        if self.last != NONE
            && let Some(last) = self.chunk.get(self.last).and_then(Option::as_mut)
        {
            last.next = next;
        }
    }
}

#[cfg(test)]
mod tests;
