// SPDX-License-Identifier: Apache-2.0

//! A publication: it sets entries one by one, then frees the others and updates the heartbeat.

use crate::entry::Entry;
use crate::error::SetError;
use crate::writer::Page;

/// The result of a publication.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub struct Published {
    /// Slots that were written.
    pub written: usize,
    /// Entries that were there as given already.
    pub unchanged: usize,
    /// Slots freed, because their entries were not given.
    pub removed: usize,
    /// Entries that found no free slot.
    pub refused_full: usize,
    /// Entries whose name and labels do not fit.
    pub refused_too_long: usize,
    /// Entries given a second time; the first one stays.
    pub refused_duplicate: usize,
    /// Entries that are wrong in themselves: no name, a NUL, too many quantiles.
    pub refused_invalid: usize,
}

/// One publication, entry by entry. Without [`finish`](Self::finish) nothing is freed and the heart
/// does not beat.
#[derive(Debug)]
#[must_use = "finish it"]
pub struct Round<'p> {
    page: &'p mut Page,
    seen: usize,
    done: Published,
}

impl<'p> Round<'p> {
    pub(super) fn new(page: &'p mut Page) -> Self {
        Round {
            page,
            seen: 0,
            done: Published::default(),
        }
    }

    /// Sets one entry; counted in what [`finish`](Self::finish) returns, refusals too. True if its slot
    /// was written.
    ///
    /// A page that is full of entries that this round will free refuses new ones until the next round;
    /// [`Page::publish`] does not.
    ///
    /// # Errors
    /// [`SetError`].
    pub fn set(&mut self, entry: &Entry<'_>) -> Result<bool, SetError> {
        let outcome = self.try_set(entry);
        let done = &mut self.done;
        let count = match outcome {
            Ok(true) => &mut done.written,
            Ok(false) => &mut done.unchanged,
            Err(SetError::Full { .. }) => &mut done.refused_full,
            Err(SetError::TooLong { .. }) => &mut done.refused_too_long,
            Err(SetError::Duplicate) => &mut done.refused_duplicate,
            Err(SetError::BadText | SetError::TooManyQuantiles { .. }) => &mut done.refused_invalid,
        };
        *count += 1;
        outcome
    }

    fn try_set(&mut self, entry: &Entry<'_>) -> Result<bool, SetError> {
        let page = &mut *self.page;
        let lens = entry.check()?;
        let (slot, written) = match page.slot_of(entry.name, entry.labels) {
            Some(slot) if page.set_in.get(slot as usize) == Some(&page.round) => {
                return Err(SetError::Duplicate);
            }
            Some(slot) => (slot, page.update(slot, entry, lens)),
            None => (page.give(entry)?, true),
        };
        if let Some(set_in) = page.set_in.get_mut(slot as usize) {
            *set_in = page.round;
        }
        self.seen += 1;
        Ok(written)
    }

    /// Frees the slots of entries that were not set since the round began, and beats the heart.
    pub fn finish(mut self, now_ns: u64) -> Published {
        self.done.removed = self.page.sweep(self.seen);
        self.page.beat(now_ns);
        self.done
    }
}
