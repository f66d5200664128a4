// SPDX-License-Identifier: Apache-2.0

//! Attribute sets, interned: the metrics of an agent have the same attributes, in any order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

use crate::Attributes;

/// Few enough that idle tables stay small, enough that growing and sweeping one of them is soon done.
const SHARDS: usize = 64;

/// Sets that series share. A set without series goes when its shard is swept.
#[derive(Debug)]
pub(super) struct Sets {
    shards: Box<[HashTable<Attributes>]>,
    hasher: RandomState,
    /// The shard that is swept next.
    next: usize,
}

impl Default for Sets {
    fn default() -> Self {
        Self {
            shards: (0..SHARDS).map(|_| HashTable::new()).collect(),
            hasher: RandomState::default(),
            next: 0,
        }
    }
}

impl Sets {
    /// The set that is equal to `set` and was here first.
    pub(super) fn share(&mut self, set: &mut Attributes) {
        if set.is_empty() {
            return;
        }
        let hasher = &self.hasher;
        let hash = hasher.hash_one(&*set);
        // Not the bits that the table of the shard looks at: it takes the highest and the lowest.
        let shard = &mut self.shards[(hash >> 32) as usize % SHARDS];
        match shard.find(hash, |known| known == set) {
            Some(known) => set.clone_from(known),
            None => {
                shard.insert_unique(hash, set.clone(), |known| hasher.hash_one(known));
            }
        }
    }

    /// Removes sets without users, in one shard after the other.
    pub(super) fn sweep_some(&mut self) {
        let hasher = &self.hasher;
        let shard = &mut self.shards[self.next % SHARDS];
        shard.retain(|set| set.is_shared());
        if shard.len() < shard.capacity() / 4 {
            shard.shrink_to(shard.len() * 2, |known| hasher.hash_one(known));
        }
        self.next += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(number: u32) -> Attributes {
        [("number", i64::from(number))].into_iter().collect()
    }

    #[test]
    fn equal_sets_are_one_and_go_with_their_last_owner() {
        // With this many, some of every shard's sets go.
        let mut sets = Sets::default();
        let len = |sets: &Sets| sets.shards.iter().map(HashTable::len).sum::<usize>();
        let mut kept: Vec<Attributes> = (0..10_000).map(|number| set(number % 5000)).collect();
        kept.iter_mut().for_each(|set| sets.share(set));
        assert_eq!(len(&sets), 5000);
        for (at, shared) in kept.iter().enumerate() {
            assert_eq!(*shared, set(at as u32 % 5000));
            assert_eq!(shared.encoded().as_ptr(), kept[at % 5000].encoded().as_ptr());
        }
        (0..SHARDS).for_each(|_| sets.sweep_some());
        assert_eq!(len(&sets), 5000, "all are wanted");

        kept.truncate(5000);
        (0..SHARDS).for_each(|_| sets.sweep_some());
        assert_eq!(len(&sets), 5000, "one has each");
        kept.truncate(1000);
        (0..SHARDS - 1).for_each(|_| sets.sweep_some());
        assert!(len(&sets) > 1000, "a shard has not had its turn");
        sets.sweep_some();
        assert_eq!(len(&sets), 1000);
        let capacity: usize = sets.shards.iter().map(HashTable::capacity).sum();
        assert!(capacity < 10_000, "room is given back: {capacity}");
    }

    #[test]
    fn no_attributes_are_shared_without_an_entry() {
        let mut sets = Sets::default();
        let mut none = Attributes::default();
        sets.share(&mut none);
        assert!(none.is_empty() && sets.shards.iter().all(HashTable::is_empty));
    }
}
