//! The series of one family: where each is read and its label text, one after the other in one piece of memory.
//!
//! A record is its place (8 bytes), its origin (4), the length of its text (4), the text. What has ended is marked and
//! swept out when it is more than half. An index of 5 bytes a series finds a text, which must not come twice.

use std::hash::BuildHasher;

use foldhash::fast::RandomState;
use hashbrown::HashTable;

const HEADER: usize = 16;

/// The place of a record whose series has ended. A place in a table has a generation below this.
const DEAD: u64 = u64::MAX;

/// Less than this that is dead is not worth moving the rest.
const SWEEP_FROM: usize = 4096;

/// One series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record<'a> {
    /// Where it stands.
    pub(super) at: u32,
    /// Where its value is read; `None`: it has ended.
    pub(super) place: Option<u64>,
    /// Which table and which target it is of.
    pub(super) origin: u32,
    /// Its labels, as the format has them.
    pub(super) text: &'a [u8],
}

/// Records of series.
#[derive(Debug, Default)]
pub(super) struct Arena {
    bytes: Vec<u8>,
    index: HashTable<u32>,
    live: u32,
    dead: usize,
}

/// There is no room for more: 4 GiB.
pub(super) struct Full;

impl Arena {
    /// Series that have not ended.
    pub(super) fn live(&self) -> u32 {
        self.live
    }

    /// The record of this text.
    pub(super) fn find(&self, hasher: &RandomState, text: &[u8]) -> Option<Record<'_>> {
        let is = |at: &u32| text_at(&self.bytes, *at) == text;
        let at = self.index.find(hasher.hash_one(text), is)?;
        self.record(*at)
    }

    /// Adds a series whose text is not there.
    pub(super) fn push(
        &mut self,
        hasher: &RandomState,
        place: u64,
        origin: u32,
        text: &[u8],
    ) -> Result<(), Full> {
        let at = u32::try_from(self.bytes.len()).map_err(|_| Full)?;
        let size = u32::try_from(text.len()).map_err(|_| Full)?;
        self.bytes.extend_from_slice(&place.to_le_bytes());
        self.bytes.extend_from_slice(&origin.to_le_bytes());
        self.bytes.extend_from_slice(&size.to_le_bytes());
        self.bytes.extend_from_slice(text);
        let bytes = &self.bytes;
        let hash = |at: &u32| hasher.hash_one(text_at(bytes, *at));
        self.index.insert_unique(hasher.hash_one(text), at, hash);
        self.live += 1;
        Ok(())
    }

    /// The record at this place.
    #[inline]
    pub(super) fn record(&self, at: u32) -> Option<Record<'_>> {
        let (header, rest) = self.bytes.get(at as usize..)?.split_first_chunk::<HEADER>()?;
        let [p0, p1, p2, p3, p4, p5, p6, p7, o0, o1, o2, o3, s0, s1, s2, s3] = *header;
        let place = u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7]);
        Some(Record {
            at,
            place: (place != DEAD).then_some(place),
            origin: u32::from_le_bytes([o0, o1, o2, o3]),
            text: rest.get(..u32::from_le_bytes([s0, s1, s2, s3]) as usize)?,
        })
    }

    /// All records in the order in which they came.
    pub(super) fn records(&self) -> impl Iterator<Item = Record<'_>> {
        let mut at = 0;
        std::iter::from_fn(move || {
            let record = self.record(at)?;
            // It fits: the next one was put there by `push`, which looks.
            at += (HEADER + record.text.len()) as u32;
            Some(record)
        })
    }

    /// Lets series go.
    pub(super) fn bury(&mut self, hasher: &RandomState, gone: &[u32]) {
        for at in gone {
            let Some(record) = self.record(*at).filter(|record| record.place.is_some()) else {
                continue;
            };
            let size = HEADER + record.text.len();
            let hash = hasher.hash_one(record.text);
            if let Ok(entry) = self.index.find_entry(hash, |other| other == at) {
                entry.remove();
            }
            if let Some(place) = self.bytes.get_mut(*at as usize..*at as usize + 8) {
                place.copy_from_slice(&DEAD.to_le_bytes());
            }
            self.dead += size;
            self.live -= 1;
        }
        if self.dead > self.bytes.len() / 2 && (self.dead >= SWEEP_FROM || self.live == 0) {
            self.sweep(hasher);
        }
    }

    fn sweep(&mut self, hasher: &RandomState) {
        let mut kept = Self {
            bytes: Vec::with_capacity(self.bytes.len() - self.dead),
            index: HashTable::with_capacity(self.live as usize),
            ..Self::default()
        };
        for record in self.records() {
            if let Some(place) = record.place {
                // There is room: it is less than there was.
                let _ = kept.push(hasher, place, record.origin, record.text);
            }
        }
        *self = kept;
    }

    /// Gives back most of the room that growing has taken in advance.
    pub(super) fn fit(&mut self) {
        let used = self.bytes.len();
        if self.bytes.capacity() > used + used / 4 {
            self.bytes.shrink_to(used + used / 16);
        }
    }
}

/// The text of a record that is there.
fn text_at(bytes: &[u8], at: u32) -> &[u8] {
    let from = at as usize + HEADER;
    let size = bytes.get(from - 4..from).and_then(|size| size.try_into().ok());
    let size = size.map_or(0, u32::from_le_bytes) as usize;
    bytes.get(from..from + size).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Against a map: what is pushed is found and walked over, what is buried is not, and room comes back.
        #[test]
        fn an_arena_holds_what_was_pushed_and_not_buried(
            steps in prop::collection::vec((0u32..60, any::<bool>(), 0usize..200), 1..400),
        ) {
            let (mut arena, hasher) = (Arena::default(), RandomState::default());
            let mut model: BTreeMap<Vec<u8>, u64> = BTreeMap::new();
            for (number, (name, keep, size)) in steps.into_iter().enumerate() {
                let text = format!("{name}:{}", "x".repeat(size / 2 * 3)).into_bytes();
                let known = model.keys().find(|text| text.starts_with(format!("{name}:").as_bytes())).cloned();
                match (known, keep) {
                    (Some(text), false) => {
                        let at = arena.find(&hasher, &text).expect("it is there").at;
                        arena.bury(&hasher, &[at]);
                        model.remove(&text);
                    }
                    (None, _) => {
                        prop_assert!(arena.push(&hasher, number as u64, name, &text).is_ok());
                        model.insert(text, number as u64);
                    }
                    _ => {}
                }
                arena.fit();
                let mut walked: Vec<_> = arena
                    .records()
                    .filter_map(|record| Some((record.text.to_vec(), record.place?)))
                    .collect();
                walked.sort();
                prop_assert_eq!(walked, model.clone().into_iter().collect::<Vec<_>>());
                prop_assert_eq!(arena.live() as usize, model.len());
                prop_assert!(arena.dead <= SWEEP_FROM.max(arena.bytes.len() / 2), "{}", arena.dead);
            }
        }
    }
}
