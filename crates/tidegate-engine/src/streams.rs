//! What is remembered of each input stream, found by the hash of the bytes it was sent as.

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

/// Enough that a handful of receivers seldom meet, few enough that idle tables stay small.
const SHARDS: usize = 16;

/// Other spellings of one stream that are remembered; further ones are decoded each time.
const MAX_ALIASES: usize = 8;

/// No stream has this number.
const NONE: u32 = u32::MAX;

/// State of type `T` by stream.
///
/// A stream lives under the key it was first seen under; other spellings lead there. Streams stand in the order in
/// which they came, and each knows which one followed it the last time: a sender that sends the same streams again in the
/// same order finds them without the index, one after the other in memory.
///
/// Lock order: register, shards, chunks of streams; callers' own locks (cells, groups) come after.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    shards: Box<[Mutex<Shard>]>,
    /// Fair: who lets go of much gives others their turn in between.
    register: FairMutex<Register>,
    chunks: Chunks<Slot<T>>,
    max_streams: usize,
    term_ns: u64,
    live: AtomicUsize,
}

type Slot<T> = Option<Stream<T>>;

#[derive(Debug)]
struct Stream<T> {
    /// The key under which it lives.
    home: Key,
    /// The key of its decoded identity.
    identity: Key,
    seen: UnixNanos,
    /// The stream that came after it the last time.
    next: u32,
    state: T,
}

/// Streams by the bytes they are sent as.
#[derive(Debug, Default)]
struct Shard {
    /// Together as many parts as `identities` has.
    homes: Index<4>,
    /// Other spellings, and the keys under which their streams live.
    aliases: KeyMap<Key>,
}

/// What only those need to know who add and remove streams.
#[derive(Debug)]
struct Register {
    identities: Index<64>,
    /// Other spellings of streams: few have any.
    spellings: HashMap<u32, Vec<Key>>,
    free: Vec<u32>,
    /// When to look whether the streams of a chunk are still wanted.
    wheel: Wheel<u32>,
}

/// What becomes of a stream whose term may be over.
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
    /// Looks at streams that have said nothing for `term_ns`; see [`Self::expire`].
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
    pub(crate) fn cursor(&self) -> Cursor<'_, T> {
        Cursor {
            streams: self,
            chunk: self.chunks.cursor(),
            last: NONE,
            next: NONE,
            in_order: true,
        }
    }

    /// [`Self::try_learn`] for a state that always finds room.
    #[cfg(test)]
    pub(crate) fn learn(
        &self,
        key: Key,
        identity: Key,
        now: UnixNanos,
        make: impl FnOnce() -> T,
    ) -> Option<Key> {
        self.try_learn(key, identity, now, || Some(make()))
    }

    /// Makes the stream of `identity` known under `key`; `make` makes its state if it is new, unless it finds that there
    /// is no room. Gives the key under which it lives, by which it is known in any case; `None`: no room. Call it with no
    /// cursor that holds a lock.
    pub(crate) fn try_learn(
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
        let stream = Stream {
            home: key,
            identity,
            seen: now,
            next: NONE,
            state: make()?,
        };
        let at = self.place(&mut register, stream, now);
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

    /// Shows to `each` the streams whose term is over, with the time they were last seen and their identity; those
    /// that it keeps come up again after another term at the latest.
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
            // After a burst that is over, its memory is for others.
            if slots.iter().all(Option::is_none) {
                slots.vacate();
            }
            drop(slots);
            register.wheel.add(next, chunk);
            self.live.fetch_sub(gone.len(), Relaxed);
            gone.into_iter()
                .for_each(|(at, home, identity)| self.unlink(&mut register, at, home, identity));
            // A chunk at a time: new streams do not wait for all that have gone.
            FairGuard::bump(&mut register);
        }
        if self.len() == 0 {
            register.spellings.shrink_to_fit();
            self.shards
                .iter()
                .for_each(|shard| lock(shard).aliases.shrink_to_fit());
        }
    }

    /// Calls `act` while nobody adds or expires streams.
    pub(crate) fn still<R>(&self, act: impl FnOnce() -> R) -> R {
        let _register = self.register.lock();
        act()
    }

    /// How many streams are known.
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

    fn place(&self, register: &mut Register, stream: Stream<T>, now: UnixNanos) -> u32 {
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
pub(crate) struct Cursor<'a, T> {
    streams: &'a Streams<T>,
    chunk: chunks::Cursor<'a, Slot<T>>,
    last: u32,
    /// What came after the last one the last time.
    next: u32,
    /// Whether the last one was what came next the last time.
    in_order: bool,
}

impl<T> Cursor<'_, T> {
    /// The stream that was seen before under `key`. Its chunk stays locked until the next call or `release`.
    pub(crate) fn get(&mut self, key: Key, now: UnixNanos) -> Option<&mut T> {
        if self.in_order && self.next != NONE {
            self.chunk.get(self.next);
            if self.is_at_hand(key) {
                return self.at_hand(key, now);
            }
        }
        let (at, home) = self.find(key)?;
        // Where the order is another every time, looking for what came next only costs.
        self.in_order = at == self.next;
        if !self.in_order {
            self.note_order(at);
        }
        // Between two locks it may have gone.
        self.chunk.get(at);
        self.next = at;
        self.at_hand(home, now)
    }

    /// The stream of `key`, if it came next the last time and its chunk is held: no lock is taken.
    #[inline]
    pub(crate) fn at_hand(&mut self, key: Key, now: UnixNanos) -> Option<&mut T> {
        let stream = self.chunk.held(self.next)?.as_mut();
        let stream = stream.filter(|stream| stream.home == key)?;
        self.last = self.next;
        self.next = stream.next;
        stream.seen = stream.seen.max(now);
        Some(&mut stream.state)
    }

    fn is_at_hand(&mut self, key: Key) -> bool {
        let next = self.chunk.held(self.next).and_then(|slot| slot.as_ref());
        next.is_some_and(|stream| stream.home == key)
    }

    /// Gives the lock back.
    pub(crate) fn release(&mut self) {
        self.chunk.release();
    }

    /// Where the stream of `key` is, and its home.
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
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(n: u64) -> Key {
        Key::of_value(&n)
    }

    proptest! {
        /// Whatever order they come in, and no matter who was forgotten meanwhile, a cursor finds what a map has.
        #[test]
        fn a_cursor_finds_what_a_map_has(steps in prop::collection::vec((0u64..100, 0u8..30), 1..600)) {
            let streams = Streams::new(1000, 10);
            let mut model: HashMap<u64, u64> = HashMap::new();
            let mut cursor = streams.cursor();
            for (at, (n, forget)) in steps.into_iter().enumerate() {
                let now = at as u64;
                // Two spellings of each identity.
                let identity = n / 2;
                let found = cursor.get(key(n), now).map(|state| *state);
                match model.get(&identity) {
                    Some(birth) if found.is_some() => prop_assert_eq!(found, Some(*birth)),
                    _ => {
                        prop_assert_eq!(found, None);
                        cursor.release();
                        let home = streams.learn(key(n), key(1000 + identity), now, || now);
                        let state = cursor.get(home.expect("there is room"), now).map(|state| *state);
                        prop_assert_eq!(state, Some(*model.entry(identity).or_insert(now)));
                    }
                }
                if forget == 0 {
                    cursor.release();
                    streams.expire(now + 20, |birth, _, _| {
                        let forget = *birth % 3 == 0;
                        if forget {
                            model.retain(|_, other| other != birth);
                        }
                        Sweep::forget_if(forget)
                    });
                }
                prop_assert_eq!(streams.len(), model.len());
            }
        }
    }

    #[test]
    fn two_spellings_lead_to_one_stream_and_go_together() {
        let streams = Streams::new(100, 10);
        assert_eq!(streams.learn(key(1), key(0), 1, || 10), Some(key(1)));
        assert_eq!(streams.learn(key(2), key(0), 1, || 99), Some(key(1)));
        assert_eq!(
            streams.known(key(2), 2, |n| {
                *n += 1;
                *n
            }),
            Some(11)
        );
        assert_eq!(streams.known(key(1), 2, |n| *n), Some(11));
        assert_eq!(streams.len(), 1);
        streams.expire(20, |_, _, _| Sweep::Forget);
        for shard in &streams.shards {
            let shard = lock(shard);
            assert!(shard.homes.is_empty() && shard.aliases.is_empty());
        }
        assert!(streams.register.lock().identities.is_empty());
        assert_eq!(
            (streams.known(key(1), 3, |n| *n), streams.known(key(2), 3, |n| *n)),
            (None, None)
        );
        assert_eq!(streams.learn(key(2), key(0), 1, || 5), Some(key(2)));
        assert_eq!(streams.known(key(2), 3, |n| *n), Some(5));
    }

    #[test]
    fn a_burst_that_is_over_leaves_no_memory() {
        let streams = Streams::new(usize::MAX, 10);
        let slots = || -> usize {
            let chunks = 0..streams.chunks.chunks();
            chunks.map(|chunk| streams.chunks.lock(chunk).capacity()).sum()
        };
        for burst in 0..5 {
            let (now, first) = (1 + 100 * burst, 1000 * burst);
            for n in first..first + 1000 {
                assert_eq!(streams.learn(key(n), key(n), now, || n), Some(key(n)));
            }
            assert!((first..first + 1000).all(|n| streams.known(key(n), now, |state| *state) == Some(n)));
            assert_eq!(streams.known(key(first + 1000), now, |state| *state), None);
            streams.expire(now + 50, |_, _, _| Sweep::Forget);
            assert_eq!(streams.len(), 0);
            assert!(slots() <= CHUNK as usize, "{}", slots());
        }
        assert_eq!(streams.chunks.used(), 1000, "places are used again");
    }

    #[test]
    fn spellings_beyond_the_cap_still_find_their_stream_after_learning() {
        let streams = Streams::new(100, 10);
        for n in 1..100 {
            assert_eq!(streams.learn(key(n), key(0), 1, || n), Some(key(1)));
        }
        assert_eq!(streams.len(), 1);
        let known = (1..100)
            .filter(|n| streams.known(key(*n), 1, |_| ()).is_some())
            .count();
        assert_eq!(known, 1 + MAX_ALIASES);
    }

    #[test]
    fn a_full_store_refuses_new_streams_and_keeps_old_ones() {
        let streams = Streams::new(70, 10);
        let learnt: Vec<u64> = (0..1000)
            .filter(|n| streams.learn(key(*n), key(*n), 1, || ()).is_some())
            .collect();
        assert_eq!((learnt.len(), streams.len()), (70, 70));
        streams.expire(
            20,
            |(), seen, _| if seen == 1 { Sweep::Forget } else { Sweep::Keep },
        );
        assert_eq!(streams.len(), 0);
        assert!(streams.learn(key(7), key(7), 1, || ()).is_some());
    }
}
