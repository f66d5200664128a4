//! What is remembered of each input stream, found by the hash of the bytes it was sent as.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::UnixNanos;
use crate::key::{Key, KeyMap};
use crate::wheel::Wheel;

/// Enough that a handful of receivers seldom meet, few enough that idle tables stay small.
const SHARDS: usize = 16;

/// Other spellings of one stream that are remembered; further ones are decoded each time.
const MAX_ALIASES: usize = 8;

/// State of type `T` by stream.
///
/// A stream lives in the shard of the key it was first seen under; other spellings lead there. Lock order:
/// `first` before shards; callers' own locks (cells, groups) come after.
#[derive(Debug)]
pub(crate) struct Streams<T> {
    shards: Box<[Mutex<Shard<T>>]>,
    /// The key under which each stream lives, by the key of its decoded identity, where that is another.
    first: Mutex<KeyMap<Key>>,
    max_per_shard: usize,
    term_ns: u64,
    live: AtomicUsize,
}

#[derive(Debug)]
struct Shard<T> {
    /// Streams that live here.
    index: KeyMap<u32>,
    /// Other spellings of streams, and the keys under which they live.
    aliases: KeyMap<Key>,
    slots: Vec<Option<Stream<T>>>,
    /// How each stream was found; apart from what every point needs.
    names: Vec<Names>,
    /// Other spellings of those that live here, by slot: few have any.
    spellings: HashMap<u32, Vec<Key>>,
    free: Vec<u32>,
    /// When to look whether a stream, by slot and birth, is still wanted.
    wheel: Wheel<(u32, u32)>,
    births: u32,
}

#[derive(Debug)]
struct Stream<T> {
    state: T,
    seen: UnixNanos,
    birth: u32,
}

#[derive(Clone, Copy, Debug)]
struct Names {
    home: Key,
    identity: Key,
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
        let shard = || {
            Mutex::new(Shard {
                index: KeyMap::default(),
                aliases: KeyMap::default(),
                slots: Vec::new(),
                names: Vec::new(),
                spellings: HashMap::new(),
                free: Vec::new(),
                wheel: Wheel::new(term_ns),
                births: 0,
            })
        };
        Self {
            shards: (0..SHARDS).map(|_| shard()).collect(),
            first: Mutex::default(),
            max_per_shard: max_streams.div_ceil(SHARDS),
            term_ns,
            live: AtomicUsize::new(0),
        }
    }

    /// Calls `act` with the state of the stream that was seen before under `key`.
    pub(crate) fn known<R>(&self, key: Key, now: UnixNanos, act: impl FnOnce(&mut T) -> R) -> Option<R> {
        let mut shard = self.shard(key);
        if let Some(slot) = shard.index.get(&key).copied() {
            return shard.touch(slot, now).map(act);
        }
        let home = *shard.aliases.get(&key)?;
        drop(shard);
        let mut shard = self.shard(home);
        let slot = *shard.index.get(&home)?;
        shard.touch(slot, now).map(act)
    }

    /// Makes the stream of `identity` known under `key`; `make` makes its state if it is new. Gives the key under
    /// which it lives, by which it is known in any case; `None`: no room.
    pub(crate) fn learn(
        &self,
        key: Key,
        identity: Key,
        now: UnixNanos,
        make: impl FnOnce() -> T,
    ) -> Option<Key> {
        let mut first = lock(&self.first);
        let is_known_by_itself = || self.shard(identity).index.contains_key(&identity);
        let home = match first.get(&identity) {
            Some(home) => *home,
            None if is_known_by_itself() => identity,
            None => key,
        };
        let mut shard = self.shard(home);
        match shard.index.get(&home).copied() {
            Some(slot) => {
                let alias = home != key && shard.add_alias(slot, key);
                drop(shard);
                if alias {
                    self.shard(key).aliases.insert(key, home);
                }
                Some(home)
            }
            None if shard.len() >= self.max_per_shard => None,
            None => {
                let names = Names { home, identity };
                let state = make();
                shard.insert(state, now, self.term_ns, names);
                self.live.fetch_add(1, Relaxed);
                if home != identity {
                    first.insert(identity, home);
                }
                Some(home)
            }
        }
    }

    /// Shows every stream to `each` with the time it was last seen; a shard at a time is locked.
    pub(crate) fn each(&self, mut each: impl FnMut(&mut T, UnixNanos)) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            for stream in shard.slots.iter_mut().flatten() {
                each(&mut stream.state, stream.seen);
            }
        }
    }

    /// Shows to `each` the streams whose term may be over, with the time they were last seen and their identity;
    /// those that it keeps come up again after another term.
    pub(crate) fn expire(&self, now: UnixNanos, mut each: impl FnMut(&mut T, UnixNanos, Key) -> Sweep) {
        for shard in &self.shards {
            let mut first = lock(&self.first);
            let gone = lock(shard).expire(now, self.term_ns, &mut each);
            self.live.fetch_sub(gone.len(), Relaxed);
            self.unlink(&mut first, gone);
        }
    }

    /// How many streams are known.
    pub(crate) fn len(&self) -> usize {
        self.live.load(Relaxed)
    }

    fn unlink(&self, first: &mut KeyMap<Key>, gone: Vec<(Names, Vec<Key>)>) {
        for (names, spellings) in gone {
            first.remove(&names.identity);
            for alias in spellings {
                self.shard(alias).aliases.remove(&alias);
            }
        }
    }

    fn shard(&self, key: Key) -> MutexGuard<'_, Shard<T>> {
        lock(&self.shards[key.shard(SHARDS)])
    }
}

impl<T> Shard<T> {
    fn touch(&mut self, slot: u32, now: UnixNanos) -> Option<&mut T> {
        let stream = self.slots.get_mut(slot as usize)?.as_mut()?;
        stream.seen = stream.seen.max(now);
        Some(&mut stream.state)
    }

    fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    fn insert(&mut self, state: T, now: UnixNanos, term_ns: u64, names: Names) {
        let home = names.home;
        self.births = self.births.wrapping_add(1);
        let birth = self.births;
        let stream = Some(Stream {
            state,
            seen: now,
            birth,
        });
        let slot = match self.free.pop() {
            Some(slot) => {
                self.slots[slot as usize] = stream;
                self.names[slot as usize] = names;
                slot
            }
            None => {
                self.slots.push(stream);
                self.names.push(names);
                self.slots.len() as u32 - 1
            }
        };
        self.wheel.start(now);
        self.wheel.add(now.saturating_add(term_ns), (slot, birth));
        self.index.insert(home, slot);
    }

    fn add_alias(&mut self, slot: u32, alias: Key) -> bool {
        let spellings = self.spellings.entry(slot).or_default();
        let has_room = spellings.len() < MAX_ALIASES;
        if has_room {
            spellings.push(alias);
        }
        has_room
    }

    fn expire(
        &mut self,
        now: UnixNanos,
        term_ns: u64,
        each: &mut impl FnMut(&mut T, UnixNanos, Key) -> Sweep,
    ) -> Vec<(Names, Vec<Key>)> {
        let mut gone = Vec::new();
        for (at, birth) in self.wheel.take(now) {
            let (slot, names) = (&mut self.slots[at as usize], &mut self.names[at as usize]);
            let Some(stream) = slot.as_mut().filter(|stream| stream.birth == birth) else {
                continue;
            };
            if each(&mut stream.state, stream.seen, names.identity) == Sweep::Keep {
                let due = stream.seen.saturating_add(term_ns);
                let next = if due > now {
                    due
                } else {
                    now.saturating_add(term_ns)
                };
                self.wheel.add(next, (at, birth));
                continue;
            }
            *slot = None;
            self.free.push(at);
            self.index.remove(&names.home);
            gone.push((*names, self.spellings.remove(&at).unwrap_or_default()));
        }
        gone
    }
}

/// A poisoned lock means that a caller's closure panicked between two whole updates: the state is usable.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> Key {
        Key::of_value(&n)
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
        assert_eq!(
            (streams.known(key(1), 3, |n| *n), streams.known(key(2), 3, |n| *n)),
            (None, None)
        );
        assert_eq!(streams.learn(key(2), key(0), 1, || 5), Some(key(2)));
        assert_eq!(streams.known(key(2), 3, |n| *n), Some(5));
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
        let streams = Streams::new(SHARDS, 10);
        let learnt: Vec<u64> = (0..1000)
            .filter(|n| streams.learn(key(*n), key(*n), 1, || ()).is_some())
            .collect();
        assert_eq!((learnt.len(), streams.len()), (SHARDS, SHARDS), "one a shard");
        streams.expire(
            20,
            |(), seen, _| if seen == 1 { Sweep::Forget } else { Sweep::Keep },
        );
        assert_eq!(streams.len(), 0);
        assert!(streams.learn(key(7), key(7), 1, || ()).is_some());
    }
}
