// SPDX-License-Identifier: Apache-2.0

//! Interns the encoded labels of series. The metrics of an agent have the same labels, so each text is stored
//! once.
//!
//! One buffer holds the texts in the order of their arrival. The number of a text is its offset in units of
//! [`UNIT`] bytes. When unused texts take more than half of the buffer, a sweep removes them. A sweep changes the
//! numbers of the others but not their order.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

/// The reference count (4 bytes) and the length (4 bytes) of a text.
const HEADER: usize = 8;

/// The unit of the numbers in bytes, so that they cover 16 GiB.
const UNIT: usize = 4;

/// Below this many unused bytes a sweep does not pay.
const SWEEP_FROM: usize = if cfg!(test) { 64 } else { 64 << 10 };

/// Reference-counted texts by number.
///
/// Invariant: `index` has exactly the texts whose count is above 0, and `dead` is the size of all others.
#[derive(Debug, Default)]
pub(super) struct LabelInterner {
    bytes: Vec<u8>,
    index: HashTable<u32>,
    hasher: RandomState,
    dead: usize,
}

/// The error of a full buffer: 16 GiB.
pub(super) struct Full;

impl LabelInterner {
    /// Adds a reference to a text, which it stores if it is new. Returns its number.
    pub(super) fn intern(&mut self, text: &[u8]) -> Result<u32, Full> {
        let hash = self.hasher.hash_one(text);
        let bytes = &mut self.bytes;
        if let Some(known) = self.index.find(hash, |known| text_at(bytes, *known) == text) {
            add(bytes, *known, 1);
            return Ok(*known);
        }
        let number = u32::try_from(bytes.len() / UNIT).map_err(|_| Full)?;
        let size = u32::try_from(text.len()).map_err(|_| Full)?;
        bytes.extend_from_slice(&1u32.to_le_bytes());
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(text);
        bytes.resize(bytes.len().next_multiple_of(UNIT), 0);
        let (bytes, hasher) = (&self.bytes, &self.hasher);
        let rehash = |number: &u32| hasher.hash_one(text_at(bytes, *number));
        self.index.insert_unique(hash, number, rehash);
        Ok(number)
    }

    /// Adds a reference to a stored text.
    pub(super) fn add_ref(&mut self, number: u32) {
        add(&mut self.bytes, number, 1);
    }

    /// Removes a reference. The bytes of an unused text stay until the next sweep.
    pub(super) fn release(&mut self, number: u32) {
        if add(&mut self.bytes, number, -1) > 0 {
            return;
        }
        let text = text_at(&self.bytes, number);
        self.dead += taken(text.len());
        let hash = self.hasher.hash_one(text);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == number) {
            entry.remove();
        }
    }

    /// The text of this number.
    #[inline]
    pub(super) fn get(&self, number: u32) -> &[u8] {
        text_at(&self.bytes, number)
    }

    /// Removes unused texts if they are many. The caller must then replace every number it holds as the
    /// result says.
    pub(super) fn sweep(&mut self) -> Option<Moved> {
        if self.dead < SWEEP_FROM || self.dead <= self.bytes.len() / 2 {
            return None;
        }
        let mut kept = Vec::with_capacity(self.bytes.len() - self.dead);
        let mut moved = Vec::with_capacity(self.index.len());
        let mut at = 0;
        while at < self.bytes.len() {
            let number = (at / UNIT) as u32;
            let end = at + taken(text_at(&self.bytes, number).len());
            if count_at(&self.bytes, number) > 0 {
                moved.push((number, (kept.len() / UNIT) as u32));
                kept.extend_from_slice(self.bytes.get(at..end).unwrap_or_default());
            }
            at = end;
        }
        self.bytes = kept;
        self.dead = 0;
        let (bytes, hasher) = (&self.bytes, &self.hasher);
        let rehash = |number: &u32| hasher.hash_one(text_at(bytes, *number));
        self.index = HashTable::with_capacity(moved.len());
        for (_, number) in &moved {
            self.index.insert_unique(rehash(number), *number, rehash);
        }
        Some(Moved(moved))
    }

    /// Returns most of the spare capacity.
    pub(super) fn fit(&mut self) {
        let used = self.bytes.len();
        if self.bytes.capacity() > used + used / 4 {
            // A copy, because a shrink to more than half keeps the allocation.
            let mut fitting = Vec::with_capacity(used + used / 16);
            fitting.extend_from_slice(&self.bytes);
            self.bytes = fitting;
        }
    }
}

/// Old numbers and new ones, both rising.
pub(super) struct Moved(Vec<(u32, u32)>);

impl Moved {
    /// The new number of a text that is in use.
    pub(super) fn to(&self, old: u32) -> u32 {
        let at = self.0.binary_search_by_key(&old, |(old, _)| *old);
        at.ok().and_then(|at| self.0.get(at)).map_or(old, |(_, new)| *new)
    }
}

fn taken(text: usize) -> usize {
    (HEADER + text).next_multiple_of(UNIT)
}

/// A number of the header.
#[inline]
fn word(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk());
    word.map_or(0, |word| u32::from_le_bytes(*word))
}

fn count_at(bytes: &[u8], number: u32) -> u32 {
    word(bytes, number as usize * UNIT)
}

#[inline]
fn text_at(bytes: &[u8], number: u32) -> &[u8] {
    let at = number as usize * UNIT;
    let size = word(bytes, at + 4) as usize;
    bytes.get(at + HEADER..at + HEADER + size).unwrap_or_default()
}

/// Changes the reference count of a text and returns the new count.
fn add(bytes: &mut [u8], number: u32, change: i32) -> u32 {
    let at = number as usize * UNIT;
    let count = word(bytes, at).saturating_add_signed(change);
    if let Some(place) = bytes.get_mut(at..at + 4) {
        place.copy_from_slice(&count.to_le_bytes());
    }
    count
}

#[cfg(test)]
impl LabelInterner {
    pub(super) fn is_empty(&self) -> bool {
        self.index.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Compared with a map: a used text has one number, and unused space is reclaimed.
        #[test]
        fn a_text_is_there_once_while_it_is_used(
            steps in prop::collection::vec((0u32..60, any::<bool>()), 1..400),
        ) {
            let mut interner = LabelInterner::default();
            let mut model: BTreeMap<Vec<u8>, (u32, u32)> = BTreeMap::new();
            for (name, more) in steps {
                let text = format!("{name}:{}", "x".repeat(name as usize * 70)).into_bytes();
                if more {
                    let Ok(number) = interner.intern(&text) else { panic!("full") };
                    let (known, count) = model.entry(text).or_insert((number, 0));
                    prop_assert_eq!(*known, number);
                    *count += 1;
                } else if let Some((number, count)) = model.get_mut(&text) {
                    interner.release(*number);
                    *count -= 1;
                    if *count == 0 {
                        model.remove(&text);
                    }
                }
                if let Some(moved) = interner.sweep() {
                    model.values_mut().for_each(|(number, _)| *number = moved.to(*number));
                    let live: usize = model.keys().map(|text| taken(text.len())).sum();
                    prop_assert_eq!(interner.bytes.len(), live);
                }
                interner.fit();
                for (text, (number, _)) in &model {
                    prop_assert_eq!(interner.get(*number), &text[..]);
                }
                prop_assert_eq!(interner.index.len(), model.len());
            }
        }
    }
}
