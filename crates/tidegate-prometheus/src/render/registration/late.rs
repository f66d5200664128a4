// SPDX-License-Identifier: Apache-2.0

//! Series that wait for the end of a pass: one merge costs less than many insertions.

use super::{Before, Record, SeriesPosition, SeriesRegistration};
use crate::render::source::New;

/// A series that waits for the end of the pass.
pub(super) struct Late {
    pub(super) record: Record,
    pub(super) new: New,
    pub(super) before: Option<Before>,
}

impl SeriesRegistration<'_> {
    pub(super) fn merge(&mut self, family: u32, mut late: Vec<Late>) {
        late.sort_by_key(|late| late.record.text);
        let mut merged: Vec<Record> = Vec::with_capacity(late.len());
        let mut late = late.into_iter().peekable();
        while let Some(first) = late.next() {
            let text = first.record.text;
            let mut same = vec![first];
            while let Some(next) = late.next_if(|next| next.record.text == text) {
                same.push(next);
            }
            merged.extend(self.first_of(family, text, same));
        }
        if let Some(family) = self.families.get_mut(family) {
            family.series.merge(merged);
        }
    }

    /// The one of several new series of one text that has the place. The others are omitted.
    fn first_of(&mut self, family: u32, text: u32, same: Vec<Late>) -> Option<Record> {
        let member = |late: &Late| (late.new.source, late.new.place);
        let mut owner = same.first().map(member)?;
        let place = self.key_of(family, text);
        let others = same.iter().map(member).filter(|other| *other != owner);
        let others: Vec<SeriesPosition> = others.collect();
        if !others.is_empty() {
            for other in others {
                self.contests.add_contender(place, owner, other);
            }
            owner = self.resolve(place).map_or(owner, |outcome| outcome.owner);
        }
        let mut found = None;
        for late in same {
            if found.is_none() && member(&late) == owner {
                found = Some(late.record);
                continue;
            }
            self.targets.release(late.record.origin);
            self.interner.release(late.record.text);
            if member(&late) != owner {
                self.lose(late.new, (owner, place), late.before);
            }
        }
        found
    }
}
