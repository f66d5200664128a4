// SPDX-License-Identifier: Apache-2.0

//! A cache in two generations: values not used while the younger one filled are dropped with the older one.

use std::collections::HashMap;

use tidegate_engine::Key;

use tidegate_pipeline::component::Account;

/// The most bytes of a series cache over both generations. A memory limit below 2 GiB lowers it.
const MOST: usize = 256 << 20;

/// The divisor of the memory limit that gives the lower value.
const SHARE: usize = 8;

/// The overhead of a series beside the text of its labels, in bytes.
pub(super) const SERIES_BYTES: usize = 512;

/// The most bytes of all parts of a cache.
pub(super) fn most(account: &Account) -> usize {
    MOST.min(account.limit() / SHARE)
}

#[derive(Debug)]
pub(super) struct Generations<V> {
    young: HashMap<Key, V>,
    old: HashMap<Key, V>,
    weight: usize,
    /// Values that went, since that was asked last.
    evicted: usize,
}

impl<V> Default for Generations<V> {
    fn default() -> Self {
        Self {
            young: HashMap::new(),
            old: HashMap::new(),
            weight: 0,
            evicted: 0,
        }
    }
}

impl<V> Generations<V> {
    /// The value of this key, made by `make` if it is missing. `weigh` gives its bytes. The total is about `most`.
    pub(super) fn get(
        &mut self,
        key: Key,
        most: usize,
        weigh: impl FnOnce(&V) -> usize,
        make: impl FnOnce() -> Option<V>,
    ) -> Option<&mut V> {
        if self.weight >= most / 2 && !self.young.is_empty() {
            let gone = std::mem::replace(&mut self.old, std::mem::take(&mut self.young));
            self.evicted += gone.len();
            self.weight = 0;
        }
        if !self.young.contains_key(&key) {
            let value = self.old.remove(&key).or_else(make)?;
            self.weight += weigh(&value);
            self.young.insert(key, value);
        }
        self.young.get_mut(&key)
    }

    /// A value that was got has grown.
    pub(super) fn grow(&mut self, weight: usize) {
        self.weight += weight;
    }

    /// The number of values evicted since the last call.
    pub(super) fn take_evicted(&mut self) -> usize {
        std::mem::take(&mut self.evicted)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_weigh_as_much_as_they_may_and_those_that_go_are_counted() {
        let mut all = Generations::default();
        let key = |number: u32| Key::of_value(&number);
        for number in 0..1000 {
            all.get(key(number), 100, |_| 10, || Some(number));
            // One that is in use stays.
            assert_eq!(all.get(key(0), 100, |_| 10, || None), Some(&mut 0));
            assert!(all.young.len() + all.old.len() <= 10 + 1);
        }
        assert_eq!(all.take_evicted() + all.young.len() + all.old.len(), 1000);
        assert_eq!(all.take_evicted(), 0);
        // Growth after the insertion counts.
        all.grow(50);
        all.get(key(1000), 100, |_| 10, || Some(1000));
        assert_eq!(all.young.len(), 1);
        assert!(
            all.get(key(1001), 0, |_| 10, || Some(1001)).is_some(),
            "there is always room for one"
        );
    }
}
