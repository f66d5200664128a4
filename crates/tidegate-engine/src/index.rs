//! An index from keys to slots, of 8 bytes an entry: the keys themselves stand in the slots.

use hashbrown::HashTable;

use crate::key::Key;

/// Numbers of slots by key.
#[derive(Debug, Default)]
pub(crate) struct Index(HashTable<Entry>);

#[derive(Clone, Copy, Debug)]
struct Entry {
    tag: u32,
    at: u32,
}

impl Index {
    /// The slot of `key`: the one of those that may be it of which `is` says so.
    pub(crate) fn find(&self, key: Key, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = key.tag();
        let found = self.0.find(hash(tag), |entry| entry.tag == tag && is(entry.at));
        found.map(|entry| entry.at)
    }

    /// Adds a key that is not there.
    pub(crate) fn insert(&mut self, key: Key, at: u32) {
        let entry = Entry { tag: key.tag(), at };
        self.0
            .insert_unique(hash(entry.tag), entry, |entry| hash(entry.tag));
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: Key, at: u32) {
        let tag = key.tag();
        let is = |entry: &Entry| entry.tag == tag && entry.at == at;
        if let Ok(entry) = self.0.find_entry(hash(tag), is) {
            entry.remove();
        }
    }
}

#[cfg(test)]
impl Index {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Spreads a tag, which is random, over the bits that a table looks at.
fn hash(tag: u32) -> u64 {
    u64::from(tag).wrapping_mul(0x9E37_79B9_7F4A_7C15)
}
