// SPDX-License-Identifier: Apache-2.0

//! Builds attribute sets from entries in any order, with one allocation for the set alone.

use std::ops::Range;

use smallvec::SmallVec;

use super::encoded::{EncodedEntry, Entries, put_entry};
use super::{AttributeRef, Attributes, MapRef};

/// Collects the entries of a set. It can be used again for the next one, which then has its room.
#[derive(Debug, Default)]
pub struct AttributesBuilder {
    /// The entries as they came.
    bytes: Vec<u8>,
    /// The entries in key order, if they arrived in another order.
    sorted: Vec<u8>,
    /// The position of the last entry's key in `bytes`.
    last_key: Range<usize>,
    /// Whether some key was not above the one before it.
    is_unordered: bool,
}

impl AttributesBuilder {
    /// Adds an entry; it takes the place of one with the same key.
    pub fn push(&mut self, key: &str, value: AttributeRef<'_>) {
        let last_key = self.bytes.get(self.last_key.clone()).unwrap_or_default();
        self.is_unordered |= !self.bytes.is_empty() && last_key >= key.as_bytes();
        self.last_key = put_entry(&mut self.bytes, key, value);
    }

    /// The set of the entries added since the last call.
    pub fn finish(&mut self) -> Attributes {
        self.finish_with(|set| Attributes::of(set.0))
    }

    /// Lends this set to a function, without an allocation for it.
    pub fn finish_with<R>(&mut self, look: impl FnOnce(MapRef<'_>) -> R) -> R {
        if self.is_unordered {
            self.sort();
        }
        let set = if self.is_unordered {
            &self.sorted
        } else {
            &self.bytes
        };
        let result = look(MapRef(set));
        self.bytes.clear();
        self.is_unordered = false;
        result
    }

    fn sort(&mut self) {
        let mut entries: SmallVec<[EncodedEntry<'_>; 16]> = Entries(&self.bytes).collect();
        entries.sort_by(|a, b| a.key.cmp(b.key));
        self.sorted.clear();
        self.sorted.reserve(self.bytes.len());
        for (at, entry) in entries.iter().enumerate() {
            // The sort is stable: of several with one key the last one came last.
            if entries.get(at + 1).is_none_or(|next| next.key != entry.key) {
                self.sorted.extend_from_slice(entry.whole);
            }
        }
    }
}
