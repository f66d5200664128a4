// SPDX-License-Identifier: Apache-2.0

//! The stream states of a previous process, kept until their streams report again.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::chunks::{Chunks, lock};
use crate::saved::StreamId;

/// Restored states of type `T`, by the id that a stream has in every process.
///
/// Restoring fills it before the first stream comes. Each state leaves once: its stream takes it, or it
/// expires.
///
/// Invariant: `slots_by_id` maps an id to the slot that holds its state. Slots are not used again, so that a
/// vacated chunk stays empty. Only `insert` adds slots, by one caller at a time.
///
/// Lock order: `slots_by_id` before chunks. `take` releases the first before it locks the second, so a sweep
/// may empty the slot in between.
#[derive(Debug)]
pub(crate) struct RestoredStates<T> {
    slots_by_id: Mutex<HashMap<StreamId, u32>>,
    chunks: Chunks<Option<(StreamId, T)>>,
}

impl<T> Default for RestoredStates<T> {
    fn default() -> Self {
        Self {
            slots_by_id: Mutex::default(),
            chunks: Chunks::default(),
        }
    }
}

impl<T> RestoredStates<T> {
    /// Stores the state of a stream, and replaces the one it had. Returns `false` when `most` states are
    /// here and the stream has none. One caller at a time.
    pub(crate) fn insert(&self, id: StreamId, state: T, most: usize) -> bool {
        self.insert_or_join(id, state, most, |known, state| *known = state)
    }

    /// The same, but if the stream has a state, `join` adds the new one to it.
    pub(crate) fn insert_or_join(
        &self,
        id: StreamId,
        state: T,
        most: usize,
        join: impl FnOnce(&mut T, T),
    ) -> bool {
        let mut slots_by_id = lock(&self.slots_by_id);
        if let Some(at) = slots_by_id.get(&id).copied() {
            let mut cursor = self.chunks.cursor();
            let Some(slot) = cursor.get(at) else {
                return false;
            };
            match slot {
                Some((_, known)) => join(known, state),
                None => *slot = Some((id, state)),
            }
            return true;
        }
        let has_room = slots_by_id.len() < most;
        if has_room {
            slots_by_id.insert(id, self.chunks.push(Some((id, state))));
        }
        has_room
    }

    /// Shows every state to `each`, a chunk at a time.
    pub(crate) fn each(&self, mut each: impl FnMut(StreamId, &T)) {
        self.chunks.each(|_, slot| {
            if let Some((id, state)) = slot {
                each(*id, state);
            }
        });
    }

    /// Removes the state of a stream that is seen again, and returns it.
    pub(crate) fn take(&self, id: StreamId) -> Option<T> {
        let at = lock(&self.slots_by_id).remove(&id)?;
        // A sweep may have emptied the slot between the two locks.
        let (_, state) = self.chunks.cursor().get(at)?.take()?;
        Some(state)
    }

    /// Drops the states for which `keep` returns `false`. It calls `together` once a chunk, with the closure
    /// that sweeps the chunk, so that the caller can hold a lock around it.
    pub(crate) fn retain(&self, together: impl Fn(&mut dyn FnMut()), mut keep: impl FnMut(&mut T) -> bool) {
        // The last call found no state and freed the memory.
        if lock(&self.slots_by_id).capacity() == 0 {
            return;
        }
        let mut gone = Vec::new();
        for chunk in 0..self.chunks.chunks() {
            together(&mut || {
                let mut slots = self.chunks.lock(chunk);
                for slot in slots.iter_mut() {
                    gone.extend(slot.take_if(|(_, state)| !keep(state)).map(|(id, _)| id));
                }
                // Slots are not used again, so an empty chunk needs no memory.
                if slots.iter().all(Option::is_none) {
                    slots.vacate();
                }
            });
            let mut slots_by_id = lock(&self.slots_by_id);
            for id in gone.drain(..) {
                slots_by_id.remove(&id);
            }
        }
        let mut slots_by_id = lock(&self.slots_by_id);
        if slots_by_id.is_empty() {
            slots_by_id.shrink_to_fit();
        }
    }

    /// Begins a snapshot: shows the states of this moment to `some`, a chunk at a time; see
    /// [`Chunks::begin_snapshot`].
    pub(crate) fn begin_snapshot(
        &self,
        some: impl Fn(&mut dyn Iterator<Item = &(StreamId, T)>) + Send + Sync + 'static,
    ) {
        self.chunks
            .begin_snapshot(move |_, slots| some(&mut slots.iter().flatten()));
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn id(n: u64) -> StreamId {
        (u128::from(n) << 64).to_le_bytes()
    }

    fn filled(n: u64) -> RestoredStates<u64> {
        let restored = RestoredStates::default();
        assert!((0..n).all(|n| restored.insert(id(n), n, usize::MAX)));
        restored
    }

    #[test]
    fn each_is_taken_once_and_the_last_word_counts() {
        let restored = filled(100);
        assert!(restored.insert(id(7), 700, 100));
        assert!(!restored.insert(id(100), 100, 100), "there is no space");
        assert_eq!((restored.take(id(7)), restored.take(id(7))), (Some(700), None));
        assert_eq!((restored.take(id(8)), restored.take(id(100))), (Some(8), None));
        restored.retain(|act| act(), |n| *n % 2 == 0);
        let left: Vec<u64> = (0..101).filter_map(|n| restored.take(id(n))).collect();
        assert_eq!(left, (0..100).step_by(2).filter(|n| *n != 8).collect::<Vec<_>>());
        restored.retain(|act| act(), |_| panic!("no state is left"));
        assert!(restored.chunks.lock(0).is_empty(), "their memory went back");
        restored.retain(|_| panic!("it is not looked at again"), |_| true);
    }

    #[test]
    fn a_snapshot_has_all_as_they_were_despite_later_changes() {
        let restored = filled(100);
        restored.take(id(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let by_reader = seen.clone();
        restored.begin_snapshot(move |some| lock(&by_reader).extend(some.map(|(_, n)| *n)));
        restored.take(id(1));
        restored.insert(id(2), 200, 100);
        restored.retain(|act| act(), |n| *n < 50);
        let shown = restored.snapshot_rest(&mut || Ok::<_, ()>(()));
        restored.end_snapshot();
        restored.take(id(3));
        assert_eq!(shown, Ok(()));
        let mut seen = std::mem::take(&mut *lock(&seen));
        seen.sort_unstable();
        assert_eq!(seen, (1..100).collect::<Vec<_>>());
    }
}
