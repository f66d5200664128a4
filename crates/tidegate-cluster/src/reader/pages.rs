// SPDX-License-Identifier: Apache-2.0

//! The pages of runs that the store is known to have. After a loss, a reader may know newer ones.

use std::collections::BTreeMap;

use crate::CallId;

/// A page: the partition and the number.
pub(super) type PagePosition = (u16, u32);

/// The newest message of a page that was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadPage {
    /// Its number among the messages of the producer.
    pub(super) version: u64,
    /// Its sequence in the store.
    pub(super) sequence: u64,
    /// The last read that gave it; 0: the store has lost it since then.
    pub(super) read: CallId,
}

/// The pages of a run.
#[derive(Debug, Default)]
pub(super) struct ReadPages(BTreeMap<PagePosition, ReadPage>);

impl ReadPages {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes a message that a read gave. An older one says nothing: the read may give a newer one later. Without room, new
    /// pages are not noted.
    pub(super) fn note(&mut self, position: PagePosition, page: ReadPage, has_room: bool) {
        match self.0.get_mut(&position) {
            Some(known) if page.version >= known.version => *known = page,
            None if has_room => {
                self.0.insert(position, page);
            }
            Some(_) | None => {}
        }
    }

    /// Notes that the store has lost all messages from this sequence on.
    pub(super) fn note_loss(&mut self, from: u64) {
        let lost = self.0.values_mut().filter(|page| page.sequence >= from);
        lost.for_each(|page| page.read = CallId::default());
    }

    /// Whether this read has not given one of them, or only an older message of it.
    pub(super) fn has_more_than(&self, read: CallId) -> bool {
        self.0.values().any(|page| page.read != read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(version: u64, sequence: u64, read: u64) -> ReadPage {
        let read = CallId(read);
        ReadPage {
            version,
            sequence,
            read,
        }
    }

    #[test]
    fn a_read_that_gives_an_older_message_lacks_the_newer_one() {
        let mut pages = ReadPages::default();
        pages.note((0, 1), page(7, 10, 1), true);
        assert!(!pages.has_more_than(CallId(1)));
        pages.note((0, 1), page(6, 9, 2), true);
        assert!(pages.has_more_than(CallId(2)));
        pages.note((0, 1), page(8, 11, 2), true);
        assert!(!pages.has_more_than(CallId(2)));
    }

    #[test]
    fn a_loss_takes_the_messages_from_its_sequence_on() {
        let mut pages = ReadPages::default();
        pages.note((0, 1), page(7, 10, 1), true);
        pages.note_loss(11);
        assert!(!pages.has_more_than(CallId(1)));
        pages.note_loss(10);
        assert!(pages.has_more_than(CallId(1)));
    }

    #[test]
    fn a_page_without_room_is_not_noted() {
        let mut pages = ReadPages::default();
        pages.note((0, 1), page(7, 10, 1), false);
        assert_eq!((pages.len(), pages.has_more_than(CallId(2))), (0, false));
    }
}
