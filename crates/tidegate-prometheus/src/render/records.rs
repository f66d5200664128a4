// SPDX-License-Identifier: Apache-2.0

//! The series of one family: the place of each value, and the text of its labels.

/// One series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    /// The place of its value in the source.
    pub(super) place: u64,
    /// Its labels.
    pub(super) text: u32,
    /// The number of its table and target.
    pub(super) origin: u32,
}

const _: () = assert!(size_of::<Record>() == 16);

/// Records of a piece: 16 KiB, of which the allocator's own pages hold a whole number. One long list would be rounded
/// up to its next size, and keep what it was before it grew or shrank.
const PIECE: usize = if cfg!(test) { 16 } else { 1024 };

/// Series in the order of their texts, which are distinct. All families use one order of texts, so that those with
/// equal texts find them in the caches.
///
/// The series are in pieces. All but the last are full, and none is empty.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Vec<Record>>);

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// All series, in blocks of `size`. The last block of each piece may be shorter.
    pub(super) fn blocks(&self, size: usize) -> impl Iterator<Item = &[Record]> {
        self.0.iter().flat_map(move |piece| piece.chunks(size))
    }

    /// All series.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Record> {
        self.0.iter().flatten()
    }

    fn last_text(&self) -> Option<u32> {
        Some(self.0.last()?.last()?.text)
    }

    /// The series of this text.
    pub(super) fn find(&mut self, text: u32) -> Option<&mut Record> {
        if self.last_text().is_none_or(|last| last < text) {
            return None;
        }
        let at = self.piece_of(text);
        let piece = self.0.get_mut(at)?;
        let at = piece.binary_search_by_key(&text, |record| record.text).ok()?;
        piece.get_mut(at)
    }

    /// The first piece that does not end before this text.
    fn piece_of(&self, text: u32) -> usize {
        let is_before = |piece: &Vec<Record>| piece.last().is_some_and(|last| last.text < text);
        self.0.partition_point(is_before)
    }

    /// Appends a series whose text is after all others; `false`: it is not.
    pub(super) fn push(&mut self, record: Record) -> bool {
        let is_last = self.last_text().is_none_or(|last| last < record.text);
        if is_last {
            self.append(record);
        }
        is_last
    }

    fn append(&mut self, record: Record) {
        if let Some(piece) = self.0.last_mut().filter(|piece| piece.len() < PIECE) {
            if piece.len() == piece.capacity() {
                piece.reserve_exact(piece.len().min(PIECE - piece.len()));
            }
            piece.push(record);
            return;
        }
        // Most families are short, and the others have many pieces.
        let mut piece = Vec::with_capacity(if self.is_empty() { 1 } else { PIECE });
        piece.push(record);
        self.0.push(piece);
    }

    /// Adds series whose texts are not there, in their order.
    pub(super) fn merge(&mut self, more: Vec<Record>) {
        let Some(first) = more.first() else { return };
        let behind = self.0.split_off(self.piece_of(first.text));
        let mut behind: Vec<Record> = behind.into_iter().flatten().chain(more).collect();
        // Two runs, each in order: they are merged.
        behind.sort_by_key(|record| record.text);
        behind.into_iter().for_each(|record| self.append(record));
        self.fit();
    }

    /// Removes what is not to be kept.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Record) -> bool) {
        self.0.iter_mut().for_each(|piece| piece.retain(&mut keep));
        let full = self.0.iter().take_while(|piece| piece.len() == PIECE).count();
        let behind = self.0.split_off(full).into_iter().flatten();
        behind.for_each(|record| self.append(record));
        self.fit();
    }

    /// Gives the texts other numbers, in the same order.
    pub(super) fn renumber(&mut self, to: impl Fn(u32) -> u32) {
        let all = self.0.iter_mut().flatten();
        all.for_each(|record| record.text = to(record.text));
    }

    /// Gives back the room that growing has taken in advance: it would be more than all that is saved elsewhere.
    pub(super) fn fit(&mut self) {
        if let Some(piece) = self.0.last_mut()
            && piece.capacity() > piece.len() + piece.len() / 8
        {
            // A copy, because a shrink to more than half keeps the allocation.
            *piece = piece.clone();
        }
        self.0.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Debug)]
    enum Step {
        Push(u32),
        Merge(Vec<u32>),
        Retain(u32),
        Renumber,
        Fit,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            20 => (1u32..5).prop_map(Step::Push),
            2 => prop::collection::vec(0u32..400, 1..60).prop_map(Step::Merge),
            1 => (2u32..5).prop_map(Step::Retain),
            1 => Just(Step::Renumber),
            2 => Just(Step::Fit),
        ]
    }

    fn record(text: u32) -> Record {
        Record {
            place: u64::from(text) * 3,
            text,
            origin: text % 7,
        }
    }

    proptest! {
        /// Against one list in order.
        #[test]
        fn pieces_hold_what_one_list_would(steps in prop::collection::vec(step(), 1..200)) {
            let (mut records, mut model) = (Records::default(), Vec::<Record>::new());
            for step in steps {
                match step {
                    Step::Push(ahead) => {
                        let last = model.last().map_or(0, |last| last.text);
                        prop_assert!(records.push(record(last + ahead)));
                        model.push(record(last + ahead));
                        prop_assert!(!records.push(record(last)));
                    }
                    Step::Merge(texts) => {
                        let is_new = |text: &u32| model.iter().all(|known| known.text != *text);
                        let mut more: Vec<_> = texts.into_iter().filter(is_new).map(record).collect();
                        more.sort_by_key(|record| record.text);
                        more.dedup();
                        model.extend(&more);
                        model.sort_by_key(|record| record.text);
                        records.merge(more);
                    }
                    Step::Retain(part) => {
                        let mut seen = Vec::new();
                        records.retain(|record| {
                            seen.push(*record);
                            record.text % part == 0
                        });
                        prop_assert_eq!(&seen, &model, "each is asked about once, in order");
                        model.retain(|record| record.text % part == 0);
                    }
                    Step::Renumber => {
                        // Renumbers with the smallest numbers.
                        let old: Vec<_> = model.iter().map(|record| record.text).collect();
                        let to = |text| old.binary_search(&text).unwrap() as u32;
                        records.renumber(to);
                        model.iter_mut().for_each(|record| record.text = to(record.text));
                    }
                    Step::Fit => records.fit(),
                }
                prop_assert_eq!(records.blocks(5).flatten().copied().collect::<Vec<_>>(), model.clone());
                prop_assert_eq!(records.is_empty(), model.is_empty());
                prop_assert!(records.iter().eq(&model));
                for text in 0..model.last().map_or(3, |last| last.text + 3) {
                    let known = model.iter().find(|record| record.text == text).copied();
                    prop_assert_eq!(records.find(text).copied(), known);
                }
                let (last, full) = records.0.split_last().map_or((None, &[][..]), |(last, full)| (Some(last), full));
                prop_assert!(full.iter().all(|piece| piece.len() == PIECE && piece.capacity() == PIECE));
                prop_assert!(last.is_none_or(|last| (1..=PIECE).contains(&last.len()) && last.capacity() <= PIECE));
            }
        }
    }
}
