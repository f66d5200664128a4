//! A cache in two generations: who was not asked for while the younger one filled goes with the older.

use std::collections::HashMap;

use tidegate_engine::Key;

#[derive(Debug)]
pub(super) struct Generations<V> {
    young: HashMap<Key, V>,
    old: HashMap<Key, V>,
    weight: usize,
    limit: usize,
}

impl<V> Generations<V> {
    /// Of about twice `limit` in weight.
    pub(super) fn new(limit: usize) -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            weight: 0,
            limit,
        }
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }

    /// From now on it is of about twice `limit` in weight.
    pub(super) fn limit_to(&mut self, limit: usize) {
        self.limit = limit;
    }

    /// What is there under this key, or what `make` makes; `weigh` says what it weighs.
    pub(super) fn get(
        &mut self,
        key: Key,
        weigh: impl FnOnce(&V) -> usize,
        make: impl FnOnce() -> Option<V>,
    ) -> Option<&mut V> {
        if self.weight >= self.limit {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).or_else(make)?;
            self.weight += weigh(&value);
            self.young.insert(key, value);
        }
        self.young.get_mut(&key)
    }
}
