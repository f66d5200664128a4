//! The series of one family: where each is read, and the text of its labels.

/// One series.
#[derive(Clone, Copy, Debug)]
pub(super) struct Record {
    /// Where its value is read, in the source of its origin.
    pub(super) place: u64,
    /// Its labels.
    pub(super) text: u32,
    /// Which table and which target it is of.
    pub(super) origin: u32,
}

const _: () = assert!(size_of::<Record>() == 16);

/// Series in the order of their texts, none of which comes twice. All families go through the texts in one order, so
/// that those which share them find them in the caches.
#[derive(Debug, Default)]
pub(super) struct Records(Vec<Record>);

impl Records {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn all(&self) -> &[Record] {
        &self.0
    }

    /// The series of this text.
    pub(super) fn find(&mut self, text: u32) -> Option<&mut Record> {
        if self.0.last().is_none_or(|last| last.text < text) {
            return None;
        }
        let at = self.0.binary_search_by_key(&text, |record| record.text);
        at.ok().and_then(|at| self.0.get_mut(at))
    }

    /// Adds a series whose text is behind all others; `false`: it is not.
    pub(super) fn push(&mut self, record: Record) -> bool {
        let is_last = self.0.last().is_none_or(|last| last.text < record.text);
        if is_last {
            self.0.push(record);
        }
        is_last
    }

    /// Adds series whose texts are not there.
    pub(super) fn merge(&mut self, more: impl IntoIterator<Item = Record>) {
        self.0.extend(more);
        // Two runs, each in order: they are merged.
        self.0.sort_by_key(|record| record.text);
    }

    /// Removes what is not to be kept.
    pub(super) fn retain(&mut self, keep: impl FnMut(&Record) -> bool) {
        self.0.retain(keep);
        self.fit();
    }

    /// Gives the texts other numbers, in the same order.
    pub(super) fn renumber(&mut self, to: impl Fn(u32) -> u32) {
        self.0.iter_mut().for_each(|record| record.text = to(record.text));
    }

    /// Gives back the room that growing has taken in advance: it would be more than all that is saved elsewhere.
    pub(super) fn fit(&mut self) {
        let used = self.0.len();
        if self.0.capacity() > used + used / 16 {
            self.0.shrink_to(used + used / 64);
        }
    }
}
