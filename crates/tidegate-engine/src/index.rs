//! An index from keys to slots, of 8 bytes an entry: the keys themselves stand in the slots.

use std::array;

use hashbrown::HashTable;

use crate::key::Key;

/// Numbers of slots by key, in `PARTS` tables (a power of two). A table that is full moves all its entries, and whoever
/// adds the next one waits for that: 15 ms for the million of one table, half a millisecond for those of one of 64.
#[derive(Debug)]
pub(crate) struct Index<const PARTS: usize>([HashTable<Entry>; PARTS]);

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    at: u32,
}

impl<const PARTS: usize> Default for Index<PARTS> {
    fn default() -> Self {
        Self(array::from_fn(|_| HashTable::new()))
    }
}

impl<const PARTS: usize> Index<PARTS> {
    /// The slot of `key`: the one of those that may be it of which `is` says so.
    pub(crate) fn find(&self, key: Key, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = key.tag();
        let part = &self.0[part::<PARTS>(tag)];
        let found = part.find(hash(tag), |entry| entry.tag == tag && is(entry.at));
        found.map(|entry| entry.at)
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: Key, at: u32) {
        let entry = Entry { tag: key.tag(), at };
        self.0[part::<PARTS>(entry.tag)].insert_unique(hash(entry.tag), entry, |entry| hash(entry.tag));
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: Key, at: u32) {
        let tag = key.tag();
        let is = |entry: &Entry| entry.tag == tag && entry.at == at;
        if let Ok(entry) = self.0[part::<PARTS>(tag)].find_entry(hash(tag), is) {
            entry.remove();
        }
    }
}

#[cfg(test)]
impl<const PARTS: usize> Index<PARTS> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(HashTable::is_empty)
    }
}

/// Spreads a tag, which is random, over the bits that a table looks at.
fn hash(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}

/// The table of a tag: by bits of its hash that a table does not look at (it takes the lowest and the highest seven).
fn part<const PARTS: usize>(tag: u32) -> usize {
    const { assert!(PARTS.is_power_of_two()) };
    (hash(tag) >> 40) as usize & (PARTS - 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_part_has_much_more_than_the_others() {
        let mut index = Index::<64>::default();
        for number in 0..64_000 {
            index.insert(Key::of_value(&number), number);
        }
        let lengths = index.0.each_ref().map(HashTable::len);
        assert_eq!(lengths.iter().sum::<usize>(), 64_000);
        assert!(
            lengths.iter().all(|length| (750..1250).contains(length)),
            "{lengths:?}"
        );
        for number in 0..64_000 {
            assert_eq!(
                index.find(Key::of_value(&number), |at| at == number),
                Some(number)
            );
            index.remove(Key::of_value(&number), number);
        }
        assert!(index.is_empty());
    }
}
