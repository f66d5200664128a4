// SPDX-License-Identifier: Apache-2.0

//! An index from keys to slots, of about 10 bytes per entry: the slots have the keys.

use std::array;

use crate::key::Key;

/// Numbers of slots by key, in `PARTS` tables (a power of two). A table that is full moves all its entries, and a thread that
/// adds the next one waits for that: the tenths of a millisecond that one of 64 takes, not those of all.
#[derive(Debug)]
pub(crate) struct Index<const PARTS: usize>([IndexTable; PARTS]);

/// A table: entries by tag, with gaps in between.
///
/// The position of a tag is its share of the range of all tags. If others crowd that position, the tag follows them. So
/// a table can have any number of positions and grow by an eighth.
///
/// A table that indexes by the bits of a hash must double, and is half empty afterwards. This table grows in one pass
/// over memory. A look-up of a tag reads one or two cache lines.
#[derive(Debug, Default)]
struct IndexTable {
    /// `homes` positions, and a tail for entries that the last ones crowd out.
    entries: Box<[IndexEntry]>,
    homes: u32,
    len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct IndexEntry {
    tag: u32,
    at: u32,
}

/// A gap: no slot has this number.
const GAP: IndexEntry = IndexEntry { tag: 0, at: u32::MAX };

/// The least number of places.
const FEWEST: u32 = 8;

impl<const PARTS: usize> Default for Index<PARTS> {
    fn default() -> Self {
        Self(array::from_fn(|_| IndexTable::default()))
    }
}

impl<const PARTS: usize> Index<PARTS> {
    /// The slot of `key`: the one of those that may be it of which `is` says so.
    pub(crate) fn find(&self, key: Key, mut is: impl FnMut(u32) -> bool) -> Option<u32> {
        let tag = key.tag();
        let entry = self.0[part::<PARTS>(tag)].find(tag, |entry| is(entry.at))?;
        Some(entry.at)
    }

    /// Adds a key that is not in the index.
    pub(crate) fn insert(&mut self, key: Key, at: u32) {
        let entry = IndexEntry { tag: key.tag(), at };
        self.0[part::<PARTS>(entry.tag)].insert(entry);
    }

    /// Removes a key.
    pub(crate) fn remove(&mut self, key: Key, at: u32) {
        let entry = IndexEntry { tag: key.tag(), at };
        self.0[part::<PARTS>(entry.tag)].remove(entry);
    }
}

#[cfg(test)]
impl<const PARTS: usize> Index<PARTS> {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.iter().all(|part| part.len == 0)
    }
}

impl IndexTable {
    /// The position of a tag unless others crowd it out.
    fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * u64::from(self.homes)) >> 32) as usize
    }

    fn find(&self, tag: u32, is: impl FnMut(&&IndexEntry) -> bool) -> Option<&IndexEntry> {
        let from = self.entries.get(self.home(tag)..)?;
        from.iter()
            .take_while(|entry| **entry != GAP && entry.tag <= tag)
            .skip_while(|entry| entry.tag < tag)
            .find(is)
    }

    fn insert(&mut self, entry: IndexEntry) {
        // A search reads four entries on average when seven of eight places are taken, and many more beyond.
        if self.len + self.len / 7 >= self.homes {
            let homes = self.homes + FEWEST.max(self.homes / 8);
            self.resize(homes, tail(homes));
        }
        while !self.put(entry) {
            self.resize(self.homes, 2 * (self.entries.len() as u32 - self.homes));
        }
        self.len += 1;
    }

    /// `false`: the tail is full.
    fn put(&mut self, entry: IndexEntry) -> bool {
        let home = self.home(entry.tag);
        let stays = |other: &IndexEntry| *other != GAP && other.tag <= entry.tag;
        let before = self.entries[home..].iter().take_while(|other| stays(other));
        let at = home + before.count();
        let Some(moved) = self.entries[at..].iter().position(|other| *other == GAP) else {
            return false;
        };
        self.entries.copy_within(at..at + moved, at + 1);
        self.entries[at] = entry;
        true
    }

    fn remove(&mut self, entry: IndexEntry) {
        let home = self.home(entry.tag);
        let mut from = self.entries.iter().skip(home);
        let Some(at) = from.position(|other| *other == entry) else {
            return;
        };
        let at = home + at;
        // Entries that it crowded out move up.
        let is_crowded =
            |(place, other): &(usize, &IndexEntry)| **other != GAP && self.home(other.tag) < *place;
        let crowded = (at + 1..).zip(&self.entries[at + 1..]).take_while(is_crowded);
        let end = at + crowded.count();
        self.entries.copy_within(at + 1..=end, at);
        self.entries[end] = GAP;
        self.len -= 1;
        if self.len < self.homes.div_ceil(4) {
            let homes = self.len + self.len / 2;
            self.resize(homes, tail(homes));
        }
    }

    /// Moves all entries to `homes` positions and a tail of at least `tail`.
    fn resize(&mut self, homes: u32, tail: u32) {
        let mut other = Self {
            entries: vec![GAP; (homes + tail) as usize].into(),
            homes,
            len: self.len,
        };
        let mut next = 0;
        for entry in self.entries.iter().filter(|entry| **entry != GAP) {
            let at = other.home(entry.tag).max(next);
            let Some(place) = other.entries.get_mut(at) else {
                return self.resize(homes, 2 * tail);
            };
            *place = *entry;
            next = at + 1;
        }
        *self = other;
    }
}

/// The length of the tail after the homes. A full tail grows.
fn tail(homes: u32) -> u32 {
    FEWEST + homes / 128
}

/// The table of a tag, which is random: by bits of it that hardly say where in the table it stands.
fn part<const PARTS: usize>(tag: u32) -> usize {
    const { assert!(PARTS.is_power_of_two()) };
    tag as usize & (PARTS - 1)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl IndexTable {
        /// Every entry is found where a search looks for it, in order, and they are as many as it says.
        fn check(&self) {
            let mut last = None;
            for (at, entry) in self.entries.iter().enumerate() {
                if *entry == GAP {
                    last = None;
                    continue;
                }
                let home = self.home(entry.tag);
                let is_reached = home == at || last.is_some();
                assert!(home <= at && is_reached, "{entry:?} at {at} instead of {home}");
                assert!(last.is_none_or(|last| last <= entry.tag), "{entry:?} at {at}");
                last = Some(entry.tag);
            }
            let len = self.entries.iter().filter(|entry| **entry != GAP).count();
            assert_eq!(len, self.len as usize);
            assert!(len + len / 8 <= self.homes as usize + 1 && self.homes as usize <= 4 * len + 8);
        }
    }

    /// Tags that crowd: at both ends, some of them equal.
    fn tag() -> impl Strategy<Value = u32> {
        let crowd = |from: u32| (0u32..6).prop_map(move |tag| from + tag);
        prop_oneof![any::<u32>(), crowd(0), crowd(1 << 31), crowd(u32::MAX - 5)]
    }

    proptest! {
        /// After any changes, the table has the same entries as a list.
        #[test]
        fn a_table_has_what_a_list_has(steps in prop::collection::vec((tag(), 0u8..5), 1..200), thin in 0u8..5) {
            let mut part = IndexTable::default();
            let mut model: Vec<IndexEntry> = Vec::new();
            for (at, (tag, step)) in steps.into_iter().enumerate() {
                if step <= thin && !model.is_empty() {
                    let gone = model.swap_remove(tag as usize % model.len());
                    part.remove(gone);
                    part.remove(gone);
                } else {
                    let entry = IndexEntry { tag, at: at as u32 };
                    part.insert(entry);
                    model.push(entry);
                }
                part.check();
                for entry in &model {
                    prop_assert_eq!(part.find(entry.tag, |other| other.at == entry.at), Some(entry));
                }
                let of_tag = model.iter().filter(|entry| entry.tag == tag).count();
                let mut seen = 0;
                part.find(tag, |_| { seen += 1; false });
                prop_assert_eq!(seen, of_tag);
            }
            for entry in model {
                part.remove(entry);
            }
            prop_assert_eq!((part.len, part.homes), (0, 0), "room is given back");
        }
    }

    #[test]
    fn no_part_has_much_more_than_the_others_or_much_more_room_than_it_needs() {
        let mut index = Index::<64>::default();
        for number in 0..64_000 {
            index.insert(Key::of_value(&number), number);
        }
        let lengths = index.0.each_ref().map(|part| part.len);
        assert_eq!(lengths.iter().sum::<u32>(), 64_000);
        assert!(
            lengths.iter().all(|length| (750..1250).contains(length)),
            "{lengths:?}"
        );
        let bytes: usize = index.0.iter().map(|part| size_of_val(&*part.entries)).sum();
        assert!(bytes < 64_000 * 11, "{bytes} bytes");
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
