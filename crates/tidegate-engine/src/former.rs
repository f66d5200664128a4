//! What a former process knew of its streams, until each is seen again.

use std::collections::HashMap;
use std::sync::Mutex;

use crate::chunks::{Chunks, lock};
use crate::saved::StreamId;

/// State of type `T` by what a stream is called in every process. It is put here before the first stream comes, and
/// taken out once: places are not used again.
///
/// Lock order: places before chunks.
#[derive(Debug)]
pub(crate) struct Former<T> {
    places: Mutex<HashMap<StreamId, u32>>,
    chunks: Chunks<Option<(StreamId, T)>>,
}

impl<T> Default for Former<T> {
    fn default() -> Self {
        Self {
            places: Mutex::default(),
            chunks: Chunks::default(),
        }
    }
}

impl<T> Former<T> {
    /// Puts a stream's state here, unless that were more than `most`; in place of what is known of it. Whether it is
    /// here now. By one caller at a time.
    pub(crate) fn put(&self, id: StreamId, state: T, most: usize) -> bool {
        let mut places = lock(&self.places);
        if let Some(at) = places.get(&id).copied() {
            let mut cursor = self.chunks.cursor();
            let slot = cursor.get(at);
            return slot.map(|slot| *slot = Some((id, state))).is_some();
        }
        let has_room = places.len() < most;
        if has_room {
            places.insert(id, self.chunks.push(Some((id, state))));
        }
        has_room
    }

    /// What is known of a stream, for the stream that goes on with it.
    pub(crate) fn take(&self, id: StreamId) -> Option<T> {
        let at = lock(&self.places).remove(&id)?;
        // Between two locks it may have gone.
        let (_, state) = self.chunks.cursor().get(at)?.take()?;
        Some(state)
    }

    /// Forgets those for which `keep` says no. Those of a chunk are looked at in a call of `together`.
    pub(crate) fn retain(&self, together: impl Fn(&mut dyn FnMut()), mut keep: impl FnMut(&mut T) -> bool) {
        // All are taken, and their memory went back with the last call.
        if lock(&self.places).capacity() == 0 {
            return;
        }
        let mut gone = Vec::new();
        for chunk in 0..self.chunks.chunks() {
            together(&mut || {
                let mut slots = self.chunks.lock(chunk);
                for slot in slots.iter_mut() {
                    gone.extend(slot.take_if(|(_, state)| !keep(state)).map(|(id, _)| id));
                }
                // Places are not used again.
                if slots.iter().all(Option::is_none) {
                    slots.vacate();
                }
            });
            let mut places = lock(&self.places);
            for id in gone.drain(..) {
                places.remove(&id);
            }
        }
        let mut places = lock(&self.places);
        if places.is_empty() {
            places.shrink_to_fit();
        }
    }

    /// Shows all that are here now to `some`, a chunk at a time; see [`Chunks::begin_witness`].
    pub(crate) fn begin_witness(
        &self,
        some: impl Fn(&mut dyn Iterator<Item = &(StreamId, T)>) + Send + Sync + 'static,
    ) {
        self.chunks
            .begin_witness(move |_, slots| some(&mut slots.iter().flatten()));
    }

    /// See [`Chunks::witness_rest`].
    pub(crate) fn witness_rest<E>(&self, between: &mut dyn FnMut() -> Result<(), E>) -> Result<(), E> {
        self.chunks.witness_rest(between)
    }

    /// See [`Chunks::dismiss`].
    pub(crate) fn dismiss(&self) {
        self.chunks.dismiss();
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn id(n: u64) -> StreamId {
        (u128::from(n) << 64).to_le_bytes()
    }

    fn filled(n: u64) -> Former<u64> {
        let former = Former::default();
        assert!((0..n).all(|n| former.put(id(n), n, usize::MAX)));
        former
    }

    #[test]
    fn each_is_taken_once_and_the_last_word_counts() {
        let former = filled(100);
        assert!(former.put(id(7), 700, 100));
        assert!(!former.put(id(100), 100, 100), "there is no room");
        assert_eq!((former.take(id(7)), former.take(id(7))), (Some(700), None));
        assert_eq!((former.take(id(8)), former.take(id(100))), (Some(8), None));
        former.retain(|act| act(), |n| *n % 2 == 0);
        let left: Vec<u64> = (0..101).filter_map(|n| former.take(id(n))).collect();
        assert_eq!(left, (0..100).step_by(2).filter(|n| *n != 8).collect::<Vec<_>>());
        former.retain(|act| act(), |_| panic!("nobody is left"));
        assert!(former.chunks.lock(0).is_empty(), "their memory went back");
        former.retain(|_| panic!("it is not looked at again"), |_| true);
    }

    #[test]
    fn a_witness_sees_all_as_they_were_whoever_is_taken_or_goes_meanwhile() {
        let former = filled(100);
        former.take(id(0));
        let seen = Arc::new(Mutex::new(Vec::new()));
        let by_witness = seen.clone();
        former.begin_witness(move |some| lock(&by_witness).extend(some.map(|(_, n)| *n)));
        former.take(id(1));
        former.put(id(2), 200, 100);
        former.retain(|act| act(), |n| *n < 50);
        let shown = former.witness_rest(&mut || Ok::<_, ()>(()));
        former.dismiss();
        former.take(id(3));
        assert_eq!(shown, Ok(()));
        let mut seen = std::mem::take(&mut *lock(&seen));
        seen.sort_unstable();
        assert_eq!(seen, (1..100).collect::<Vec<_>>());
    }
}
